"""What is known of the job, from the files in the home alone: any process can tell, even with the daemon dead."""

from __future__ import annotations

from typing import Any

from .state_files import Home

LOGS = ("stdout.log", "stderr.log")


def job_status(home: Home) -> dict[str, Any]:
    """The fields of `costgpu.models.job.JobStatus`."""
    ended = home.read("exit.json")  # first: what is written before it is then seen, too
    order = home.read("order.json")
    progress = home.read("progress.json") or {}
    state = home.read("state.json") or {}
    answer: dict[str, Any] = {
        "phase": "waiting" if order is None else progress.get("phase", "setup"),
        "reason": None,
        "exit_code": None,
        "detail": "",
        "started_epoch": progress.get("started_epoch"),
        "job_started_epoch": progress.get("job_started_epoch"),
        "finished_epoch": None,
        "stdout_bytes": home.size(LOGS[0]),
        "stderr_bytes": home.size(LOGS[1]),
        "uploaded": bool(state.get("uploaded")),
    }
    ending = state.get("ending") or {}
    if ended is not None:
        answer["phase"] = "finished"
        answer["exit_code"] = ended["exit_code"]
        answer["finished_epoch"] = ended["finished_epoch"]
        answer["reason"], answer["detail"] = _why(ended, ending)
        if state.get("trouble"):
            answer["detail"] = (answer["detail"] + " " + state["trouble"]).strip()
    elif ending:
        answer["detail"] = "Ending: " + ending["detail"]
    return answer


def _why(ended: dict[str, Any], ending: dict[str, Any]) -> Any:
    """Reason and sentence. What the agent was about to do counts only if it came before the job's own end."""
    if ending and ended.get("signalled"):
        return ending["reason"], ending["detail"]
    if ended.get("reason"):
        return ended["reason"], ended["detail"]
    return ("succeeded" if ended["exit_code"] == 0 else "job_failed"), ended["detail"]
