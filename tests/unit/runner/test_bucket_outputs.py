"""What a machine has left in the bucket, unpacked: plain files below the folder, and nothing else."""

import io
import shutil
import stat
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import OutputsDamaged
from costgpu.runner.files.bucket_outputs import LOGS, OUTPUTS, BucketOutputs
from tests.runner.examples import spec

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


def rescued(folder: Path, view: Any) -> tuple[Any, ...] | None:
    opened: Any = FakeBucket(folder / "bucket")
    return BucketOutputs(ManualClock(), lambda url: opened).recover(view, folder / "run")


@pytest.fixture
def view() -> Any:
    return SimpleNamespace(run_id=RUN, spec=spec(bucket="s3://b/p"))


def test_files_arrive_with_their_content_and_mode(tmp_path: Path, view: Any) -> None:
    assert rescued(tmp_path, view) is None
    bucket = tmp_path / "bucket" / RUN
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


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "out/../../evil"])
def test_a_name_that_leads_out_is_refused_and_the_archive_kept(tmp_path: Path, view: Any, name: str) -> None:
    archive(tmp_path / "bucket" / RUN / LOGS, member("stdout.log", b"one\n"))
    archive(tmp_path / "bucket" / RUN / OUTPUTS, member("good", b"1"), member(name, b"evil"))
    with pytest.raises(OutputsDamaged, match="leads out of the folder") as caught:
        rescued(tmp_path, view)
    assert Path(caught.value.hint.removeprefix("It is kept as ").removesuffix(".")).exists()
    assert not list(tmp_path.rglob("evil"))


def test_links_and_devices_are_left_out(tmp_path: Path, view: Any) -> None:
    bucket = tmp_path / "bucket" / RUN
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


def test_a_damaged_archive_is_said(tmp_path: Path, view: Any) -> None:
    bucket = tmp_path / "bucket" / RUN
    archive(bucket / LOGS, member("stdout.log", b"x" * 100_000))
    (bucket / LOGS).write_bytes((bucket / LOGS).read_bytes()[:60])
    with pytest.raises(OutputsDamaged, match="cannot be unpacked"):
        rescued(tmp_path, view)
