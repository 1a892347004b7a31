"""The agent is stopped: when outputs are saved before that, and how the job is ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.runner.agent.observe import spot_notice
from costgpu.runner.agent.outputs import upload_at_shutdown
from costgpu.runner.agent.outputs.upload_at_shutdown import GRACE_SECONDS, leave
from costgpu.runner.agent.state_files import Home

ORDER = {"outputs": [], "grace_seconds": 600.0, "spot": True, "provider": "gcp"}
URLS = {"outputs": "https://b/outputs"}


class FakeDaemon:
    """With a job that ends when its supervisor gets a signal."""

    def __init__(self, folder: Path) -> None:
        (folder / "work").mkdir(parents=True)
        self.home, self.order = Home(str(folder)), dict(ORDER)
        self.state: dict[str, Any] = {}
        self.settling: Any = None
        self.uploads = dict(URLS)
        self.signals: list[int] = []

    def secret_uploads(self) -> dict[str, str]:
        return self.uploads

    def save(self, **changes: Any) -> None:
        self.state.update(changes)

    def signal_supervisor(self, number: int) -> None:
        self.signals.append(number)
        self.home.write("exit.json", {"exit_code": 0})


@pytest.fixture
def daemon(tmp_path: Path) -> FakeDaemon:
    return FakeDaemon(tmp_path / "home")


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine that goes down; nothing that is done to it ends this process."""
    made = SimpleNamespace(stopping=True, words="", settled=[], ended=[])
    monkeypatch.setattr(upload_at_shutdown, "_is_under_way", lambda: made.stopping)
    monkeypatch.setattr(upload_at_shutdown, "read_notice", lambda _: spot_notice.Answer(made.words))
    monkeypatch.setattr(
        upload_at_shutdown, "settle", lambda _, order, urls, late: made.settled.append(urls) or {"settled": True}
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "kill", lambda _, number: made.ended.append(number))
    return made


def left(daemon: FakeDaemon, world: SimpleNamespace) -> list[dict[str, str]]:
    """What was uploaded before the agent's own end."""
    with pytest.raises(SystemExit):
        leave(daemon)  # type: ignore[arg-type]
    assert world.ended == [signal.SIGTERM]
    settled: list[dict[str, str]] = world.settled
    return settled


@pytest.mark.parametrize(("words", "reason"), [("preempted", "preempted"), ("", "job_failed")])
def test_the_job_gets_ten_seconds_and_the_rest_is_for_the_upload(
    daemon: FakeDaemon, world: SimpleNamespace, words: str, reason: str
) -> None:
    world.words = words
    assert left(daemon, world) == [URLS]
    assert daemon.signals == [signal.SIGTERM]
    ending = daemon.state["ending"]
    assert (ending["reason"], ending["grace_seconds"]) == (reason, GRACE_SECONDS)
    assert daemon.state["settled"]


def test_a_reason_that_is_recorded_stays_and_its_grace_is_cut(daemon: FakeDaemon, world: SimpleNamespace) -> None:
    daemon.state["ending"] = {"reason": "max_duration", "detail": "It ran.", "grace_seconds": 300.0, "uptime": 1.0}
    assert left(daemon, world) == [URLS]
    ending = daemon.state["ending"]
    assert (ending["reason"], ending["grace_seconds"], ending["uptime"]) == ("max_duration", GRACE_SECONDS, 1.0)


def test_a_job_that_is_over_is_not_ended(daemon: FakeDaemon, world: SimpleNamespace) -> None:
    daemon.home.write("exit.json", {"exit_code": 0})
    assert left(daemon, world) == [URLS]
    assert (daemon.signals, "ending" in daemon.state) == ([], False)


def test_an_upload_on_its_way_is_waited_for(daemon: FakeDaemon, world: SimpleNamespace) -> None:
    waited: list[float] = []
    daemon.settling = SimpleNamespace(join=waited.append)
    assert left(daemon, world) == []
    assert waited == [upload_at_shutdown.SECONDS]


@pytest.mark.parametrize("why", ["no job", "no bucket", "uploaded", "home", "the service alone"])
def test_otherwise_the_end_does_not_wait(daemon: FakeDaemon, world: SimpleNamespace, why: str) -> None:
    if why == "no job":
        daemon.order = None  # type: ignore[assignment]
    elif why == "no bucket":
        daemon.uploads = {}
    elif why == "uploaded":
        daemon.state["uploaded"] = True
    elif why == "home":
        daemon.state["collected_uptime"] = 12.0
    else:
        world.stopping = False
    assert left(daemon, world) == []
    assert daemon.signals == []


def test_a_failure_does_not_keep_the_machine(daemon: FakeDaemon, world: SimpleNamespace) -> None:
    daemon.secret_uploads = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert left(daemon, world) == []
