"""Where a run can go, by the options that name a place."""

from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.places import wanted_offers
from costgpu.workflows.runs.request import RunRequest


def test_one_of_several_machine_types() -> None:
    request = RunRequest(command=("train.py",), instance_type=("g5.xlarge", "C7i.2xlarge"))
    found = wanted_offers(request, ("aws/us-east-1",), LogReporter())
    assert {place.offer.instance_type for place in found if place.offer} == {"g5.xlarge", "c7i.2xlarge"}
