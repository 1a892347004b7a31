"""Step times and the work beside the steps, from hand-made intervals.

One file of more than 400 lines: most of it is one table of intervals and of what they come to.
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.record import IntervalEvents
from costgpu.measure.profile.step_times import data_loading, extras, step_times, untold
from costgpu.measure.profile.total_steps import observed_epoch, total_steps
from costgpu.models.workload import Extra, ExtraKind, Rhythm, StepTimes, Total, TotalKind
from tests.unit.measure.records import loop, record, shot
from tests.unit.measure.records import phase as record_of_phase

STEP = 0.1
EPOCH_LINE, BATCH_LINE = 10, 12
Special = dict[int, Any]


NESTED = (loop(EPOCH_LINE, 90), loop(BATCH_LINE, 1000))


def phase(
    seconds: list[float], special: Special | None = None, *, loops: Any = NESTED, upcoming: Any = (), **other: Any
) -> Any:
    """A phase with one batch per step."""
    shots = [shot(n, *loops, batches=n) for n in (1, 2, 3)]
    work = {"later": [], "periodic": list(upcoming), "applied": []}
    return record_of_phase(*shots, seconds=seconds, special=special, upcoming=work, **({"model": {}} | other))


def steady(count: int, special: dict[int, float] | None = None) -> list[float]:
    """`count` intervals of one step each, with so many seconds more in some of them."""
    return [STEP + (special or {}).get(i, 0.0) for i in range(count)]


def work(kind: str, every: float | str | None, loop_line: int = BATCH_LINE, **other: Any) -> Any:
    """Periodic work that the probe saw in the source."""
    return record("work", kind=kind, every=every, loop_line=loop_line, **other)


def found(
    timed: Any,
    *,
    steps: float | None = 90_000.0,
    per_iteration: float = 1.0,
    run_delay_seconds: float = 0.0,
    saves: Any = None,
    validation: Any = None,
    per_epoch: float | None = math.nan,
    acts: bool = False,
) -> dict[ExtraKind, Extra]:
    step, _ = step_times(timed)
    kind = TotalKind.UNKNOWN if steps is None else TotalKind.EXACT
    by_loops = observed_epoch(timed) or total_steps(timed, ended=False).steps_per_epoch or 1000.0
    epoch = by_loops if per_epoch is not None and math.isnan(per_epoch) else per_epoch
    total = Total(kind=kind, steps=steps, steps_per_epoch=epoch, how="")
    told = {"saves": saves, "validation": validation, "acts": acts}
    listed = extras(timed, step, total, per_iteration, batch_size=32, run_delay_seconds=run_delay_seconds, **told)
    by_kind = {extra.kind: extra for extra in listed}
    assert len(by_kind) == len(listed), "each kind of work is counted once"
    return by_kind


def test_steps_that_all_hold_an_evaluation_are_timed_without_it() -> None:
    """As a jitted function that compiles in the first interval, with a picture of its parameters after each step."""
    often = work("validation", 1, opens=list(range(-2, 20)), step=3, after=True)
    timed = phase([9.0, *steady(20, dict.fromkeys(range(20), 0.05))], {i: {"validation": 0.05} for i in range(1, 21)})
    timed["upcoming"]["periodic"].append(often)
    step, used = step_times(timed)
    assert used == list(range(1, 21))
    assert step.median_seconds == pytest.approx(STEP)
    beside = found(timed)
    assert list(beside) == [ExtraKind.VALIDATION]
    assert beside[ExtraKind.VALIDATION].seconds_each == pytest.approx(0.05)
    assert (beside[ExtraKind.VALIDATION].rhythm, beside[ExtraKind.VALIDATION].every) == (Rhythm.STEPS, 1.0)


def test_steps_that_all_save_are_timed_without_that() -> None:
    timed = phase(steady(20, dict.fromkeys(range(20), 0.05)), {i: {"save": 0.05, "save_bytes": 1e6} for i in range(20)})
    step, used = step_times(timed)
    assert used == list(range(20))
    assert step.median_seconds == pytest.approx(STEP)
    assert not step.traced_only
    assert found(timed)[ExtraKind.CHECKPOINT].seconds_each == pytest.approx(0.05)


def test_the_times_of_plain_steps() -> None:
    step, used = step_times(phase([9.0, 9.0, *(0.1 * n for n in range(1, 12))]))
    assert used == list(range(2, 13)), "the first two steps warm up"
    assert step.count == 11
    assert step.median_seconds == pytest.approx(0.6)
    assert step.mean_seconds == pytest.approx(0.6)
    assert step.low_seconds == pytest.approx(0.2)
    assert step.high_seconds == pytest.approx(1.0)
    assert not step.traced_only


def test_what_is_not_a_plain_step_is_left_out() -> None:
    special: Special = {4: {"save": 3.0}, 7: {"traced": True}, 9: {"opened": 1}}
    step, used = step_times(phase(steady(20, {4: 3.0, 7: 5.0, 8: 0.4, 9: 1.0}), special))
    assert used == [2, 3, 5, 6, *range(10, 20)], "the step after the trace settles"
    assert step.mean_seconds == pytest.approx(STEP)


def test_spikes_do_not_rule_the_mean() -> None:
    step, _ = step_times(phase(steady(22, {10: 100.0})))
    assert step.mean_seconds == pytest.approx((19 * STEP + 3 * STEP) / 20)


def test_few_steps_are_taken_with_their_warm_up() -> None:
    step, used = step_times(phase([0.2, 0.1, 0.1]))
    assert used == [0, 1, 2]
    assert step.median_seconds == pytest.approx(0.1)


def test_only_traced_steps() -> None:
    step, used = step_times(phase([0.5, 0.7, 9.0], {0: {"traced": True}, 1: {"traced": True}, 2: {"save": 8.0}}))
    assert used == [0, 1]
    assert step.traced_only
    assert step.median_seconds == pytest.approx(0.6)


def test_no_interval_at_all() -> None:
    nothing = StepTimes(count=0, median_seconds=0, mean_seconds=0, low_seconds=0, high_seconds=0)
    assert step_times(phase([])) == (nothing, [])


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60))
def test_the_figures_are_in_order(seconds: list[float]) -> None:
    step, used = step_times(phase(seconds))
    assert step.count == len(used) > 0
    assert step.low_seconds <= step.median_seconds * (1 + 1e-9)
    assert step.median_seconds <= step.high_seconds * (1 + 1e-9)
    assert min(seconds) <= step.mean_seconds * (1 + 1e-9)
    assert step.mean_seconds <= min(max(seconds), 3 * step.median_seconds) * (1 + 1e-9)


def ramp(last: float) -> list[float]:
    return [STEP, STEP, *(STEP * (1 + (last - 1) * n / 99) for n in range(100))]


NOISE = [STEP, STEP, *(STEP * (1.5 if n // 25 % 2 else 1.0) for n in range(100))]
TOO_FEW = [STEP * n for n in range(1, 20)]


@pytest.mark.parametrize(
    ("seconds", "drift"),
    [(ramp(2.0), 1.6), (ramp(0.5), 0.6), (ramp(1.08), 1.0), (ramp(1.0), 1.0), (NOISE, 1.0), (TOO_FEW, 1.0)],
)
def test_a_step_time_that_drifts(seconds: list[float], drift: float) -> None:
    assert step_times(phase(seconds))[0].drift == (drift if drift == 1.0 else pytest.approx(drift, rel=0.05))


def test_how_batches_arrive() -> None:
    loader = {"workers": 2, "batch_size": 64, "fetches": 40, "fetch_seconds": 2.0}
    record = phase(steady(10), waits=[9.0] * 2 + [0.02] * 8, loader=loader, batch={"size": 48, "bytes": 1 << 20})
    data = data_loading(record, list(range(2, 10)), 1.0)
    assert data.wait_seconds_per_step == pytest.approx(0.02)
    assert data.fetch_seconds_per_batch == pytest.approx(0.05)
    assert (data.workers, data.batches_per_step) == (2, 1.0)
    assert (data.batch_size, data.batch_bytes) == (48, 1 << 20), "the batch that was drawn says more than the loader"


def test_one_long_wait_does_not_rule_the_mean() -> None:
    record = phase(steady(10), waits=[0.0] * 9 + [100.0])
    assert data_loading(record, list(range(10)), 1.0).wait_seconds_per_step == pytest.approx(3 * STEP / 10)


def test_a_script_without_a_loader() -> None:
    data = data_loading(phase([]), [], 0.0)
    assert (data.wait_seconds_per_step, data.fetch_seconds_per_batch, data.workers) == (0.0, None, 0)
    assert (data.batch_size, data.batch_bytes) == (None, 0)


def again(every: int, count: int, seconds: float, event: IntervalEvents, **other: Any) -> Any:
    """A phase in which the same happens in every so many intervals."""
    at = [n * every - 1 for n in range(1, count + 1)]
    return phase(steady(at[-1] + 6, dict.fromkeys(at, seconds)), {i: dict(event) for i in at}, **other)


def epochs_of_two_kinds() -> Any:
    plain, long = {"opened": 1}, {"opened": 2, "validation": 0.8}
    return phase(steady(50, {19: 0.8, 39: 0.8}), {9: plain, 19: long, 29: plain, 39: long})


def batches_in_fours(upcoming: Any) -> Any:
    """With four batches to a step, one batch takes a quarter of the step."""
    record = phase(steady(30), upcoming=upcoming)
    for n, snapshot in enumerate(record["snapshots"]):
        snapshot.update(batches=4 * n, all_batches=4 * n)
    return record


def gated_checkpoints(*gates: float) -> Any:
    upcoming = tuple(work("checkpoint", gate) for gate in gates)
    return phase(steady(70, {49: 0.5}), {49: {"save": 0.5}}, upcoming=upcoming)


def gated_at(place: int, *works: Any) -> Any:
    return phase(steady(70, {place: 0.5}), {place: {"save": 0.5}}, upcoming=works)


def epochs_with_one(place: int, *works: Any) -> Any:
    """Four epochs, of which one ends with a validation."""
    at = [9, 19, 29, 39]
    special: Special = {i: {"opened": 1} for i in at}
    special[at[place]] = {"opened": 2, "validation": 0.8}
    return phase(steady(50, {at[place]: 0.8}), special, upcoming=works)


def upcoming(*works: Any, **other: Any) -> Any:
    return phase(steady(30), upcoming=works, **other)


EPOCH, STEPS, RUN = Rhythm.EPOCH, Rhythm.STEPS, Rhythm.RUN
VALIDATION: IntervalEvents = {"opened": 2, "validation": 0.8, "validation_batches": 5}
VALIDATES = work("validation", 1.0, EPOCH_LINE, batches=60, batch_size=64)
SMALL = work("validation", 1.0, EPOCH_LINE, batches=60, batch_size=32)
AFTER_ALL = work("validation", 1.0, 5, batches=30, batch_size=32)
STATE: Any = {"model": {"bytes": 400_000_000}, "optimizers": [{"state_bytes": 800_000_000}]}
THREE_LOOPS = (loop(5, 3), loop(EPOCH_LINE, 8), loop(BATCH_LINE, 1000))

SAVES = [("checkpoint", STEPS, 50.0, 0.5, True)]
VALIDATED = again(20, 2, 1.0, VALIDATION)
VALIDATED_IN_TRAIN_MODE = again(20, 2, 1.0, {"opened": 2, "validation_batches": 5})
VALIDATED_AND_UPCOMING = again(20, 2, 0.8, {"opened": 2, "validation": 0.8}, upcoming=(VALIDATES,))
VALIDATED_IN_AN_EPOCH = again(20, 3, 0.8, {"validation": 0.8, "validation_batches": 5})
SAVES_TWICE = again(25, 2, 0.5, {"save": 0.5})
GATED_500, GATED_100 = (upcoming(work("work", every, evaluates=True, timed=1.0)) for every in (500.0, 100.0))
SAVES_LATER = upcoming(work("checkpoint", 5.0, EPOCH_LINE), **STATE)
AFTER_LOOPS = upcoming(work("validation", 1.0, 99, batches=30, batch_size=32))
BATCH = 60 * STEP / 4 / 3
WAITS = phase(steady(30), waits=[0.04] * 30)


def evaluations(rhythm: str, every: float, batches: float | None = 60, batch_size: int | None = 64) -> Any:
    """What a trainer tells of its evaluations."""
    return {"validation": {"batches": batches, "batch_size": batch_size, "rhythm": rhythm, "every": every}}


Expected = tuple[str, Rhythm, float, float, bool]  # kind, rhythm, every, seconds, measured
CASES: dict[str, tuple[Any, dict[str, Any], list[Expected]]] = {
    "plain steps": (phase(steady(30)), {}, []),
    "validation of every epoch, and what is left is the workers' start": (
        VALIDATED,
        {},
        [("validation", EPOCH, 1.0, 0.8, True), ("epoch_start", EPOCH, 1.0, 0.2, True)],
    ),
    "a policy that acts between updates": (VALIDATED_IN_AN_EPOCH, {"acts": True}, [("rollout", EPOCH, 1.0, 0.8, True)]),
    "and has acted before the first step": (GATED_500, {"acts": True}, [("rollout", EPOCH, 1.0, 1.0, True)]),
    "evaluations that are part of every step are not counted twice": (
        phase(steady(30), {n: {"validation_batches": 1, "opened": 1} for n in range(29)}, upcoming=(VALIDATES,)),
        {},
        [],
    ),
    "validation of every second epoch": (epochs_of_two_kinds(), {}, [("validation", EPOCH, 2.0, 0.8, True)]),
    "validation without eval mode by its batches": (
        VALIDATED_IN_TRAIN_MODE,
        {},
        [("validation", EPOCH, 1.0, 1.0, True)],
    ),
    # its own loader is opened, the training loader is not: the probe then counts no opening
    "validation amid an epoch is no epoch": (VALIDATED_IN_AN_EPOCH, {}, [("validation", STEPS, 20.0, 0.8, True)]),
    "saved every so often": (again(25, 2, 0.5, {"save": 0.5}), {}, [("checkpoint", STEPS, 25.0, 0.5, True)]),
    "a checkpoint seen once, with its gate": (gated_checkpoints(50), {}, SAVES),
    "its gate is in micro-batches": (gated_checkpoints(100), {"per_iteration": 2.0}, SAVES),
    "no gate": (gated_checkpoints(), {}, SAVES),
    "another's gate": (gated_checkpoints(7), {}, SAVES),
    "a shorter gate would have come before": (gated_checkpoints(10, 50), {}, SAVES),
    "work too short to matter": (again(10, 2, 0.0, {"validation": 0.01 * STEP}), {}, []),
    "but a checkpoint always matters": (
        again(10, 2, 0.0, {"save": 0.01 * STEP}),
        {},
        [("checkpoint", STEPS, 10.0, 0.01 * STEP, True)],
    ),
    "the start of an epoch under the trace": (again(20, 1, 3.0, {"opened": 1, "traced": True}), {}, []),
    # one sighting, and what the source says of it
    "seen after the first step, counted from 0": (
        gated_at(0, work("checkpoint", 500.0)),
        {},
        [("checkpoint", STEPS, 500.0, 0.5, True)],
    ),
    "the same with its openings": (
        gated_at(0, work("checkpoint", 500.0, opens=[0, 500])),
        {},
        [("checkpoint", STEPS, 500.0, 0.5, True)],
    ),
    "and no gate is known: not again in all these steps": (
        gated_at(0),
        {},
        [("checkpoint", STEPS, 70.0, 0.5, True)],
    ),
    "a gate that would have come again is another's": (
        gated_at(0, work("checkpoint", 30.0)),
        {},
        [("checkpoint", STEPS, 70.0, 0.5, True)],
    ),
    "seen twice, and then not for longer": (
        phase(steady(200, {0: 0.5, 20: 0.5}), {0: {"save": 0.5}, 20: {"save": 0.5}}),
        {},
        [("checkpoint", STEPS, 180.0, 0.5, True)],
    ),
    "that never comes back": (
        gated_at(0, work("checkpoint", "inf", opens=[0])),
        {},
        [("checkpoint", RUN, 1.0, 0.5, True)],
    ),
    "of the first of five epochs": (epochs_with_one(0), {}, [("validation", EPOCH, 4.0, 0.8, True)]),
    "of every tenth epoch": (
        epochs_with_one(0, work("validation", 10.0, EPOCH_LINE, opens=[0, 10])),
        {"per_epoch": 1000.0},
        [("validation", EPOCH, 10.0, 0.8, True)],
    ),
    "a gate that was open, and took nothing": (upcoming(work("work", 10.0, opens=[0, 10], evaluates=True)), {}, []),
    "a gate gets what it took before, and what comes with each step does not": (
        upcoming(
            work("work", 1500.0, opens=[0, 1500], after=False, evaluates=True, timed=1.5),
            work("work", 1.0, opens=list(range(64)), timed=1.5),
        ),
        {},
        [("validation", STEPS, 1500.0, 1.5, True)],
    ),
    "a long interval under a gate is what it does": (
        phase(steady(70, {0: 2.0}), upcoming=(work("work", 1000.0, opens=[0, 1000]),)),
        {},
        [("other", STEPS, 1000.0, 2.0, True)],
    ),
    "the same of a loader that is read with gradients": (
        phase(
            steady(70, {0: 2.0}),
            {0: {"loader_start": 0.001}},
            upcoming=(work("validation", 1000.0, batches=9, opens=[0, 1000]),),
        ),
        {},
        [("validation", STEPS, 1000.0, 2.0, True)],
    ),
    "a loader under a test that nobody knows": (upcoming(work("validation", None, batches=9, test="due")), {}, []),
    "a loader that was passed and not read": (
        upcoming(work("validation", 1.0, batches=9, opens=list(range(64)))),
        {},
        [],
    ),
    # not reached
    "forward passes of twice the batch": (upcoming(VALIDATES), {}, [("validation", EPOCH, 1.0, 4.0, False)]),
    "not as many steps but as many batches": (
        batches_in_fours((SMALL,)),
        {"per_iteration": 4.0},
        [("validation", EPOCH, 1.0, BATCH, False)],
    ),
    "a validation that was seen comes once": (VALIDATED_AND_UPCOMING, {}, [("validation", EPOCH, 1.0, 0.8, True)]),
    "an evaluation of two loaders was timed as one": (
        upcoming(*2 * [work("validation", 1.0, EPOCH_LINE, batches=30, evaluates=True, timed=2.5)]),
        {},
        [("validation", EPOCH, 1.0, 2.5, True)],
    ),
    "workers that start anew, in epochs longer than the measurement": (
        phase(steady(30), loader={"workers": 8, "start_seconds": 0.5}),
        {},
        [("epoch_start", EPOCH, 1.0, 0.5, False)],
    ),
    "and in what is no epoch": (
        phase(steady(30), loader={"workers": 8, "start_seconds": 0.5}),
        {"per_epoch": None},
        [],
    ),
    "forward passes without a loader": (
        upcoming(work("work", 1.0, EPOCH_LINE, batches=30, source="render")),
        {},
        [("other", EPOCH, 1.0, 1.0, False)],
    ),
    "a trainer says when it saves": (
        upcoming(**STATE),
        {"saves": {"rhythm": "steps", "every": 500.0}},
        [("checkpoint", STEPS, 500.0, 6.0, False)],
    ),
    "and knows better than what was seen once": (
        gated_checkpoints(),
        {"saves": {"rhythm": "epoch", "every": 1.0}},
        [("checkpoint", EPOCH, 1.0, 0.5, True)],
    ),
    "a trainer says when it evaluates": (
        phase(steady(30)),
        evaluations("steps", 500),
        [("validation", STEPS, 500.0, 4.0, False)],
    ),
    "on batches of a size that is not known": (
        phase(steady(30)),
        evaluations("epoch", 2, batch_size=None),
        [("validation", EPOCH, 2.0, 2.0, False)],
    ),
    "on fewer batches than a step has": (
        batches_in_fours(()),
        evaluations("epoch", 1, batch_size=32),
        [("validation", EPOCH, 1.0, BATCH, False)],
    ),
    "its forward passes wait for their batches as well": (
        WAITS,
        evaluations("epoch", 1, batch_size=32),
        [("validation", EPOCH, 1.0, 60 * (0.04 + 0.06 / 3), False)],
    ),
    "by the clock": (phase(steady(30)), evaluations("seconds", 60), [("validation", STEPS, 600.0, 4.0, False)]),
    "it knows the rhythm better than what was seen": (
        VALIDATED_IN_AN_EPOCH,
        evaluations("steps", 500, None),
        [("validation", STEPS, 500.0, 0.8, True)],
    ),
    "what is told and was seen counts, however short": (
        again(10, 2, 0.0, {"validation": 0.01 * STEP}),
        evaluations("steps", 10),
        [("validation", STEPS, 10.0, 0.01 * STEP, True)],
    ),
    "and better than what is read in the source": (
        upcoming({**SMALL, "timed": 9.0}),
        evaluations("steps", 500),
        [("validation", STEPS, 500.0, 4.0, False)],
    ),
    "evaluations of no known length": (phase(steady(30)), evaluations("steps", 500, None), []),
    "after epochs of no known length": (phase(steady(30)), {"per_epoch": None} | evaluations("epoch", 1), []),
    "unless they were seen": (
        VALIDATED_IN_AN_EPOCH,
        {"per_epoch": None} | evaluations("epoch", 1),
        [("validation", STEPS, 20.0, 0.8, True)],
    ),
    "saved after every step, and not seen": (upcoming(work("checkpoint", 1.0), **STATE), {}, []),
    "saved after every epoch": (
        upcoming(work("checkpoint", 1.0, EPOCH_LINE), **STATE),
        {},
        [("checkpoint", EPOCH, 1.0, 6.0, False)],
    ),
    "1.2 GB at 200 MB/s": (SAVES_LATER, {}, [("checkpoint", EPOCH, 5.0, 6.0, False)]),
    "what comes after the end never comes": (GATED_500, {"steps": 400.0}, []),
    "unless the end is not known": (
        GATED_500,
        {"steps": None},
        [("validation", STEPS, 500.0, 1.0, True)],
    ),
    "a gate on micro-batches counts in steps": (
        GATED_100,
        {"per_iteration": 4.0},
        [("validation", STEPS, 25.0, 1.0, True)],
    ),
    "work around the epochs comes after all of them": (
        upcoming(AFTER_ALL, loops=THREE_LOOPS),
        {},
        [("validation", EPOCH, 8.0, 1.0, False)],
    ),
    "work after all loops comes once": (AFTER_LOOPS, {}, [("validation", RUN, 1.0, 1.0, False)]),
}


@pytest.mark.parametrize("name", CASES)
def test_work_beside_the_steps(name: str) -> None:
    record, facts, expected = CASES[name]
    listed: list[Any] = [
        (e.kind.value, e.rhythm, e.every, e.seconds_each, e.measured) for e in found(record, **facts).values()
    ]
    assert listed == [(*one[:3], pytest.approx(one[3]), one[4]) for one in expected]


@pytest.mark.parametrize(
    ("rhythm", "every", "batches", "words"),
    [
        ("epoch", 1.0, None, "evaluates every epoch, on how many batches is not known"),
        ("steps", 500.0, None, "evaluates every 500 steps, on how many batches is not known"),
        ("epoch", 2.0, 30, "evaluates every 2 epochs, how long its epochs are is not known"),
    ],
)
def test_evaluations_that_are_in_no_figure_are_named(rhythm: str, every: float, batches: Any, words: str) -> None:
    told = evaluations(rhythm, every, batches)["validation"]
    assert words in (untold(told, []) or "")
    assert untold(told, list(found(VALIDATED).values())) is None
    assert untold(None, []) is None


@pytest.mark.parametrize(
    ("record", "once"), [(gated_at(0), True), (gated_at(0, work("checkpoint", 500.0)), False), (SAVES_TWICE, False)]
)
def test_what_was_seen_once_may_never_come_again(record: Any, once: bool) -> None:
    assert found(record)[ExtraKind.CHECKPOINT].seen_once is once


def test_irregular_steps() -> None:
    late = dict.fromkeys((7, 12, 30, 31), 10.0)
    other = found(phase(steady(42, late)))[ExtraKind.OTHER]
    assert (other.rhythm, other.every) == (STEPS, 10.0)
    assert "4 steps of 40" in other.note


def test_steps_that_waited_for_a_core_are_no_work() -> None:
    late = dict.fromkeys((7, 12, 30, 31), 10.0)
    assert ExtraKind.OTHER not in found(phase(steady(42, late)), run_delay_seconds=40.0)


@given(st.lists(st.one_of(st.floats(0.09, 0.11), st.floats(0.5, 20)), min_size=20, max_size=200))
def test_what_was_timed_adds_up(seconds: list[float]) -> None:
    """A step and the irregular work together are the time that passed, but for what is too little to list."""
    record = phase([STEP, STEP, *seconds])
    step, used = step_times(record)
    beside = sum(e.seconds_each * len(used) / e.every for e in found(record).values())
    assert step.seconds * len(used) + beside == pytest.approx(sum(seconds), rel=0.021)


@pytest.mark.parametrize(
    ("line", "every", "expected"),
    [
        (EPOCH_LINE, 1.0, (Rhythm.EPOCH, 1.0)),
        (EPOCH_LINE + 1, 1.0, (Rhythm.STEPS, 40.0)),
        (EPOCH_LINE + 1, 10.0, (Rhythm.STEPS, 400.0)),
        (BATCH_LINE, 50.0, (Rhythm.STEPS, 50.0)),
    ],
)
def test_work_beside_loops_in_an_epoch_is_counted_by_its_own_loop(line: int, every: float, expected: Any) -> None:
    """Five shards of 40 batches in each epoch."""
    loops = (loop(EPOCH_LINE, 90, target="epoch"), loop(EPOCH_LINE + 1, 5), loop(BATCH_LINE, 40))
    timed = phase(steady(30), loops=loops, upcoming=[work("validation", every, loop_line=line, batches=10)])
    total = total_steps(timed, ended=False)
    assert (total.steps, total.steps_per_epoch) == (18_000, 200)
    (extra,) = extras(timed, step_times(timed)[0], total, 1.0, batch_size=32)
    assert (extra.rhythm, extra.every) == expected


def test_a_loader_that_is_read_twice_in_an_epoch_starts_no_epoch() -> None:
    """Validation at the end of each epoch of 20 steps, in which a loader of 10 batches is read twice."""
    special: Special = {9: {"opened": 1}, 19: {"opened": 1, "validation": 0.5}, 29: {"opened": 1}}
    loops = (loop(EPOCH_LINE, 90, index=0, target="epoch"), loop(BATCH_LINE, 20))
    timed = phase(steady(35, {19: 0.5}), special, loops=loops, loader={"length": 10})
    total = total_steps(timed, ended=False)
    assert (total.steps, total.steps_per_epoch) == (1800, 20)
    (extra,) = extras(timed, step_times(timed)[0], total, 1.0, batch_size=32)
    assert (extra.kind, extra.rhythm, extra.every) == (ExtraKind.VALIDATION, Rhythm.EPOCH, 1.0)


def test_saves_of_two_rhythms_are_both_counted() -> None:
    """The latest after each epoch, and one to keep every ten."""
    both = [work("checkpoint", every, EPOCH_LINE, line=line) for every, line in ((1.0, 30), (10.0, 31), (10.0, 32))]
    timed = upcoming(*both, **STATE)
    total = Total(kind=TotalKind.EXACT, steps=90_000.0, steps_per_epoch=1000.0, how="")
    listed = extras(timed, step_times(timed)[0], total, 1.0, batch_size=32)
    assert [(extra.kind, extra.every) for extra in listed] == [
        (ExtraKind.CHECKPOINT, 1.0),
        (ExtraKind.CHECKPOINT, 10.0),
    ]
