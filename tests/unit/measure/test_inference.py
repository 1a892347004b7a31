"""Units of inference, from the probe's records: how many, of how many items, and what is left out."""

from typing import Any

import pytest

from costgpu.measure.profile.profile_builder import trained_by_torch
from costgpu.measure.profile.total_steps import total_steps
from costgpu.measure.profile.units import counted_by_loops, unit_of
from costgpu.models.workload import ExtraKind, Phase, Rhythm, Total, TotalKind
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


def total_of(*loops: Any, **other: Any) -> Total:
    return total_steps(counted_by_loops(raw(*loops, **other)), ended=False)


def test_a_loop_over_batches() -> None:
    record = raw(loop(3, 100, source="loader"))
    found = unit_of(record)
    assert (found.items, found.item, found.weights_dtype) == (8, "image", "float16")
    assert (found.independent, found.name, unit_of(raw(loop(3, 100), sizes=[1, 1, 1])).name) == (True, "batch", "image")
    total = total_of(loop(3, 100, source="loader"))
    assert (total.kind, total.steps) == (TotalKind.EXACT, 100)


@pytest.mark.parametrize(
    ("source", "stride", "independent"), [("range(50)", 1, False), ("range(0, 50, 5)", 5, True), ("files", 1, True)]
)
def test_items_that_can_be_grouped_otherwise(source: str, stride: int, independent: bool) -> None:
    assert unit_of(raw(loop(3, 50, source=source, stride=stride))).independent is independent


def test_what_drives_the_units_counts_and_the_loops_of_its_library_do_not() -> None:
    inner = loop(9, 7, library=True)
    total = total_of(loop(3, 4), inner, told=TOLD)
    assert (total.kind, total.steps) == (TotalKind.EXACT, 4 * 25)
    assert (total.how, total.loops[-1]) == ("4 (train.py:3) × 25 (pipeline)", "pipeline for … in batches: 25")
    over_its_results = loop(5, None, source="pipe(texts)")
    assert total_of(over_its_results, told=TOLD).steps == 25


def test_a_loop_over_the_parts_of_one_unit_does_not_count() -> None:
    loops = (loop(3, 40), loop(4, 12, source="blocks"))
    assert total_of(*loops, over_modules=True).steps == 40
    assert total_of(*loops, generation={**TOKENS, "same_loop": True}).steps == 40


def test_what_a_loop_around_one_unit_holds_comes_with_its_iterations() -> None:
    work = record("work", kind="checkpoint", every=10, opens=[10.0], loop_line=3, source="save(features)")
    seen = raw(loop(3, 40), loop(4, 12, source="blocks"), over_modules=True) | {
        "upcoming": {"later": [], "periodic": [work], "applied": []}
    }
    (found,) = build(result(seen)).phases[0].extras
    assert (found.kind, found.rhythm, found.every) == (ExtraKind.CHECKPOINT, Rhythm.STEPS, 10)


def test_a_leading_dimension_that_always_changes_is_no_number_of_items() -> None:
    record = raw(loop(3, 100), sizes=[17, 23, 5, 91, 40])
    assert (unit_of(record).items, unit_of(record).name) == (None, "call")
    loader = {"workers": 0, "batch_size": 16, "pin_memory": False, "length": 9, "fetch_seconds": None, "fetches": 0}
    loaded: Any = {**record, "loader": loader | {"fetch_waits": 0.0}}
    assert unit_of(loaded).items == 16


def test_generation_leaves_out_the_unit_that_was_cut_off() -> None:
    made = unit_of(raw(loop(3, 100), generation=TOKENS)).generation
    assert made is not None
    assert (made.decodes, made.new_tokens, made.most_new_tokens, made.prompt_tokens) == (8, 9, 20, 12)


def test_generation_of_which_one_unit_was_begun_makes_as_many_tokens_as_it_may() -> None:
    made = unit_of(raw(loop(3, 100), generation={**TOKENS, "decodes": [5], "prompt_tokens": [10]})).generation
    assert made is not None
    assert (made.decodes, made.new_tokens) == (19, 20)


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
