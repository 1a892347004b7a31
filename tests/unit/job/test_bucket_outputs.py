"""What a machine has left in the bucket, unpacked: plain files below the folder, and nothing else."""

import errno
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import OutputsDamaged
from costgpu.job.drive.checkpoints import fetch_newer_checkpoint
from costgpu.job.files.bucket_outputs import LOGS, OUTPUTS, OUTSIDE, BucketOutputs
from costgpu.job.files.checkpoint_store import CheckpointStore
from costgpu.job.files.place_outputs import fetch_and_place
from costgpu.models.job import Checkpoint, FileEntry
from tests.job.examples import spec

RUN = "abcdefghijkl"


class FakeBucket:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()

    def download(self, name: str, target: Path) -> None:
        shutil.copyfile(self.folder / name, target)


def member(name: str, data: bytes = b"", mode: int = 0o644, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))


def outputs_of(folder: Path) -> BucketOutputs:
    opened: Any = FakeBucket(folder / "bucket")
    return BucketOutputs(ManualClock(), lambda url: opened)


def rescued(folder: Path, view: Any) -> tuple[Any, ...] | None:
    return outputs_of(folder).recover(view, folder / "run")


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """What the run has left there."""
    return tmp_path / "bucket" / RUN


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the contents of checkpoints are kept."""
    (tmp_path / "kept" / "contents").mkdir(parents=True)
    return tmp_path / "kept" / "contents"


@pytest.fixture
def view() -> Any:
    return SimpleNamespace(run_id=RUN, spec=spec(bucket="s3://b/p"))


def test_files_arrive_with_their_content_and_mode(tmp_path: Path, view: Any, bucket: Path) -> None:
    assert rescued(tmp_path, view) is None
    archive(bucket / LOGS, member("stdout.log", b"one\n"), member("stderr.log"))
    archive(
        bucket / OUTPUTS, member("out/model.pt", b"weights"), member("go.sh", b"#!", 0o4777), member("empty", mode=0)
    )
    found = rescued(tmp_path, view)
    assert found is not None
    _, entries, host = found
    assert [(e.path, e.size) for e in entries] == [("empty", 0), ("go.sh", 2), ("out/model.pt", 7)]
    assert (host.folder / "out/model.pt").read_bytes() == b"weights"
    assert stat.S_IMODE((host.folder / "go.sh").stat().st_mode) == 0o755
    assert (tmp_path / "run" / "stdout.log").read_text() == "one\n"
    assert rescued(tmp_path, view) is not None, "and once more over what is there"


def test_what_lay_outside_comes_last_and_from_a_folder_of_its_own(tmp_path: Path, view: Any, bucket: Path) -> None:
    archive(bucket / LOGS, member("stdout.log", b"one\n"))
    archive(bucket / OUTPUTS, member("model.pt", b"weights"))
    archive(bucket / OUTSIDE, member("outside/tmp/w.pt", b"more"))
    for _ in range(2):
        found = rescued(tmp_path, view)
        assert found is not None
        status, entries, host = found
        assert [(e.path, bool(e.source)) for e in entries] == [("model.pt", False), ("outside/tmp/w.pt", True)]
    placed = fetch_and_place(host, entries, workdir=tmp_path / "here", run_id="r")
    assert (placed.files, placed.outside, placed.outside_folder) == (2, 1, "outside")
    assert (tmp_path / "here/outside/tmp/w.pt").read_bytes() == b"more"
    assert OUTSIDE not in status.detail


@pytest.mark.parametrize("how", ["damaged", "full"])
def test_half_of_what_lay_outside_is_never_delivered_and_keeps_nothing_else_out(
    tmp_path: Path, view: Any, monkeypatch: pytest.MonkeyPatch, how: str, bucket: Path
) -> None:
    archive(bucket / LOGS, member("stdout.log", b"one\n"))
    archive(bucket / OUTPUTS, member("model.pt", b"weights" * 1000))
    archive(
        bucket / OUTSIDE, member("outside/tmp/1.pt", os.urandom(5000)), member("outside/tmp/2.pt", os.urandom(5000))
    )
    if how == "damaged":
        os.truncate(bucket / OUTSIDE, 8000)
    else:  # room for both, if the outputs did not need it
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=(16 << 20) + 13000))
    found = rescued(tmp_path, view)
    assert found is not None
    status, entries, _ = found
    assert [e.path for e in entries] == ["model.pt"]
    assert f"only in s3://b/p/{RUN}/{OUTSIDE}" in status.detail
    assert not list((tmp_path / "run").glob("rescued-outside*"))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "out/../../evil"])
def test_a_name_that_leads_out_is_refused_and_the_archive_kept(
    tmp_path: Path, view: Any, name: str, bucket: Path
) -> None:
    archive(bucket / LOGS, member("stdout.log", b"one\n"))
    archive(bucket / OUTPUTS, member("good", b"1"), member(name, b"evil"))
    with pytest.raises(OutputsDamaged, match="leads out of the folder") as caught:
        rescued(tmp_path, view)
    assert Path(caught.value.hint.removeprefix("It is kept as ").removesuffix(".")).exists()
    assert not list(tmp_path.rglob("evil"))


def test_links_and_devices_are_left_out(tmp_path: Path, view: Any, bucket: Path) -> None:
    archive(bucket / LOGS, member("stdout.log"))
    archive(
        bucket / OUTPUTS,
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("pipe", type=tarfile.FIFOTYPE),
        member("kept", b"1"),
    )
    found = rescued(tmp_path, view)
    assert found is not None
    assert [entry.path for entry in found[1]] == ["kept"]


def test_a_damaged_archive_is_said(tmp_path: Path, view: Any, bucket: Path) -> None:
    archive(bucket / LOGS, member("stdout.log", b"x" * 100_000))
    (bucket / LOGS).write_bytes((bucket / LOGS).read_bytes()[:60])
    with pytest.raises(OutputsDamaged, match="cannot be unpacked"):
        rescued(tmp_path, view)


def checkpoint_in(bucket: Path, files: dict[str, bytes], *contents: tuple[tarfile.TarInfo, bytes]) -> None:
    """What a machine leaves: the list of these files, and contents; without any, those of the files."""
    found = [[path, len(text), checksum(text), 0o644, 1] for path, text in files.items()]
    listed = json.dumps({"number": 9, "at": 1.0, "files": found, "trouble": ""}).encode()
    own = [member(checksum(text), text) for text in files.values()]
    archive(bucket / "checkpoint.tar.gz", member("list.json", listed), *(contents or own))


def checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def fetched(folder: Path, view: Any, store: Path, after: float = 0.0) -> bool:
    """Bring what is there into the store; return whether anything is that is newer."""
    with outputs_of(folder).checkpoint(view, folder / "run", after) as there:
        if there is not None:
            there[1].fetch(there[0].contents, store)
    assert not list((folder / "run").glob("rescued-checkpoint*"))
    return there is not None


def test_only_a_newer_checkpoint_is_brought_here_and_only_once(
    tmp_path: Path, view: Any, bucket: Path, store: Path
) -> None:
    assert not fetched(tmp_path, view, store)
    checkpoint_in(bucket, {"a": b"weights"})
    assert fetched(tmp_path, view, store)
    assert fetched(tmp_path, view, store, after=0.5)
    assert not fetched(tmp_path, view, store, after=1.0)
    (bucket / "checkpoint.tar.gz").write_bytes(b"is not read again")
    assert not fetched(tmp_path, view, store, after=1.0)


def test_a_list_that_is_cut_short_is_damaged(tmp_path: Path, view: Any, bucket: Path, store: Path) -> None:
    archive(bucket / "checkpoint.tar.gz", member("list.json", b'{"number": 9, "fil'))
    with pytest.raises(OutputsDamaged, match="cannot be read"):
        fetched(tmp_path, view, store)


def test_only_what_the_checkpoint_names_gets_into_the_store(
    tmp_path: Path, view: Any, bucket: Path, store: Path
) -> None:
    sha256 = checksum(b"weights")
    checkpoint_in(
        bucket,
        {"a": b"weights", "same": b"weights"},
        member("notes.txt", b"no checksum"),
        member("sub/" + sha256, b"weights"),
        member(checksum(b"other"), b"other"),
        member("0" * 64, type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member(sha256, b"weights"),
    )
    for _ in range(2):  # and once more over what is there
        fetched(tmp_path, view, store)
        assert [path.name for path in (tmp_path / "kept").rglob("*")] == ["contents", sha256]
        assert (store / sha256).read_bytes() == b"weights"


@pytest.mark.parametrize("damage", ["missing", "other", "link", "folder", "cut"])
def test_an_archive_with_another_content_leaves_nothing_in_the_store(
    tmp_path: Path, view: Any, damage: str, bucket: Path, store: Path
) -> None:
    sha256 = checksum(b"weights")
    bad = {
        "missing": [],
        "cut": [],
        "other": [member(sha256, b"weighty")],
        "link": [member("l", b"weights"), member(sha256, type=tarfile.LNKTYPE, linkname="l")],
        "folder": [member(sha256 + "/weights", b"weights")],
    }
    files = {"whole": b"whole", "a": b"weights"}
    checkpoint_in(bucket, files, member(checksum(b"whole"), b"whole"), *bad[damage])
    if damage == "cut":
        (bucket / "checkpoint.tar.gz").write_bytes((bucket / "checkpoint.tar.gz").read_bytes()[:40])
    with pytest.raises(OutputsDamaged):
        fetched(tmp_path, view, store)
    assert [path.name for path in (tmp_path / "kept").rglob("*")] == ["contents"]


def test_a_full_disk_is_not_a_damaged_checkpoint(
    tmp_path: Path, view: Any, monkeypatch: pytest.MonkeyPatch, bucket: Path, store: Path
) -> None:
    checkpoint_in(bucket, {"a": b"weights"})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        fetched(tmp_path, view, store)


@pytest.mark.parametrize(
    ("damaged", "kept_epoch", "newest"),
    [("", 0.5, "new"), ("content", 0.5, "kept"), ("list", 0.5, "kept"), ("", 1.0, "kept")],
)
def test_a_job_goes_on_from_the_newest_that_is_whole(
    tmp_path: Path, view: Any, damaged: str, kept_epoch: float, newest: str, bucket: Path
) -> None:
    """Of the one in the bucket and those that are kept here; what cannot be used is told."""
    store = CheckpointStore(tmp_path / "kept")
    here = FileEntry(path="a", size=4, sha256=checksum(b"kept"))
    source: Any = SimpleNamespace(fetch=lambda _, folder: (folder / here.sha256).write_bytes(b"kept"))
    store.keep(Checkpoint(number=1, taken_epoch=kept_epoch, files=(here,)), source)
    checkpoint_in(bucket, {"a": b"new"}, member(checksum(b"new"), b"another" if damaged == "content" else b"new"))
    if damaged == "list":
        archive(bucket / "checkpoint.tar.gz", member("list.json", b"{}"))
    view.started_at = 1
    notes: list[str] = []
    context: Any = SimpleNamespace(
        checkpoints=SimpleNamespace(store=store),
        services=SimpleNamespace(bucket=outputs_of(tmp_path), folder=tmp_path),
        observer=SimpleNamespace(note=notes.append, waiting=lambda *_: None),
        view=view,
    )
    fetch_newer_checkpoint(context, view)
    found = store.newest()
    assert found is not None
    assert (store.contents / found.files[0].sha256).read_text() == newest
    assert len(notes) == bool(damaged)
