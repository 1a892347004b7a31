"""A job that works against its own machine: it is watched, ended and collected all the same."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.errors import MachineUnusable
from costgpu.models.job import EndReason, JobPhase
from costgpu.runner.files.place_outputs import fetch_and_place
from tests.agent.harness import Machine
from tests.deep_folders import deep_folders
from tests.until import until

PUT = """
import json, os, sys
name, what = sys.argv[1:]
path = os.path.join("..", name)
if os.path.lexists(path):
    os.rename(path, "../away") if os.path.isdir(path) else os.unlink(path)
if what == "fifo":
    os.mkfifo(path)
elif what == "folder":
    os.makedirs(path + "/full")
elif what == "link":
    os.symlink("/etc/passwd", path)
elif what == "loop":
    os.symlink(os.path.basename(path), path)
elif what == "garbage":
    open(path, "wb").write(b'{"exit_code": "\\\\ud800", "phase": [\\xff')
elif what == "shapes":
    open(path, "w").write(json.dumps({"exit_code": 0.5, "phase": 7, "ending": [1], "files": 3, "links": 4, "uploaded": {}}))
open("made", "w").write("1")
print("the last words", flush=True)
sys.exit(5)
"""
PLACES = (
    "stdout.log",
    "stderr.log",
    "exit.json",
    "state.json",
    "progress.json",
    "contact",
    "outputs.json",
    "manifest.json",
)


@pytest.mark.parametrize("what", ["nothing", "fifo", "folder", "link", "garbage", "shapes"])
@pytest.mark.parametrize("name", PLACES)
def test_files_of_the_agent_that_a_job_replaces(machine: Machine, name: str, what: str, tmp_path: Path) -> None:
    machine.run(PUT, name, what)
    ended = machine.follow()
    assert (ended.phase, ended.reason, ended.exit_code) == (JobPhase.FINISHED, EndReason.JOB_FAILED, 5)
    logs = tmp_path / "logs"
    logs.mkdir()
    machine.host.fetch_logs(logs)
    assert (logs / "stdout.log").read_text() == "the last words\n"
    assert not (logs / "stderr.log").is_symlink()
    outputs = machine.host.outputs()
    assert "made" in [entry.path for entry in outputs.files]
    assert fetch_and_place(machine.host, outputs.files, workdir=tmp_path / "here", run_id="r").stuck == ()
    machine.host.collected()
    assert machine.daemon()


def test_limits_hold_when_a_job_takes_its_state_away(machine: Machine) -> None:
    """It made these FIFOs, and whoever read them waited for ever: no limit was enforced any more."""
    script = """
import os, time
for name in ("state.json", "progress.json", "exit.json", "contact", "limits", "life", "ended_by", "claimed"):
    if os.path.lexists("../" + name):
        os.unlink("../" + name)
    os.mkfifo("../" + name)
print("taken", flush=True)
time.sleep(300)
"""
    machine.run(script, max_duration_seconds=1.0)
    ended = machine.follow()
    assert ended.phase is JobPhase.FINISHED
    assert ended.exit_code == 128 + 15
    assert machine.stdout == b"taken\n"


def test_a_stopped_supervisor_keeps_nothing_alive(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(stuck_seconds=0.5)
    script = "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); print('x', flush=True); time.sleep(300)"
    machine.run(script, max_duration_seconds=0.5, grace_seconds=0.5)
    ended = machine.follow()
    assert (ended.phase, ended.exit_code) == (JobPhase.FINISHED, 137)


def test_a_silent_caller_does_not_keep_the_daemon(machine: Machine) -> None:
    script = """
import os, socket, time
os.chdir("..")
held = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for one in held:
    one.connect("agent.sock")
    one.send(b"{")
time.sleep(300)
"""
    machine.run(script, max_duration_seconds=1.0)
    assert machine.follow().reason is EndReason.MAX_DURATION


ODD = ["new\nline", "back\\slash", "b\udcff\udcfe", "x" * 255, " ", "-rf", "*", "\x1b]0;title\x07", "é", "e\u0301"]


def test_outputs_of_every_kind(machine: Machine, tmp_path: Path) -> None:
    script = f"""
import os, socket
for name in {ODD!a}:
    open(name, "w").write(name.encode("utf-8", "surrogateescape").hex())
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("socket")
os.symlink("loop", "loop")
os.symlink("nothing", "dangling")
os.symlink("/etc/passwd", "outside")
os.symlink(".", "here")
os.symlink("back\\\\slash", "inside")
with open("sparse", "wb") as f:
    f.seek(3 << 30); f.write(b"end")
"""
    machine.run(script)
    assert machine.follow().exit_code == 0
    outputs = machine.host.outputs()
    assert {entry.path for entry in outputs.files} == {*ODD, "inside", "sparse"}
    assert outputs.unreadable == {}
    workdir = tmp_path / "here"
    placed = fetch_and_place(machine.host, outputs.files, workdir=workdir, run_id="r")
    assert placed.stuck == ()
    for name in ODD:
        assert (workdir / name).read_text() == os.fsencode(name).hex()
    sparse = (workdir / "sparse").stat()
    assert sparse.st_size == (3 << 30) + 3
    assert sparse.st_blocks * 512 < 1 << 20  # its holes travel as holes


def test_a_tree_that_is_deeper_than_paths_can_be(machine: Machine) -> None:
    machine.run("open('top', 'w')")
    assert machine.follow().exit_code == 0
    with deep_folders(machine.home / "work", 3000):
        outputs = machine.host.outputs()
    assert [entry.path for entry in outputs.files] == ["top"]
    assert list(outputs.unreadable.values()) == ["File name too long"]


def test_a_job_that_removes_the_machine(machine: Machine) -> None:
    machine.run("import shutil; shutil.rmtree('..', ignore_errors=True)")
    until(lambda: not (machine.home / "agent").exists())
    with pytest.raises(MachineUnusable, match="agent is not on the machine"):
        machine.host.status()


def test_nothing_special_comes_home_with_its_bits(machine: Machine, tmp_path: Path) -> None:
    machine.run("import os; open('s', 'w').close(); os.chmod('s', 0o7777)")
    machine.follow()
    fetch_and_place(machine.host, machine.host.outputs().files, workdir=tmp_path / "here", run_id="r")
    assert stat.S_IMODE((tmp_path / "here" / "s").stat().st_mode) == 0o777
