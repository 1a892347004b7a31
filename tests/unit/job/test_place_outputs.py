"""Outputs come home, and nothing of the user's is lost, whenever the landing is killed.

One file of more than 400 lines: all of it lands what one played machine has, in one kind of folder.
"""

import errno
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.errors import HostUnreachable, RunError
from costgpu.job.files import place_outputs
from costgpu.job.files.place_outputs import PlacedOutputs, fetch_and_place
from costgpu.models.job import FileEntry
from tests.properties import examples

RUN = "k3x9abcdefgh"


class Machine:
    """A host of which only `fetch` is used."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.fetched: list[str] = []
        self.fail: Callable[[str], None] = lambda path: None

    @property
    def entries(self) -> list[FileEntry]:
        return [entry(path, data) for path, data in self.files.items()]

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        for one in entries:
            target = folder / one.path
            if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == one.sha256:
                continue
            self.fail(one.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name(f".{target.name}.part").write_bytes(self.files[one.path])
            target.with_name(f".{target.name}.part").replace(target)
            self.fetched.append(one.path)


def entry(path: str, data: bytes) -> FileEntry:
    return FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def land(machine: Machine, workdir: Path, run_id: str = RUN) -> PlacedOutputs:
    return fetch_and_place(machine, machine.entries, workdir=workdir, run_id=run_id)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_outputs_get_their_places_and_nothing_else_stays(tmp_path: Path) -> None:
    work = tmp_path / "new" / "folder"
    assert land(Machine({}), work) == PlacedOutputs(files=0, bytes=0)
    assert list(work.iterdir()) == [], "made, and empty"
    machine = Machine({"model.pt": b"weights", "out/deep/log.txt": b"", "new\nline": b"x"})
    landed = land(machine, work)
    assert landed == PlacedOutputs(files=3, bytes=8)
    assert landed.problem is None
    assert contents(work) == machine.files
    assert sorted(path.name for path in work.iterdir()) == ["model.pt", "new\nline", "out"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("d/" * 1500 + "leaf", "more than 200 folders deep"),
        ("d" * 256, "of a name too long for this computer"),
        ("/".join(["d" * 200] * 20), "of a path too long for this computer"),
    ],
)
def test_what_cannot_be_kept_here_keeps_nothing_else_away(work: Path, path: str, why: str) -> None:
    landed = land(Machine({"model.pt": b"weights", path: b"x", "d/small": b"y"}), work)
    assert (landed.files, landed.left_out) == (2, {path: why})
    assert contents(work) == {"model.pt": b"weights", "d/small": b"y"}


def test_what_is_the_same_is_left_alone(work: Path) -> None:
    (work / "a").write_bytes(b"same")
    before = (work / "a").stat()
    machine = Machine({"a": b"same"})
    assert land(machine, work) == PlacedOutputs(files=1, bytes=4)
    assert machine.fetched == []
    assert (work / "a").stat() == before


def test_a_second_landing_keeps_what_changed_in_between(work: Path) -> None:
    (work / "a").write_bytes(b"one")
    machine = Machine({"a": b"output"})
    land(machine, work)
    (work / "a").write_bytes(b"two")
    land(machine, work)
    (work / "a").write_bytes(b"three")
    landed = land(machine, work)
    assert contents(work / ".costgpu/replaced" / RUN) == {"a": b"one", "a.1": b"two", "a.2": b"three"}
    assert [kept.name for kept in landed.replaced] == ["a", "a.2"]
    assert (work / "a").read_bytes() == b"output"


def test_a_link_in_the_place_is_kept_and_not_followed(work: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (work / "a").symlink_to(tmp_path / "precious")
    (work / "b").symlink_to("nowhere")
    landed = land(Machine({"a": b"output", "b": b"output"}), work)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (work / "a").read_bytes() == b"output"
    assert not (work / "a").is_symlink()
    assert [kept.is_symlink() for kept in landed.replaced] == [True, True]


def stuck(landed: PlacedOutputs) -> dict[str, str]:
    for one in landed.stuck:
        assert one.staged_at.is_file(), "what could not be placed is here, and named"
    assert landed.problem is not None
    assert landed.problem.hint
    return {one.path: one.why for one in landed.stuck}


def test_a_folder_in_the_way(work: Path) -> None:
    (work / "a/precious").mkdir(parents=True)
    machine = Machine({"a": b"output", "b": b"fine"})
    landed = land(machine, work)
    assert stuck(landed) == {"a": "a folder of that name is there"}
    assert (work / "a/precious").is_dir()
    assert (work / "b").read_bytes() == b"fine"
    assert landed.files == 1
    assert landed.stuck[0].staged_at.read_bytes() == b"output"
    message = landed.problem.message if landed.problem else ""
    assert "1 of 2 outputs are here, but not in their places: a: a folder" in message
    shutil.rmtree(work / "a")
    assert land(machine, work) == PlacedOutputs(files=2, bytes=10)
    assert machine.fetched == ["a", "b"], "not twice"
    assert contents(work) == machine.files


def test_links_that_lead_out_are_not_written_through(work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (work / "inside").mkdir()
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "in").symlink_to("inside")
    landed = land(Machine({"out/a": b"1", "out/deep/b": b"2", "in/c": b"3"}), work)
    assert set(stuck(landed)) == {"out/a", "out/deep/b"}
    assert all("leads out of the working folder" in why for why in stuck(landed).values())
    assert list((tmp_path / "outside").iterdir()) == []
    assert (work / "inside/c").read_bytes() == b"3"


def test_own_folders_and_repositories_are_not_written(work: Path) -> None:
    (work / ".git/hooks").mkdir(parents=True)
    (work / "sub/.git").mkdir(parents=True)
    (work / "alias").symlink_to(".git")
    files = {
        ".git/hooks/pre-commit": b"evil",
        "sub/.git/config": b"evil",
        ".costgpu/x": b"evil",
        "alias/config": b"evil",
    }
    landed = land(Machine({**files, "clone/.git/HEAD": b"ref", "clone/.git/config": b"[core]"}), work)
    assert set(stuck(landed)) == set(files)
    assert list((work / ".git/hooks").iterdir()) == []
    assert not (work / ".costgpu/x").exists()
    assert (work / "clone/.git/config").read_bytes() == b"[core]", "a repository that the job made is an output"


@pytest.mark.parametrize("run_id", ["", "..", "../x", ".hidden", "a/b"])
def test_run_names_that_cannot_be(work: Path, run_id: str) -> None:
    with pytest.raises(RunError, match="not the name of a run"):
        land(Machine({"a": b""}), work, run_id=run_id)


def test_names_that_a_file_system_does_not_tell_apart(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_outputs, "_folding", lambda folder: str.casefold)
    files = {
        "Model.pt": b"1",
        "model.pt": b"2",
        "MODEL.PT": b"3",
        "other": b"4",
        "OUT/a": b"5",
        "out/b": b"6",
        "Out": b"7",
    }
    landed = land(Machine(files), work)
    assert stuck(landed) == {
        "model.pt": "this file system does not tell its name from Model.pt",
        "MODEL.PT": "this file system does not tell its name from Model.pt",
        "Out": "this file system does not tell its name from out/b",
    }
    assert {one.staged_at.read_bytes() for one in landed.stuck} == {b"2", b"3", b"7"}
    assert landed.replaced == (), "none of the outputs passes for a file of the user's"
    again = land(Machine(files), work)
    assert stuck(again) == stuck(landed)


def test_no_space_is_known_before_anything_comes(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(work)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20 << 20))
    machine = Machine({"a": bytes(5 << 20)})
    with pytest.raises(RunError, match=r"need 5\.0 MiB.* has 20\.0 MiB free") as caught:
        land(machine, work)
    assert "fetch again" in caught.value.hint
    assert machine.fetched == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=22 << 20))
    assert land(machine, work).files == 1


@pytest.mark.parametrize(
    "trouble", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "b"), HostUnreachable("gone")], ids=["full", "lost"]
)
def test_what_had_come_before_trouble_is_not_fetched_again(work: Path, trouble: Exception) -> None:
    machine = Machine({"a": b"1", "b": b"2"})

    def fail(path: str) -> None:
        if path == "b":
            raise trouble

    machine.fail = fail
    with pytest.raises(RunError, match=r"No space left on device|gone") as caught:
        land(machine, work)
    assert type(caught.value) is (HostUnreachable if isinstance(trouble, HostUnreachable) else RunError)
    assert isinstance(trouble, HostUnreachable) or f".costgpu/incoming/{RUN}" in caught.value.hint
    assert not (work / "a").exists(), "nothing gets its place before all is here"
    machine.fail = lambda path: None
    assert land(machine, work).files == 2
    assert machine.fetched == ["a", "b"]


def test_links_in_place_of_own_folders_are_not_followed(work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (work / ".costgpu").symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match="is a link"):
        land(Machine({"a": b"1"}), work)
    assert list((tmp_path / "outside").iterdir()) == []


def test_folders_that_may_not_be_written() -> None:
    def look(top: Path) -> None:
        shut = top / "shut"
        shut.mkdir()
        shut.chmod(0o555)
        with pytest.raises(RunError, match="Permission denied"):
            land(Machine({"a": b"1"}), shut)
        (top / "work/sub").mkdir(parents=True)
        (top / "work/sub/old").write_bytes(b"old")
        (top / "work/sub").chmod(0o555)
        landed = land(Machine({"sub/new": b"1", "sub/old": b"2", "b": b"3"}), top / "work")
        assert set(stuck(landed)) == {"sub/new", "sub/old"}
        assert all("Permission denied" in why for why in stuck(landed).values())
        assert (top / "work/sub/old").read_bytes() == b"old"
        assert (top / "work/b").read_bytes() == b"3"

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        in_child(lambda: look(Path(name)), without_rights=True)
        (Path(name) / "shut").chmod(0o777)
        (Path(name) / "work/sub").chmod(0o777)


def in_child(work: Callable[[], None], *, without_rights: bool = False) -> int:
    """Runs it in a forked child, which a test may kill; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            if without_rights and os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
            os._exit(0)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the child must end here
            print(repr(exc), file=sys.__stderr__)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), "the child's own assertion"
    return status


STEPS = ["link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync"]


def die_after(step: int) -> None:
    """Ends the process without a word before its n-th change of the file system."""
    count = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                os._exit(9)
            return real(*args, **kwargs)

        return wrapped

    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_killed_at_every_step_nothing_is_lost_and_the_next_call_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    users = {"a": b"user a", "deep/b": b"user b", "same": b"same", "untouched": b"u"}
    machine = Machine({"a": b"out a", "deep/b": b"out b", "same": b"same", "new/c": b"out c"})
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    step = 0
    while True:
        work = tmp_path / str(step)
        for path, data in users.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(data)

        def landing(work: Path = work, step: int = step) -> None:
            die_after(step)
            land(machine, work)

        ended = in_child(landing)
        there = list(contents(work).values())
        assert all(data in there for data in users.values()), f"killed at step {step}"
        landed = land(machine, work)
        assert landed.problem is None
        found = contents(work)
        assert {path: found[path] for path in machine.files} == machine.files
        assert found["untouched"] == b"u"
        assert {path.name for path in landed.replaced} == {"a", "b"}
        kept = contents(work / ".costgpu/replaced" / RUN)
        assert kept == {"a": b"user a", "deep/b": b"user b"}
        assert not (work / ".costgpu/incoming").exists()
        assert (work / ".costgpu/.gitignore").read_text() == "*\n", "git does not see any of it"
        if ended == 0:
            break
        step += 1
    assert step > 15, "it was really killed in between"


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_place_on_another_file_system(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links and renames fail between file systems: copies, then."""

    def within(real: Callable[..., None]) -> Callable[..., None]:
        def called(*paths: Any) -> None:
            if len({str(path).startswith(f"{work}/mounted/") for path in paths}) == 2:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            real(*paths)

        return called

    monkeypatch.setattr(os, "link", within(os.link))
    monkeypatch.setattr(os, "rename", within(os.rename))
    (work / "mounted").mkdir()
    (work / "mounted/old").write_bytes(b"old")
    landed = land(Machine({"mounted/old": b"1", "mounted/new": b"2"}), work)
    assert landed.problem is None
    assert contents(work / "mounted") == {"old": b"1", "new": b"2"}
    assert contents(work / ".costgpu/replaced" / RUN) == {"mounted/old": b"old"}


names = st.sampled_from(["a", "b", "c", "A", "d e"])
files = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map("/".join), st.sampled_from([b"", b"1", b"2", b"33"]), max_size=6
)


def one_tree(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without files that are also folders."""
    return {path: data for path, data in files.items() if not any(other.startswith(f"{path}/") for other in files)}


@examples(150)
@given(files.map(one_tree), files.map(one_tree), st.integers(1, 2))
@example({"out": b"precious"}, {"out/a": b"1", "out/b/c": b"2"}, 1)  # a file in the way of a folder
def test_whatever_is_there_and_whatever_comes_nothing_is_lost(
    users: dict[str, bytes], outputs: dict[str, bytes], times: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for path, data in users.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(data)
        for _ in range(times):
            landed = land(Machine(outputs), work)
        found = contents(work)
        kept = contents(work / ".costgpu/replaced" / RUN) if landed.replaced else {}
        held = {one.path: one for one in landed.stuck}
        for path, data in users.items():
            assert found.get(path) == data or kept.get(path) == data
        for path, data in outputs.items():
            assert (held[path].staged_at.read_bytes() if path in held else found[path]) == data
        assert landed.files == len(outputs) - len(held)
        folder = work / ".costgpu/replaced" / RUN
        assert {path.relative_to(folder).as_posix() for path in landed.replaced} == set(kept)
