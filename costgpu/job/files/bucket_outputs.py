"""The user's bucket: where a machine leaves outputs and logs when nobody comes for them.

The machine gets presigned addresses and no credentials; they are made anew at each start and stored nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from costgpu import border
from costgpu.clock import Clock
from costgpu.errors import OutputsDamaged
from costgpu.files import parse_json
from costgpu.job.agent.outputs.checkpoint_upload import ARCHIVE as CHECKPOINT
from costgpu.job.agent.outputs.checkpoint_upload import LIST as CHECKPOINT_LIST
from costgpu.job.files import agent_report
from costgpu.job.files.download import copy_files, fetch_verified
from costgpu.job.files.paths import is_inside
from costgpu.models.job import Checkpoint, EndReason, FileEntry, JobPhase, JobStatus
from costgpu.models.run import RunView
from costgpu.portable.files import file_sha256
from costgpu.providers import registry
from costgpu.providers.base import Bucket

GRACE_SECONDS = 900.0  # an address is valid a little longer than the lease
LONGEST_SECONDS = 7 * 86400.0  # no address is valid for longer
_SPARE_BYTES = 16 << 20  # left free on the disk
_STATUS_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
OUTPUTS, LOGS, OUTSIDE = "outputs.tar.gz", "logs.tar.gz", "outside.tar.gz"


class BucketOutputs:
    """What machines leave in the bucket that the run's spec names.

    Args:
        clock: For how long addresses have to be valid.
        open_bucket: From ``s3://name/prefix``; the default asks the providers.
    """

    def __init__(self, clock: Clock, open_bucket: Callable[[str], Bucket] | None = None) -> None:
        self.clock = clock
        self._open = open_bucket or registry.bucket

    def upload_urls(self, view: RunView) -> Mapping[str, str]:
        """Return presigned URLs by name (``outputs``, ``logs``, ``outside``); none without a bucket."""
        if not view.spec.bucket or view.lease_until is None:
            return {}
        bucket = self._open(view.spec.bucket)
        left = max(60.0, (view.lease_until - self.clock.now()).total_seconds())
        seconds = min(left + GRACE_SECONDS, LONGEST_SECONDS)
        names = {"outputs": OUTPUTS, "logs": LOGS, "outside": OUTSIDE}
        if view.spec.recovery is not None:
            names[CHECKPOINT] = f"{CHECKPOINT}.tar.gz"
        return {what: bucket.presign_put(f"{view.run_id}/{name}", seconds) for what, name in names.items()}

    @contextlib.contextmanager
    def checkpoint(self, view: RunView, folder: Path, after: float) -> Iterator[tuple[Checkpoint, FolderHost] | None]:
        """Yield the checkpoint that a machine which has ended has left there, and its contents, named by their checksums.

        They are here as long as the block lasts. None if there is none, or it was taken no later than `after`: then it is
        not brought here again.

        Args:
            folder: The run's private folder.
            after: Unix time.

        Raises:
            OutputsDamaged: What is there cannot be read.
            OSError: There is no room for it here.
            ProviderError: The bucket does not answer, or refuses.
        """
        bucket, name = self._open(view.spec.bucket), f"{view.run_id}/{CHECKPOINT}.tar.gz"
        place, known = folder / "rescued-checkpoint", folder / "bucket-checkpoint.json"
        if (known.exists() and _listed(known, name).taken_epoch <= after) or not bucket.exists(name):
            yield None
            return
        _remove(place)
        try:
            _unpack(bucket, name, place / "contents")
            found = _listed(place / "contents" / CHECKPOINT_LIST, name)
            (place / "contents" / CHECKPOINT_LIST).replace(known)
            yield (found, FolderHost(place / "contents")) if found.taken_epoch > after else None
        finally:
            _remove(place)

    def check(self, url: str, until: datetime) -> str:
        """Look whether the bucket is there and open to us; return what a person should know, or nothing.

        Raises:
            ProviderError: It is not.
            UsageError: Not a bucket that costgpu knows.
        """
        bucket = self._open(url)
        bucket.exists(OUTPUTS)
        expire = bucket.credentials_expire_at()
        if expire is None or expire >= until:
            return ""
        return (
            f"The credentials expire at {expire:%Y-%m-%d %H:%M} UTC, before the machine ends at the latest: after that"
            f" it cannot put outputs into {url} by itself."
        )

    def rescue(self, view: RunView, folder: Path) -> tuple[JobStatus, tuple[FileEntry, ...], FolderHost] | None:
        """Unpack what the machine has left there; logs go into the run's private folder.

        Raises:
            OutputsDamaged: An archive has names that leave its folder, or cannot be read.
            OSError: There is no room for it here.
            ProviderError: The bucket does not answer, or refuses.
        """
        if not view.spec.bucket:
            return None
        bucket = self._open(view.spec.bucket)
        if not bucket.exists(f"{view.run_id}/{LOGS}"):
            return None
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _unpack(bucket, f"{view.run_id}/{LOGS}", folder / "rescued-logs")
        for name in ("stdout.log", "stderr.log"):
            if (folder / "rescued-logs" / name).exists():
                shutil.copyfile(folder / "rescued-logs" / name, folder / name)
        place = folder / "rescued"
        if bucket.exists(f"{view.run_id}/{OUTPUTS}"):
            _unpack(bucket, f"{view.run_id}/{OUTPUTS}", place)
        host, status = FolderHost(place), _status(folder / "rescued-logs")
        entries = host.entries()
        if bucket.exists(f"{view.run_id}/{OUTSIDE}"):
            outside, others = folder / "rescued-outside", sum(entry.size for entry in entries)
            _remove(outside)
            try:
                _unpack(bucket, f"{view.run_id}/{OUTSIDE}", outside, spare=_SPARE_BYTES + others)
                found = FolderHost(outside).entries()
                entries += tuple(replace(each, source=str(outside / each.path)) for each in found)
            except (OutputsDamaged, OSError) as error:  # only whole, and never in the way of all else
                _remove(outside)
                outside.with_suffix(".tar.gz").unlink(missing_ok=True)
                said = f"What the job wrote outside its folder is only in {view.spec.bucket}/{view.run_id}/{OUTSIDE}"
                why = error.message if isinstance(error, OutputsDamaged) else f"{error.strerror or error}."
                status = replace(status, detail=f"{status.detail} {said}: {why}".strip())
        return status, entries, host


class FolderHost:
    """Outputs in a folder, fetched as from a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> tuple[FileEntry, ...]:
        """Return all files, with checksums."""
        return tuple(
            FileEntry(
                path=path.relative_to(self.folder).as_posix(),
                size=path.stat().st_size,
                sha256=file_sha256(path),
                mode=path.stat().st_mode & 0o777,
            )
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        )

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Copy them."""
        fetch_verified(copy_files, str(self.folder), entries, folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _listed(path: Path, name: str) -> Checkpoint:
    """Return the checkpoint of an archive by its list."""
    try:
        return agent_report.checkpoint(border.read(dict[str, Any], parse_json(path.read_bytes()), ValueError))
    except (OSError, ValueError) as error:
        raise OutputsDamaged(f"The list of {name} cannot be read: {error}.") from error


def _unpack(bucket: Bucket, name: str, folder: Path, *, spare: int = _SPARE_BYTES) -> None:
    """Unpack an archive below a folder.

    Raises:
        OutputsDamaged: It cannot be read, or has names that lead out of the folder.
        OSError: There is no room for it here.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    archive = folder.with_suffix(".tar.gz")
    bucket.download(name, archive)
    try:
        with tarfile.open(archive) as tar:
            room = shutil.disk_usage(folder).free - spare
            for member in tar:  # tarfile's own filter is only there from Python 3.11.4 on
                room -= _extract(tar, member, folder, room)
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            archive.unlink(missing_ok=True)
            raise
        raise OutputsDamaged(
            f"{name} in the bucket cannot be unpacked: {error}.", hint=f"It is kept as {archive}."
        ) from error
    archive.unlink(missing_ok=True)


def _status(folder: Path) -> JobStatus:
    """Return the job's end as the agent wrote it beside the logs."""
    try:
        with (folder / "status.json").open("rb") as file:
            return agent_report.status(parse_json(file.read(_STATUS_BYTES)))
    except (OSError, ValueError):
        return JobStatus(phase=JobPhase.FINISHED, reason=EndReason.INSTANCE_LOST, detail="Its end was not recorded.")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, room: int) -> int:
    """Write one plain file below the folder; everything else in an archive is left out or refused.

    Args:
        room: Bytes that may be written.

    Returns:
        Bytes that were written. Blocks of zeros become holes, and are none.

    Raises:
        tarfile.TarError: Its name leads out of the folder.
        OSError: There is no room, or it cannot be written.
    """
    target = folder / member.name
    source = tar.extractfile(member) if member.isfile() else None
    if source is None:
        return 0
    if not is_inside(member.name):
        raise tarfile.TarError(f"{member.name!r} leads out of the folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with source, target.open("wb") as file:
        while piece := source.read(_PIECE_BYTES):
            if not piece.strip(b"\0"):
                file.seek(len(piece), os.SEEK_CUR)
                continue
            written += len(piece)
            if written > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
            file.write(piece)
        file.truncate()
    target.chmod(member.mode & 0o755 | 0o600)
    return written
