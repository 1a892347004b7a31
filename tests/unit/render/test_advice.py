"""Advice in words; whole answers with advice are in `screens`."""

from dataclasses import replace
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.models.prediction import Advice, AdviceKind, Prediction, Range
from costgpu.render.estimate.advice import NOTHING_FOUND, OVERLAP, advice_section, saving, sentences
from costgpu.render.estimate.documents import advice_values
from costgpu.render.text.layout import WIDTH
from costgpu.render.text.sections import section_text
from tests.unit.estimator.advisable import gpu, phase, predictions, product, profile, workload_of


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


def test_longer_hardly_different_at_most_and_only_faster() -> None:
    assert saving(advice(1.2, -7560)).endswith(", 2.1 h longer")
    assert saving(advice(1.2, 100)) == ": saves $1.20 of $3.10 (39 %)"
    assert saving(advice(1.2, 0.0, at_most=True)) == ": saves at most $1.20 of $3.10 (39 %)"
    assert saving(advice(0.0, 180, before=prediction(0.0, 600))) == ": saves 3 min of 10 min (30 %)"


def test_what_has_no_known_saving_has_no_figure_and_savings_do_not_add_up() -> None:
    unknown = advice(0.0, 0.0, before=None, after=None, action="It needs 90 GiB", basis="")
    assert sentences(unknown) == ["It needs 90 GiB."]
    assert section_text(advice_section([])) == f"What would make it cheaper\n{NOTHING_FOUND}"
    both = section_text(advice_section([advice(1.2, 7560), advice(0.5, 10)], "one epoch"))
    assert both.startswith("What would make it cheaper (amounts for one epoch)\n- ")
    assert both.endswith(OVERLAP)
    assert OVERLAP not in section_text(advice_section([advice(1.2, 7560), unknown]))
    assert advice_values([unknown])[0]["before"] is None


@given(
    st.text(st.characters(categories=["L", "N", "P"]), max_size=60).map(lambda word: f"{word} " * 5), st.floats(0, 1e6)
)
@example("%0000000000000 " * 5, 0.0)
def test_no_line_is_wider_than_80_columns(words: str, saved: float) -> None:
    for line in section_text(
        advice_section([advice(saved, 7560, action=words[:70], notes=(words, words))])
    ).splitlines():
        assert len(line) <= WIDTH
