"""What holds for every test: no network, no credentials, no home of the person who runs it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pytest_socket import disable_socket, enable_socket

import tests.fake_cloud.spec  # noqa: F401 - makes the provider of many tests known
from tests.properties import PROFILE

# Ignored in the background of a script, or under nohup, and so in all that is started here: restored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

for profile, count in (("fast", 15), ("thorough", 50)):
    settings.register_profile(profile, max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)  # how fast a machine is that does other things, too, is no property of the code

SECRETS = ("AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "COSTGPU_", "WANDB_", "HF_")


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of its own, no credentials in the environment, no sockets in this process."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(SECRETS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # an activated environment is not what machines have
    ours = str(Path(sys.prefix, "bin"))
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != ours))
    for name in ("CONFIG", "CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # nobody asks whether this machine is one of Google's
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    disable_socket(allow_unix_socket=True)
    yield
    enable_socket()


@pytest.fixture
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parent.parent


MANY_CASES = ("simulation", "fuzz", "destructive")
WIRE_FIXTURES = {"cloud_process", "gce_process"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What speaks to an emulated cloud is marked ``wire`` by the fixtures that it uses; ``bulk`` goes by folders."""
    for item in items:
        if item.path.parent.name in MANY_CASES and item.get_closest_marker("slow"):
            item.add_marker("bulk")
        if WIRE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("wire")
