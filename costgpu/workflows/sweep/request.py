"""What to sweep, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.errors import UsageError
from costgpu.sweep.arguments import check_template
from costgpu.sweep.asha import parse_asha
from costgpu.sweep.bundle import Sweep
from costgpu.sweep.metric import Mode, parse_metric
from costgpu.sweep.space import parse_space
from costgpu.workflows.options import Switch, Text, Texts, WholeNumber, WholeOrNone, Word
from costgpu.workflows.runs.request import DEFAULT_GRACE, OF_MEASURING, RunRequest, check

OF_ONE_JOB = (  # options that a sweep does not have
    *OF_MEASURING,
    *("cpus", "memory", "idle_duration", "auto_shutdown", "lease", "nproc", "launcher", "outputs_from", "engine"),
    *("recover", "checkpoint", "resume_args", "fallback", "queue", "retry_until_up", "deadline", "on_oom"),
)


@dataclass(kw_only=True)
class SweepRequest(RunRequest):
    """The options of `costgpu sweep`, as texts; `outputs` are those of each trial."""

    grid: Texts = Texts("Parameter and all of its values. Repeatable.", metavar="NAME=A,B,C")
    param: Texts = Texts("Parameter to draw: a range, LO..HI:log, or A|B|C. Repeatable.", metavar="NAME=LO..HI")
    random: WholeOrNone = WholeOrNone("Random draws of --param, for each point of the grid.")
    seed: WholeNumber = WholeNumber("Seed of the draws.", default=0)
    args: Text = Text("How settings are passed on; default: --NAME VALUE.", metavar="TEMPLATE")
    metric: Text = Text("Number to compare by: a pattern of a line, with one group.", metavar="REGEX")
    mode: Word = Word("Better values: min or max.", default=Mode.MIN.value)
    asha: Switch = Switch("End the worse trials early (ASHA).", "--asha", default=False)
    asha_grace: WholeOrNone = WholeOrNone("Reports before a trial can be ended; default: 1.", low=1)
    asha_factor: WholeOrNone = WholeOrNone("Of so many trials one goes on; default: 4.", low=2)
    asha_max: WholeOrNone = WholeOrNone("Reports of a full trial, which ends there.", low=1)
    concurrent: WholeOrNone = WholeOrNone("Trials at the same time; default: one for each GPU, or machine without.")
    nodes: WholeOrNone = WholeOrNone("Number of machines.")
    max_cost: Text = Text("Highest cost of it all in USD; default: 3 times the estimate.")
    max_duration: Text = Text("Longest time of all trials together, e.g. 2h.")
    outputs: Texts = Texts("Files of each trial to keep; default: all that is new or changed. Repeatable.")
    setup: Text = Text("Command before the trials; default when rented: installs what the project names.")
    env: Texts = Texts("Variable of the trials: KEY=VALUE, or KEY from here.", "-e", "--env")
    name: Text = Text("Name of the sweep; default: the script's.", "-n", "--name")
    tags: Texts = Texts("Tag for the machines, as key=value. Repeatable.", "--tag")
    estimate: Switch = Switch("Measure the first setting here first, or not.", default=True)
    grace: Word = Word("Time between asking the trials to end and killing them.", default=DEFAULT_GRACE)


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
        template=check_template(request.args, list(space.example)),
        asha=asha,
        outputs=request.outputs,
    )
