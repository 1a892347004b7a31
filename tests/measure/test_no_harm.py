"""A measurement leaves the user's files, and the process table, as they were."""

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.measure.harness import SCRIPTS, profile_of, request, running
from tests.until import until

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

NAMES = """
open_w open_a open_r_plus write_text json saved.npy model.pt removed unlinked truncated copied_over moved mode log
by_program atomic os_open mapped unlinked_at folder/inner/file folder/other
"""
FILES = NAMES.split()


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Content and mode of every file that was there at the start."""
    return {
        name: (hashlib.sha256((folder / name).read_bytes()).hexdigest(), (folder / name).stat().st_mode)
        for name in [*FILES, "database.db"]
    }


@pytest.mark.usefixtures("copy_on_write")
def test_what_was_there_stays_byte_identical(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "folder" / "inner").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"what was in {name} before\n" * 3)
    connection = sqlite3.connect(folder / "database.db")
    connection.execute("create table old (x)")
    connection.commit()
    connection.close()
    before = state(folder)
    _, outcome = profile_of(request("harm.py", str(folder), workdir=folder), tmp_path)
    assert "refused" not in outcome.log.read_text()
    assert state(folder) == before
    assert not (folder / "new_model.pt").exists()  # a half-trained model must not look like a finished one
    assert str(folder / "new_model.pt") in outcome.changes.created
    assert str(folder / "by_program") in outcome.changes.changed
    assert str(folder / "removed") in outcome.changes.removed


def test_nothing_that_it_started_survives(tmp_path: Path) -> None:
    _, outcome = profile_of(request("daemons.py", str(tmp_path), workdir=tmp_path), tmp_path / "cache")
    assert any(str(tmp_path) in program for program in outcome.programs)  # they were there
    assert running(f"# {tmp_path}") == []


# A test run in the background of a shell ignores SIGINT, and what it starts would too.
HEARING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts ``costgpu estimate`` of a script, and returns when the script has stepped."""

    def start(*script: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HEARING, sys.executable, "-m", "costgpu", "estimate"]
        child = subprocess.Popen(
            [*command, "--python", sys.executable, "--measure-for", "60s", str(SCRIPTS / script[0]), *script[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            cwd=tmp_path,
        )
        stepping = "costgpu/measurements/*/open/stepping"
        until(lambda: any(tmp_path.glob(stepping)) or child.poll() is not None, 60)
        assert child.poll() is None, child.communicate()
        return child

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_script_too(
    number: signal.Signals, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    child = start("daemons.py", str(tmp_path))
    assert len(running(f"# {tmp_path}")) == 3
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert out == ""
    assert "have been ended" in err
    assert running(f"# {tmp_path}") == []


def test_the_script_dies_with_costgpu(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Even kill -9 of costgpu leaves no training behind."""
    child = start("loader.py")
    probe = psutil.Process(child.pid).children()[0]
    child.kill()
    child.communicate()
    _, still = psutil.wait_procs([probe], timeout=20)
    assert not still


@pytest.mark.usefixtures("copy_on_write")
def test_spawned_workers_and_native_writers_do_no_harm_either(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("by_spawned", "scripted.pt"):
        (folder / name).write_text("before")
    _, outcome = profile_of(request("spawned.py", str(folder), workdir=folder), tmp_path)
    assert {(folder / name).read_text() for name in ("by_spawned", "scripted.pt")} == {"before"}
    assert len(outcome.changes.changed) == 2
    assert "no guard" not in outcome.log.read_text()
