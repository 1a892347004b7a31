"""How many processes work on a place, how many steps they take, and how wide the interval is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.interval import Interval
from costgpu.estimator.multi_gpu.layouts import FIXED, NOT_SPLIT, ONE, group_on, scope_with, step_ratio
from costgpu.estimator.multi_gpu.network import Group, Links
from costgpu.estimator.multi_gpu.step_time import scaling_interval
from costgpu.estimator.scope import scope_of
from costgpu.models.parallelism import ONE_PROCESS, BatchScaling, Parallelism, Scheme
from costgpu.models.prediction import Candidate
from tests.properties import examples
from tests.unit.estimator.builders import candidate, gpu_spec, offer, phase, profile, total
from tests.unit.estimator.multi_gpu.groups import group, interconnect, parallelism


def place(count: float = 8, nodes: int = 1, **links: object) -> Candidate:
    """A machine with so many GPUs."""
    return candidate(
        offer(gpu="GPU", count=count), accelerator=gpu_spec(), nodes=nodes, interconnect=interconnect(**links)
    )


def test_all_gpus_of_all_machines_work() -> None:
    for machine, gpus, nodes in ((place(8), 8, 1), (place(8, 4), 32, 4), (place(1, 2), 2, 2)):
        found = group_on(parallelism(), machine)
        assert isinstance(found, Group)
        assert (found.gpus, found.nodes) == (gpus, nodes)
    assert group_on(parallelism(), place(1)) == ONE
    assert group_on(ONE_PROCESS, place(8)) == ONE


@pytest.mark.parametrize(
    ("spread", "machine", "reason"),
    [
        (ONE_PROCESS, place(8, 2), "one process, which cannot use 2 machines"),
        (parallelism(Scheme.TENSOR), place(8), "tensor parallelism, whose time on 8 GPUs is not predicted: measure it"),
        (parallelism(Scheme.PIPELINE), place(1, 2), "pipeline parallelism, whose time on 2 GPUs is not predicted"),
        (
            parallelism(fixed_processes=True, processes=4),
            place(2),
            "starts 4 processes with a GPU each; here there are 2",
        ),
        (parallelism(fixed_processes=True, processes=3), place(8, 2), "2 machines cannot share evenly"),
        (parallelism(Scheme.DATA_PARALLEL), place(8, 2), "cannot use several machines"),
        (parallelism(), place(8, link="none", link_gbps=None), "cannot train together"),
        (parallelism(), place(8, link_gbps=None), "not known: measure it"),
        (parallelism(), place(8, 2, network_gbps=None), "network between such machines is not known: measure it"),
        (parallelism(), candidate(offer(gpu="GPU", count=2), accelerator=gpu_spec()), "not known: measure it"),
    ],
)
def test_where_it_cannot_run_or_be_told(spread: Parallelism, machine: Candidate, reason: str) -> None:
    found = group_on(spread, machine)
    assert isinstance(found, str)
    assert reason in found


def test_a_fixed_number_of_processes_leaves_the_other_gpus_idle() -> None:
    found = group_on(parallelism(fixed_processes=True, processes=4), place(8))
    assert isinstance(found, Group)
    assert found.gpus == 4
    assert group_on(parallelism(processes=4), place(8)) != found  # a launcher can be told another number


@pytest.mark.parametrize(
    ("changes", "ranks", "ratio"),
    [
        ({"epoch_samples": 1000, "rank_batch": 32}, 8, 4 / 32),  # ceil(1000 / 256) over ceil(1000 / 32)
        ({"epoch_samples": 1000, "rank_batch": 32, "drop_last": True}, 8, 3 / 31),
        ({"epoch_samples": 10, "rank_batch": 32, "drop_last": True}, 8, 1),
        ({"epoch_samples": 1000, "rank_batch": 32, "measured_ranks": 8}, 8, 1),
        ({"epoch_samples": 1024, "rank_batch": 32, "measured_ranks": 8}, 1, 8),
        ({}, 8, 1 / 8),
        ({"measured_ranks": 2}, 8, 1 / 4),
        ({"sampler_distributed": False}, 8, 1),
        ({"batch": BatchScaling.GLOBAL}, 8, 1),
    ],
)
def test_steps_of_an_epoch(changes: dict[str, Any], ranks: int, ratio: float) -> None:
    assert step_ratio(parallelism(**changes), ranks) == pytest.approx(ratio)


@examples(200)
@given(st.integers(1, 10**7), st.integers(1, 4096), st.booleans(), st.sampled_from([1, 2, 4, 8]))
def test_more_ranks_take_no_more_steps(samples: int, batch: int, drop_last: bool, measured: int) -> None:
    spread = parallelism(epoch_samples=samples, rank_batch=batch, drop_last=drop_last, measured_ranks=measured)
    ratios = [step_ratio(spread, ranks) for ranks in (1, 2, 4, 8, 16, 64)]
    assert ratios == sorted(ratios, reverse=True)
    assert step_ratio(spread, measured) == 1


def test_a_fixed_number_of_steps_stays() -> None:
    epochs = scope_of(profile(phase(total=total(1000, 100))))
    assert scope_with(epochs, parallelism(), 4)[0].steps == (250,)
    for counted in (total(1000), total(250, 100)):  # without epochs, or ending within one
        scope, notes = scope_with(scope_of(profile(phase(total=counted))), parallelism(), 4)
        assert scope.steps == (counted.steps,)
        assert notes == [FIXED]
    wanted = scope_of(profile(phase(total=total(1000, 100))), total_steps=500)
    assert scope_with(wanted, parallelism(), 4)[0].steps == (500,)
    one_epoch = scope_of(profile(phase(total=total(None, 100))))
    assert scope_with(one_epoch, parallelism(), 4)[0].steps == (25,)
    assert scope_with(epochs, parallelism(sampler_distributed=False), 4) == (epochs, [NOT_SPLIT])


@pytest.mark.parametrize(
    ("seconds", "efficiency", "machine", "expected"),
    [
        (1.0, 0.97, group(8), Interval(0.97, 1.07)),
        (1.0, 0.91, group(8), Interval(0.95, 1.10)),
        (1.0, 0.30, group(8), Interval(0.62, 1.15)),
        (0.04, 0.97, group(8), Interval(0.97, 1.07 * 1.1)),
        (1.0, 0.97, group(16, nodes=2, network=40), Interval(0.93, 1.15)),
        (1.0, 0.97, group(16, nodes=2, network=1, kind="tcp"), Interval(0.6, 1.6)),
        (1.0, 1.0, ONE, Interval(1, 1)),
    ],
)
def test_the_interval(seconds: float, efficiency: float, machine: Group, expected: Interval) -> None:
    found, _ = scaling_interval(seconds, efficiency, machine, Scheme.DDP)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_what_is_less_known_is_wider() -> None:
    def width(basis: str, gpus: int = 4) -> Interval:
        machine = Group(gpus=gpus, nodes=1, links=Links(local=1e9, network=None, basis=basis))
        return scaling_interval(1.0, 0.97, machine, Scheme.DDP)[0]

    assert width("fitted").high < width("extrapolated").high < width("assumed").high < width("assumed", 8).high
    assert scaling_interval(1.0, 0.97, group(8), Scheme.DDP, loader_measured=False)[0].high > width("fitted").high
    assert scaling_interval(1.0, 0.97, group(8), Scheme.DATA_PARALLEL)[0].high > 1.5
