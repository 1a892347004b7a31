"""`costgpu budget` when the ledger is damaged, the clock years off, the disk full or read-only."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from costgpu.ledger import Ledger
from costgpu.models.run import EventKind, RunEvent
from tests.cli.budgets import answer, plant, shown, words
from tests.cli.here import Here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")


class TestTrouble:
    def test_a_damaged_ledger(self, here: Here) -> None:
        here.data.mkdir(parents=True)
        (here.data / "ledger.sqlite").write_bytes(b"not a database" * 1000)
        for command in (("check",), ("show",), ("set", "b", "--daily", "1"), ("remove", "b")):
            result = here.told("budget", *command)
            assert (result.returncode, result.stdout) == (72, ""), command
            assert "damaged" in result.stderr
            assert "hint: " in result.stderr

    def test_one_damaged_run_does_not_hide_the_rest(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "200")
        plant(here, "120")
        with Ledger.open(folder=here.data) as ledger:
            ledger.append(RunEvent(run_id="bad", sequence=0, at=datetime.now(UTC), kind=EventKind.INTENDED, data={}))
        result = here.told("budget", "check", "--offline")
        assert result.returncode == 80
        assert words(result) == "all: at least $120.00 of $200.00 in all (60 %), crossed 50 %."
        assert "Run bad is open and is not counted" in result.stderr
        silent = here.told("budget", "check", "--offline")
        assert (silent.returncode, silent.stdout) == (80, "")

    def test_a_clock_years_off(self, here: Here) -> None:
        here.told("budget", "set", "all", "--total", "200")
        plant(here, "170")
        with Ledger.open(folder=here.data) as ledger:  # the last entry is of next week: the clock here is behind it
            at = datetime.now(UTC) + timedelta(days=7)
            ledger.append(RunEvent(run_id="a1", sequence=9, at=at, kind=EventKind.NOTED))
        for _ in range(2):
            result = here.told("budget", "check")
            assert result.returncode == 80
            assert "crossed 80 %" in words(result)
            assert "The clock of this computer says" in result.stderr
        assert shown(here)["alerts"] == []
        assert here.told("budget", "show").returncode == 79

    @needs_root
    @pytest.mark.parametrize("room", [None, 36])
    def test_a_disk_that_cannot_be_written(self, here: Here, room: int | None) -> None:
        """Read-only, or with so many KiB left that it can be read: what cannot be noted is said each time."""
        with small_disk(here):
            here.told("budget", "set", "all", "--total", "200")
            plant(here, "170")
            if room is None:
                remount(here, "ro")
            else:
                fill(here, room)
            for _ in range(2):
                result = here.costgpu("budget", "check", "--enforce")
                assert result.returncode == 82, result.stderr
                assert "all: $170.00 of $200.00 in all (85 %), crossed 80 %." in words(result)
                assert "could not be recorded, and was not sent" in words(result)
                assert "Traceback" not in result.stderr
            text = here.costgpu("budget", "show")
            assert (text.returncode, text.stderr) == (0, "")
            assert "80 % not told yet" in text.stdout
            refused = here.costgpu("budget", "set", "b", "--daily", "1")
            assert refused.returncode == 70
            assert "costgpu reap" in refused.stderr
            remount(here, "rw,size=20m")
            assert "crossed 80 %" in here.costgpu("budget", "check").stdout
            assert answer(here.costgpu("budget", "check")) == (80, "", "")

    @needs_root
    def test_a_disk_without_one_free_byte(self, here: Here) -> None:
        with small_disk(here):
            here.told("budget", "set", "all", "--total", "200")
            plant(here, "170")
            fill(here, 0)
            for command in ("check", "show"):
                result = here.costgpu("budget", command)
                assert result.returncode in (70, 80, 82), result.stderr
                assert "Traceback" not in result.stderr
                assert result.stderr.count("hint: ") == (result.returncode == 70)
            assert here.costgpu("reap").returncode == 0
            remount(here, "size=20m")
            assert "crossed 80 %" in here.costgpu("budget", "check").stdout


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
