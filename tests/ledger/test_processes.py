"""The ledger under real processes: many at once, killed at any moment, on disks that are full or cannot be written."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from costgpu.job import EventKind
from costgpu.ledger import Ledger
from costgpu.ledger.store import FILE_NAME
from tests.ledger.processes import note

SCRIPT = Path(__file__).with_name("processes.py")
ROOT = SCRIPT.parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to become nobody, or to mount a small disk")


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@contextmanager
def started(*each: tuple[object, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes, all of them ready and none of them begun; none is left over."""
    running = [start(*arguments) for arguments in each]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def go(running: list[subprocess.Popen[str]]) -> None:
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def answer(*arguments: object) -> Any:
    with started(arguments) as running:
        out, _ = running[0].communicate("\n", timeout=120)
    return json.loads(out.splitlines()[-1])


def is_whole(folder: Path) -> bool:
    raw = sqlite3.connect(folder / FILE_NAME)
    try:
        return bool(raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        raw.close()


def test_many_processes_make_one_ledger_and_lose_nothing(tmp_path: Path) -> None:
    """All begin at once, with no file yet: it is made once, and every event of everyone is in it."""
    many, own, shared = 30, 12, 3
    half = many // 2
    each: list[tuple[object, ...]] = [("own", tmp_path, f"own{n}", own) for n in range(half)]
    each += [("shared", tmp_path, "shared", shared, f"p{n}") for n in range(half)]
    with started(*each) as running:
        go(running)
        for process in running:
            process.communicate(timeout=240)
            assert process.returncode == 0
    with Ledger.open(folder=tmp_path) as ledger:
        for n in range(half):
            assert [event.sequence for event in ledger.events(f"own{n}")] == list(range(own))
        together = ledger.events("shared")
        assert [event.sequence for event in together] == list(range(half * shared))
        said = [(event.data["who"], event.data["number"]) for event in together]
        assert sorted(said) == sorted((f"p{n}", number) for n in range(half) for number in range(shared))
        assert sorted(ledger.open_runs()) == sorted([f"own{n}" for n in range(half)] + ["shared"])
    assert is_whole(tmp_path)


def test_a_storm_of_kills_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGKILL at random moments, the making of the file included; a new ledger in every other round."""
    dice = random.Random(20261121)
    acknowledged = killed = 0
    for turn in range(10):
        folder = tmp_path / f"ledger{turn // 2}"
        each = [("own", folder, f"turn{turn}-{n}", 100_000) for n in range(6)]
        with started(*each) as running:
            go(running)
            # The first ones while they make the file, the others anywhere in a commit.
            pauses = sorted(dice.uniform(0, 0.03) if n < 3 else dice.uniform(0, 0.5) for n in range(len(running)))
            begun = time.monotonic()
            for process, pause in zip(running, pauses, strict=True):
                time.sleep(max(0.0, begun + pause - time.monotonic()))
                process.send_signal(signal.SIGKILL)
                killed += 1
            said = [process.communicate(timeout=60)[0].splitlines() for process in running]
            assert all(process.returncode == -signal.SIGKILL for process in running)
        with Ledger.open(folder=folder) as ledger:
            for (_, _, run_id, _), lines in zip(each, said, strict=True):
                found = [event.sequence for event in ledger.events(str(run_id))]
                assert found == list(range(len(found)))
                # The last one may be on the disk without having been said.
                assert len(lines) <= len(found) <= len(lines) + 1
                acknowledged += len(lines)
                run_known = run_id in ledger.recent_runs(1000)
                assert run_known == bool(found)
            ledger.append(note(f"after{turn}", 0))
            ledger.append(note(f"after{turn}", 1, EventKind.CLOSED))
            assert f"after{turn}" not in ledger.open_runs()
        assert is_whole(folder)
    print(f"{killed} processes killed, {acknowledged} acknowledged events, all there")
    assert acknowledged > 100


def test_readers_see_whole_events_while_others_write(tmp_path: Path) -> None:
    with started(*[("own", tmp_path, f"own{n}", 150) for n in range(3)]) as running:
        go(running)
        seen = 0
        with Ledger.open(folder=tmp_path) as ledger:
            while any(process.poll() is None for process in running):
                for run_id in ledger.recent_runs():
                    found = [event.sequence for event in ledger.events(run_id)]
                    assert found == list(range(len(found)))
                    seen += 1
        for process in running:
            process.communicate(timeout=60)
            assert process.returncode == 0
    assert seen > 0


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from costgpu.ledger import Ledger
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
        with started(("die", folder, "aaaa", 1)) as running:
            running[0].communicate("\n", timeout=60)
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
        problem = answer("fill", tmp_path, "aaaa", 300_000)
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
