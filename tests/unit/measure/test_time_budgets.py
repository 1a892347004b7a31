"""Searches that end by the clock: whose arguments are read, and what becomes of a total."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops import time_budgets
from costgpu.measure.profile.series_totals import within_budget
from costgpu.models.workload import Total, TotalKind

read: Any = time_budgets.time_budget
SITE = "/lib/site-packages/"


def called(path: str, name: str, trips: list[Any], **local: Any) -> Any:
    """What is read inside of a function of this name in a library's file, with these variables."""

    def look() -> Any:
        return read(threading.get_ident(), lambda frame: [{"trips": one} for one in trips])

    space: dict[str, Any] = {"look": look, "local": local}
    names = "".join(f"    {key} = local[{key!r}]\n" for key in local)
    exec(compile(f"def {name}():\n{names}    return look()\n", SITE + path, "exec"), space)
    return space[name]()


CALLS = [
    ("optuna/study/study.py", "optimize", {"timeout": 3600}, 3600.0),
    ("hyperopt/fmin.py", "fmin", {"timeout": 60, "max_evals": 10}, 60.0),
    ("flaml/automl/automl.py", "fit", {"time_budget": 1.5}, 1.5),
    ("flaml/automl/automl.py", "fit", {"time_budget": -1}, None),
    ("ray/tune/tune.py", "run", {"time_budget_s": 7200}, 7200.0),
    ("tpot/base.py", "fit", {"self": SimpleNamespace(max_time_mins=10)}, 600.0),
    ("tpot/base.py", "fit", {"self": SimpleNamespace(max_time_mins=None)}, None),
    ("autosklearn/estimators.py", "fit", {"self": SimpleNamespace(time_left_for_this_task=120)}, 120.0),
    ("skopt/optimizer/base.py", "base_minimize", {"callbacks": [print, SimpleNamespace(total_time=30)]}, 30.0),
    ("optuna/study/study.py", "optimize", {"timeout": None, "n_trials": 100}, None),
    ("optuna/study/study.py", "optimize", {"timeout": float("inf")}, None),
    ("optuna/study/study.py", "optimize", {"timeout": "3600"}, None),
    ("optuna/study/study.py", "ask", {"timeout": 3600}, None),
    ("requests/api.py", "get", {"timeout": 10}, None),
]


@pytest.mark.parametrize(("path", "name", "local", "seconds"), CALLS)
def test_the_seconds_that_a_call_was_given(path: str, name: str, local: dict[str, Any], seconds: float | None) -> None:
    found = called(path, name, [], **local)
    assert (found and found["seconds"]) == seconds


def test_a_call_in_a_loop_has_its_time_again_and_again() -> None:
    found = called("optuna/study/study.py", "optimize", [3, 2], timeout=60)
    assert (found["seconds"], found["times"]) == (360.0, 6)
    assert "optuna's timeout=60" in found["words"]
    for unknown in (None, "inf"):
        assert called("optuna/study/study.py", "optimize", [3, unknown], timeout=60) is None


def budget(seconds: float, times: float = 1.0) -> Any:
    return {"seconds": seconds, "times": times, "words": "optuna's timeout"}


@pytest.mark.parametrize("kind", [TotalKind.UNKNOWN, TotalKind.UNBOUNDED])
def test_a_search_without_another_end_ends_by_the_clock(kind: TotalKind) -> None:
    total = within_budget(Total(kind=kind, steps=None, steps_per_epoch=20.0, how="a loop"), budget(7200.0, 2.0))
    assert (total.kind, total.steps, total.steps_per_epoch, total.seconds) == (TotalKind.TIMED, None, 20.0, 7200.0)
    assert total.how == "it runs for 2 × 60 min by optuna's timeout"


def test_a_search_of_so_many_trials_may_end_before() -> None:
    exact = Total(kind=TotalKind.EXACT, steps=100.0, steps_per_epoch=None, how="100 trials")
    total = within_budget(exact, budget(600.0))
    assert (total.kind, total.steps, total.seconds) == (TotalKind.UPPER_BOUND, 100.0, 600.0)
    assert total.how == "100 trials; it ends after 10 min by optuna's timeout at the latest"
    assert within_budget(total, budget(900.0)).seconds == 600.0, "its own clock is before"
    assert within_budget(exact, None) is exact
