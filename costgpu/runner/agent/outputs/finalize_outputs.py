"""What a job has left is made ready: its outputs and logs go to the bucket, and their checksums are computed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ..observe import machine_stats
from ..state_files import Home
from ..status import LOGS, job_status
from . import upload, workdir

STATUS = "status.json"  # the job's end, beside the logs in the bucket


def settle(
    home: Home, order: Mapping[str, Any], uploads: Mapping[str, str], give_up: Callable[[], bool]
) -> dict[str, Any]:
    """Takes as long as it takes; never raises.

    Args:
        home: Of the machine.
        order: The job's.
        uploads: ``outputs`` and ``logs`` -> presigned URL; empty where nothing is to be uploaded (any more).
        give_up: Whether it is too late to go on with an upload.

    Returns:
        What is to be remembered in the daemon's state.
    """
    changes: dict[str, Any] = {"settled": True}
    try:
        found = workdir.readable(workdir.find_outputs(home, order["outputs"]))
        if uploads:
            _upload(home, found, uploads, give_up)
            if not found.unreadable:  # what exists only here waits under the lease
                changes.update(
                    uploaded=True, uploaded_uptime=machine_stats.uptime(), uploaded_boot=machine_stats.boot_id()
                )
        workdir.with_checksums(home, found)
        if found.unreadable:
            changes["trouble"] = _trouble(found)
    except upload.UploadFailed as error:
        changes["trouble"] = "The upload failed (%s): the outputs wait on the machine." % error
    except Exception as error:
        traceback.print_exc()
        changes["trouble"] = "The outputs could not be prepared: %s." % type(error).__name__
    return changes


def _upload(home: Home, found: workdir.Found, uploads: Mapping[str, str], give_up: Callable[[], bool]) -> None:
    outputs = [(each.path, each.full, each.size, each.mode) for each in found.outputs]
    status = {**job_status(home), "uploaded": True}  # who reads it has found it there
    if found.unreadable:
        status["detail"] = (status["detail"] + " " + _trouble(found)).strip()
    home.write(STATUS, status)
    logs = [(name, home.file(name), home.size(name), 0o644) for name in (*LOGS, STATUS)]
    for name, members in (("outputs", outputs), ("logs", logs)):
        if name in uploads:
            upload.put(uploads[name], members, give_up)


def _trouble(found: workdir.Found) -> str:
    path, why = min(found.unreadable.items())
    return "Not all outputs can be read: %s (%s)." % (path, why)
