"""What a closed run amounts to for the person who started it."""

from dataclasses import replace

import pytest

from costgpu.job.state.outcome import error_for, exit_code
from costgpu.job.state.states import begin
from costgpu.models.job import EndReason, JobPhase, JobStatus
from costgpu.models.run import RunView
from tests.job.examples import intent


def ended(reason: EndReason | None, code: int | None = 3, *, collected: bool = True, detail: str = "") -> RunView:
    status = JobStatus(phase=JobPhase.FINISHED, reason=reason, exit_code=code, detail=detail)
    return replace(begin(intent()), reason=reason, status=status, collected=collected)


@pytest.mark.parametrize("reason", EndReason)
def test_every_reason_has_its_error(reason: EndReason) -> None:
    error = error_for(ended(reason))
    assert (None if error is None else type(error)) is reason.error
    assert error is None or (error.message and not {"_", "{"} & {*error.message, *error.hint})


@pytest.mark.parametrize("code", [0, 1, 3, 47, 137, 255])
def test_the_exit_code_is_the_jobs(code: int) -> None:
    assert exit_code(ended(EndReason.JOB_FAILED, code)) == code


def test_an_exit_code_that_nobody_knows_is_no_success() -> None:
    assert exit_code(ended(EndReason.SUCCEEDED, None)) == 1
    assert exit_code(replace(ended(EndReason.SUCCEEDED), status=None)) == 1


def test_what_the_agent_said_is_passed_on() -> None:
    error = error_for(ended(EndReason.IDLE, 143, detail="No CPU was used for 10 min."))
    assert error is not None
    assert error.message == (
        "The job was ended by its --idle-duration: nothing happened for so long. No CPU was used for 10 min."
    )
    failed = error_for(ended(EndReason.SETUP_FAILED, 127))
    assert failed is not None
    assert failed.message == "The set-up command failed with 127; the job was not started."
    assert "costgpu logs r1" in failed.hint


def test_a_limit_tells_what_became_of_the_outputs() -> None:
    home, lost = error_for(ended(EndReason.DEADLINE)), error_for(ended(EndReason.DEADLINE, collected=False))
    assert home is not None
    assert lost is not None
    assert "are home" in home.hint
    assert "--bucket" in lost.hint
