"""What to sweep, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.errors import UsageError
from costgpu.sweep.arguments import check_template
from costgpu.sweep.asha import parse_asha
from costgpu.sweep.bundle import Sweep
from costgpu.sweep.metric import Mode, parse_metric
from costgpu.sweep.space import parse_space
from costgpu.workflows.runs.request import RunRequest, check

DEFAULT_SEED = 0


@dataclass(frozen=True, kw_only=True)
class SweepRequest(RunRequest):
    """The options of `costgpu sweep`, as texts; `outputs` are those of each trial."""

    grid: tuple[str, ...] = ()  # ``lr=1e-4,3e-4``
    param: tuple[str, ...] = ()  # ``dropout=0.0..0.5``
    random: int | None = None
    seed: int = DEFAULT_SEED
    args: str | None = None
    metric: str | None = None
    mode: str = Mode.MIN.value
    asha: bool = False
    asha_grace: int | None = None
    asha_factor: int | None = None
    asha_max: int | None = None
    concurrent: int | None = None


def sweep_of_request(request: SweepRequest) -> Sweep:
    """Return the sweep as asked for, without what depends on the machine.

    Raises:
        UsageError: An option is wrong, or two do not go together.
    """
    if request.module is None and not request.command:
        raise UsageError("Which script?", hint="costgpu sweep --grid lr=1e-4,3e-4 --metric 'loss=([0-9.]+)' train.py")
    space = parse_space(request.grid, request.param, request.random, request.seed)
    metric = parse_metric(request.metric, request.mode)
    asha = parse_asha(wanted=request.asha, grace=request.asha_grace, factor=request.asha_factor, most=request.asha_max)
    launch = request.launch
    if launch is not None and (launch.launcher != "python" or launch.runner):
        raise UsageError(
            f"A trial is one process of a script, and the command is {launch.launcher}.",
            hint="costgpu sweep train.py; --nodes spreads the trials over machines.",
        )
    if request.program:
        raise UsageError(
            f"A trial is a Python script, and {request.program[0]} is another program.",
            hint="Name the script that it starts: costgpu sweep train.py",
        )
    check(request)
    return Sweep(
        space=space,
        metric=metric,
        template=check_template(request.args, space.names),
        asha=asha,
        outputs=request.outputs,
    )
