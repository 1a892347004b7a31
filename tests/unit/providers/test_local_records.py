"""Records of local machines that are damaged or gone, and a full disk: the others are not affected, and nothing lies."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import ProviderError
from costgpu.models.instance import InstanceState
from costgpu.portable.clock import boot_id
from costgpu.providers.local import folder as folder_module
from costgpu.providers.local.folder import Folder
from costgpu.providers.local.keeper import finish, power_off
from costgpu.providers.local.provider import LocalProvider
from tests.contract.harness import RUN, LocalHarness
from tests.unit.providers.test_local import kill_keepers, supervised

NOW = SystemClock().now().timestamp()
WRONG = ["", '{"tags": {', "[1]", "\udcff"]  # as a computer leaves it whose power was cut


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(tmp_path / "machines")
    yield made
    made.close()


def record(folder: Path, name: str, **changes: Any) -> Path:
    """The folder of an instance without processes."""
    path = folder / name
    path.mkdir(parents=True)
    facts = {
        "tags": {"costgpu-run": name},
        "region": "local",
        "instance_type": "this-machine",
        "launched_epoch": NOW,
        "lease_epoch": NOW + 3600,
        "lifetime_seconds": 3600.0,
        "fingerprint": "f",
        "host": os.uname().nodename,
        "boot_id": boot_id(),
    }
    (path / "instance.json").write_text(json.dumps(facts | changes))
    return path


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize(
    "name", ["instance.json", "terminated.json", "end.json", "keeper.json", "noted.json", "state.json"]
)
def test_one_damaged_record_hides_no_other_machine(tmp_path: Path, name: str, text: str) -> None:
    provider = LocalProvider(tmp_path, SystemClock())
    record(tmp_path, "local-good-1")
    bad = record(tmp_path, "local-bad-1")
    (bad / name).write_bytes(os.fsencode(text))
    owned = provider.list_owned()
    assert "local-good-1" in [instance.ref.instance_id for instance in owned.instances]
    told = {instance.ref.instance_id for instance in owned.instances} | {
        word.rstrip(".") for _, why in owned.unreachable for word in why.split()
    }
    assert "local-bad-1" in told
    provider.clean_up("good", "local")


@pytest.mark.parametrize("environment", ["mark", "logs"])
def test_a_job_that_kills_all_that_guards_it_is_found(harness: LocalHarness, environment: str) -> None:
    """It lived on, and was recorded as terminated."""
    made = harness.running(harness.request())
    path = harness.folder / made.ref.instance_id
    kept = {"COSTGPU_HOME": str(path)} if environment == "mark" else {}
    with (path / "stdout.log").open("ab") as log:
        job = subprocess.Popen(["setsid", "sleep", "1101"], env={**kept, "PATH": os.environ["PATH"]}, stdout=log)
    kill_keepers(path)
    (path / "noted.json").unlink(missing_ok=True)
    found = harness.client().describe(made.ref)
    assert found is not None
    assert found.state is InstanceState.RUNNING
    harness.client().terminate(made.ref)
    assert job.wait(timeout=20) == -signal.SIGKILL
    assert harness.over(made.ref)


def test_a_job_that_removes_the_record_of_its_machine_keeps_no_run_open(harness: LocalHarness) -> None:
    """The keeper ends what it cannot read any more; what runs until then is named, and what has ended is gone."""
    made = harness.running(harness.request())
    path, provider = harness.folder / made.ref.instance_id, harness.client()
    supervised(path, "sleep 1102 &")
    for file in path.iterdir():
        if file.is_file():
            file.unlink()
    seen = set()

    def is_gone() -> bool:
        try:
            return provider.describe(made.ref) is None
        except ProviderError as error:
            seen.add(error.message.partition(": ")[0])
            return False

    assert harness.until(is_gone, harness.end_seconds)
    assert seen <= {f"The record of the local instance {path.name} is gone, and processes of it run"}
    assert not Folder(path).members()
    provider.terminate(made.ref)
    assert provider.clean_up(RUN, "local") == ()
    assert path.is_dir(), "what the job has made may be in it"


class FullDisk:
    """Every call that needs room fails from the n-th on; `rooms` is how many bytes of ballast give it back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left, self.failed = number, 0
        for name in ("fsync", "link"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.failed += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **more)

        return call


@pytest.mark.parametrize("number", range(5))
def test_a_full_disk_keeps_nothing_alive_and_hides_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    provider = LocalProvider(tmp_path, SystemClock())
    path = record(tmp_path, "local-full-1")
    (path / "keeper.json").write_text(json.dumps({"monotonic": 1.0}))
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1102)"], env={"COSTGPU_HOME": str(path)})
    disk = FullDisk(monkeypatch, number)
    (instance,) = provider.list_owned().instances
    assert instance.state is InstanceState.RUNNING
    provider.terminate(instance.ref)
    assert job.wait(timeout=20) == -signal.SIGKILL
    (instance,) = provider.list_owned().instances
    assert instance.state is InstanceState.TERMINATED
    monkeypatch.undo()
    (instance,) = provider.list_owned().instances
    assert instance.state is InstanceState.TERMINATED
    assert (path / "terminated.json").exists(), disk.failed
    assert not [one for one in path.iterdir() if one.name.startswith(".")]


def test_reserved_room_is_given_up_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Folder(record(tmp_path, "local-full-1"))
    home.reserve()
    ballast = home.path / folder_module.BALLAST
    assert ballast.stat().st_size > 0
    real = os.fsync

    def needs_room(descriptor: int) -> None:
        if ballast.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", needs_room)
    assert finish(home, {"by": "provider", "reason": "lease expired", "at": NOW})
    over = home.ending("terminated.json")
    assert over is not None
    assert over.reason == "lease expired"
    assert not ballast.exists()


def test_the_button_ends_all_where_not_even_a_lock_file_can_be_made(tmp_path: Path) -> None:
    path = record(tmp_path, "local-full-1")
    (path / "end.lock").mkdir()
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1102)"], env={"COSTGPU_HOME": str(path)})
    assert power_off(Folder(path), "agent deadline")
    assert job.wait(timeout=20) == -signal.SIGKILL
