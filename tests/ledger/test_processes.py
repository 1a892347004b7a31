"""The ledger's file under real processes: readers and writers, forked children, disks that are full or not writable.

What also holds on a server, many writers at once and writers that are killed, is in `test_both`.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costgpu.ledger import Ledger
from costgpu.ledger.store import FILE_NAME
from costgpu.models.run import EventKind
from tests.ledger.crowd import Crowd
from tests.ledger.processes import note

SCRIPT = Path(__file__).with_name("processes.py")
ROOT = SCRIPT.parents[2]
pytestmark = pytest.mark.slow
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to become nobody, or to mount a small disk")


def ended(*arguments: object) -> str:
    """What a process of `processes` has said by its end."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    ).stdout


def answer(*arguments: object) -> Any:
    return json.loads(ended(*arguments).splitlines()[-1])


def is_whole(folder: Path) -> bool:
    raw = sqlite3.connect(folder / FILE_NAME)
    try:
        return bool(raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        raw.close()


def test_readers_see_whole_events_while_others_write(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    each = [("own", folder, f"own{n}", 150) for n in range(3)]
    with Crowd(each, tmp_path / "said") as crowd, Ledger.open(folder=folder) as ledger:
        crowd.go()
        seen = 0
        while crowd.running():
            for run_id in ledger.recent_runs():
                found = [event.sequence for event in ledger.events(run_id)]
                assert found == list(range(len(found)))
                seen += 1
        assert crowd.wait() == [0, 0, 0]
    assert seen > 0


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from costgpu.ledger import Ledger
from tests.ledger.crowd import Crowd
from tests.ledger.processes import note
ledger = Ledger.open(folder=Path({str(tmp_path)!r}))
ledger.append(note("parent", 0))
child = os.fork()
if child == 0:
    for n in range(50):
        ledger.append(note("child", n))
    ledger.close()
    os._exit(0)
for n in range(1, 50):
    ledger.append(note("parent", n))
assert os.waitpid(child, 0)[1] == 0
assert len(ledger.events("parent")) == len(ledger.events("child")) == 50
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert is_whole(tmp_path)


class TestDiskThatCannotBeWritten:
    """Reading goes on; appending says what is wrong; nothing is changed."""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """A folder that anybody can reach; pytest's own are for their owner only."""
        with tempfile.TemporaryDirectory() as outer:
            Path(outer).chmod(0o755)
            place = Path(outer) / "ledger"
            place.mkdir(mode=0o755)
            yield place
            place.chmod(0o755)

    def seal(self, folder: Path) -> None:
        for part in folder.iterdir():
            part.chmod(0o444)
        folder.chmod(0o555)

    @needs_root
    def test_a_ledger_at_rest(self, folder: Path) -> None:
        with Ledger.open(folder=folder) as ledger:
            ledger.append(note("aaaa", 0))
        self.seal(folder)
        before = (folder / FILE_NAME).read_bytes()
        answers = answer("nobody", folder, "aaaa")
        self.read_but_not_written(answers, folder)
        assert (folder / FILE_NAME).read_bytes() == before
        assert [part.name for part in folder.iterdir()] == [FILE_NAME]

    @needs_root
    def test_a_ledger_whose_writer_was_killed(self, folder: Path) -> None:
        ended("die", folder, "aaaa", 1)
        assert (folder / f"{FILE_NAME}-wal").stat().st_size > 0
        self.seal(folder)
        self.read_but_not_written(answer("nobody", folder, "aaaa"), folder)

    @needs_root
    def test_a_ledger_that_somebody_else_is_writing(self, folder: Path) -> None:
        with Ledger.open(folder=folder) as ledger:
            ledger.append(note("aaaa", 0))
            self.seal(folder)
            self.read_but_not_written(answer("nobody", folder, "aaaa"), folder)
            ledger.append(note("aaaa", 1))
            assert answer("nobody", folder, "aaaa")["events"] == 2

    @needs_root
    def test_no_ledger_and_no_way_to_make_one(self, folder: Path) -> None:
        answers = answer("nobody", folder, "aaaa")
        assert (answers["events"], answers["recent"]) == (0, [])
        self.refused(answers["append"], folder)
        assert list(folder.iterdir()) == []

    @needs_root
    def test_a_folder_that_cannot_even_be_entered(self, folder: Path) -> None:
        with Ledger.open(folder=folder) as ledger:
            ledger.append(note("aaaa", 0))
        folder.chmod(0o700)
        for part in answer("nobody", folder, "aaaa").values():
            self.refused(part, folder)

    def read_but_not_written(self, answers: dict[str, Any], folder: Path) -> None:
        assert (answers["events"], answers["recent"], answers["again"]) == (1, ["aaaa"], 1)
        self.refused(answers["append"], folder)

    def refused(self, part: Any, folder: Path) -> None:
        assert part["error"] == "LedgerError"
        assert str(folder / FILE_NAME) in part["message"]
        assert "costgpu reap" in part["hint"]


class TestFullDisk:
    def test_a_limit_on_the_size_of_files(self, tmp_path: Path) -> None:
        problem = answer("fill", tmp_path, "aaaa", 400_000)
        self.nothing_lost(problem, tmp_path)

    @needs_root
    def test_a_disk_with_no_room_left(self, tmp_path: Path) -> None:
        if shutil.which("mount") is None:
            pytest.skip("needs mount")
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
        try:
            problem = answer("fill", tmp_path, "aaaa")
            assert "full" in problem["message"]
            # As it is, it can be read; with room it goes on.
            assert answer("report", tmp_path, "aaaa")["events"] == problem["written"]
            subprocess.run(["mount", "-o", "remount,size=5m", str(tmp_path)], check=True)
            self.nothing_lost(problem, tmp_path)
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)

    def nothing_lost(self, problem: dict[str, Any], folder: Path) -> None:
        assert problem["error"] == "LedgerError"
        assert str(folder / FILE_NAME) in problem["message"]
        assert "costgpu reap" in problem["hint"]
        assert problem["written"] > 10
        with Ledger.open(folder=folder) as ledger:
            found = [event.sequence for event in ledger.events("aaaa")]
            assert found == list(range(problem["written"]))
            ledger.append(note("aaaa", len(found), EventKind.CLOSED))
            assert ledger.open_runs() == ()
        assert is_whole(folder)
