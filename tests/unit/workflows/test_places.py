"""Where a run can go, by the options that name a place."""

from dataclasses import replace

from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.places import wanted_offers, with_more_memory
from costgpu.workflows.runs.request import RunRequest


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
