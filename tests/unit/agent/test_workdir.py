"""The work folder on the machine: arrival, and what are outputs."""

import errno
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import SyncRefused
from costgpu.job.agent.outputs import find_outputs, workdir
from costgpu.job.agent.outputs.checkpoints import take_checkpoint
from costgpu.job.agent.state_files import Home
from costgpu.job.files.selection import FileSelection
from costgpu.job.files.tar import tar_stream
from costgpu.models.job import FileEntry
from costgpu.portable.clock import MachineClock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    (folder / "work").mkdir(parents=True)
    return Home(str(folder))


def _row(path: str, data: bytes, mode: int = 0o644) -> list[object]:
    return [path, len(data), hashlib.sha256(data).hexdigest(), mode]


def _tar(members: dict[str, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    stream.seek(0)
    return stream


def _arrive(home: Home, members: dict[str, bytes], links: dict[str, str] | None = None) -> None:
    lacking = workdir.expect_files(home, [_row(path, data) for path, data in members.items()], links or {})
    if lacking:
        workdir.receive(home, _tar({path: members[path] for path in lacking}))
        workdir.apply_manifest(home)


def _outputs(home: Home, *patterns: str) -> list[str]:
    return [each.path for each in find_outputs.find_outputs(home, patterns).outputs]


@given(
    members=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=60).filter(
            lambda name: name not in {".", ".."} and len(os.fsencode(name)) < 200
        ),
        st.binary(max_size=3000),
        max_size=8,
    )
)
def test_any_tree_survives_the_journey(members: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("journey")
    home = Home(str(root / "home"))
    (root / "home").mkdir()
    source = root / "source"
    entries = []
    for name, data in members.items():
        path = f"d/{name}"
        (source / "d").mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
        entries.append(FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), mode=0o755))
    rows = [[each.path, each.size, each.sha256, each.mode] for each in entries]
    if workdir.expect_files(home, rows, {}):
        workdir.receive(home, io.BytesIO(b"".join(tar_stream(source, entries))))
        workdir.apply_manifest(home)
    arrived = {p.name: p.read_bytes() for p in Path(home.work).rglob("*") if p.is_file()}
    assert arrived == members
    assert workdir.expect_files(home, rows, {}) == []


def test_only_what_lacks_is_asked_for_again(home: Home) -> None:
    _arrive(home, {"a": b"1", "b/c": b"22"})
    assert workdir.expect_files(home, [_row("a", b"1"), _row("b/c", b"33"), _row("d", b"")], {}) == ["b/c", "d"]


def test_the_folder_becomes_exactly_what_was_announced(home: Home) -> None:
    _arrive(home, {"old/stale.py": b"x", "keep": b"1", "was_file": b""}, {"link": "keep"})
    _arrive(home, {"keep": b"1", "was_file/inside": b"2"}, {"link2": "keep"})
    files = sorted(path.relative_to(home.work).as_posix() for path in Path(home.work).rglob("*") if not path.is_dir())
    assert files == ["keep", "link2", "was_file/inside"]
    assert Path(home.work, "link2").read_text() == "1"


def test_one_content_travels_once(home: Home) -> None:
    rows = [_row("best.pt", b"weights"), _row("last/1.pt", b"weights", 0o600)]
    assert workdir.expect_files(home, rows, {}) == ["best.pt"]
    assert workdir.receive(home, _tar({"best.pt": b"weights"})) == 1
    assert workdir.expect_files(home, rows, {}) == []
    twin = Path(home.work, "last/1.pt")
    assert (twin.read_bytes(), twin.stat().st_mode & 0o777) == (b"weights", 0o600)


def test_what_an_earlier_attempt_has_made_takes_the_place_of_what_is_sent_and_is_an_output(
    home: Home, tmp_path: Path
) -> None:
    def entry(path: str, data: bytes, modified_ns: int = 0) -> FileEntry:
        return FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), modified_ns=modified_ns)

    sent = FileSelection(
        root=tmp_path,
        files=tuple(entry(path, b"1") for path in ("a/old", "b", "train.py")),
        links={"c": "a", "d": "b"},
        folders=("e", "f"),
    )
    made = (entry("a", b"2", modified_ns=5), entry("b/new", b"3"), entry("c/x", b"4"), entry("e", b"5", modified_ns=6))
    whole = sent.with_files(made, tmp_path)
    assert [each.path for each in whole.files] == ["a", "b/new", "c/x", "e", "train.py"]
    assert (whole.links, whole.folders) == ({"d": "b"}, ("f",))
    rows = [[e.path, e.size, e.sha256, e.mode, *([e.modified_ns] if e.modified_ns else [])] for e in whole.files]
    contents = dict(zip([each.path for each in whole.files], (b"2", b"3", b"4", b"5", b"1"), strict=True))
    for _ in range(2):
        if lacking := workdir.expect_files(home, rows, dict(whole.links), whole.folders):
            workdir.receive(home, _tar({path: contents[path] for path in lacking}))
            workdir.apply_manifest(home)
        assert _outputs(home) == ["a", "b/new", "c/x", "e"]
        assert Path(home.work, "a").stat().st_mtime_ns == 5
    taken = take_checkpoint(home, {"outputs": [], "checkpoints": ["a"]}, MachineClock())
    assert (taken["number"], len(taken["files"])) == (0, 4), "nothing new"


def test_what_was_not_announced_is_refused(home: Home) -> None:
    workdir.expect_files(home, [_row("a", b"1")], {})
    with pytest.raises(workdir.DamagedArchive, match="not announced"):
        workdir.receive(home, _tar({"b": b"1"}))


def test_a_changed_file_never_gets_its_name(home: Home) -> None:
    workdir.expect_files(home, [_row("a", b"1")], {})
    with pytest.raises(workdir.DamagedArchive, match="changed"):
        workdir.receive(home, _tar({"a": b"2"}))
    assert not Path(home.work, "a").exists()


def test_an_interrupted_transfer_keeps_what_arrived(home: Home) -> None:
    members = {f"f{n}": bytes(5000) + bytes([n]) for n in range(10)}
    rows = [_row(path, data) for path, data in members.items()]
    workdir.expect_files(home, rows, {})
    whole = _tar(members).getvalue()
    with pytest.raises((tarfile.TarError, workdir.DamagedArchive)):
        workdir.receive(home, io.BytesIO(whole[: len(whole) // 2]))
    lacking = workdir.expect_files(home, rows, {})
    assert 0 < len(lacking) < 10
    workdir.receive(home, _tar({path: members[path] for path in lacking}))
    assert workdir.expect_files(home, rows, {}) == []


def test_outputs_are_what_is_new_or_changed(home: Home) -> None:
    _arrive(home, {"train.py": b"code", "data.csv": b"1,2", "same": b"as before", "untouched": b"1"})
    work = Path(home.work)
    (work / "model.pt").write_bytes(b"weights")
    (work / "runs/1").mkdir(parents=True)
    (work / "runs/1/log.txt").write_text("x")
    (work / "data.csv").write_text("3,4")
    (work / "same").write_text("as before")  # another time, the same content
    for rubbish in ("__pycache__/a.pyc", ".venv/lib/x.py", "env/pyvenv.cfg", "env/bin/python", ".cache/x", "a.pyc"):
        (work / rubbish).parent.mkdir(parents=True, exist_ok=True)
        (work / rubbish).write_text("")
    os.mkfifo(work / "pipe")
    assert _outputs(home) == ["data.csv", "model.pt", "runs/1/log.txt"]


def test_patterns_are_files_folders_and_globs(home: Home) -> None:
    _arrive(home, {"train.py": b"code", "data/in.csv": b"1"})
    work = Path(home.work)
    (work / "out/deep").mkdir(parents=True)
    (work / "out/deep/.hidden").write_text("h")
    (work / "out/[1].txt").write_text("b")
    (work / "m.pt").write_text("w")
    assert _outputs(home, "out/") == ["out/[1].txt", "out/deep/.hidden"]
    assert _outputs(home, "./out") == ["out/[1].txt", "out/deep/.hidden"]
    assert _outputs(home, "out/[1].txt") == ["out/[1].txt"]
    assert _outputs(home, "*.pt", "m.pt", "data") == ["data/in.csv", "m.pt"]
    assert _outputs(home, "**/*.csv") == ["data/in.csv"]
    assert _outputs(home, "o?t") == ["out/[1].txt", "out/deep/.hidden"]
    found = find_outputs.find_outputs(home, ["m.pt", "nothing", "*.zip", "../home", "/etc", "data/../../x"])
    assert [each.path for each in found.outputs] == ["m.pt"]
    assert found.missing == ["nothing", "*.zip", "../home", "/etc", "data/../../x"]


def test_checksums_are_remembered_as_long_as_the_file_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Path(home.work)
    (work / "a").write_text("1")
    first = find_outputs.with_checksums(home, find_outputs.find_outputs(home, ["a"]))
    assert first == [["a", 1, hashlib.sha256(b"1").hexdigest(), 0o644]]
    monkeypatch.setattr(find_outputs, "file_sha256", lambda path: pytest.fail("read again"))
    assert find_outputs.with_checksums(home, find_outputs.find_outputs(home, ["a"])) == first
    monkeypatch.undo()
    os.utime(work / "a", ns=(1, 1))
    (work / "a").write_text("2")
    assert find_outputs.with_checksums(home, find_outputs.find_outputs(home, ["a"])) != first


def test_what_cannot_be_read_is_told_and_what_went_meanwhile_is_not(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Path(home.work)
    for name in ("locked", "went", "well", "hidden", "far/below", "gone/below"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("1")
    refuse(monkeypatch, find_outputs, "file_sha256", {"locked": errno.EACCES, "went": errno.ENOENT})
    refuse(monkeypatch, os, "lstat", {"hidden": errno.EACCES})
    refuse(monkeypatch, os, "scandir", {"far": errno.EIO, "gone": errno.ENOENT})
    unreadable = {"locked": "Permission denied", "hidden": "Permission denied", "far/": "Input/output error"}
    for patterns in ((), (".",), ("**/*",)):
        found = find_outputs.find_outputs(home, patterns)
        assert [row[0] for row in find_outputs.with_checksums(home, found)] == ["well"]
        assert found.unreadable == unreadable
    assert find_outputs.find_outputs(home, ["*ell"]).unreadable == {}, "nothing below those folders can match"
    assert find_outputs.find_outputs(home, ["fa?/*.pt"]).unreadable == {"far/": "Input/output error"}
    refuse(monkeypatch, os, "open", {"locked": errno.EACCES, "went": errno.ENOENT})
    found = find_outputs.without_unreadable(find_outputs.find_outputs(home, []))
    assert [each.path for each in found.outputs] == ["well"]
    assert found.unreadable == unreadable


def refuse(monkeypatch: pytest.MonkeyPatch, where: object, name: str, errors: dict[str, int]) -> None:
    """A function of a path fails for paths with these last parts."""
    real = getattr(where, name)

    def called(path: Any, *rest: Any) -> Any:
        number = errors.get(Path(path).name) if isinstance(path, str) else None
        if number is not None:
            raise OSError(number, os.strerror(number), path)
        return real(path, *rest)

    monkeypatch.setattr(where, name, called)


@pytest.mark.parametrize("change", [lambda p: p.unlink(), lambda p: p.write_text("")])
def test_a_file_that_shrinks_or_goes_while_it_is_sent_is_an_error(tmp_path: Path, change: object) -> None:
    (tmp_path / "a").write_text("12345")
    entry = FileEntry(path="a", size=5)
    change(tmp_path / "a")  # type: ignore[operator]
    with pytest.raises(SyncRefused):
        list(tar_stream(tmp_path, [entry]))


def test_the_archive_comes_in_small_pieces(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3_000_000))
    pieces: Iterator[bytes] = tar_stream(tmp_path, [FileEntry(path="big", size=3_000_000)])
    assert max(len(piece) for piece in pieces) < 600_000
