"""What is known of the job, from the files in the home alone: any process can tell, even with the daemon dead."""

from __future__ import annotations

from typing import Any, NamedTuple

from .state_files import Home

LOGS = ("stdout.log", "stderr.log")
_PHASES = ("setup", "running")


class JobEnd(NamedTuple):
    """How the job ended, as its supervisor (or the guard, in its place) recorded it."""

    exit_code: int
    finished_epoch: float
    reason: str  # empty if the exit code says it all
    detail: str
    signalled: bool  # whether it had been asked to end
    left_behind: bool  # whether processes of it were still there
    out_of_memory: str  # what it had too little of; empty if nothing says so


def job_end(home: Home) -> JobEnd | None:
    """Return the record of the job's end; None as long as there is none."""
    ended = home.read("exit.json")
    if ended is None:
        return None
    texts = ended.get("reason") or "", ended.get("detail") or ""
    flags = bool(ended.get("signalled")), bool(ended.get("left_behind"))
    return JobEnd(ended["exit_code"], ended["finished_epoch"], *texts, *flags, ended.get("out_of_memory") or "")


def job_status(home: Home) -> dict[str, Any]:
    """Return the fields of `costgpu.models.job.JobStatus`."""
    ended = job_end(home)  # first: what is written before it is then seen, too
    order = home.read("order.json")
    progress = home.read("progress.json") or {}
    state = home.read("state.json") or {}
    phase = progress.get("phase")
    answer: dict[str, Any] = {
        "phase": "waiting" if order is None and not progress else phase if phase in _PHASES else "setup",
        "reason": None,
        "exit_code": None,
        "detail": "",
        "started_epoch": progress.get("started_epoch"),
        "job_started_epoch": progress.get("job_started_epoch"),
        "finished_epoch": None,
        "stdout_bytes": home.size(LOGS[0]),
        "stderr_bytes": home.size(LOGS[1]),
        "uploaded": bool(state.get("uploaded")),
        "out_of_memory": "",
    }
    ending = state.get("ending") or {}
    why, detail = ending.get("reason"), ending.get("detail", "")
    if ended is not None:
        answer.update(phase="finished", exit_code=ended.exit_code, finished_epoch=ended.finished_epoch)
        if why and ended.signalled:  # what the agent was about to do counts only if it came before the job's own end
            answer.update(reason=why, detail=detail)
        else:
            own = ended.reason or ("succeeded" if ended.exit_code == 0 else "job_failed")
            answer.update(reason=own, detail=ended.detail, out_of_memory=ended.out_of_memory)
        answer["detail"] = (answer["detail"] + " " + state.get("trouble", "")).strip()
    elif why:
        answer["detail"] = "Ending: " + detail
    return answer
