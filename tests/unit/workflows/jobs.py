"""Jobs: of a command line, and of a folder with what is sent of it."""

from pathlib import Path

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


def sending(
    folder: Path, *, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), env_file: str | None = None
) -> JobSpec:
    """Return the job of a folder, with what is to be sent of it whatever ignore rules say, and what is not."""
    return JobSpec(
        name="train", argv=("train.py",), workdir=str(folder), include=include, exclude=exclude, env_file=env_file
    )
