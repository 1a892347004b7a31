"""The job of a command line."""

from costgpu.measure import Request
from costgpu.models.job import JobSpec
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.request import RunRequest, check, job_spec, limits_of


def asked(*command: str, **options: object) -> tuple[RunRequest, Request]:
    """Return what `costgpu run COMMAND` asks for, and its script."""
    request = RunRequest(command=command, **options)  # type: ignore[arg-type]
    check(request)
    return request, script_request(request, LogReporter())


def job_of(request: RunRequest, script: Request) -> JobSpec:
    """Return the job."""
    return job_spec(request, script, limits_of(request, longest_hours=1.0), script.assigned, bucket=None)
