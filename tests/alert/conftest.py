"""Loopback for real servers; and a machine with cron, which needs minutes, while the other tests run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_socket

from tests.alert import sandbox
from tests.emulators.guests import packages

MODULE = "test_cron_daemon"
_RUNNING = pytest.StashKey["Machine"]()


class Machine:
    """A sandbox that is at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = (folder / "log").open("wb+")
        command = [*sandbox.COMMAND, sys.executable, "-m", "tests.alert.sandbox", str(folder)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
            env={name: os.environ[name] for name in ("PATH",) if name in os.environ},
        )

    def close(self) -> None:
        """Ends it and all that runs in it."""
        self.process.kill()
        self.process.wait()
        self.log.close()


def obstacle() -> str:
    """Why no cron can run here; empty if nothing is in the way."""
    if os.environ.get("TESTBED") == "no":
        return "TESTBED=no"
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a cron daemon of one's own needs Linux and root (own mounts and processes)"
    if shutil.which("cron", path="/usr/sbin:/sbin") is None or shutil.which("crontab") is None:
        return "there is no cron here: apt-get install cron"
    probe = subprocess.run(
        [*sandbox.COMMAND, "mount", "-t", "tmpfs", "probe", "/mnt"], capture_output=True, text=True, check=False
    )
    return f"this machine does not let root make namespaces: {probe.stderr.strip()}" if probe.returncode else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for cron comes last."""
    items.sort(key=lambda item: item.path.stem == MODULE)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the machine now, so that it is done when its tests come."""
    wanted = any(item.path.stem == MODULE for item in session.items)
    if wanted and not session.config.option.collectonly and not obstacle():
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        session.config.stash[_RUNNING] = Machine(factory.mktemp("cron 100%", numbered=True))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends it."""
    machine = config.stash.get(_RUNNING, None)
    if machine is not None:
        machine.close()


@pytest.fixture(scope="session")
def machine(pytestconfig: pytest.Config) -> Machine:
    """The machine; skips with a reason where there can be none."""
    reason = obstacle()
    if reason and os.environ.get(packages.REQUIRED):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return pytestconfig.stash[_RUNNING]


@pytest.fixture(autouse=True)
def loopback(nothing_of_the_users: None) -> Iterator[None]:
    """Sockets, after the guard of all tests has taken them away."""
    pytest_socket.enable_socket()
    yield
    pytest_socket.disable_socket(allow_unix_socket=True)
