"""A sweep of four trials, as far as it has come, to show."""

import json

from costgpu.sweep.asha import Asha
from costgpu.sweep.bundle import Sweep
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results
from costgpu.sweep.space import parse_space

METRIC = Metric(pattern="val_loss=([0-9.]+)", mode=Mode.MIN)
SWEEP = Sweep(space=parse_space(["lr=1e-4,3e-4", "seed=1,2"], [], None, 0), metric=METRIC, asha=Asha(), concurrent=2)


def results(text: str = "3e-4") -> Results:
    """One finished, one stopped, one failed, one running.

    Args:
        text: A value of a parameter.
    """
    settings = [{"lr": lr, "seed": seed} for lr in ("1e-4", text) for seed in ("1", "2")]
    found = Results(4, Mode.MIN)
    for event in (
        {"event": "begin", "at": 0.0},
        *({"event": "start", "trial": number, "settings": one} for number, one in enumerate(settings, start=1)),
        *({"event": "report", "trial": 1, "report": n, "value": str(1 / n), "seconds": n} for n in range(1, 9)),
        *({"event": "report", "trial": 2, "report": n, "value": str(2 / n), "seconds": n} for n in range(1, 5)),
        {"event": "report", "trial": 4, "report": 1, "value": "nan", "seconds": 1},
        {"event": "end", "trial": 1, "status": "succeeded", "exit_code": 0, "seconds": 9, "reports": 8},
        {"event": "end", "trial": 2, "status": "stopped", "exit_code": 143, "seconds": 4, "reports": 4},
        {
            "event": "end",
            "trial": 3,
            "status": "failed",
            "exit_code": 1,
            "seconds": 2,
            "reports": 0,
            "tail": f"E: {text}",
        },
    ):
        found.feed(json.dumps(event))
    return found
