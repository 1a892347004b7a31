"""The files that travel with a sweep: the tuner as one program, and what it is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costgpu.sweep.asha import Asha
from costgpu.sweep.metric import Metric
from costgpu.sweep.space import Space

SENT_FOLDER = ".costgpu"  # on the machine, beside the user's files
PROGRAM, SPEC = f"{SENT_FOLDER}/tuner.pyz", f"{SENT_FOLDER}/sweep.json"
RESULTS = "costgpu-runs"  # in the user's folder; never sent
TRIAL_GRACE_SHARE = 1 / 3  # of a job's grace: the rest is for the outputs of its trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep as asked for: what to try, how to compare, how many at once."""

    space: Space
    metric: Metric
    template: tuple[str, ...] | None = None  # words of ``--args``; None for ``--name value``
    asha: Asha | None = None
    concurrent: int = 1  # trials at the same time, on all machines together
    gpus_per_trial: float = 0.0  # below 1 where several trials share a GPU
    outputs: tuple[str, ...] = ()  # patterns of what to keep of each trial; empty for all that is new


def tuner_spec(sweep: Sweep, name: str, argv: Sequence[str], *, python: str, grace_seconds: float) -> dict[str, Any]:
    """Return what the tuner reads.

    Args:
        name: Of the sweep, and of the folder that its results come home to.
        argv: The script and the arguments that all trials have.
        python: Interpreter of the script; empty for the one that the tuner runs under.
        grace_seconds: Time between asking the whole job to end and killing it.
    """
    asha = sweep.asha
    return {
        "folder": f"{RESULTS}/{name}",
        "python": python,
        "argv": list(argv),
        "space": sweep.space.domains,
        "draws": sweep.space.draws,
        "seed": sweep.space.seed,
        "template": sweep.template,
        "trials": sweep.space.trials,
        "metric": sweep.metric.pattern,
        "mode": sweep.metric.mode.value,
        "asha": None if asha is None else {"grace": asha.grace, "factor": asha.factor, "most": asha.most},
        "concurrent": sweep.concurrent,
        "gpus": sweep.gpus_per_trial,
        "grace": grace_seconds * TRIAL_GRACE_SHARE,
        "outputs": list(sweep.outputs),
    }


def tuner_argv(name: str) -> tuple[str, ...]:
    """Return the command of the run: its last word tells which sweep it is."""
    return (PROGRAM, SPEC, name)


def sweep_of(argv: Sequence[str]) -> str | None:
    """Return the name of the sweep that a run with this command carries out; None for any other run."""
    return argv[2] if len(argv) == 3 and tuple(argv[:2]) == (PROGRAM, SPEC) else None
