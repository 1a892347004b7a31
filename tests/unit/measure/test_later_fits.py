"""Fits that come after the one that is going on: which there are, and of how many rounds."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.probe.loops.later_fits import later_fits

SCRIPT = """
R = 30
K = 5
K = 6
def again(n):
    model = xgb.XGBClassifier(n_estimators=n)
    model.fit(1, 2)
look()
{}
"""


def booster_library() -> Any:
    library = types.SimpleNamespace()

    def train(params: object, data: object, num_boost_round: int = 10, callbacks: object = None) -> None: ...

    class XGBClassifier:
        def fit(self, x: object, y: object) -> None: ...

    train.__module__ = XGBClassifier.__module__ = "xgboost.core"
    library.train, library.XGBClassifier = train, XGBClassifier
    return library


@pytest.mark.parametrize(
    ("line", "trips"),
    [
        ("xgb.train({}, 1, num_boost_round=7)", 7),
        ("xgb.train({}, 1, R)", 30),
        ("booster = xgb.train({}, 1)", 10),
        ("again(17)", 17),
        ("for seed in range(4): xgb.train({}, 1, 5)", 20),
        ("if R > 3: xgb.train({}, 1, 5)", 5),
        ("xgb.train({}, 1, 5, callbacks=[print_every(2)])", 5),
        ("xgb.train({}, 1, 5, callbacks=[rate(lambda n: n)])", 5),
        ("[xgb.train({}, 1, 5) for _ in range(3)]", 15),
        ("xgb.train({}, 1, 5) if R > 3 else None", 5),
        ("for n in (5, 8): xgb.train({}, 1, n)", 13),
        # not to be told
        ("[xgb.train({}, 1, 5) for n in range(3) if n]", None),
        ("if unheard_of: xgb.train({}, 1, 5)", None),
        ("xgb.train({}, 1, K)", None),
        ("xgb.train({}, 1, 5, callbacks=[early_stop])", None),
        ("xgb.train({}, 1, 5, early_stopping_rounds=3)", None),
        ("while R: xgb.train({}, 1, 5)", None),
        ("somebody.fit(1, 2)", None),
    ],
)
def test_rounds_that_are_written_out_are_told(line: str, trips: float | None, tmp_path: Path) -> None:
    found: list[Any] = []
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(line))

    def look() -> None:
        read: Any = later_fits
        found.extend(read(sys._getframe(1)))
        raise StopIteration  # what follows is only read

    with pytest.raises(StopIteration):
        exec(compile(script.read_text(), str(script), "exec"), {"xgb": booster_library(), "look": look})
    assert [one["trips"] for one in found] == [trips]
