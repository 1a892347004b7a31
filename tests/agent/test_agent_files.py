"""Installing, sending and fetching through real commands."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.errors import HostUnreachable, MachineUnusable, SyncRefused
from costgpu.job.files.place_outputs import fetch_and_place
from costgpu.job.files.selection import FileSelection
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.host import LogPosition
from costgpu.job.machine.install_agent import agent_sha256
from costgpu.models.job import FileEntry, JobPhase
from costgpu.portable.processes import arguments_of
from tests.agent.harness import Machine, in_thread, order, selection
from tests.until import until

pytestmark = pytest.mark.slow


def test_installing_again_changes_nothing(machine: Machine) -> None:
    machine.host.install()
    assert machine.host.status().phase is JobPhase.WAITING
    first = machine.daemon()
    count = len(machine.transport.commands)
    machine.host.install()
    assert machine.daemon() == first
    assert len(machine.transport.commands) == count + 1  # one round trip


def test_a_newer_agent_replaces_the_old_one_while_the_job_runs(machine: Machine) -> None:
    machine.run(
        "import os, sys, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\nsys.exit(4)"
    )
    until((machine.home / "work/up").exists)
    old = machine.daemon()
    current = machine.home / f"agent-{agent_sha256()[:16]}.pyz"
    current.rename(machine.home / "agent-0123456789abcdef.pyz")  # as if another version had been installed
    wrapper = machine.home / "agent"
    wrapper.write_text(wrapper.read_text().replace(agent_sha256()[:16], "0123456789abcdef"))
    os.kill(old, 9)

    def restarted() -> bool:
        daemons = _daemons(machine)
        if not daemons:  # the loop of the shell starts a file that is gone: start the renamed one
            machine.transport.run(["/bin/sh", str(machine.home / "agent"), "serve"])
        return old not in daemons and any("agent-0123" in each for each in daemons.values())

    until(restarted)
    machine.host.install()
    new = f"agent-{agent_sha256()[:16]}.pyz"
    until(lambda: [new in each for each in _daemons(machine).values()] == [True])  # it alone, once it has taken over
    (machine.home / "work/go").touch()
    assert machine.follow().exit_code == 4


def _daemons(machine: Machine) -> dict[int, str]:
    """Process number -> command line."""
    found = {pid: arguments_of(pid) for pid in machine.ours()}
    return {pid: line for pid, line in found.items() if " daemon" in line and line.split()[1] == "-I"}


@pytest.mark.parametrize("old", ["echo Python 3.6.9\nexit 1", "exit 127"])
def test_a_machine_without_a_usable_python_says_so(machine: Machine, old: str) -> None:
    machine.put_on_path(python3=old)
    with pytest.raises(MachineUnusable, match=r"3\.8 or newer") as caught:
        AgentHost(machine.transport).install()
    assert "3.6.9" in caught.value.message or "none" in caught.value.message


def test_a_machine_without_space_says_so(machine: Machine) -> None:
    (machine.home / f"agent-{agent_sha256()[:16]}.pyz.new").mkdir()
    with pytest.raises(MachineUnusable, match="stored"):
        machine.host.install()


def test_a_machine_without_the_agent_says_so(machine: Machine) -> None:
    with pytest.raises(MachineUnusable, match="not on the machine"):
        machine.host.status()


def test_a_command_that_was_cut_off_is_a_lost_connection(machine: Machine) -> None:
    machine.host.install()
    (machine.home / "agent").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(HostUnreachable):
        machine.host.status()


SWITCHED_OFF = "kill -9 0\n"  # the shell and what it had started
FOUND = 'case "$*" in *version_info*) echo "costgpu-python linux $0"; exit 0;; esac\n'


@pytest.mark.parametrize("at", ["looking for Python", "storing", "starting"])
def test_a_machine_that_is_switched_off_meanwhile_is_lost_and_not_unusable(machine: Machine, at: str) -> None:
    if at == "starting":
        machine.host.install()
        (machine.home / "agent").write_text("#!/bin/sh\n" + SWITCHED_OFF)
    else:
        machine.put_on_path(python3=(FOUND if at == "storing" else "") + SWITCHED_OFF)
    with pytest.raises(HostUnreachable, match="ended the command"):
        AgentHost(machine.transport).install()


def test_chatter_of_a_login_is_not_taken_for_an_answer(machine: Machine) -> None:
    machine.host.install()
    wrapper = machine.home / "agent"
    wrapper.write_text(wrapper.read_text().replace("\nexec", "\necho 'Welcome! {}'; echo costgpu\nexec"))
    machine.run("print('x')")
    assert machine.follow().exit_code == 0
    assert machine.stdout == b"x\n"


def test_files_travel_once_and_arrive_as_they_were(machine: Machine) -> None:
    source = machine.source
    (source / "pkg").mkdir()
    (source / "pkg/ü ~'\"\n.txt").write_bytes(bytes(range(256)))
    (source / "empty").write_bytes(b"")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    name = os.fsdecode(b"latin-\xe9")
    (source / name).write_text("old encoding")
    machine.host.install()
    chosen = selection(source, {"here": "pkg"})
    assert machine.host.send(chosen) > chosen.total_bytes
    assert machine.host.send(chosen) == 0
    work = machine.home / "work"
    assert {p.relative_to(work).as_posix(): p.read_bytes() for p in work.rglob("*") if p.is_file()} == {
        p.relative_to(source).as_posix(): p.read_bytes() for p in source.rglob("*") if p.is_file()
    }
    assert (work / "here").readlink() == Path("pkg")
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o755
    (source / "empty").write_text("no more")
    assert 0 < machine.host.send(selection(source)) < 20_000
    assert (work / "empty").read_text() == "no more"
    assert not (work / "here").exists()


def test_a_file_that_changes_while_it_is_sent_is_refused(machine: Machine) -> None:
    (machine.source / "a").write_text("after")
    machine.host.install()
    entry = FileEntry(path="a", size=5, sha256="0" * 64)
    with pytest.raises(SyncRefused, match="changed"):
        machine.host.send(FileSelection(root=machine.source, files=(entry,)))


def test_nothing_is_sent_into_a_running_job(machine: Machine) -> None:
    machine.run("import time; open('made', 'w').close(); time.sleep(60)")
    until((machine.home / "work/made").exists)
    (machine.source / "late").write_text("x")
    assert machine.host.send(selection(machine.source)) == 0
    assert (machine.home / "work/made").exists()
    assert not (machine.home / "work/late").exists()


def test_outputs_and_logs_come_home(machine: Machine, tmp_path: Path) -> None:
    machine.run("open('model.pt', 'wb').write(bytes(range(256))); print('done')", outputs=("*.pt", "report/"))
    machine.follow()
    outputs = machine.host.outputs()
    (entry,) = outputs.files
    assert outputs.missing == ("report/",)
    target = tmp_path / "target"
    machine.host.fetch([entry], target)
    machine.host.fetch_logs(target)
    assert (target / "model.pt").read_bytes() == bytes(range(256))
    assert (target / "stdout.log").read_text() == "done\n"
    assert (target / "stderr.log").read_text() == ""


def test_logs_can_be_fetched_while_the_job_writes(machine: Machine, tmp_path: Path) -> None:
    machine.run("import time\nwhile True: print('x' * 1000, flush=True); time.sleep(0.002)")
    until(lambda: (machine.home / "stdout.log").stat().st_size > 10_000)
    machine.host.fetch_logs(tmp_path / "logs")
    assert (tmp_path / "logs/stdout.log").stat().st_size > 10_000


def test_a_home_with_a_very_long_name(tmp_path: Path, new_machine: Callable[..., Machine]) -> None:
    deep = Machine(tmp_path / ("x" * 100) / ("y" * 100))
    try:
        deep.run("print('deep')")
        assert deep.follow().exit_code == 0
    finally:
        deep.destroy()


def test_two_clients_at_once(machine: Machine) -> None:
    machine.run("import time\nfor n in range(20): print(n, flush=True); time.sleep(0.02)")
    other = AgentHost(machine.transport, python=sys.executable)
    second = bytearray()
    thread = in_thread(lambda: other.follow(LogPosition(), lambda stream, data: second.extend(data)))
    machine.follow()
    thread.join(60)
    assert bytes(second) == bytes(machine.stdout) != b""
    other.start(order("x.py"), {}, {})


def test_what_lies_beside_the_folder_comes_home_and_nothing_of_ours(machine: Machine, tmp_path: Path) -> None:
    script = """
import os
os.makedirs('../results_up'); open('../results_up/w.pt', 'w').write('weights')
os.makedirs('real'); open('real/x', 'w').write('x'); os.symlink('real', 'latest'); os.symlink('/usr', 'system')
os.makedirs('empty')
"""
    machine.run(script)
    assert machine.follow().exit_code == 0
    outputs = machine.host.outputs()
    assert [each.path for each in outputs.files] == ["latest/x", "real/x", "outside/parent/results_up/w.pt"]
    assert (outputs.folders, outputs.trouble) == (("empty",), "")
    assert outputs.elsewhere == {"system": "a link to /usr: outside, on this computer"}
    fetch_and_place(machine.host, outputs.files, workdir=tmp_path / "here", run_id="r", folders=outputs.folders)
    assert (tmp_path / "here/outside/parent/results_up/w.pt").read_text() == "weights"
    assert (tmp_path / "here/latest/x").read_text() == "x"
    assert (tmp_path / "here/empty").is_dir()
