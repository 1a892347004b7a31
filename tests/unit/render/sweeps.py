"""A sweep of four trials, as far as it has come, to show."""

import json

from costgpu.models.prediction import Range
from costgpu.sweep.asha import Asha
from costgpu.sweep.bundle import Sweep
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results
from costgpu.sweep.schedule import SweepTime
from costgpu.sweep.space import parse_space

METRIC = Metric(pattern="val_loss=([0-9.]+)", mode=Mode.MIN)
SWEEP = Sweep(space=parse_space(["lr=1e-4,3e-4", "seed=1,2"], [], None, 0), metric=METRIC, asha=Asha(), concurrent=2)
TIME = SweepTime(
    trial_seconds=Range(value=60.0, low=50.0, high=70.0),
    rounds=2,
    seconds=Range(value=150.0, low=120.0, high=200.0),
    sharing=True,
    least_share=0.25,
)


def results(text: str = "3e-4") -> Results:
    """One finished, one stopped, one failed, one running.

    Args:
        text: A value of a parameter.
    """
    settings = [{"lr": lr, "seed": seed} for lr in ("1e-4", text) for seed in ("1", "2")]
    found = Results(4, Mode.MIN)
    found.feed(json.dumps({"event": "begin", "at": 0.0}))

    def tell(kind: str, number: int, **known: object) -> None:
        trial = {"number": number, "setting": settings[number - 1], "status": "running", **known}
        found.feed(json.dumps({"event": kind, "trial": trial}))

    for number in (1, 2, 3, 4):
        tell("start", number)
    for number, reports in ((1, 8), (2, 4)):
        for n in range(1, reports + 1):
            tell("report", number, reports=n, last=number / n, best=number / n, best_report=n, seconds=float(n))
    tell("report", 4, reports=1, seconds=1.0)
    first = {"reports": 8, "last": 1 / 8, "best": 1 / 8, "best_report": 8}
    second = {"reports": 4, "last": 2 / 4, "best": 2 / 4, "best_report": 4}
    tell("end", 1, status="succeeded", exit_code=0, seconds=9.0, **first)
    tell("end", 2, status="stopped", exit_code=143, seconds=4.0, **second)
    tell("end", 3, status="failed", exit_code=1, seconds=2.0, tail=f"E: {text}")
    return found
