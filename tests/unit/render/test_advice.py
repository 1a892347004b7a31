"""Advice as lines of 80 columns and as JSON-ready values."""

import json
from dataclasses import replace
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.models.prediction import Advice, AdviceKind, Prediction, Range
from costgpu.render.text.advice import OVERLAP, TITLE, advice_lines, advice_values, saving
from costgpu.render.text.layout import WIDTH
from tests.unit.estimator.advisable import advice_of, gpu, phase, predictions, product, profile, workload_of


@cache
def prediction(cost: float, wall: float, place: str = "g5.xlarge") -> Prediction:
    one = predictions(workload_of(profile(phase(product(512, 1)))), [gpu("A10G", 1.0, type_=place)])[0]
    return replace(
        one, cost_usd=Range(value=cost, low=cost, high=cost), wall_seconds=Range(value=wall, low=wall, high=wall)
    )


def advice(saved: float, seconds: float, **other: object) -> Advice:
    known = {
        "kind": AdviceKind.MIXED_PRECISION,
        "action": "Mixed precision (bf16)",
        "saving_usd": saved,
        "saving_seconds": seconds,
        "before": prediction(3.10, 20_000),
        "after": prediction(3.10 - saved, 20_000 - seconds),
        "basis": "the four-term model",
    }
    return Advice(**{**known, **other})  # type: ignore[arg-type]


def test_a_line_says_what_it_saves_of_what_and_from_what() -> None:
    assert advice_lines([advice(1.2, 7560)]) == [
        TITLE,
        "- Mixed precision (bf16): saves $1.20 of $3.10 (39 %), 2.1 h less. Computed from",
        "  the four-term model.",
    ]


def test_another_machine_is_named() -> None:
    lines = advice_lines([advice(1.2, 7560, after=prediction(1.9, 12_440, "g6.xlarge"))], title=False)
    line = " ".join(" ".join(lines).split())
    assert "2.1 h less, on aws g6.xlarge (A10G), us-east-1." in line


def test_amounts_for_a_part_of_the_job_say_so() -> None:
    assert (
        advice_lines([advice(1.2, 7560)], unit="one epoch")[0] == "What would make it cheaper (amounts for one epoch)"
    )


def test_longer_hardly_different_at_most_and_only_faster() -> None:
    assert saving(advice(1.2, -7560)).endswith(", 2.1 h longer")
    assert saving(advice(1.2, 100)) == ": saves $1.20 of $3.10 (39 %)"
    assert saving(advice(1.2, 0.0, at_most=True)) == ": saves at most $1.20 of $3.10 (39 %)"
    assert saving(advice(0.0, 180, before=prediction(0.0, 600))) == ": saves 3 min of 10 min (30 %)"


def test_without_a_known_saving_there_is_no_figure() -> None:
    line = advice_lines([advice(0.0, 0.0, before=None, after=None, action="It needs 90 GiB", basis="")], title=False)
    assert line == ["- It needs 90 GiB."]


def test_several_do_not_add_up_and_none_is_no_line() -> None:
    assert advice_lines([]) == []
    assert advice_lines([advice(1.2, 7560), advice(0.5, 10)])[-1] == OVERLAP
    assert OVERLAP not in advice_lines([advice(1.2, 7560)])


@given(
    st.text(st.characters(categories=["L", "N", "P"]), max_size=60).map(lambda word: f"{word} " * 5), st.floats(0, 1e6)
)
@example("%0000000000000 " * 5, 0.0)
def test_no_line_is_wider_than_80_columns(words: str, saved: float) -> None:
    for line in advice_lines([advice(saved, 7560, action=words[:70], notes=(words, words))]):
        assert len(line) <= WIDTH


def test_the_document_is_json_with_both_places() -> None:
    found = advice_of(profile(phase(product(4096, 20))), [gpu("A100", 4.0)])
    assert found
    documents = advice_values(found)
    assert json.loads(json.dumps(documents)) == documents
    first = documents[0]
    assert first["kind"] == found[0].kind.value
    assert first["saving_usd"] == found[0].saving_usd
    assert first["before"]["instance_type"] == "a100-1-8"
    assert first["after"]["accelerator"] == "A100"
    assert advice_values([advice(0.0, 0.0, before=None, after=None)])[0]["before"] is None
