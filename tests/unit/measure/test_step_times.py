"""Step times and the work beside the steps, from hand-made intervals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.profile.step_times import data_loading, extras, step_times
from costgpu.models.workload import Extra, ExtraKind, Rhythm, StepTimes, Total, TotalKind
from tests.unit.measure.records import PATH, loop, shot
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
    work = {"later": [], "periodic": list(upcoming)}
    return record_of_phase(*shots, seconds=seconds, special=special, upcoming=work, **({"model": {}} | other))


def steady(count: int, special: dict[int, float] | None = None) -> list[float]:
    """`count` intervals of one step each, with so many seconds more in some of them."""
    return [STEP + (special or {}).get(i, 0.0) for i in range(count)]


def work(kind: str, every: float | None, loop_line: int = BATCH_LINE, **other: Any) -> Any:
    """Periodic work that the probe saw in the source."""
    record = {
        "kind": kind,
        "every": every,
        "loop_line": loop_line,
        "path": PATH,
        "line": 20,
        "source": "evaluate",
    }
    return record | {"batches": None, "batch_size": None} | other


def total(steps: float | None = 90_000.0) -> Total:
    kind = TotalKind.UNKNOWN if steps is None else TotalKind.EXACT
    return Total(kind=kind, steps=steps, steps_per_epoch=1000.0, how="")


def found(
    record: Any,
    *,
    steps: float | None = 90_000.0,
    per_iteration: float = 1.0,
    before: float = 0.0,
    batch_size: int | None = 32,
) -> dict[ExtraKind, Extra]:
    step, _ = step_times(record)
    listed = extras(record, step, total(steps), per_iteration, before, batch_size)
    by_kind = {extra.kind: extra for extra in listed}
    assert len(by_kind) == len(listed), "each kind of work is counted once"
    return by_kind


# ------------------------------------------------------------------------------------------------- step times


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
    step, used = step_times(phase([]))
    assert (step, used) == (
        StepTimes(count=0, median_seconds=0, mean_seconds=0, low_seconds=0, high_seconds=0),
        [],
    )


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60))
def test_the_figures_are_in_order(seconds: list[float]) -> None:
    step, used = step_times(phase(seconds))
    assert step.count == len(used) > 0
    assert step.low_seconds <= step.median_seconds * (1 + 1e-9)
    assert step.median_seconds <= step.high_seconds * (1 + 1e-9)
    assert min(seconds) <= step.mean_seconds * (1 + 1e-9)
    assert step.mean_seconds <= min(max(seconds), 3 * step.median_seconds) * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------------ drift


@pytest.mark.parametrize(("last", "expected"), [(2.0, 1.6), (0.5, 0.6), (1.08, 1.0), (1.0, 1.0)])
def test_a_step_time_that_drifts(last: float, expected: float) -> None:
    ramp = [STEP * (1 + (last - 1) * n / 99) for n in range(100)]
    step, _ = step_times(phase([STEP, STEP, *ramp]))
    assert step.drift == pytest.approx(expected, rel=0.05)


def test_noise_is_no_drift() -> None:
    swings = [STEP * (1.5 if n // 25 % 2 else 1.0) for n in range(100)]
    assert step_times(phase([STEP, STEP, *swings]))[0].drift == 1.0


def test_too_few_steps_to_tell_a_drift() -> None:
    assert step_times(phase([STEP * n for n in range(1, 20)]))[0].drift == 1.0


# ----------------------------------------------------------------------------------------------- data loading


def test_how_batches_arrive() -> None:
    loader = {"workers": 2, "pin_memory": True, "batch_size": 64, "fetches": 40, "fetch_seconds": 2.0}
    record = phase(steady(10), waits=[9.0] * 2 + [0.02] * 8, loader=loader, batch={"size": 48, "bytes": 1 << 20})
    data = data_loading(record, list(range(2, 10)), 1.0)
    assert data.wait_seconds_per_step == pytest.approx(0.02)
    assert data.fetch_seconds_per_batch == pytest.approx(0.05)
    assert (data.workers, data.pin_memory, data.batches_per_step) == (2, True, 1.0)
    assert (data.batch_size, data.batch_bytes) == (48, 1 << 20), "the batch that was drawn says more than the loader"


def test_one_long_wait_does_not_rule_the_mean() -> None:
    record = phase(steady(10), waits=[0.0] * 9 + [100.0])
    assert data_loading(record, list(range(10)), 1.0).wait_seconds_per_step == pytest.approx(3 * STEP / 10)


def test_a_script_without_a_loader() -> None:
    data = data_loading(phase([]), [], 0.0)
    assert (data.wait_seconds_per_step, data.fetch_seconds_per_batch, data.workers) == (0.0, None, 0)
    assert (data.batch_size, data.batch_bytes, data.pin_memory) == (None, 0, False)


# ------------------------------------------------------------------------------ work that was seen, and again


def test_plain_steps_have_nothing_beside_them() -> None:
    assert found(phase(steady(30))) == {}


def test_validation_of_every_epoch() -> None:
    event = {"opened": 2, "validation": 0.8, "validation_batches": 5}
    record = phase(steady(45, {19: 1.0, 39: 1.0}), {19: event, 39: event})
    got = found(record)
    assert set(got) == {ExtraKind.VALIDATION, ExtraKind.EPOCH_START}
    validation, start = got[ExtraKind.VALIDATION], got[ExtraKind.EPOCH_START]
    assert (validation.rhythm, validation.every, validation.measured) == (Rhythm.EPOCH, 1.0, True)
    assert validation.seconds_each == pytest.approx(0.8)
    assert (start.rhythm, start.every) == (Rhythm.EPOCH, 1.0)
    assert start.seconds_each == pytest.approx(0.2), "the workers' start is what is left"


def test_validation_of_every_second_epoch() -> None:
    plain, long = {"opened": 1}, {"opened": 2, "validation": 0.8}
    record = phase(steady(50, {19: 0.8, 39: 0.8}), {9: plain, 19: long, 29: plain, 39: long})
    validation = found(record)[ExtraKind.VALIDATION]
    assert (validation.rhythm, validation.every) == (Rhythm.EPOCH, 2.0)


def test_validation_without_eval_mode_is_known_by_its_batches() -> None:
    event = {"opened": 2, "validation_batches": 5}
    got = found(phase(steady(45, {19: 1.0, 39: 1.0}), {19: event, 39: event}))
    assert set(got) == {ExtraKind.VALIDATION}
    assert got[ExtraKind.VALIDATION].seconds_each == pytest.approx(1.0)


def test_validation_in_the_middle_of_an_epoch_is_no_epoch() -> None:
    """Its own loader is opened, the training loader is not: the probe then counts no opening."""
    event = {"validation": 0.8, "validation_batches": 5}
    record = phase(steady(75, dict.fromkeys((19, 39, 59), 0.8)), {19: event, 39: event, 59: event})
    validation = found(record)[ExtraKind.VALIDATION]
    assert (validation.rhythm, validation.every) == (Rhythm.STEPS, 20.0)


def test_a_checkpoint_every_so_many_steps() -> None:
    record = phase(steady(70, dict.fromkeys((24, 49), 0.5)), {24: {"save": 0.5}, 49: {"save": 0.5}})
    checkpoint = found(record)[ExtraKind.CHECKPOINT]
    assert (checkpoint.rhythm, checkpoint.every, checkpoint.measured) == (Rhythm.STEPS, 25.0, True)
    assert checkpoint.seconds_each == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("gates", "per_iteration", "every"),
    [
        ((50.0,), 1.0, 50.0),
        ((100.0,), 2.0, 50.0),
        ((), 1.0, 50.0),
        ((7.0,), 1.0, 50.0),
        ((10.0, 50.0), 1.0, 50.0),
    ],
    ids=["its gate", "in micro-batches", "no gate", "another's gate", "a shorter one would have come before"],
)
def test_a_checkpoint_seen_once(gates: tuple[float, ...], per_iteration: float, every: float) -> None:
    upcoming = tuple(work("checkpoint", gate) for gate in gates)
    record = phase(steady(70, {49: 0.5}), {49: {"save": 0.5}}, upcoming=upcoming)
    checkpoint = found(record, per_iteration=per_iteration)[ExtraKind.CHECKPOINT]
    assert (checkpoint.rhythm, checkpoint.every) == (Rhythm.STEPS, every)


def test_work_too_short_to_matter() -> None:
    event = {"save": 0.01 * STEP}
    assert found(phase(steady(40), {9: event, 19: event})) == {}


def test_the_start_of_an_epoch_under_the_trace_is_not_timed() -> None:
    record = phase(steady(40, {19: 3.0}), {19: {"opened": 1, "traced": True}})
    assert found(record) == {}


def test_irregular_steps() -> None:
    late = dict.fromkeys((7, 12, 30, 31), 10.0)
    other = found(phase(steady(42, late)))[ExtraKind.OTHER]
    assert (other.rhythm, other.every) == (Rhythm.STEPS, 10.0)
    assert "4 steps of 40" in other.note


@given(st.lists(st.one_of(st.floats(0.09, 0.11), st.floats(0.5, 20)), min_size=20, max_size=200))
def test_what_was_timed_adds_up(seconds: list[float]) -> None:
    """The mean step and the irregular work together are the time that passed, but for what is too little to list."""
    record = phase([STEP, STEP, *seconds])
    step, used = step_times(record)
    beside = sum(e.seconds_each * len(used) / e.every for e in found(record).values())
    assert step.mean_seconds * len(used) + beside == pytest.approx(sum(seconds), rel=0.021)


# ------------------------------------------------------------------------------------------- work not reached


def test_a_validation_that_was_not_reached() -> None:
    upcoming = (work("validation", None, EPOCH_LINE, batches=60, batch_size=64),)
    validation = found(phase(steady(30), upcoming=upcoming), batch_size=32)[ExtraKind.VALIDATION]
    assert (validation.rhythm, validation.every, validation.measured) == (Rhythm.EPOCH, 1.0, False)
    assert validation.seconds_each == pytest.approx(60 * STEP / 3 * 64 / 32), "forward passes of twice the batch"


def test_a_validation_is_not_as_many_steps_but_as_many_batches() -> None:
    """With four batches to a step, one batch takes a quarter of the step."""
    upcoming = (work("validation", None, EPOCH_LINE, batches=60, batch_size=32),)
    record = phase(steady(30), upcoming=upcoming)
    for n, snapshot in enumerate(record["snapshots"]):
        snapshot.update(batches=4 * n, all_batches=4 * n)
    validation = found(record, per_iteration=4.0)[ExtraKind.VALIDATION]
    assert validation.seconds_each == pytest.approx(60 * STEP / 4 / 3)


def test_a_validation_that_was_seen_is_not_counted_again() -> None:
    event = {"opened": 2, "validation": 0.8}
    upcoming = (work("validation", None, EPOCH_LINE, batches=60, batch_size=64),)
    validation = found(phase(steady(45, {19: 0.8, 39: 0.8}), {19: event, 39: event}, upcoming=upcoming))[
        ExtraKind.VALIDATION
    ]
    assert validation.measured


def test_a_gated_evaluation_that_was_timed_before_the_first_step() -> None:
    validation = found(phase(steady(30), upcoming=(work("gated", 250.0),)), before=1.5)[ExtraKind.VALIDATION]
    assert (validation.rhythm, validation.every, validation.seconds_each) == (Rhythm.STEPS, 250.0, 1.5)
    assert validation.measured


def test_a_checkpoint_that_was_not_reached() -> None:
    record = phase(
        steady(30),
        upcoming=(work("checkpoint", 5.0, EPOCH_LINE),),
        model={"bytes": 400_000_000},
        optimizers=[{"state_bytes": 800_000_000}],
    )
    checkpoint = found(record)[ExtraKind.CHECKPOINT]
    assert (checkpoint.rhythm, checkpoint.every, checkpoint.measured) == (Rhythm.EPOCH, 5.0, False)
    assert checkpoint.seconds_each == pytest.approx(6.0), "1.2 GB at 200 MB/s"


@pytest.mark.parametrize(("steps", "count"), [(400.0, 0), (None, 1), (2000.0, 1)])
def test_work_that_comes_after_the_end_never_comes(steps: float | None, count: int) -> None:
    assert len(found(phase(steady(30), upcoming=(work("gated", 500.0),)), steps=steps, before=1.0)) == count


def test_a_gate_on_micro_batches_counts_in_steps() -> None:
    record = phase(steady(30), upcoming=(work("gated", 100.0),))
    assert found(record, per_iteration=4.0, before=1.0)[ExtraKind.VALIDATION].every == 25.0


def test_work_around_the_epochs_comes_after_all_of_them() -> None:
    loops = (loop(5, 3), loop(EPOCH_LINE, 8), loop(BATCH_LINE, 1000))
    upcoming = (work("validation", None, 5, batches=30, batch_size=32),)
    validation = found(phase(steady(30), loops=loops, upcoming=upcoming))[ExtraKind.VALIDATION]
    assert (validation.rhythm, validation.every) == (Rhythm.EPOCH, 8.0)


def test_work_after_all_loops_comes_once() -> None:
    upcoming = (work("validation", None, 99, batches=30, batch_size=32),)
    validation = found(phase(steady(30), upcoming=upcoming))[ExtraKind.VALIDATION]
    assert validation.rhythm is Rhythm.RUN
