"""A job from its start to its end, in real processes.

One file of more than 400 lines: the cases share one machine in real processes.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.errors import HostUnreachable
from costgpu.models.job import EndReason, JobPhase, LogStream
from costgpu.runner.agent.observe import machine_stats
from costgpu.runner.machine.agent_client import AgentHost
from costgpu.runner.machine.host import LogPosition
from costgpu.runner.timeouts import AgentTimeouts
from tests.agent.harness import LISTENS, Machine, in_thread, order
from tests.until import until


def test_a_job_runs_and_its_output_comes_unchanged(machine: Machine) -> None:
    machine.run(
        "import sys\n"
        "print('grüße', *sys.argv[1:])\n"
        "sys.stdout.buffer.write(bytes(range(256)))\n"
        "print('no', file=sys.stderr)\n",
        "a b",
        "--x=$HOME;'\"",
    )
    status = machine.follow()
    assert bytes(machine.stdout) == "grüße a b --x=$HOME;'\"\n".encode() + bytes(range(256))
    assert bytes(machine.stderr) == b"no\n"
    assert (status.phase, status.reason, status.exit_code) == (JobPhase.FINISHED, EndReason.SUCCEEDED, 0)
    assert status.stdout_bytes == len(machine.stdout)
    assert status.started_epoch is not None
    assert status.finished_epoch is not None
    assert status.job_started_epoch is not None
    assert status.started_epoch <= status.job_started_epoch <= status.finished_epoch
    assert machine.host.status() == status


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("raise SystemError('x')", 1),
        ("import os; os.kill(os.getpid(), 11)", 139),
    ],
)
def test_failures_keep_their_exit_code(machine: Machine, script: str, code: int) -> None:
    machine.run(script)
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, code)


def test_a_failing_setup_is_told_apart_and_the_job_does_not_start(machine: Machine) -> None:
    machine.run("open('ran', 'w')", setup="echo preparing; echo broken >&2; exit 7")
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.SETUP_FAILED, 7)
    assert bytes(machine.stderr) == b"preparing\nbroken\n"
    assert not (machine.home / "work/ran").exists()


def test_setup_comes_first_and_sees_the_same_python_and_secrets(machine: Machine) -> None:
    setup = "python -c \"import os,sys; print(sys.executable, os.environ['TOKEN'])\" >made"
    machine.run("print(open('made').read())", setup=setup, secrets={"TOKEN": "s3cret"})
    assert machine.follow().exit_code == 0
    executable, token = machine.stdout.decode().split()
    assert token == "s3cret"
    assert Path(executable).parent == Path(order().python).parent


def test_secrets_are_in_the_job_and_nowhere_else(machine: Machine) -> None:
    secret = "hunter2-but-longer"
    machine.run(
        "import os, time; print(len(os.environ['KEY'])); open('up', 'w'); time.sleep(60)",
        secrets={"KEY": secret},
        uploads={"outputs": "http://127.0.0.1:1/?signature=" + secret},
    )
    until((machine.home / "work/up").exists)
    for path in machine.home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    holders = [pid for pid in machine.ours() if secret.encode() in Path(f"/proc/{pid}/environ").read_bytes()]
    assert len(holders) == 1  # the job itself
    assert not any(secret.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in machine.ours())
    assert not any(secret in word for command in machine.transport.commands for word in command)


def test_the_environment_is_plain(machine: Machine) -> None:
    machine.transport.environment["AWS_SECRET_ACCESS_KEY"] = "mine"
    machine.run("import json, os; print(json.dumps(dict(os.environ)))", secrets={"A": "1"})
    machine.follow()
    environment = json.loads(machine.stdout)
    assert environment["A"] == "1"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert environment["COSTGPU_OUTPUTS"] == str(machine.home / "work")
    assert not [name for name in environment if name.startswith("AWS_")]
    assert environment["COSTGPU_HOME"] == str(machine.home)  # the mark by which a local machine's processes are found
    assert sorted(name for name in environment if name.startswith("COSTGPU")) == ["COSTGPU_HOME", "COSTGPU_OUTPUTS"]


def test_a_module_runs_with_minus_m(machine: Machine) -> None:
    (machine.source / "pkg").mkdir()
    (machine.source / "pkg/__main__.py").write_text("import sys; print(sys.argv[1:])")
    machine.run("", argv=("-m", "pkg", "--lr", "1"))
    machine.follow()
    assert machine.stdout.decode() == "['--lr', '1']\n"


@pytest.mark.parametrize(("processes", "started"), [(3, "3"), (-1, "2")])  # -1: one for each GPU
def test_several_processes_are_started_by_torchrun(machine: Machine, processes: int, started: str) -> None:
    folder = machine.source / "torch/distributed"
    folder.mkdir(parents=True)
    for module in (folder.parent / "__init__.py", folder / "__init__.py"):
        module.touch()
    (folder / "run.py").write_text("import sys; print(sys.argv[1:])")
    gpus = {"nvidia-smi": "[ \"$1\" = -L ] && printf 'GPU 0: A\\nGPU 1: A\\n'"}
    machine.put_on_path(os.environ["PATH"], **gpus)
    machine.run("", "x", processes=processes)
    machine.follow()
    assert machine.stdout.decode() == f"['--standalone', '--nproc-per-node', '{started}', 'train.py', 'x']\n"


FAILED = "echo 'NVIDIA-SMI has failed.' >&2; exit 9"
DRIVERS = {
    "it names all": ("printf 'GPU 0: A\\nGPU 1: A\\n'", []),
    "parts of a GPU": ("printf 'GPU 0: A\\n  MIG 1g.5gb Device 0: x\\n'", ["names 1 of 2 GPUs: GPU 0: A"]),
    "no driver": (
        FAILED,
        ["nvidia-smi failed (9): NVIDIA-SMI has failed.", "kernel's log says:\n[2] NVRM: loading\n[3] NVRM: no GSP"],
    ),
    "no GPU": ("exit 6", ["nvidia-smi failed (6): it said nothing."]),
    "no answer": ("exec /bin/sleep 300", ["nvidia-smi had not answered after 0.5 s", "[3] NVRM: no GSP"]),
    "no program": (None, ["no nvidia-smi"]),
    "not for this machine": ("#!/nowhere/sh", ["nvidia-smi cannot be run"]),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_the_driver_says_of_the_gpus(machine: Machine, driver: str) -> None:
    script, says = DRIVERS[driver]
    kernel = "printf '[1] usb\\n[2] NVRM: loading\\n[3] NVRM: no GSP\\n[4] eth0\\n'"
    machine.put_on_path(**({"nvidia-smi": script} if script else {}), dmesg=kernel)
    if driver == "not for this machine":
        (machine.home.parent / "bin/nvidia-smi").write_text(script or "")
    machine.host.install()
    trouble = machine.host.driver_trouble(2, 0.5 if driver == "no answer" else 60.0)
    assert bool(trouble) == bool(says)
    assert [words for words in says if words not in trouble] == []
    assert "usb" not in trouble


def test_a_missing_interpreter_is_the_machines_fault(machine: Machine) -> None:
    machine.run("", python="/nowhere/python3")
    status = machine.follow()
    assert status.reason is EndReason.MACHINE_UNUSABLE
    assert "/nowhere/python3" in status.detail


def test_a_second_start_changes_nothing(machine: Machine) -> None:
    machine.run("open('log', 'a').write('x')")
    machine.host.start(order("train.py"), {}, {})
    machine.follow()
    machine.host.start(order("other.py"), {}, {})
    assert machine.read("order.json")["argv"] == ["train.py"]
    assert (machine.home / "work/log").read_text() == "x"
    assert machine.host.status().reason is EndReason.SUCCEEDED


DAEMON = """
import os, subprocess, sys, time
for clear in (False, True):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if clear:
                program = 'import os,time; open("b","w").write(str(os.getpid())); time.sleep(300)'
                os.execve(sys.executable, [sys.executable, '-c', program], {})
            open('a', 'w').write(str(os.getpid()))
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
        os._exit(0)
    os.wait()
while not (os.path.exists('a') and os.path.exists('b') and open('a').read() and open('b').read()):
    time.sleep(0.01)
"""


def test_daemonised_children_are_gone_with_the_job(machine: Machine) -> None:
    machine.run(DAEMON, secrets={"SECRET": "time.sleep(300)"})
    status = machine.follow()
    assert status.reason is EndReason.SUCCEEDED
    assert status.detail.startswith("2 processes that it had started were still running and were ended: ")
    assert "train.py" in status.detail
    assert "import os,time" not in status.detail  # the text of a program may hold anything
    assert "sleep(300)" not in status.detail
    for name in "ab":
        assert machine_stats.process(int((machine.home / "work" / name).read_text())) is None


def test_what_a_setup_starts_lives_until_the_job_ends(machine: Machine) -> None:
    machine.run("import os; os.kill(int(open('pid').read()), 0); print('there')", setup="sleep 300 & echo $! >pid")
    assert machine.follow().exit_code == 0
    assert machine.stdout == b"there\n"
    assert machine_stats.process(int((machine.home / "work/pid").read_text())) is None


def test_cancel_lets_the_job_save_a_checkpoint(machine: Machine) -> None:
    machine.run(LISTENS, grace_seconds=20.0)
    until((machine.home / "work/up").exists)
    machine.host.cancel()
    machine.host.cancel()
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.CANCELLED, 0)
    assert (machine.home / "work/checkpoint").read_text() == "saved"


def test_cancel_ends_a_job_that_does_not_listen(machine: Machine) -> None:
    machine.run("import signal, time\nsignal.signal(15, signal.SIG_IGN)\nopen('up', 'w').close()\ntime.sleep(300)")
    until((machine.home / "work/up").exists)
    began = time.monotonic()
    machine.host.cancel()
    status = machine.follow()
    assert 0.8 < time.monotonic() - began < 4
    assert (status.reason, status.exit_code) == (EndReason.CANCELLED, 137)
    # By its supervisor when the grace was over: the guard, which waits 10 s longer, has other words.
    assert machine.read("exit.json")["detail"] == "The job was ended by signal 9."


def test_a_program_may_exit_with_a_code_of_a_signal(machine: Machine) -> None:
    machine.run("import sys; sys.exit(137)")
    status = machine.follow()
    assert (status.exit_code, status.detail) == (137, "")


HELPER = """
import os, signal, subprocess, sys, time
helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])
def save(*_):
    time.sleep(0.5)
    open('checkpoint', 'w').write(str(helper.poll()))
    os._exit(0)
signal.signal(signal.SIGTERM, save)
open('up', 'w').close()
time.sleep(300)
"""


def test_helpers_live_while_the_main_process_saves(machine: Machine) -> None:
    machine.run(HELPER, grace_seconds=60.0)
    until((machine.home / "work/up").exists)
    machine.host.cancel()
    machine.follow()
    assert (machine.home / "work/checkpoint").read_text() == "None"


WRAPPER = """
import subprocess, sys
subprocess.run([sys.executable, 'inner.py'])
"""


def test_a_job_inside_a_wrapper_gets_its_grace(machine: Machine) -> None:
    (machine.source / "inner.py").write_text(LISTENS)
    machine.run(WRAPPER, grace_seconds=60.0)
    until((machine.home / "work/up").exists)
    machine.host.cancel()
    machine.follow()
    assert (machine.home / "work/checkpoint").read_text() == "saved"


def test_cancel_during_setup(machine: Machine) -> None:
    machine.run("open('ran', 'w')", setup="touch up; sleep 300")
    until((machine.home / "work/up").exists)
    machine.host.cancel()
    assert machine.follow().reason is EndReason.CANCELLED
    assert not (machine.home / "work/ran").exists()


@pytest.mark.parametrize("moment", ["running", "after"])
def test_a_killed_daemon_comes_back_and_nothing_is_lost(machine: Machine, moment: str) -> None:
    machine.run(
        "import os, sys, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\nsys.exit(5)"
    )
    until((machine.home / "work/up").exists)
    first = machine.daemon()
    os.kill(first, signal.SIGKILL)
    if moment == "running":
        assert until(machine.daemon) != first
    (machine.home / "work/go").touch()
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 5)


def test_cancel_works_after_a_daemon_was_killed(machine: Machine) -> None:
    machine.run(LISTENS, grace_seconds=10.0)
    until((machine.home / "work/up").exists)
    os.kill(machine.daemon(), signal.SIGKILL)
    machine.host.cancel()
    assert machine.follow().reason is EndReason.CANCELLED
    assert (machine.home / "work/checkpoint").exists()


def test_a_killed_supervisor_takes_its_job_with_it(machine: Machine) -> None:
    machine.run(
        "import os, time\nif os.fork() == 0: os.setsid()\nopen(f'p{os.getpid()}', 'w').close()\ntime.sleep(300)"
    )
    until(lambda: len(list((machine.home / "work").glob("p*"))) == 2)
    os.kill(machine.read("order.json")["supervisor"]["pid"], signal.SIGKILL)
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 137)
    assert "supervisor" in status.detail
    for path in (machine.home / "work").glob("p*"):
        assert machine_stats.process(int(path.name[1:])) is None


def test_a_stopped_supervisor_does_not_hold_up_the_end(new_machine: Callable[..., Machine]) -> None:
    stuck = new_machine(stuck_seconds=0.5)
    stuck.run("import time\nopen('up', 'w').close()\ntime.sleep(300)", grace_seconds=0.2)
    until((stuck.home / "work/up").exists)
    os.kill(stuck.read("order.json")["supervisor"]["pid"], signal.SIGSTOP)
    stuck.host.cancel()
    assert stuck.follow().reason is EndReason.CANCELLED


# As an init system shuts a machine down: all are stopped, all are sent SIGTERM, all go on. The orphans keep the
# supervisor at work, so that it is not always stopped in the same place.
_SHUT_DOWN = """
import os, signal, subprocess, time
supervisor = os.getppid()
ended, alive = os.pipe()  # the other end is closed when the job and all its helpers are gone
go_on = "cat <&%d; kill -CONT %d" % (ended, supervisor)
subprocess.Popen(["sh", "-c", go_on], pass_fds=[ended], start_new_session=True)
os.close(ended)
for helper in range(3):
    if os.fork() == 0:
        end = time.monotonic() + 0.25
        while time.monotonic() < end:
            if os.fork() == 0:
                os.fork()
                os._exit(0)
            os.wait()
        os._exit(0)
time.sleep(0.1)
os.kill(supervisor, signal.SIGSTOP)
while open("/proc/%d/stat" % supervisor).read().rpartition(")")[2].split()[0] != "T":
    pass
os.kill(supervisor, signal.SIGTERM)
os._exit(0)  # a job that has saved its checkpoint
"""


def test_a_job_that_a_shutdown_has_ended_has_not_succeeded(new_machine: Callable[..., Machine]) -> None:
    for _ in range(4):
        machine = new_machine()
        machine.run(_SHUT_DOWN)
        status = machine.follow()
        assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 0)
        assert "shut down or restarted" in status.detail


def test_fifty_megabytes_on_both_streams_come_complete_and_in_order(machine: Machine) -> None:
    machine.run(
        "import os, threading\n"
        "def fill(descriptor, letter):\n"
        "    for n in range(25 * 16):\n"
        "        data = (b'%s%07d' % (letter, n)) * 8192\n"
        "        while data: data = data[os.write(descriptor, data):]\n"
        "threads = [threading.Thread(target=fill, args=each) for each in ((1, b'o'), (2, b'e'))]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    assert machine.follow().exit_code == 0
    for data, letter in ((machine.stdout, b"o"), (machine.stderr, b"e")):
        assert bytes(data) == b"".join((b"%s%07d" % (letter, n)) * 8192 for n in range(400))


def test_following_goes_on_where_a_lost_connection_broke_off(machine: Machine) -> None:
    machine.run("import time\nfor n in range(2000): print('line', n)\ntime.sleep(0.5)\nprint('end')")
    got = bytearray()

    def sink(stream: LogStream, data: bytes) -> None:
        got.extend(data)

    machine.transport.cut = 5000
    with pytest.raises(HostUnreachable):
        machine.host.follow(LogPosition(), sink)
    machine.transport.cut = None
    assert 0 <= len(got) < 6000
    machine.host.follow(LogPosition(stdout=len(got)), sink)
    assert got.decode() == "".join(f"line {n}\n" for n in range(2000)) + "end\n"


def test_a_silent_connection_is_given_up(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(keepalive_seconds=1000)
    machine.run("import time; time.sleep(300)")
    machine.host = AgentHost(machine.transport, timeouts=AgentTimeouts(silence=0.5))
    with pytest.raises(HostUnreachable, match="sign of life"):
        machine.follow()


def test_following_ends_at_once_after_the_last_instruction(machine: Machine) -> None:
    machine.run("import time\nopen('up', 'w').close()\ntime.sleep(1)\nprint(repr(time.time()), flush=True)")
    until((machine.home / "work/up").exists)
    machine.follow()
    assert time.time() - float(machine.stdout) < 1.5  # 0.1 s when nothing else is running


def test_following_begins_before_the_start(machine: Machine) -> None:
    machine.host.install()
    seen: list[object] = []
    thread = in_thread(lambda: seen.append(machine.follow()))
    time.sleep(0.3)
    machine.run("print('late')")
    thread.join(60)
    assert seen
    assert machine.stdout == b"late\n"
