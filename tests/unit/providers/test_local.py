"""This machine as a provider: real processes, real kills, and the truth about them afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.job.reap import find_orphans
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.portable import processes
from costgpu.providers.local import provider as module
from costgpu.providers.local import retention
from costgpu.providers.local.folder import Folder
from costgpu.providers.local.provider import LocalProvider
from tests.contract.harness import RUN, LocalHarness
from tests.deep_folders import deep_folders

FAMILY = """
sleep 1000 &
setsid sleep 1001 &
( setsid env -i sleep 1002 & )
env -i setsid sh -c 'sleep 1003 & sleep 1004'  &
"""
_SUPERVISOR = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what is orphaned below is its own
subprocess.run(["/bin/sh", "-c", sys.argv[1]])
time.sleep(1000)
"""


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(tmp_path / "machines")
    yield made
    made.close()


def home(harness: LocalHarness, instance: Instance) -> Path:
    return harness.folder / instance.ref.instance_id


def supervised(folder: Path, script: str) -> None:
    """Starts a job in an instance as its agent does: orphaned, in a session of its own."""
    subprocess.run(
        ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", sys.executable, "-c", _SUPERVISOR, script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "COSTGPU_HOME": str(folder)},
        start_new_session=True,
        check=True,
    )


def keepers(folder: Path) -> list[int]:
    """The keeper of an instance, after the shell that starts it again."""
    found = {}
    for pid in sleepers(folder):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"keep" in words:
                found[pid] = words[0] == os.fsencode(sys.executable)
    return sorted(found, key=found.__getitem__)


def kill_keepers(folder: Path) -> None:
    for pid in keepers(folder):
        kill(pid)


def sleepers(folder: Path) -> list[int]:
    """Processes whose working directory is the instance's folder."""
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit() and (path / "cwd").readlink() == folder and processes.process(int(path.name)):
                found.append(int(path.name))
    return found


def empty(harness: LocalHarness, folder: Path) -> bool:
    """Whether nothing runs there any more, once the keeper itself has left."""
    return harness.until(lambda: not sleepers(folder), 5)


def kill(pid: int) -> None:
    found = processes.process(pid)
    os.kill(pid, signal.SIGKILL)
    assert found is None or processes.gone(found)


def over(harness: LocalHarness, instance: Instance) -> bool:
    return harness.until(lambda: harness.over(instance.ref), harness.end_seconds)


def ending(harness: LocalHarness, instance: Instance) -> Instance:
    assert over(harness, instance)
    found = harness.client().describe(instance.ref)
    assert found is not None
    return found


class Skewed(SystemClock):
    """Wrong by some hours."""

    def __init__(self, hours: float) -> None:
        self._by = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._by


# -- what belongs to an instance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["client", "button", "keeper killed", "button without a keeper"])
def test_everything_of_it_ends_and_nothing_else(harness: LocalHarness, by: str) -> None:
    with subprocess.Popen(["sleep", "1005"]) as foreign:
        made = harness.running(harness.request())
        folder = home(harness, made)
        supervised(folder, FAMILY)
        assert harness.until(lambda: len(sleepers(folder)) >= 9, 5)  # five sleeping, two that started them, and keepers
        if "keeper" in by:
            kill_keepers(folder)
            still = harness.client().describe(made.ref)
            assert still is not None
            assert still.state is InstanceState.RUNNING
            assert still.endpoint is not None
        if "button" in by:
            harness.power_off(made.ref)
        else:
            harness.client().terminate(made.ref)
        assert over(harness, made)
        assert empty(harness, folder)
        assert foreign.poll() is None
        foreign.kill()


def test_a_client_that_dies_before_it_has_ended_all_leaves_the_rest_to_the_keeper(harness: LocalHarness) -> None:
    made = harness.running(harness.request())
    folder = home(harness, made)
    supervised(folder, FAMILY)
    assert Folder(folder).write_once("end.json", {"by": "client", "reason": "user initiated", "at": time.time()})
    assert ending(harness, made).reason == "user initiated"
    assert empty(harness, folder)


@pytest.mark.slow
def test_what_bears_no_mark_is_found_when_all_guards_are_killed(harness: LocalHarness) -> None:
    made = harness.running(harness.request())
    folder = home(harness, made)
    job = "setsid env -i sleep 1008 & echo $! >unmarked; exec sleep 1009"
    guard = subprocess.Popen(
        ["/bin/sh", "-c", job], cwd=folder, env={"PATH": os.environ["PATH"], "COSTGPU_HOME": str(folder)}
    )
    assert harness.until(lambda: (folder / "unmarked").exists() and (folder / "unmarked").read_text() != "", 5)
    unmarked, noted = int((folder / "unmarked").read_text()), folder / "noted.json"
    try:
        assert harness.until(lambda: noted.exists() and str(unmarked) in noted.read_text(), 30)
        kill_keepers(folder)
        kill(guard.pid)
        guard.wait()
        assert harness.state(made.ref) is InstanceState.RUNNING
        late = datetime.now(UTC) + timedelta(days=2)
        found = find_orphans([harness.client()], None, late, lambda _: None)
        assert found.orphans == []  # a clock that is two days ahead is this process's alone
        harness.client().terminate(made.ref)
        assert over(harness, made)
        assert processes.process(unmarked) is None
    finally:
        with suppress(ProcessLookupError):
            kill(unmarked)


def test_what_forks_all_the_time_cannot_fork_away(harness: LocalHarness) -> None:
    made = harness.running(harness.request())
    supervised(
        home(harness, made), "( n=0; while [ $n -lt 3000 ]; do n=$((n+1)); setsid sleep 30 & sleep 0.01; done ) &"
    )
    assert harness.until(lambda: len(sleepers(home(harness, made))) > 20, 10)
    harness.client().terminate(made.ref)
    assert over(harness, made)
    assert empty(harness, home(harness, made))


def test_nothing_of_the_callers_environment_gets_in(harness: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    made = harness.running(harness.request())
    for pid in keepers(home(harness, made)):
        variables = {item.partition(b"=")[0] for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
        assert variables <= {b"", b"PATH", b"LD_LIBRARY_PATH", b"PWD", b"OLDPWD", b"SHLVL", b"_", b"LC_CTYPE"}
    assert home(harness, made).stat().st_mode & 0o077 == 0


# -- create -----------------------------------------------------------------------------------------------------------


def test_a_client_that_died_before_the_keeper_was_started(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = harness.request()
    monkeypatch.setattr(LocalProvider, "_start_keeper", lambda self, it: None)
    made = harness.client().create(request)
    assert made.state is InstanceState.PENDING
    assert harness.state(made.ref) is InstanceState.PENDING
    monkeypatch.undo()
    assert harness.running(request).ref == made.ref
    twin = harness.request(attempt=2)
    monkeypatch.setattr(LocalProvider, "_start_keeper", lambda self, it: None)
    other = harness.client().create(twin)
    monkeypatch.undo()
    harness.client().terminate(other.ref)
    assert ending(harness, other).reason == "user initiated"


def test_a_token_that_is_no_file_name(harness: LocalHarness) -> None:
    for token in ("../../etc/passwd", "A B", "ü" * 20, "x" * 64):
        made = harness.client().create(harness.request(token=token))
        assert home(harness, made).parent == harness.folder
        assert harness.client().find(harness.request(token=token)) is not None
    names = [path.name for path in harness.folder.iterdir() if path.is_dir()]
    assert len(names) == 4
    assert all(name.startswith("local-") for name in names)


@pytest.mark.parametrize("name", ["../x", "local-../../etc", "", ".", "local-UPPER"])
def test_ids_that_lead_elsewhere_name_nothing(harness: LocalHarness, name: str, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    harness.folder.mkdir()
    ref = InstanceRef(provider="local", region="local", instance_id=name)
    provider = harness.client()
    assert provider.describe(ref) is None
    assert provider.console(ref) == ""
    provider.terminate(ref)
    assert (tmp_path / "x").is_dir()


# -- the lease --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_lease_ends_by_either_clock(harness: LocalHarness, hours: float) -> None:
    """A wrong wall clock at the create call does not prolong it: the seconds are counted, too."""
    harness.clock = Skewed(hours)
    made = harness.client().create(harness.request(lease_until=harness.clock.now() + timedelta(seconds=2)))
    started = time.monotonic()
    assert over(harness, made)
    assert time.monotonic() - started < 6
    assert ending(harness, made).reason == "lease expired"


def test_a_keeper_that_is_killed_comes_back_and_ends_it_at_the_same_time(harness: LocalHarness) -> None:
    """By the seconds that are counted: the wall clock of the create call was behind."""
    harness.clock = Skewed(1)
    made = harness.client().create(harness.request(lease_until=harness.clock.now() + timedelta(seconds=6)))
    started, folder = time.monotonic(), home(harness, made)
    assert harness.until((folder / "keeper.json").exists, 5)
    supervised(folder, FAMILY)
    kill(keepers(folder)[-1])
    assert ending(harness, made).reason == "lease expired"
    assert time.monotonic() - started < 10
    assert empty(harness, folder)


def test_without_an_agent_it_ends_early(harness: LocalHarness) -> None:
    made = harness.running(harness.request(lease_until=harness.clock.now() + timedelta(hours=1)))
    folder = home(harness, made)
    supervised(folder, "sleep 1000")
    assert harness.until(lambda: len(sleepers(folder)) >= 4, 5)
    (folder / "keeper.json").write_text(json.dumps({"monotonic": time.monotonic() - 899}))
    kill(keepers(folder)[-1])
    assert ending(harness, made).reason == "unclaimed"


# -- the truth --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boot", "reason"), [({}, "its processes are gone"), ({"boot_id": "another"}, "this machine was restarted")]
)
def test_killed_with_everything_in_it(harness: LocalHarness, boot: dict[str, str], reason: str) -> None:
    made = harness.running(harness.request())
    path = home(harness, made) / "instance.json"
    kill_keepers(home(harness, made))
    path.write_text(json.dumps(json.loads(path.read_text()) | boot))
    assert ending(harness, made).reason == reason


def test_a_number_that_was_used_again_is_not_signalled(harness: LocalHarness) -> None:
    made = harness.running(harness.request())
    kill_keepers(home(harness, made))
    with subprocess.Popen(["sleep", "1008"]) as foreign:
        (home(harness, made) / "noted.json").write_text(json.dumps({"processes": [[foreign.pid, "12345"]]}))
        harness.client().terminate(made.ref)
        assert over(harness, made)
        harness.power_off(made.ref)
        assert foreign.poll() is None
        foreign.kill()


def test_a_keeper_that_does_not_react_keeps_nothing_alive(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = harness.running(harness.request())
    folder = home(harness, made)
    supervised(folder, FAMILY)
    stopped = keepers(folder)[-1]
    os.kill(stopped, signal.SIGSTOP)
    Folder(folder).write_once("end.json", {"by": "client", "reason": "user initiated", "at": time.time()})
    assert harness.state(made.ref) is InstanceState.TERMINATING
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.0)
    assert harness.state(made.ref) is InstanceState.RUNNING  # so that whoever waits asks again
    harness.client().terminate(made.ref)
    assert over(harness, made)
    os.kill(stopped, signal.SIGCONT)
    assert empty(harness, folder)


def test_a_folder_that_is_removed_leaves_nothing_running(harness: LocalHarness) -> None:
    made = harness.running(harness.request())
    supervised(home(harness, made), FAMILY)
    away = home(harness, made).rename(harness.folder / "away")
    assert harness.until(lambda: not sleepers(away), 10)


def test_another_machines_instance_in_a_shared_home(harness: LocalHarness) -> None:
    harness.silence("local")
    ref = InstanceRef(provider="local", region="local", instance_id="local-elsewhere00a-1")
    for call in (harness.client().describe, harness.client().terminate):
        with pytest.raises(Unreachable, match="not on this machine"):
            call(ref)


# -- cleaning up ------------------------------------------------------------------------------------------------------


def ended_with(harness: LocalHarness, **documents: Any) -> tuple[Instance, Path]:
    """A terminated instance whose agent has left these documents, and outputs."""
    made = harness.running(harness.request())
    folder = home(harness, made)
    (folder / "work").mkdir()
    (folder / "work" / "model.pt").write_bytes(b"weights")
    (folder / "stdout.log").write_text("epoch 1\n")
    for name, content in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    harness.client().terminate(made.ref)
    assert over(harness, made)
    assert empty(harness, folder)  # a keeper that has not left yet may still write what it has noted
    assert harness.client().clean_up(RUN, "local") == ()
    return made, folder


def test_outputs_that_nobody_fetched_are_kept(harness: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    made, folder = ended_with(harness, order={}, exit={"exit_code": 0}, state={})
    assert (folder / "work" / "model.pt").read_bytes() == b"weights"
    assert not (folder / "poweroff").exists()
    assert str(folder / "work") in ending(harness, made).reason
    monkeypatch.setattr(retention, "KEEP_SECONDS", 0.0)
    harness.client().clean_up(RUN, "local")
    assert not (folder / "work").exists()


@pytest.mark.parametrize("state", [{"collected_uptime": 12.5}, {"uploaded": True}])
def test_of_a_run_that_is_safe_only_the_record_stays(harness: LocalHarness, state: dict[str, Any]) -> None:
    made, folder = ended_with(harness, order={}, exit={"exit_code": 0}, state=state)
    kept = {path.name for path in folder.iterdir()}
    assert kept == {"instance.json", "terminated.json", "end.json", "console.log", "stdout.log", "exit.json"}
    assert ending(harness, made).reason == "user initiated"
    assert harness.client().clean_up(RUN, "local") == ()


def test_folders_in_each_other_do_not_stop_the_next_run(harness: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    made, folder = ended_with(harness, order={}, exit={"exit_code": 0}, state={})
    with deep_folders(folder / "work", 3000):
        monkeypatch.setattr(retention, "KEEP_SECONDS", 0.0)
        harness.client().create(harness.request(attempt=2))
        assert not folder.exists()
        assert harness.state(made.ref) is None


# -- bad places -------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    provider = LocalProvider(tmp_path / "file" / "machines", SystemClock())
    harness = LocalHarness(tmp_path)
    with pytest.raises(ProviderError, match="cannot be used") as caught:
        provider.create(harness.request())
    assert "XDG_DATA_HOME" in caught.value.hint


def test_only_this_machine(harness: LocalHarness) -> None:
    provider = harness.client()
    assert provider.zones(harness.request().offer) == (None,)
    for wrong in (harness.request(zone="local-a"), harness.request(tags={"costgpu-owner": "me"})):
        with pytest.raises(InvalidRequest):
            provider.create(wrong)
    assert provider.list_owned(["mars"]).unreachable == (("mars", "no such region"),)
    assert not harness.folder.exists()
