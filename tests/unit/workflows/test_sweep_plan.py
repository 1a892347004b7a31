"""From what was predicted for one trial to the plan of a sweep on rented machines."""

from dataclasses import replace

import pytest

from costgpu.job.plan import LaunchPlace
from costgpu.models.storage import StorageNeed
from costgpu.sweep.schedule import RAY_SECONDS, TRIAL_SECONDS, Resources, share_out
from costgpu.workflows.runs.places import Places
from costgpu.workflows.sweep.plan import _resources, _timed
from tests.unit.estimator.builders import GIB, candidate, cpu_spec, offer, phase, profile, total
from tests.unit.render.runs import prediction
from tests.unit.render.sweeps import SWEEP

EIGHT = offer("8.00", gpu="A100", gpu_memory_gib=40.0, count=8, memory_gib=1000.0)
CPU = offer("0.40", memory_gib=16.0)


def test_what_rented_machines_have() -> None:
    assert _resources(LaunchPlace(offer=EIGHT), 2) == Resources(
        nodes=2, computers=2, gpus=8, memory_gib=1000.0, gpu_memory_gib=40.0
    )
    assert _resources(LaunchPlace(offer=CPU), 1) == Resources(nodes=1, computers=1, memory_gib=16.0)


def test_the_places_are_priced_for_all_trials_on_all_machines() -> None:
    """Four trials of 30 minutes, two at once on two machines: 2 rounds, twice the machine's price."""
    measured = profile(phase(total=total(300.0, 100.0)), peak_rss_bytes=GIB)
    one = replace(prediction(), candidate=candidate(CPU, cpu_spec()))
    places = Places(ranked=[LaunchPlace(offer=CPU, prediction=one), LaunchPlace(offer=CPU)], verdict="", notes=[])
    shares = share_out(None, 4, Resources(nodes=2, computers=2, memory_gib=16.0), measured)
    time, priced = _timed(SWEEP, shares, places, measured, 2)
    assert time is not None
    assert (shares.concurrent, time.rounds, time.sharing) == (2, 2, False)
    whole = priced.ranked[0].prediction
    assert whole is not None
    seconds = 2 * 1800.0 + RAY_SECONDS + 2 * TRIAL_SECONDS
    assert whole.run_seconds.value == pytest.approx(seconds)
    assert whole.cost_usd.value == pytest.approx(2 * 0.40 * whole.wall_seconds.value / 3600, rel=0.1)
    assert time.least_share == pytest.approx((1 + 2 / 4) / 3), "three epochs, one report each"
    assert priced.ranked[1].prediction is None


def test_trials_share_a_download_and_keep_their_checkpoints_beside_each_other() -> None:
    measured = profile(phase(total=total(300.0, 100.0)), peak_rss_bytes=GIB)
    one = replace(prediction(), candidate=candidate(CPU, cpu_spec()), parts={"steps": 1640.0, "download": 160.0})
    need = StorageNeed(download_bytes=16 * 10**9, download_seconds=160.0, checkpoint_bytes=10**9, saves=3, kept=3)
    places = Places(ranked=[LaunchPlace(offer=CPU, prediction=one)], verdict="", notes=[], storage=need)
    shares = share_out(None, 4, Resources(nodes=1, computers=1, memory_gib=16.0), measured)
    time, priced = _timed(SWEEP, shares, places, measured, 1)
    assert time is not None
    assert time.rounds == 4
    whole = priced.ranked[0].prediction
    assert whole is not None
    assert whole.run_seconds.value == pytest.approx(4 * 1640.0 + 160.0 + RAY_SECONDS + 4 * TRIAL_SECONDS)
    assert priced.storage == replace(need, saves=12, kept=12)


def test_without_a_profile_nothing_is_predicted() -> None:
    places = Places(ranked=[LaunchPlace(offer=CPU)], verdict="", notes=[])
    shares = share_out(None, 4, Resources(), None)
    assert _timed(SWEEP, shares, places, None, 1) == (None, places)
