"""Outputs and logs into the bucket: one tar.gz each, by presigned PUT, without a second copy on the disk."""

from __future__ import annotations

import base64
import hashlib
import re
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence

from ..clock import Clock

_CHUNK = 1 << 20
_TRIES = 5
_GZIP = 31  # zlib's window bits for a gzip header
_LEVEL = 1  # checkpoints hardly compress: speed counts
MAX_PUT_BYTES = 5 << 30  # one PUT to S3 (docs.aws.amazon.com/AmazonS3/latest/userguide/upload-objects.html, 2026-11)


class UploadFailed(Exception):
    """Why it is not in the bucket. Never holds an address: those are secrets."""


def archive_chunks(files: Sequence[tuple[str, str, int, int]]) -> Iterator[bytes]:
    """A tar.gz of (name, path, size, mode), the same bytes every time."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for name, path, size, mode in files:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, mode
        yield squeeze.compress(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        left = size
        with open(path, "rb") as stream:
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
    url: str, files: Sequence[tuple[str, str, int, int]], give_up: Callable[[], bool], clock: Clock
) -> None:
    """Uploads files (name, path, size, mode) as one archive; the store verifies what arrived by its MD5.

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
    headers = {
        "Content-Length": str(length),
        "Content-MD5": base64.b64encode(digest.digest()).decode(),
        "Content-Type": "application/octet-stream",
    }
    errors: list[str] = []
    for attempt in range(_TRIES):
        request = urllib.request.Request(url, method="PUT", headers=headers, data=_non_empty(archive_chunks(files)))
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
        clock.sleep(min(2.0**attempt, 10.0))
    raise UploadFailed(errors[-1].strip())


def _non_empty(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return (chunk for chunk in chunks if chunk)
