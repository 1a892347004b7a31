"""What a job may leave behind, and one that removes its own machine."""

import os
import stat
from pathlib import Path

import pytest

from costgpu.errors import MachineUnusable
from costgpu.job.files.place_outputs import fetch_and_place
from tests.agent.harness import Machine
from tests.until import until

pytestmark = pytest.mark.slow

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
    f.seek(100 << 20); f.write(b"end")
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
    assert sparse.st_size == (100 << 20) + 3
    assert sparse.st_blocks * 512 < 1 << 20  # its holes travel as holes


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
