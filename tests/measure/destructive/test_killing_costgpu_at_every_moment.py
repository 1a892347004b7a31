# ruff: noqa: PTH115
"""Whatever is killed, and whenever: the tree is as it was at once, nothing runs on, and nothing is left mounted."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from costgpu.measure.isolation.levels import Isolation
from tests.measure.destructive.corpus import scripts
from tests.measure.destructive.run import Runner
from tests.measure.destructive.tree import differences
from tests.until import until

(ENDLESS, BRIEF) = scripts(
    "killed",
    r"""
### endless unfinished
print("started", flush=True)
os.remove("notes.txt")
print("wrote", flush=True)
sh("rm -rf data checkpoints ~/.ssh || true")  # may be refused
print("deleted", flush=True)
if not os.fork():
    os.setsid()
    os.environ.clear()
    while True:
        os.utime("old.txt")
print("forked", flush=True)
sh("while :; do echo gone > config.json; done")

### brief
os.remove("notes.txt")
sh("rm -r data")
""",
)


def said(word: str) -> Callable[[Runner], bool]:
    return lambda runner: word in runner.output().split()


def made(name: str) -> Callable[[Runner], bool]:
    return lambda runner: any(os.path.lexists(folder / name) for folder in runner.measurements())


def in_its_own_namespace(kind: str) -> Callable[[Runner], bool]:
    def check(runner: Runner) -> bool:
        ours = os.readlink(f"/proc/self/ns/{kind}")
        return any(_link(process, f"ns/{kind}") not in ("", ours) for process in runner.processes())

    return check


def mounted(word: str) -> Callable[[Runner], bool]:
    return lambda runner: any(word in _text(process, "mountinfo") for process in runner.processes())


def _link(process: psutil.Process, name: str) -> str:
    try:
        return os.readlink(f"/proc/{process.pid}/{name}")
    except OSError:
        return ""


def _text(process: psutil.Process, name: str) -> str:
    try:
        return Path(f"/proc/{process.pid}/{name}").read_text()
    except OSError:
        return ""


def processes(count: int) -> Callable[[Runner], bool]:
    return lambda runner: len(runner.processes()) >= count


MOMENTS: dict[str, Callable[[Runner], bool]] = {
    "asked": lambda runner: True,
    "folder made": lambda runner: bool(runner.measurements()),
    "log made": made("output.log"),
    "probe packed": made("probe.pyz"),
    "launcher asked": made("isolation.json"),
    "layers made": made("layers"),
    "first process": processes(2),
    "user namespace": in_its_own_namespace("user"),
    "mount namespace": in_its_own_namespace("mnt"),
    "process namespace": in_its_own_namespace("pid"),
    "layers begun": made("layers/upper"),
    "overlay mounted": mounted(" overlay "),
    "second process": processes(3),
    "third process": processes(4),
    "script started": said("started"),
    "first write": said("wrote"),
    "deleted": said("deleted"),
    "forked": said("forked"),
}
ONLY_COPY_ON_WRITE = {"user namespace", "mount namespace", "process namespace", "layers made", "layers begun"}
ONLY_COPY_ON_WRITE |= {"overlay mounted", "second process", "third process"}
LEVELS = (Isolation.COPY_ON_WRITE, Isolation.WRITE_PROTECTED)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    found = Runner(tmp_path_factory.mktemp("victims"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def refused(runner: Runner) -> dict[Isolation, str]:
    """Levels that this machine does not give, and why."""
    found = {}
    for level in LEVELS:
        ran = runner.measured(BRIEF, level)
        raised = ran.answer.get("raised", "")
        if "ConfigError" in raised:
            found[level] = raised
        else:
            assert not ran.faults
            assert ran.begun, ran.output
    return found


@pytest.fixture(autouse=True)
def _given(level: Isolation, refused: dict[Isolation, str]) -> None:
    if level in refused:
        pytest.skip(refused[level])


def kill(runner: Runner, pid: int) -> None:
    """Kills a process; what is on the disk at that moment must be what was there before."""
    os.kill(pid, signal.SIGKILL)
    assert not differences(runner.before, runner.victim.snapshot())


def kill_by_age(runner: Runner, measuring: int, which: int) -> bool:
    """Kills one of the others, the oldest being 0; returns False if it is not there, or has just ended by itself."""
    there = sorted(found.pid for found in runner.processes() if found.pid != measuring)
    if not there:
        return False
    with contextlib.suppress(ProcessLookupError):
        kill(runner, there[min(which, len(there) - 1)])
        return True
    return False


def check_after(runner: Runner) -> None:
    ran = runner.finish()
    assert not ran.faults, ran.output
    for name in ("mountinfo", "mounts"):
        assert str(runner.victim.base) not in Path("/proc/self", name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_costgpu_is_killed(moment: str, level: Isolation, runner: Runner) -> None:
    if level is not Isolation.COPY_ON_WRITE and moment in ONLY_COPY_ON_WRITE:
        pytest.skip("nothing of the kind there")
    pid = runner.start(ENDLESS, level)
    while not MOMENTS[moment](runner):  # without a pause: some moments are short
        assert psutil.pid_exists(pid), runner.output()
    kill(runner, pid)
    check_after(runner)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("moment", ["launcher asked", "layers begun", "overlay mounted", "deleted", "forked"])
def test_a_process_of_the_measurement_is_killed(moment: str, which: int, level: Isolation, runner: Runner) -> None:
    """Any of those that are there, by age: launchers, the first one of a namespace, the script itself."""
    if level is not Isolation.COPY_ON_WRITE and moment in ONLY_COPY_ON_WRITE:
        pytest.skip("nothing of the kind there")
    pid = runner.start(ENDLESS, level)
    while not MOMENTS[moment](runner):
        assert psutil.pid_exists(pid), runner.output()
    until(lambda: kill_by_age(runner, pid, which))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)  # what is left of it may go on for long
    ran = runner.finish()
    assert not ran.changed
    assert not ran.left


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["open/result.json", "open/journal.jsonl"])
def test_costgpu_is_killed_while_the_script_ends(name: str, level: Isolation, runner: Runner) -> None:
    pid = runner.start(BRIEF, level)
    ended = made(name)
    while not ended(runner) and not runner.answer.exists():
        pass
    with contextlib.suppress(ProcessLookupError):
        kill(runner, pid)
    check_after(runner)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_costgpu_is_interrupted(number: signal.Signals, level: Isolation, runner: Runner) -> None:
    pid = runner.start(ENDLESS, level)
    until(lambda: said("forked")(runner))
    os.kill(pid, number)
    ran = runner.finish()
    assert ran.answer["raised"].startswith("KeyboardInterrupt")
    assert not ran.changed
    assert not ran.left
