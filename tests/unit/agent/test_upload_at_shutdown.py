"""The agent is stopped: when outputs are saved before that, and how the job is ended."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from costgpu.job.agent import guard
from costgpu.job.agent.observe import spot_notice
from costgpu.job.agent.outputs import upload_at_shutdown
from costgpu.job.agent.outputs.upload_at_shutdown import GRACE_SECONDS, leave
from tests.unit.agent.simulation import SimulatedMachine

URLS = {"outputs": "https://b/outputs"}


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    made = SimulatedMachine(tmp_path / "home")
    made.start(uploads=URLS, grace_seconds=600.0, spot=True)
    return made


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine that goes down; nothing that is done to it ends this process."""
    made = SimpleNamespace(stopping=True, words="", settled=[], ended=[])
    monkeypatch.setattr(upload_at_shutdown, "_machine_is_shutting_down", lambda: made.stopping)
    monkeypatch.setattr(upload_at_shutdown, "read_notice", lambda _: spot_notice.MetadataAnswer(made.words))
    monkeypatch.setattr(
        guard,
        "finalize_outputs",
        lambda _, order, urls, *rest: made.settled.append(urls) or {"settled": True},
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "kill", lambda _, number: made.ended.append(number))
    return made


def left(machine: SimulatedMachine, world: SimpleNamespace) -> list[dict[str, str]]:
    """What was uploaded before the agent's own end."""
    with pytest.raises(SystemExit):
        leave(machine.guard)
    assert world.ended == [signal.SIGTERM]
    settled: list[dict[str, str]] = world.settled
    return settled


@pytest.mark.parametrize(("words", "reason"), [("preempted", "preempted"), ("", "job_failed")])
def test_the_job_gets_ten_seconds_and_the_rest_is_for_the_upload(
    machine: SimulatedMachine, world: SimpleNamespace, words: str, reason: str
) -> None:
    world.words = words
    assert left(machine, world) == [URLS]
    assert machine.supervisor.signals == [signal.SIGTERM]
    ending = machine.guard.state["ending"]
    assert (ending["reason"], ending["grace_seconds"]) == (reason, GRACE_SECONDS)
    assert machine.guard.state["settled"]


def test_a_reason_that_is_recorded_stays_and_its_grace_is_cut(
    machine: SimulatedMachine, world: SimpleNamespace
) -> None:
    machine.guard.state["ending"] = {
        "reason": "max_duration",
        "detail": "It ran.",
        "grace_seconds": 300.0,
        "uptime": 1.0,
    }
    assert left(machine, world) == [URLS]
    ending = machine.guard.state["ending"]
    assert (ending["reason"], ending["grace_seconds"], ending["uptime"]) == ("max_duration", GRACE_SECONDS, 1.0)


def test_a_job_that_is_over_is_not_ended(machine: SimulatedMachine, world: SimpleNamespace) -> None:
    machine.supervisor.finish()
    assert left(machine, world) == [URLS]
    assert (machine.supervisor.signals, "ending" in machine.guard.state) == ([], False)


def test_an_upload_on_its_way_is_waited_for(machine: SimulatedMachine, world: SimpleNamespace) -> None:
    waited: list[float] = []
    machine.guard.finalizing = SimpleNamespace(join=waited.append)  # type: ignore[assignment]
    assert left(machine, world) == []
    assert waited == [upload_at_shutdown.SECONDS]


@pytest.mark.parametrize("why", ["no job", "no bucket", "uploaded", "home", "the service alone"])
def test_otherwise_the_end_does_not_wait(machine: SimulatedMachine, world: SimpleNamespace, why: str) -> None:
    if why == "no job":
        machine.guard.order = None
    elif why == "no bucket":
        machine.guard.upload_urls = dict  # type: ignore[method-assign]
    elif why == "uploaded":
        machine.guard.state["uploaded"] = True
    elif why == "home":
        machine.guard.state["collected_uptime"] = 12.0
    else:
        world.stopping = False
    assert left(machine, world) == []
    assert machine.supervisor.signals == []


def test_a_failure_does_not_keep_the_machine(machine: SimulatedMachine, world: SimpleNamespace) -> None:
    machine.guard.upload_urls = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert left(machine, world) == []
