"""Units of inference, from the probe's records: how many, of how many items, and what is left out."""

from typing import Any

import pytest

from costgpu.measure.profile.profile_builder import trained_by_torch
from costgpu.measure.profile.total_steps import total_steps
from costgpu.measure.profile.units import counted_by_loops, unit_of
from costgpu.models.workload import ExtraKind, Phase, Rhythm, TotalKind
from tests.unit.measure.records import build, loop, phase, record, result, shot

TOLD = {"trainer": "pipeline", "total": 25.0, "per_epoch": None, "may_stop": [], "how": "25 batches"}
TOKENS = {
    "sequences": [4, 4, 4],
    "prompt_tokens": [10, 12, 30],
    "decodes": [9, 7, 2],
    "most_new_tokens": 20,
    "traced_decodes": 1,
    "cache_bytes_per_token": 96,
    "layers": 3,
    "same_loop": False,
}


SCORING = {
    "trains": False,
    "sizes": [8, 8, 8, 3],
    "item": "image",
    "over_modules": False,
    "weights_dtype": "float16",
    "activation_bytes": 5000,
    "generation": None,
}


def raw(*loops: Any, **other: Any) -> Any:
    return phase(shot(1, *loops), shot(4, *loops), seconds=[0.5] * 8, **SCORING | other)


LOADER = {"workers": 0, "batch_size": 16, "pin_memory": False, "length": 9, "fetch_seconds": None, "fetches": 0}
ALWAYS_CHANGING = [17, 23, 5, 91, 40]
UNITS: list[tuple[Any, tuple[str, float | None, bool]]] = [  # name, items, and whether these can be grouped otherwise
    (raw(loop(3, 100, source="loader")), ("batch", 8, True)),
    (raw(loop(3, 50)), ("batch", 8, False)),
    (raw(loop(3, 50, source="range(0, 50, 5)", stride=5)), ("batch", 8, True)),
    (raw(loop(3, 50, source="files"), sizes=[1, 1, 1]), ("image", 1, True)),
    (raw(loop(3, 100), sizes=ALWAYS_CHANGING), ("call", None, False)),
    (raw(loop(3, 100), sizes=ALWAYS_CHANGING) | {"loader": LOADER | {"fetch_waits": 0.0}}, ("batch", 16, True)),
]


@pytest.mark.parametrize(("record", "expected"), UNITS)
def test_a_unit(record: Any, expected: tuple[str, float | None, bool]) -> None:
    found = unit_of(record)
    assert (found.name, found.items, found.independent) == expected
    assert (found.item, found.weights_dtype) == ("image", "float16")


PARTS = (loop(3, 40), loop(4, 12, source="blocks"))
TOTALS: list[tuple[Any, float, str]] = [
    (raw(loop(3, 100, source="loader")), 100, "100 (train.py:3)"),
    # what drives the units counts, and neither the loops of its library nor one over its results
    (raw(loop(3, 4), loop(9, 7, library=True), told=TOLD), 100, "4 (train.py:3) × 25 (pipeline)"),
    (raw(loop(5, None, source="pipe(texts)"), told=TOLD), 25, "25 (pipeline)"),
    # a loop over the parts of one unit does not count
    (raw(*PARTS, over_modules=True), 40, "40 (train.py:3)"),
    (raw(*PARTS, generation={**TOKENS, "same_loop": True}), 40, "40 (train.py:3)"),
]


@pytest.mark.parametrize(("record", "steps", "how"), TOTALS)
def test_the_loops_that_count(record: Any, steps: float, how: str) -> None:
    total = total_steps(counted_by_loops(record), ended=False)
    assert (total.kind, total.steps, total.how) == (TotalKind.EXACT, steps, how)


def test_what_a_loop_around_one_unit_holds_comes_with_its_iterations() -> None:
    work = record("work", kind="checkpoint", every=10, opens=[10.0], loop_line=3, source="save(features)")
    seen = raw(loop(3, 40), loop(4, 12, source="blocks"), over_modules=True) | {
        "upcoming": {"later": [], "periodic": [work], "applied": []}
    }
    (found,) = build(result(seen)).phases[0].extras
    assert (found.kind, found.rhythm, found.every) == (ExtraKind.CHECKPOINT, Rhythm.STEPS, 10)


@pytest.mark.parametrize(
    ("changed", "decodes"),
    [
        ({}, 8),  # without the unit that was cut off
        ({"decodes": [5], "prompt_tokens": [12]}, 19),  # of one that was begun, as many as it may make
    ],
)
def test_generation(changed: dict[str, Any], decodes: float) -> None:
    made = unit_of(raw(loop(3, 100), generation=TOKENS | changed)).generation
    assert made is not None
    assert (made.decodes, made.new_tokens, made.most_new_tokens) == (decodes, decodes + 1, 20)
    assert made.prompt_tokens == 12


def test_a_profile_with_its_warm_up_and_what_follows_the_last_unit() -> None:
    record = raw(loop(3, 100), warm_seconds=2.5, tail_seconds=3.0)
    profile = build(result(record, setup_seconds=4.0, before={"validation": 0.0, "save": 0.0}))
    found: Phase = profile.phases[0]
    assert profile.setup_seconds == pytest.approx(4.0 + 2.0)
    assert (found.unit.name, found.optimizers, found.unit.trains) == ("batch", [], False)
    assert [extra.seconds_each for extra in found.extras if extra.kind is ExtraKind.OTHER] == [3.0]
    assert not any("backward" in note for note in profile.notes)


def test_training_lends_nothing_to_inference() -> None:
    training, scoring = phase(shot(1, loop(2, 50)), seconds=[0.5] * 20), raw(loop(3, 100))
    scoring["ops"], scoring["trace_steps"] = [], 0
    phases = build(result(training, scoring)).phases
    assert [one.unit.trains for one in phases] == [True, False]
    assert phases[1].ops == []


def test_one_unit_is_enough_only_with_its_trace() -> None:
    once = raw(loop(3, 100)) | {"steps": 1, "seconds": [2.0], "trace_steps": 0}
    assert not trained_by_torch(result(once))
    assert trained_by_torch(result({**once, "trace_steps": 1}))
