"""What a job has left is made ready: its outputs and logs go to the bucket, and their checksums are computed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ..clock import Clock
from ..state_files import Home
from ..status import LOGS, job_status
from . import find_outputs, upload

STATUS = "status.json"  # the job's end, beside the logs in the bucket


def finalize_outputs(
    home: Home, order: Mapping[str, Any], uploads: Mapping[str, str], give_up: Callable[[], bool], clock: Clock
) -> dict[str, Any]:
    """Uploads what is to be uploaded and computes checksums; may take long, never raises.

    `uploads` has a presigned URL each for ``outputs`` and ``logs``, or is empty; `give_up` tells whether it is too late
    to go on with an upload. Returns changes of the daemon's state.
    """
    changes: dict[str, Any] = {"settled": True}
    try:
        found = find_outputs.without_unreadable(find_outputs.find_outputs(home, order["outputs"]))
        if uploads:
            _upload(home, found, uploads, give_up, clock)
            if not found.unreadable:  # what exists only here waits under the lease
                changes.update(uploaded=True, uploaded_uptime=clock.uptime(), uploaded_boot=clock.boot_id())
        find_outputs.with_checksums(home, found)
        if found.unreadable:
            changes["trouble"] = _describe_unreadable(found)
    except upload.UploadFailed as error:
        changes["trouble"] = "The upload failed (%s): the outputs wait on the machine." % error
    except Exception as error:
        traceback.print_exc()
        changes["trouble"] = "The outputs could not be prepared: %s." % type(error).__name__
    return changes


def _upload(
    home: Home, found: find_outputs.Found, uploads: Mapping[str, str], give_up: Callable[[], bool], clock: Clock
) -> None:
    outputs = [(each.path, each.full, each.size, each.mode) for each in found.outputs]
    status = {**job_status(home), "uploaded": True}  # who reads it has found it there
    if found.unreadable:
        status["detail"] = (status["detail"] + " " + _describe_unreadable(found)).strip()
    home.write(STATUS, status)
    logs = [(name, home.file(name), home.size(name), 0o644) for name in (*LOGS, STATUS)]
    for name, members in (("outputs", outputs), ("logs", logs)):
        if name in uploads:
            upload.upload_archive(uploads[name], members, give_up, clock)


def _describe_unreadable(found: find_outputs.Found) -> str:
    path, why = min(found.unreadable.items())
    return "Not all outputs can be read: %s (%s)." % (path, why)
