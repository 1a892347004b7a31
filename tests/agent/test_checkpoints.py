"""Checkpoints of real jobs: taken while they are whole, put back on the next machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from costgpu.models.job import Checkpoint, EndReason, JobStatus
from tests.agent.harness import Machine, order, selection
from tests.until import until

pytestmark = pytest.mark.slow

LONG_AGO = 1_000_000_000


def job(machine: Machine, script: str, *patterns: str) -> None:
    """Starts a script that makes the file ``up`` when it has done what it does, and then waits to be ended."""
    machine.run(f"import time\n{script}\nopen('up', 'w').close()\ntime.sleep(300)", checkpoints=patterns)
    until((machine.home / "work/up").exists)


def paths(checkpoint: Checkpoint) -> list[str]:
    return [entry.path for entry in checkpoint.files]


def age(*files: Path) -> None:
    """As if nobody had touched them for long."""
    for path in files:
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_a_checkpoint_goes_to_another_machine(machine: Machine, tmp_path: Path) -> None:
    job(machine, "import os; os.mkdir('ckpt'); open('ckpt/1.pt', 'w').write('weights'); open('log', 'w')", "ckpt/**")
    age(machine.home / "work/ckpt/1.pt")
    first = machine.host.checkpoint()
    assert (first.number, paths(first)) == (1, ["ckpt/1.pt"])
    assert machine.host.checkpoint() == first  # nothing has changed
    machine.host.fetch(first.contents, tmp_path / "kept")

    other = Machine(tmp_path / "other")
    try:
        (other.source / "train.py").write_text("import time; print(open('ckpt/1.pt').read()); time.sleep(300)")
        other.host.install()
        sent = selection(other.source).with_files(first.files, tmp_path / "kept")
        assert other.host.send(sent) > 0
        assert other.host.send(sent) == 0  # by a client that knows of nothing
        restored = other.home / "work/ckpt/1.pt"
        assert (restored.read_text(), int(restored.stat().st_mtime)) == ("weights", LONG_AGO)
        other.host.start(order("train.py", checkpoints=("ckpt/**",)), {}, {})
        until(lambda: other.host.status().stdout_bytes > 0)
        assert other.host.checkpoint().number == 0  # what was put there is nothing new
        other.host.cancel()
        assert other.follow().reason is EndReason.CANCELLED
        assert bytes(other.stdout) == b"weights\n"
        assert [entry.path for entry in other.host.outputs().files] == ["ckpt/1.pt"]  # what was put back is an output
    finally:
        other.destroy()


def test_what_was_put_there_besides_the_checkpoint_is_nothing_new(machine: Machine, tmp_path: Path) -> None:
    """After the notice all outputs travel; the next machine looks for its patterns only."""
    job(machine, "import os; os.mkdir('c'); [open(name, 'w').write('x') for name in ('c/1.pt', 'c/log', 'a.txt')]")
    age(*(machine.home / "work/c").iterdir(), machine.home / "work/a.txt", machine.home / "work/up")
    whole = machine.host.checkpoint()
    assert paths(whole) == ["a.txt", "up", "c/1.pt", "c/log"]
    machine.host.fetch(whole.contents, tmp_path / "kept")
    other = Machine(tmp_path / "other")
    try:
        (other.source / "train.py").write_text("import time; print('on'); time.sleep(300)")
        other.host.install()
        other.host.send(selection(other.source).with_files(whole.files, tmp_path / "kept"))
        other.host.start(order("train.py", checkpoints=("c/*.pt",)), {}, {})
        until(lambda: other.host.status().stdout_bytes > 0)
        assert other.host.checkpoint().number == 0
        (other.home / "work/c/1.pt").write_text("newer")
        age(other.home / "work/c/1.pt")
        newer = other.host.checkpoint()
        assert (newer.number, paths(newer)) == (1, ["c/1.pt"])
        (other.home / "work/c/1.pt").unlink()
        assert other.host.checkpoint().number == 2  # one that is gone is news
    finally:
        other.destroy()


SAVES = """
import os, signal, sys, time
HANDLER
os.mkdir('c')
for name in ('c/1', 'c/2'): open(name, 'w').write('whole')
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.01)
open('c/2', 'w').write('newer')
half = open('c/1', 'w'); half.write('ha'); half.flush()
open('half', 'w').close()
time.sleep(300)
"""


def ended_while_saving(machine: Machine, handler: str = "", script: str = SAVES, **changes: Any) -> JobStatus:
    """A job with a whole checkpoint is told to end while it writes the next one."""
    machine.run(script.replace("HANDLER", handler), checkpoints=("c/*",), **changes)
    work = machine.home / "work"
    until((work / "ready").exists)
    age(work / "c/1", work / "c/2")
    assert machine.host.checkpoint().number == 1
    (work / "go").touch()
    until((work / "half").exists)
    machine.host.cancel()
    return machine.follow()


def texts(machine: Machine, checkpoint: Checkpoint) -> dict[str, str]:
    """What is in the files of a checkpoint, of those below ``c``."""
    store = machine.home / "checkpoints"
    return {entry.path: (store / entry.sha256).read_text() for entry in checkpoint.files if entry.path.startswith("c/")}


def test_a_job_that_dies_of_the_notice_leaves_no_half_checkpoint(machine: Machine) -> None:
    """Plain Python has no handler: SIGTERM ends it in the middle of its save."""
    assert ended_while_saving(machine).exit_code == 143
    last = machine.host.checkpoint(everything=True)
    assert texts(machine, last) == {"c/1": "whole", "c/2": "whole"}  # what belongs together stays together


def test_what_helpers_write_when_all_are_told_to_end_is_cut_off(machine: Machine) -> None:
    """The main process ignores SIGTERM until half the grace is over; a helper begins to save only then."""
    handler = (
        "import subprocess\n"
        'begin = \'half = open("c/1", "w"); half.write("ha"); half.flush(); open("begun", "w"); \'\n'
        "child = [sys.executable, '-c', begin + 'import time; time.sleep(300)']\n"
        "def end(*_):\n"
        "    if not os.path.exists('begun'): subprocess.Popen(child)\n"
        "    else: sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)"
    )
    script = SAVES.replace("half = open('c/1', 'w'); half.write('ha'); half.flush()\n", "")
    assert ended_while_saving(machine, handler, script, grace_seconds=2.0).exit_code == 1
    assert texts(machine, machine.host.checkpoint(everything=True)) == {"c/1": "whole", "c/2": "whole"}


def test_a_job_that_says_goodbye_has_cut_off_nothing(machine: Machine) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: (half.write('lf'), half.close(), sys.exit(0)))"
    assert ended_while_saving(machine, handler, grace_seconds=30.0).exit_code == 0
    assert texts(machine, machine.host.checkpoint(everything=True)) == {"c/1": "half", "c/2": "newer"}


def test_what_a_job_leaves_behind_is_cut_off_even_if_it_says_goodbye(machine: Machine) -> None:
    handler = (
        "def end(*_):\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "        time.sleep(300)\n"
        "    half.close()\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)"
    )
    assert ended_while_saving(machine, handler).exit_code == 0
    assert texts(machine, machine.host.checkpoint(everything=True)) == {"c/1": "whole", "c/2": "whole"}
