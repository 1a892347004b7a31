"""The user's bucket, as far as machines have put something into it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import InvalidRequest
from costgpu.job.agent.outputs.checkpoint_upload import ARCHIVE, LIST
from costgpu.ledger.codec import to_json
from costgpu.models.job import Checkpoint, JobPhase, JobStatus
from tests.fake_cloud.guest import UPLOAD_SECONDS
from tests.fake_cloud.host import checkpoint_of

if TYPE_CHECKING:
    from tests.fake_cloud import FakeCloud


class MemoryBucket:
    """The `Bucket` protocol."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    def credentials_expire_at(self) -> None:
        """Never."""

    def presign_put(self, name: str, seconds: float) -> str:
        assert seconds > 0
        return f"memory://{name}"

    def exists(self, name: str) -> bool:
        return self._content(name) is not None

    def newest(self, run_id: str) -> tuple[Checkpoint, Mapping[str, bytes]] | None:
        """Return what the job of a run has put there to go on from, and its contents by their checksums."""
        for machine in self._cloud.instances_of(run_id):
            job = machine.guest.job if machine.guest is not None else None
            if job is not None and ARCHIVE in job.uploads:
                until = min(self._cloud.time(), self._cloud.ended(machine)) - UPLOAD_SECONDS
                found, contents = checkpoint_of(job, until, self._cloud.epoch, everything=False)
                return (found, contents) if found.files else None
        return None

    def _content(self, name: str) -> Mapping[str, bytes] | None:
        run_id, _, archive = name.partition("/")
        if not archive.startswith(ARCHIVE):
            return self._cloud.bucket.get(f"memory://{name}")
        found = self.newest(run_id)
        if found is None:
            return None
        files = [{name: value for name, value in row.items() if name != "source"} for row in to_json(found[0].files)]
        listed = {"number": found[0].number, "at": found[0].taken_epoch, "files": files}
        return {LIST: json.dumps(listed).encode(), **found[1]}

    def download(self, name: str, path: Path) -> None:
        content = self._content(name)
        if content is None:
            raise InvalidRequest(f"There is no {name} in the bucket.")
        path.write_bytes(_archive({**content, **(self._status(name) if name.endswith("logs.tar.gz") else {})}))

    def _status(self, name: str) -> Mapping[str, bytes]:
        """The job's end, which the agent puts beside the logs."""
        for instance in self._cloud.instances_of(name.partition("/")[0]):
            job = instance.guest.job if instance.guest is not None else None
            if job is not None and job.finished_at is not None:
                status = JobStatus(phase=JobPhase.FINISHED, reason=job.reason, exit_code=job.exit_code)
                return {"status.json": json.dumps(to_json(status)).encode()}
        return {}


def _archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
