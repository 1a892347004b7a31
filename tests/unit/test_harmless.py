"""A hook of the probe that fails on something unheard of must not end the script that it watches."""

from __future__ import annotations

from typing import Any

from costgpu.measure.probe import beats, tree_hooks

probe: Any = beats
trees: Any = tree_hooks


def test_what_fails_is_nothing() -> None:
    def fails(_: object) -> None:
        raise AttributeError("estimators_")

    assert probe.harmless(fails)(1) is None
    assert probe.harmless(lambda a, b=2: a + b)(1, b=4) == 5


def test_a_booster_of_another_kind_is_updated_all_the_same() -> None:
    class Booster:
        __slots__ = ("rounds",)  # takes no attribute of ours

        def __init__(self) -> None:
            self.rounds = 0

        def update(self, data: object) -> bool:
            self.rounds += 1
            return False

    class Module:
        pass

    module: Any = Module()
    module.Booster = Booster

    class Recorder:
        status = "running"

    trees.attach_xgboost(probe.Beats(Recorder()))(module)
    booster = Booster()
    assert booster.update(None) is False
    assert booster.rounds == 1
