"""`costgpu budget` against runs of this computer, and when the ledger is damaged, the clock years off, the disk full."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from costgpu.ledger import Ledger
from costgpu.models.job import EndReason
from costgpu.models.run import EventKind, RunEvent, RunState
from tests.cli.here import LOCAL, STEPS, Here, Result, budgeted, plant, shown, until, words
from tests.unit.providers.planted import on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


class TestRun:
    """What budgets say to `costgpu run`."""

    def plan(self, here: Here, *more: str) -> Result:
        return here.told(*LOCAL, "--max-cost", "5", "--assume-price", "1", *more, "train.py")

    def test_the_plan_says_what_is_left(self, here: Here) -> None:
        here.write("train.py", "print('ran')\n")
        assert "Budget" not in self.plan(here, "--dry-run").out
        here.told("budget", "set", "all", "--total", "200")
        here.told("budget", "set", "small", "--total", "100", "--provider", "local")
        here.told("budget", "set", "cloud", "--total", "10", "--provider", "aws")
        here.told("budget", "set", "vision", "--total", "10", "--tag", "team=vision")
        plant(here, "97", where=on("local"))
        text = words(self.plan(here, "--dry-run"))
        assert "- Budget all: $97.00 of $200.00 in all, 48 %; this run's cap of $5.00 leaves $98.00." in text
        assert (
            "- Budget small: $97.00 of $100.00 in all, 97 %; this run's cap of $5.00 could exceed it by $2.00." in text
        )
        assert "Budget cloud" not in text
        assert "Budget vision" not in text
        assert "Budget vision: $0.00" in words(self.plan(here, "--dry-run", "--tag", "team=vision"))

    @pytest.mark.slow
    def test_only_a_budget_that_enforces_refuses_and_never_what_is_free(self, here: Here) -> None:
        here.write("train.py", "print('ran')\n")
        here.told("budget", "set", "soft", "--total", "50")
        plant(here, "60")
        allowed = self.plan(here, "-y")
        assert (allowed.code, allowed.out) == (0, "ran\n"), allowed.err
        assert "Budget soft: $60.00 of $50.00 in all, 120 %, exceeded: nothing is left for this run." in " ".join(
            allowed.err.split()
        )
        here.told("budget", "set", "hard", "--monthly", "55", "--enforce", "--time-zone", "UTC")
        plant(here, "70", "a2")
        refused = self.plan(here, "-y").check(81, out="")
        assert "exceeded: new runs are refused." in " ".join(refused.err.split())
        assert "The budget hard is exceeded" in refused.err
        assert "hint: It begins anew 20" in refused.err
        shown_only = self.plan(here, "--dry-run").check(0)
        assert "new runs are refused" in words(shown_only)
        free = here.told(*LOCAL, "-y", "train.py")
        assert (free.code, free.out) == (0, "ran\n")
        here.quiet()


@pytest.mark.slow
class TestEnforce:
    def test_runs_of_the_ledger_are_cancelled_with_their_outputs(self, here: Here) -> None:
        here.write("train.py", STEPS)
        run_id = here.detached("-y", "--assume-price", "5000", "--max-cost", "2000", "train.py")
        here.wrote(b"step 1\n")
        here.told("budget", "set", "all", "--total", "1")
        here.costgpu("budget", "check").check(81)
        assert here.living()
        assert here.last().state is RunState.RUNNING
        ended = here.costgpu("budget", "check", "--enforce").check(81)
        assert words(ended) == (
            f"ended: run {run_id} (train): the budget all is exceeded; its outputs are in {here.project}"
        )
        assert ended.err == ""
        here.quiet()
        assert (here.last().state, here.last().reason) == (RunState.CLOSED, EndReason.CANCELLED)
        assert (here.project / "checkpoint").read_text() == "kept"
        again = here.costgpu("budget", "check", "--enforce")
        assert again == (81, "", "")

    def test_a_run_that_a_terminal_drives_is_ended_by_that_terminal(self, here: Here) -> None:
        here.write("train.py", STEPS)
        client = here.start(*LOCAL, "-y", "--assume-price", "5000", "--max-cost", "2000", "train.py")
        until(lambda: here.data.exists() and any(view.state is RunState.RUNNING for view in here.runs()))
        here.wrote(b"step 1\n")
        here.told("budget", "set", "all", "--total", "1")
        until(lambda: here.costgpu("budget", "check").code == 81)
        ended = here.costgpu("budget", "check", "--enforce", "--json").check(81)
        assert "being ended by the terminal that drives it: run " in json.loads(ended.out)["enforced"][0]
        assert client.wait(60) in (9, 64)
        assert (here.project / "checkpoint").read_text() == "kept"
        here.quiet()

    def test_what_is_free_and_what_another_budget_counts_is_left_alone(self, here: Here) -> None:
        here.write("train.py", STEPS)
        here.detached("train.py")
        here.detached("-y", "--assume-price", "5000", "--max-cost", "2000", "--tag", "team=vision", "train.py")
        here.told("budget", "set", "nlp", "--total", "1", "--tag", "team=nlp")
        plant(here, "2", tags={"team": "nlp"})
        result = here.costgpu("budget", "check", "--enforce").check(81)
        assert words(result) == "nlp: $2.00 of $1.00 in all (200 %), exceeded."
        assert sum(view.state is RunState.RUNNING for view in here.runs()) == 2
        for view in here.runs():
            if view.state is RunState.RUNNING:
                assert here.costgpu("cancel", "-y", "--now", view.run_id).code in (0, 64)
        here.quiet()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")


class TestTrouble:
    def test_a_damaged_ledger(self, here: Here) -> None:
        here.data.mkdir(parents=True)
        (here.data / "ledger.sqlite").write_bytes(b"not a database" * 1000)
        for command in (("check",), ("show",), ("set", "b", "--daily", "1"), ("remove", "b")):
            here.told("budget", *command).check(72, out="", err=["damaged", "hint: "])

    def test_one_damaged_run_does_not_hide_the_rest(self, here: Here) -> None:
        budgeted(here, "120")
        with Ledger.open(folder=here.data) as ledger:
            ledger.append(RunEvent(run_id="bad", sequence=0, at=datetime.now(UTC), kind=EventKind.INTENDED, data={}))
        result = here.told("budget", "check", "--offline").check(80)
        assert words(result) == "all: at least $120.00 of $200.00 in all (60 %), crossed 50 %."
        assert "Run bad is open and is not counted" in result.err
        here.told("budget", "check", "--offline").check(80, out="")

    def test_a_clock_years_off(self, here: Here) -> None:
        budgeted(here, "170")
        with Ledger.open(folder=here.data) as ledger:  # the last entry is of next week: the clock here is behind it
            at = datetime.now(UTC) + timedelta(days=7)
            ledger.append(RunEvent(run_id="a1", sequence=9, at=at, kind=EventKind.NOTED))
        for _ in range(2):
            result = here.told("budget", "check").check(80)
            assert "crossed 80 %" in words(result)
            assert "The clock of this computer says" in result.err
        assert shown(here)["alerts"] == []
        assert here.told("budget", "show").code == 79

    @needs_root
    @pytest.mark.parametrize("room", [None, 36])
    def test_a_disk_that_cannot_be_written(self, here: Here, room: int | None) -> None:
        """Read-only, or with so many KiB left that it can be read: what cannot be noted is said each time."""
        with small_disk(here):
            budgeted(here, "170")
            if room is None:
                remount(here, "ro")
            else:
                fill(here, room)
            for _ in range(2):
                result = here.costgpu("budget", "check", "--enforce").check(82)
                assert "all: $170.00 of $200.00 in all (85 %), crossed 80 %." in words(result)
                assert "could not be recorded, and was not sent" in words(result)
                assert "Traceback" not in result.err
            here.costgpu("budget", "show").check(0, out="80 % not told yet", err="")
            here.costgpu("budget", "set", "b", "--daily", "1").check(70, err="costgpu reap")
            remount(here, "rw,size=20m")
            assert "crossed 80 %" in here.costgpu("budget", "check").out
            assert here.costgpu("budget", "check") == (80, "", "")

    @needs_root
    def test_a_disk_without_one_free_byte(self, here: Here) -> None:
        with small_disk(here):
            budgeted(here, "170")
            fill(here, 0)
            for command in ("check", "show"):
                result = here.costgpu("budget", command)
                assert result.code in (70, 80, 82), result.err
                assert "Traceback" not in result.err
                assert result.err.count("hint: ") == (result.code == 70)
            assert here.costgpu("reap").code == 0
            remount(here, "size=20m")
            assert "crossed 80 %" in here.costgpu("budget", "check").out


@contextlib.contextmanager
def small_disk(here: Here) -> Iterator[None]:
    """costgpu's data folder is a disk of 4 MiB."""
    here.data.mkdir(parents=True, mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(here.data)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(here.data)], check=True)


def remount(here: Here, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(here.data)], check=True)


def fill(here: Here, room_kib: int) -> None:
    with (here.data / "filler").open("wb", 0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    filler = here.data / "filler"
    os.truncate(filler, filler.stat().st_size - room_kib * 1024)
