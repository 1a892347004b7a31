"""A job from its start to its end, in real processes."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.errors import HostUnreachable
from costgpu.job.machine.host import LogPosition
from costgpu.models.job import EndReason, JobPhase, LogStream
from costgpu.portable.processes import process
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


@pytest.mark.parametrize(("script", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 11)", 139)])
def test_failures_keep_their_exit_code(machine: Machine, script: str, code: int) -> None:
    machine.run("import os, sys; " + script)
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, code)


def test_a_failing_setup_is_told_apart_and_the_job_does_not_start(machine: Machine) -> None:
    machine.run("open('ran', 'w')", setup="echo preparing; echo broken >&2; exit 7")
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.SETUP_FAILED, 7)
    assert bytes(machine.stderr) == b"preparing\nbroken\n"
    assert not (machine.home / "work/ran").exists()


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


def test_set_up_and_job_have_the_same_python_and_a_plain_environment(machine: Machine) -> None:
    machine.transport.environment["AWS_SECRET_ACCESS_KEY"] = "mine"
    (machine.source / "pkg").mkdir()
    (machine.source / "pkg/__main__.py").write_text(
        "import json, os, sys; print(json.dumps([sys.argv[1:], {**os.environ}]))"
    )
    setup = "python -c \"import os,sys; print(sys.executable, os.environ['TOKEN'])\" >made"
    machine.run("", argv=("-m", "pkg", "--lr", "1"), setup=setup, secrets={"TOKEN": "s3cret"})
    machine.follow()
    executable, token = (machine.home / "work/made").read_text().split()
    assert Path(executable).parent == Path(order().python).parent
    arguments, environment = json.loads(machine.stdout)
    assert arguments == ["--lr", "1"]
    assert environment["TOKEN"] == token == "s3cret"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert not [name for name in environment if name.startswith("AWS_")]
    # the first is the mark by which a local machine's processes are found
    ours = {name: value for name, value in environment.items() if name.startswith("COSTGPU")}
    assert ours == {"COSTGPU_HOME": str(machine.home), "COSTGPU_OUTPUTS": str(machine.home / "work")}


def test_ranks_are_started_by_torchrun_one_for_each_gpu(machine: Machine) -> None:
    folder = machine.source / "torch/distributed"
    folder.mkdir(parents=True)
    for module in (folder.parent / "__init__.py", folder / "__init__.py"):
        module.touch()
    (folder / "run.py").write_text("import sys; print(sys.argv[1:])")
    gpus = {"nvidia-smi": "[ \"$1\" = -L ] && printf 'GPU 0: A\\nGPU 1: A\\n'"}
    machine.put_on_path(os.environ["PATH"], **gpus)
    machine.run("", "x", processes=-1)
    machine.follow()
    assert machine.stdout.decode() == "['--standalone', '--nproc-per-node', '2', 'train.py', 'x']\n"


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
        assert process(int((machine.home / "work" / name).read_text())) is None


def test_what_a_setup_starts_lives_until_the_job_ends(machine: Machine) -> None:
    machine.run("import os; os.kill(int(open('pid').read()), 0); print('there')", setup="sleep 300 & echo $! >pid")
    assert machine.follow().exit_code == 0
    assert machine.stdout == b"there\n"
    assert process(int((machine.home / "work/pid").read_text())) is None


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


def test_a_job_that_ends_while_no_daemon_is_there_loses_nothing(machine: Machine) -> None:
    machine.run(
        "import os, sys, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\nsys.exit(5)"
    )
    until((machine.home / "work/up").exists)
    os.kill(machine.daemon(), signal.SIGKILL)
    (machine.home / "work/go").touch()
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 5)


def test_a_killed_daemon_comes_back_and_cancel_lets_the_job_save_a_checkpoint(machine: Machine) -> None:
    machine.run(LISTENS, grace_seconds=20.0)
    until((machine.home / "work/up").exists)
    first = machine.daemon()
    os.kill(first, signal.SIGKILL)
    machine.host.cancel()
    machine.host.cancel()
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.CANCELLED, 0)
    assert (machine.home / "work/checkpoint").read_text() == "saved"
    assert machine.daemon() != first


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
        assert process(int(path.name[1:])) is None


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


@pytest.mark.slow
def test_a_job_that_a_shutdown_has_ended_has_not_succeeded(new_machine: Callable[..., Machine]) -> None:
    for _ in range(4):
        machine = new_machine()
        machine.run(_SHUT_DOWN)
        status = machine.follow()
        assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 0)
        assert "shut down or restarted" in status.detail


def test_ten_megabytes_on_both_streams_come_complete_and_in_order(machine: Machine) -> None:
    machine.run(
        "import os, threading\n"
        "def fill(descriptor, letter):\n"
        "    for n in range(5 * 16):\n"
        "        data = (b'%s%07d' % (letter, n)) * 8192\n"
        "        while data: data = data[os.write(descriptor, data):]\n"
        "threads = [threading.Thread(target=fill, args=each) for each in ((1, b'o'), (2, b'e'))]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    assert machine.follow().exit_code == 0
    for data, letter in ((machine.stdout, b"o"), (machine.stderr, b"e")):
        assert bytes(data) == b"".join((b"%s%07d" % (letter, n)) * 8192 for n in range(80))


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
