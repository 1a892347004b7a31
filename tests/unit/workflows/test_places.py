"""Where a run can go, by the options that name a place."""

from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.places import wanted_offers
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
