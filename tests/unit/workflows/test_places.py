"""Where a run can go, by the options that name a place."""

import re
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.errors import UsageError
from costgpu.estimator.reference_profiles import language_model_profile
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.places import Places, find_places, wanted_offers, with_more_memory
from costgpu.workflows.runs.request import RunRequest
from tests.unit.estimator.builders import GIB, machine

TODAY = date(2026, 11, 30)


def training(parameters: float, **changes: Any) -> WorkloadProfile:
    """Return the training of a language model of that size, from weights that it downloads."""
    made = language_model_profile(parameters, 1e8, machine(), "2026-11-30T00:00:00+00:00", "1")
    return replace(made, weights_bytes=round(2 * parameters), **changes)


def places(profile: WorkloadProfile | None, **options: Any) -> Places:
    """Return where `costgpu run` would go with a profile, whoever has credentials."""
    context: Any = SimpleNamespace(reporter=LogReporter(), ledger=None)
    request = RunRequest(command=("train.py",), **options)
    return find_places(request, context, profile, TODAY, workload_key="")


@pytest.mark.parametrize("options", [{}, {"estimate": False}, {"nodes": 2}])
def test_a_machine_whose_accelerators_are_too_small_is_refused_and_another_one_named(options: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError, match=r"cannot run on g5.xlarge: needs \d+\.\d GiB of accelerator memory"
    ) as refused:
        places(training(8e9), instance_type=("g5.xlarge",), infra=("aws",), **options)
    assert refused.value.hint is not None
    name = refused.value.hint.split()[1]
    assert refused.value.hint.startswith(f"aws {name} (")
    found = places(training(8e9), instance_type=(name,), infra=("aws",), **options)
    assert found.ranked[0].offer.instance_type == name, "what the hint names is not refused"


def test_of_several_machines_that_are_too_small_the_largest_says_why() -> None:
    with pytest.raises(
        UsageError, match=r"none of the machines asked for. The one with the most memory is g5.12xlarge"
    ):
        places(training(70e9), instance_type=("g5.xlarge", "g5.12xlarge", "g6.xlarge"), infra=("aws",))


def test_too_small_for_anything_that_is_known() -> None:
    with pytest.raises(UsageError) as refused:
        places(training(5e12), gpus="H100:8", infra=("aws",))
    assert refused.value.hint == "costgpu estimate says why."


def test_this_computer_is_refused_if_what_was_measured_without_weights_does_not_fit() -> None:
    made = training(8e9)
    need = replace(made, without_weights=True, peak_rss_bytes=100 * GIB)
    with pytest.raises(
        UsageError, match=r"cannot run on this computer: needs 101.0 GiB of memory, has 16.0 GiB"
    ) as refused:
        places(need, infra=("local",))
    assert "would do" in str(refused.value.hint)
    assert re.search(r"by the price of \d{4}-\d\d-\d\d", str(refused.value.hint)), "no price without its age"
    assert places(made, infra=("local",)).ranked, "what was measured with its weights ran here"


def test_what_a_job_puts_on_a_disk_comes_with_the_places_to_rent() -> None:
    found = places(training(8e9), gpus="H100", infra=("aws",))
    assert found.storage.download_bytes == 16e9
    assert found.storage.kept == 1
    assert all(place.prediction is None or "download" in place.prediction.parts for place in found.ranked)


def test_machines_of_a_size() -> None:
    request = RunRequest(cpus="8", memory="64+", gpus="none", infra=("aws/us-east-1",))
    found = [one.offer for one in wanted_offers(request, LogReporter()) if one.offer]
    assert found
    assert all(offer.vcpus == 8 and offer.memory_gib >= 64 for offer in found)


def test_one_of_several_machine_types() -> None:
    request = RunRequest(command=("train.py",), instance_type=("g5.xlarge", "C7i.2xlarge"), infra=("aws/us-east-1",))
    found = wanted_offers(request, LogReporter())
    assert {place.offer.instance_type for place in found if place.offer} == {"g5.xlarge", "c7i.2xlarge"}


def test_what_has_more_memory_than_a_machine() -> None:
    request = RunRequest(command=("train.py",), instance_type=("g5.xlarge",), infra=("aws/us-east-1",))
    first = wanted_offers(request, LogReporter())[0].offer
    assert first is not None
    found = [one.offer for one in wanted_offers(with_more_memory(request, first), LogReporter())]
    assert {offer.instance_type for offer in found if offer} >= {"g6e.2xlarge", "p5.4xlarge"}
    assert {offer.accelerator.count for offer in found if offer and offer.accelerator} == {1}
    plain = replace(first, accelerator=None)
    found = [one.offer for one in wanted_offers(with_more_memory(request, plain), LogReporter())]
    assert all(offer and offer.accelerator is None and offer.memory_gib >= first.memory_gib for offer in found)
