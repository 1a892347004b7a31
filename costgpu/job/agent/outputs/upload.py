"""What a job has left is made ready: outputs and logs go to the bucket, and their checksums are computed.

One tar.gz each, by presigned PUT, without a second copy on the disk.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tarfile
import traceback
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ....portable.clock import MachineClock
from ....portable.files import open_regular
from ..state_files import Home
from ..status import LOGS, job_status
from . import find_outputs
from .find_outputs import FoundOutputs
from .outside import find_all

STATUS = "status.json"  # the job's end, beside the logs in the bucket
_CHUNK = 1 << 20
_TRIES = 5
_GZIP = 31  # zlib's window bits for a gzip header
_LEVEL = 1  # checkpoints hardly compress: speed counts
MAX_PUT_BYTES = 5 << 30  # one PUT to S3 (docs.aws.amazon.com/AmazonS3/latest/userguide/upload-objects.html, 2026-11)


class UploadFailed(Exception):
    """Why it is not in the bucket. Never holds an address: those are secrets."""


def archive_chunks(files: Sequence[tuple[str, str, int, int]]) -> Iterator[bytes]:
    """Yield a tar.gz of (name, path, size, mode), the same bytes every time."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for name, path, size, mode in files:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, mode
        yield squeeze.compress(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        left = size
        with open_regular(path) as stream:
            while left:
                chunk = stream.read(min(_CHUNK, left))
                if not chunk:
                    raise UploadFailed("%s became shorter" % name)
                left -= len(chunk)
                yield squeeze.compress(chunk)
        yield squeeze.compress(b"\0" * (-size % 512))
    yield squeeze.compress(b"\0" * 1024)
    yield squeeze.flush()


def upload_archive(
    url: str, files: Sequence[tuple[str, str, int, int]], give_up: Callable[[], bool], clock: MachineClock
) -> None:
    """Upload files (name, path, size, mode) as one archive; the store verifies what arrived by its MD5.

    The archive is made twice: once for its length and checksum, which must come first, and once to be sent.

    Raises:
        UploadFailed: After several attempts, or at once if another one is pointless.
    """
    digest, length = hashlib.md5(), 0
    for chunk in archive_chunks(files):
        digest.update(chunk)
        length += len(chunk)
        if give_up():
            raise UploadFailed("there was no time left")
    if length > MAX_PUT_BYTES:
        raise UploadFailed("%.1f GiB are more than one upload may have" % (length / 2**30))

    def chunks() -> Iterator[bytes]:
        for chunk in archive_chunks(files):
            if give_up():
                raise UploadFailed("there was no time left")
            if chunk:
                yield chunk

    headers = {
        "Content-Length": str(length),
        "Content-MD5": base64.b64encode(digest.digest()).decode(),
        "Content-Type": "application/octet-stream",
    }
    errors: list[str] = []
    for number in range(_TRIES):
        request = urllib.request.Request(url, method="PUT", headers=headers, data=chunks())
        try:
            with urllib.request.urlopen(request, timeout=60):
                return
        except urllib.error.HTTPError as error:
            code = re.search(rb"<Code>(\w+)</Code>", error.read(4096))
            errors.append("HTTP %d %s" % (error.code, code.group(1).decode() if code else ""))
            if error.code < 500 and error.code not in (408, 429):
                break
        except (OSError, ValueError) as error:
            errors.append(type(error).__name__ + ": " + str(getattr(error, "reason", "") or "no answer"))
        if give_up():
            break
        clock.sleep(min(2.0**number, 10.0))
    raise UploadFailed(errors[-1].strip())


def finalize_outputs(
    home: Home, order: Mapping[str, Any], uploads: Mapping[str, str], give_up: Callable[[], bool], clock: MachineClock
) -> dict[str, Any]:
    """Upload what is to be uploaded and compute checksums; may take long, never raises.

    `uploads` has a presigned URL each for ``outputs``, ``logs`` and ``outside``, or is empty; `give_up` tells whether it is
    too late to go on with an upload. Returns changes of the daemon's state.
    """
    changes: dict[str, Any] = {"settled": True}
    try:
        found = find_outputs.without_unreadable(find_all(home, order))
        if uploads:
            _upload(home, found, uploads, give_up, clock)
            if not (found.unreadable or found.trouble):  # what exists only here waits under the lease
                changes.update(uploaded=True, uploaded_uptime=clock.uptime(), uploaded_boot=clock.boot_id())
        find_outputs.with_checksums(home, found)
        if found.unreadable or found.trouble:
            changes["trouble"] = _describe(found)
    except UploadFailed as error:
        changes["trouble"] = "The upload failed (%s): the outputs wait on the machine." % error
    except Exception as error:
        traceback.print_exc()
        changes["trouble"] = "The outputs could not be prepared: %s." % type(error).__name__
    return changes


def _upload(
    home: Home, found: FoundOutputs, uploads: Mapping[str, str], give_up: Callable[[], bool], clock: MachineClock
) -> None:
    """Upload the archives; the one that may be too large for the time or the bucket comes last."""
    status = {**job_status(home), "uploaded": True}  # who reads it has found it there
    status["detail"] = (status["detail"] + " " + _describe(found)).strip()
    home.write(STATUS, status)
    logs = [(name, home.file(name), home.size(name), 0o644) for name in (*LOGS, STATUS) if home.exists(name)]
    outputs, outside = (
        [(each.path, each.full, each.size, each.mode) for each in found.outputs if each.outside is where]
        for where in (False, True)
    )
    for name, members in (("outputs", outputs), ("logs", logs), ("outside", outside)):
        if name in uploads and (members or name != "outside"):
            upload_archive(uploads[name], members, give_up, clock)


def _describe(found: FoundOutputs) -> str:
    """Say why the machine is not to be given up; empty if nothing is lost with it."""
    if not found.unreadable:
        return found.trouble
    path, why = min(found.unreadable.items())
    return "Not all outputs can be read: %s (%s)." % (path, why)
