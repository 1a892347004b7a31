"""What a fine-tune puts on the disk of a rented machine, and what its download costs in time and money."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.cost import extras_usd_per_hour, hourly_usd
from costgpu.estimator.predict import as_measured, predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.storage import MOST_KEPT, storage_of
from costgpu.models.prediction import Candidate, MeasuredSpeed, Prediction
from costgpu.models.storage import NO_STORAGE, StorageNeed
from costgpu.models.workload import Extra, ExtraKind, OptimizerFacts, Rhythm, Unit, WorkloadProfile
from tests.unit.estimator.builders import GIB, candidate, cpu_spec, offer, optimizer, phase, profile, total
from tests.unit.render.runs import NOW

WEIGHTS = 16_000_000_000
ADAPTERS = OptimizerFacts(name="AdamW", parameters=10**7, tensors=10, state_bytes=8 * 10**7)
RENTED = candidate(offer("1.00", memory_gib=64.0), cpu_spec())
SIZES = st.integers(0, 10**13)


def saving(seconds: float, every: float = 100.0, **changes: object) -> Extra:
    """Return checkpoints every so many steps."""
    extra = Extra(kind=ExtraKind.CHECKPOINT, seconds_each=seconds, rhythm=Rhythm.STEPS, every=every)
    return replace(extra, **changes)  # type: ignore[arg-type]


def fine_tune(
    *extras: Extra, steps: float | None = 1000.0, frozen: int = WEIGHTS, **changes: object
) -> WorkloadProfile:
    """Return adapters that are trained on pretrained weights in half precision."""
    adapters = 4 * ADAPTERS.parameters
    one = phase(
        total=total(steps),
        optimizers=[ADAPTERS],
        model_bytes=WEIGHTS + adapters,
        frozen_bytes=frozen,
        extras=list(extras),
    )
    return replace(profile(one), weights_bytes=WEIGHTS, **changes)  # type: ignore[arg-type]


def predicted(measured: WorkloadProfile, place: Candidate = RENTED) -> Prediction:
    """Return the prediction of a whole job."""
    return predict(prepare(measured, scope_of(measured), year=2026), place)


@given(SIZES, SIZES, st.integers(0, 20), st.integers(1, 500))
def test_a_disk_has_room_for_what_is_put_there_and_is_never_below_the_default(
    weights: int, checkpoint: int, kept: int, default: int
) -> None:
    need = StorageNeed(download_bytes=weights, checkpoint_bytes=checkpoint, saves=kept, kept=kept)
    size, held = need.disk_gib(default), weights + kept * checkpoint
    assert size >= default
    assert size * GIB + 10e9 >= default * GIB + held * 1.1 - 1
    assert (size - default) * GIB < max(1, held * 1.1 - 10e9) + 10 * GIB, "by ten GiB too much at most"
    assert need.times(2).disk_gib(default) >= size
    assert need.disk_gib(default, kept + 1) >= size


def test_adapters_alone_are_saved_if_saving_is_quick_and_everything_if_it_takes_as_long() -> None:
    trained = 4 * ADAPTERS.parameters + ADAPTERS.state_bytes
    quick = storage_of(fine_tune(saving(0.1)), scope_of(fine_tune()))
    assert (quick.checkpoint_bytes, quick.saves, quick.kept) == (trained, 10, MOST_KEPT)
    slow = storage_of(fine_tune(saving(1e6)), scope_of(fine_tune()))
    assert slow.checkpoint_bytes == WEIGHTS + trained
    half = storage_of(fine_tune(saving(40.0, every=500.0)), scope_of(fine_tune()))
    assert (half.checkpoint_bytes, half.saves, half.kept) == (8_000_000_000, 2, 2), "40 s at 200 MB/s"


def test_a_training_of_pretrained_weights_saves_its_result_and_scoring_with_them_does_not() -> None:
    everything = storage_of(fine_tune(frozen=0), scope_of(fine_tune()))
    assert (everything.saves, everything.kept) == (1, 1)
    assert everything.checkpoint_bytes == WEIGHTS + 4 * ADAPTERS.parameters + ADAPTERS.state_bytes
    scores = replace(profile(phase(total=total(10.0), unit=Unit(trains=False))), weights_bytes=WEIGHTS)
    assert storage_of(scores, scope_of(scores)) == StorageNeed(download_bytes=WEIGHTS, download_seconds=160.0)


def test_what_downloads_and_saves_nothing_needs_the_default() -> None:
    small = profile(phase(total=total(100.0), optimizers=[optimizer()]))
    assert storage_of(small, scope_of(small)) == NO_STORAGE
    assert predicted(small).candidate == RENTED
    often = replace(small, phases=[replace(small.phases[0], extras=[saving(0.1, every=1.0)])])
    assert predicted(often).candidate == RENTED, "a hundred checkpoints of kilobytes"


def test_the_download_is_a_part_of_a_rented_run_and_comes_once() -> None:
    plain, loaded = predicted(replace(fine_tune(), weights_bytes=0)), predicted(fine_tune())
    assert loaded.parts["download"] == WEIGHTS / 100e6
    assert loaded.run_seconds.value == pytest.approx(plain.run_seconds.value + 160.0)
    assert loaded.overhead_seconds == plain.overhead_seconds
    assert loaded.fixed_seconds == pytest.approx(plain.fixed_seconds + 160.0)
    here = predicted(fine_tune(), Candidate(offer=None))
    assert "download" not in here.parts
    a_part = fine_tune(steps=None)
    assert not scope_of(a_part).whole
    assert "download" not in predicted(a_part).parts


def test_a_speed_that_was_measured_there_holds_its_download() -> None:
    speed = MeasuredSpeed(job_seconds=500.0, runs=3, log_spread=0.0, last_at=NOW)
    assert as_measured(predicted(fine_tune()), speed).run_seconds.value == pytest.approx(500.0)


def test_the_larger_disk_is_paid() -> None:
    place, costs = predicted(fine_tune()).candidate, RENTED.costs
    assert costs is not None
    assert place.disk_gib is not None
    assert place.disk_gib > 50
    more = (place.disk_gib - 50) * costs.disk_usd_per_gb_month / 730
    assert extras_usd_per_hour(place) - extras_usd_per_hour(RENTED) == pytest.approx(more)
    assert hourly_usd(place) > hourly_usd(RENTED)
