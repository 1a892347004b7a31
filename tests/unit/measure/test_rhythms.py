"""What is said of work that the source names and the measurement did not reach, and what was seen of a kind but once."""

from typing import Any

import pytest

from costgpu.measure.profile.rhythms import left_out, works_of
from costgpu.measure.profile.step_times import extras, step_times
from costgpu.models.workload import Extra, ExtraKind, Rhythm, Total, TotalKind
from tests.unit.measure.records import loop, phase, record, shot

LINE, STEP, COUNT = 12, 0.1, 30


def work(kind: str, every: float | str | None, **other: Any) -> Any:
    return record("work", kind=kind, every=every, loop_line=LINE, **other)


def measured(*works: Any, steps: float | None = 200_000.0, seconds: Any = None, special: Any = None) -> tuple[str, Any]:
    """The sentence of what was not seen, and the extras."""
    raw = phase(
        *(shot(n, loop(LINE, steps)) for n in (1, 2, 3)),
        seconds=seconds or [STEP] * COUNT,
        special=special,
        upcoming={"later": [], "periodic": list(works), "applied": []},
        model={},
    )
    kind = TotalKind.UNKNOWN if steps is None else TotalKind.EXACT
    total = Total(kind=kind, steps=steps, steps_per_epoch=None, how="")
    found = extras(raw, step_times(raw)[0], total, 1.0, 32)
    return left_out(works_of(raw, total, 1.0), found, total, COUNT), found


RENDERS = work("work", 50_000.0, source="render_path", line=80, opens=[49_999, 99_999])
SAMPLES = work("work", 1_000.0, source="sample", line=90, opens=[999, 1_999])
LOGS = work("work", 10.0, source="plot", opens=[9, 19, 29, 39])
DUE = work("validation", None, batches=40, source="evaluate(model, loader)", test="should_test", line=12)
NOT_SEEN = "Not seen in 30 steps, and not in these figures: "


@pytest.mark.parametrize(
    ("works", "said"),
    [
        ((), ""),
        ((RENDERS,), NOT_SEEN + "line 80: render_path (every 50,000 steps)."),
        (
            (RENDERS, SAMPLES, LOGS),
            NOT_SEEN + "line 80: render_path (every 50,000 steps); line 90: sample (every 1,000 steps).",
        ),
        ((DUE,), NOT_SEEN + "line 12: evaluate(model, loader) under `should_test`."),
        ((work("work", 900_000.0, source="render"),), ""),
        ((work("work", None, source="render", test="loss < best"),), ""),
        ((work("work", "inf", source="render", line=7, opens=[5_000]),), NOT_SEEN + "line 7: render (once)."),
        ((work("work", "inf", source="render", opens=[]),), ""),
        ((work("validation", 1.0, batches=40, opens=list(range(64))),), ""),
        ((work("validation", 10.0, batches=40, line=7, source="test"),), NOT_SEEN + "line 7: test (every 10 steps)."),
        (
            tuple(work("work", 1e4, source=f"f{n}", line=n, opens=[9999]) for n in range(6)),
            NOT_SEEN + "; ".join(f"line {n}: f{n} (every 10,000 steps)" for n in range(4)) + "; and others.",
        ),
    ],
)  # fmt: skip
def test_what_was_not_reached_is_named(works: tuple[Any, ...], said: str) -> None:
    assert measured(*works)[0] == said


def test_what_is_in_the_figures_is_not_named() -> None:
    validates = work("validation", 1_000.0, batches=30, batch_size=32, opens=[999, 1_999])
    said, found = measured(validates)
    assert said == ""
    assert [(extra.kind, extra.every, extra.first) for extra in found] == [(ExtraKind.VALIDATION, 1_000.0, 1_000.0)]


def test_several_loaders_under_one_gate_are_read_together() -> None:
    two = [work("validation", 1_000.0, batches=n, batch_size=32, opens=[999, 1_999]) for n in (30, 60)]
    rare = work("validation", 50_000.0, batches=90, batch_size=32, opens=[0, 50_000], step=40)
    _, found = measured(*two, rare)
    assert [(extra.every, extra.seconds_each) for extra in found] == [
        (1_000.0, pytest.approx(90 * STEP / 3)),
        (50_000.0, pytest.approx(90 * STEP / 3)),
    ]


def test_another_gate_than_the_one_that_was_seen_still_comes() -> None:
    seen = work("validation", 10.0, batches=3, opens=[9, 19, 29])
    rare = work("validation", 5_000.0, batches=90, batch_size=32, opens=[4_999, 9_999])
    at = {i: {"validation": 1.0} for i in (9, 19, 29)}
    seconds = [STEP + (1.0 if i in at else 0.0) for i in range(COUNT)]
    _, found = measured(seen, rare, seconds=seconds, special=at)
    assert [(extra.every, extra.measured) for extra in found] == [(10.0, True), (5_000.0, False)]


def test_a_few_times_in_all() -> None:
    """`if step in (100, 200)`: both are counted, in a job of 150 steps the first."""
    milestones = work("validation", "inf", batches=30, batch_size=32, opens=[99, 199])
    for steps, times in ((1_000.0, 2), (150.0, 1)):
        (extra,) = measured(milestones, steps=steps)[1]
        assert (extra.rhythm, extra.seconds_each) == (Rhythm.RUN, pytest.approx(times * 30 * STEP / 3))


@pytest.mark.parametrize(
    ("every", "first", "steps", "count"),
    [
        (2_000.0, 1.0, 20_000, 10),  # counted from 0, after the step
        (2_000.0, 2_000.0, 20_000, 10),  # counted from 1
        (1_500.0, 1.0, 3_001, 3),  # before the step: at 0, 1500 and 3000
        (1_500.0, 1.0, 3_000, 2),
        (500.0, 501.0, 400, 0),
        (10.0, None, 25, 2.5),
    ],
)
def test_how_often_it_comes(every: float, first: float | None, steps: float, count: float) -> None:
    extra = Extra(kind=ExtraKind.VALIDATION, seconds_each=1.0, rhythm=Rhythm.STEPS, every=every, first=first)
    assert extra.count(steps, 0.0, whole=True) == count
    assert extra.count(steps, 0.0, whole=False) == steps / every
