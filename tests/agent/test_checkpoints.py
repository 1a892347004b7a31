"""Checkpoints of real jobs: taken while they are whole, put back on the next machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costgpu.models.job import Checkpoint, EndReason
from costgpu.runner.agent.clock import Clock
from costgpu.runner.agent.outputs import checkpoints
from costgpu.runner.agent.outputs.checkpoints import take_checkpoint
from costgpu.runner.agent.state_files import Home
from tests.agent.harness import Machine, order, selection
from tests.until import until

LONG_AGO = 1_000_000_000


class LateClock(Clock):
    """So late that everything has been quiet for long."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def job(machine: Machine, script: str, *patterns: str) -> None:
    """Starts a script that makes the file ``up`` when it has done what it does, and then waits to be ended."""
    machine.run(f"import time\n{script}\nopen('up', 'w').close()\ntime.sleep(300)", checkpoints=patterns)
    until((machine.home / "work/up").exists)


def paths(checkpoint: Checkpoint) -> list[str]:
    return [entry.path for entry in checkpoint.files]


def taken(machine: Machine, clock: Clock) -> dict[str, object]:
    home = Home(str(machine.home))
    order = home.read("order.json")
    assert order is not None
    return take_checkpoint(home, order, clock)


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
    machine.host.fetch_checkpoint(first, tmp_path / "kept")

    other = Machine(tmp_path / "other")
    try:
        (other.source / "train.py").write_text("import time; print(open('ckpt/1.pt').read()); time.sleep(300)")
        other.host.install()
        other.host.send(selection(other.source))
        assert other.host.restore(first, tmp_path / "kept") > 0
        other.host.send(
            selection(other.source)
        )  # by a client that knows of nothing: it makes the folder as it was sent
        assert other.host.restore(first, tmp_path / "kept") == 0
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


def test_what_is_being_written_is_not_taken(machine: Machine) -> None:
    job(
        machine,
        "import mmap, os\n"
        "for name in ('whole', 'open', 'mapped', 'logs'): os.mkdir(name)\n"
        "open('whole/a.pt', 'w').write('a')\n"
        "open('open/a.pt', 'w').write('a')\n"
        "half = open('open/b.pt', 'w'); half.write('half'); half.flush()\n"
        "open('mapped/a.bin', 'w').write('mapped')\n"
        "with open('mapped/a.bin', 'r+b') as file: kept = mmap.mmap(file.fileno(), 0)\n"
        "open('logs/a.pt', 'w').write('a')\n"
        "log = open('logs/train.log', 'a'); log.write('begun'); log.flush()",
        "*/*",
    )
    work = machine.home / "work"
    age(*(path for path in work.glob("*/*")))
    assert paths(machine.host.checkpoint()) == ["logs/a.pt", "whole/a.pt"]  # a log that goes on keeps nothing back
    clock = LateClock()
    clock.ahead = checkpoints.PATIENCE_SECONDS
    late = taken(machine, clock)["files"]
    assert isinstance(late, list)
    assert [row[0] for row in late] == ["logs/a.pt", "open/a.pt", "whole/a.pt"]


def test_a_folder_stays_as_it_was_until_all_of_it_is_quiet(machine: Machine) -> None:
    job(machine, "import os; os.mkdir('c'); open('c/a', 'w').write('old'); open('c/b', 'w').write('old')", "c")
    work = machine.home / "work"
    age(work / "c/a", work / "c/b")
    before = machine.host.checkpoint()
    assert paths(before) == ["c/a", "c/b"]
    (work / "c/a").write_text("new")
    assert machine.host.checkpoint() == before
    clock = LateClock()
    clock.ahead = checkpoints.QUIET_SECONDS
    after = taken(machine, clock)
    assert after["number"] == 2
    copies = {path.name for path in (machine.home / "checkpoints").iterdir()}
    assert copies == {entry.sha256 for entry in before.files} | {row[2] for row in after["files"]}  # type: ignore[attr-defined]
    assert len(copies) == 2


def test_what_a_killed_job_was_writing_stays_as_it_was(machine: Machine) -> None:
    machine.run(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "os.mkdir('a'); os.mkdir('b')\n"
        "open('a/1', 'w').write('whole'); open('b/1', 'w').write('whole')\n"
        "open('ready', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "half = open('a/1', 'w'); half.write('ha'); half.flush()\n"
        "open('b/1', 'w').write('more'); open('other', 'w').write('output'); open('half', 'w').close()\n"
        "time.sleep(300)",
        checkpoints=("[ab]/*",),
        grace_seconds=0.2,
    )
    work = machine.home / "work"
    until((work / "ready").exists)
    age(work / "a/1", work / "b/1")
    assert paths(machine.host.checkpoint()) == ["a/1", "b/1"]
    (work / "go").touch()
    until((work / "half").exists)
    machine.host.cancel()
    assert machine.follow().exit_code == 137
    last = machine.host.checkpoint(everything=True)
    sizes = {entry.path: entry.size for entry in last.files}
    assert sizes["a/1"] == len("whole")
    assert sizes["b/1"] == len("more")
    assert "other" in sizes


@pytest.mark.parametrize("damage", ["nonsense", '{"number": "x", "files": [1, [2]], "held": 7}'])
def test_a_job_that_damages_the_record_does_not_matter(machine: Machine, damage: str) -> None:
    job(machine, "open('a.pt', 'w').write('a')", "a.pt")
    age(machine.home / "work/a.pt", machine.home / "work/up")
    (machine.home / checkpoints.RECORD).write_text(damage)
    assert paths(machine.host.checkpoint()) == ["a.pt"]
