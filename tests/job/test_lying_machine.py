"""An agent that says nothing, nonsense, or too little holds no client beyond its limits; the machine ends at its lease."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import CostGpuError, HostUnreachable, MachineUnusable
from costgpu.job.agent.log_stream import MAGIC
from costgpu.job.machine.host import LogPosition
from costgpu.job.timeouts import RECONNECT_SECONDS
from costgpu.models.job import EndReason, LogStream
from costgpu.models.run import RunState
from tests.fuzz.planted_agent import PlantedAgent, frame, log
from tests.job.world import World

Chunks = Callable[[ManualClock], Iterator[bytes]]


def nothing(clock: ManualClock) -> Iterator[bytes]:
    yield b""
    clock.sleep(25)
    raise HostUnreachable("The machine gave no sign of life for 25 s.")


def only_signs_of_life(clock: ManualClock) -> Iterator[bytes]:
    yield MAGIC
    while True:
        clock.sleep(5)
        yield frame(b"k", b"")


def one_byte_a_second(clock: ManualClock) -> Iterator[bytes]:
    yield MAGIC
    for byte in log(0, bytes(200_000)):
        clock.sleep(1)
        yield bytes([byte])


def garbage(clock: ManualClock) -> Iterator[bytes]:
    clock.sleep(0.1)
    yield MAGIC + b"\xff" * 100


def a_frame_without_an_end(clock: ManualClock) -> Iterator[bytes]:
    yield MAGIC + b"o\xff\xff\xff\xff"
    while True:
        clock.sleep(0.1)
        yield bytes(1000)


class Liar:
    """A machine of the fake cloud that tells the truth, except in what is planted."""

    def __init__(
        self, honest: Any, clock: ManualClock, chunks: Chunks | None, says: Callable[[str], bytes] | None
    ) -> None:
        self._honest, self._clock, self._chunks, self._says = honest, clock, chunks, says

    def __getattr__(self, name: str) -> Any:
        if self._says is not None and name in ("install", "status", "outputs", "fetch_logs"):
            return getattr(PlantedAgent(self._says, clock=self._clock).host, name)
        return getattr(self._honest, name)

    def follow(self, position: LogPosition, sink: Callable[[LogStream, bytes], None]) -> Any:
        if self._chunks is None:
            return self._honest.follow(position, sink)
        chunks = self._chunks(self._clock)
        return PlantedAgent(sends=lambda: chunks, clock=self._clock).host.follow(position, sink)


def driven(
    folder: Path, chunks: Chunks | None = None, says: Callable[[World], Callable[[str], bytes]] | None = None
) -> Any:
    """The world after its client has left, and the client's error."""
    world = World(folder)
    honest = world.tools.connect
    answers = says(world) if says is not None else None
    lying = replace(world.tools, connect=lambda i, k: Liar(honest(i, k), world.clock, chunks, answers))
    raised: CostGpuError | None = None
    try:
        world.launch(kit=lying).drive()
    except CostGpuError as error:
        raised = error
    return world, raised


def ended_by_its_lease(world: World) -> bool:
    """Whether no machine is left a minute after the lease, without anybody's help."""
    view = world.view
    assert view.lease_until is not None
    assert view.instance is not None
    until = view.lease_until + timedelta(seconds=60)
    world.clock.sleep(max(0.0, (until - world.clock.now()).total_seconds()))
    provider = world.tools.provider("fake")
    instance = provider.describe(view.instance)
    return instance is None or not instance.state.alive


@pytest.mark.parametrize("chunks", [nothing, only_signs_of_life, one_byte_a_second])
def test_a_machine_that_only_seems_to_be_there_ends_with_its_lease(tmp_path: Path, chunks: Chunks) -> None:
    world, _ = driven(tmp_path, chunks)
    late = (world.clock.now() - world.view.lease_until).total_seconds()
    assert late < 400, "the client has left, or ended it"
    assert ended_by_its_lease(world)


def test_a_silent_agent_on_a_machine_that_is_reached_ends_its_client_soon(tmp_path: Path) -> None:
    world, raised = driven(tmp_path, nothing)
    assert isinstance(raised, HostUnreachable)
    assert "has not answered" in raised.message
    assert f"{world.view.lease_until:%H:%M} UTC" in raised.hint
    assert (world.clock.now() - world.view.started_at).total_seconds() < 120
    assert world.view.detached
    assert ended_by_its_lease(world)


@pytest.mark.parametrize("chunks", [garbage, a_frame_without_an_end])
def test_a_machine_that_talks_nonsense_is_left_to_its_lease(tmp_path: Path, chunks: Chunks) -> None:
    world, raised = driven(tmp_path, chunks)
    assert isinstance(raised, MachineUnusable)
    assert "(follow)" in raised.message
    assert "costgpu cancel" in raised.hint
    assert world.clock.now() < world.view.lease_until
    assert world.view.detached
    assert ended_by_its_lease(world)


def test_before_the_job_nonsense_ends_the_machine(tmp_path: Path) -> None:
    world, _ = driven(tmp_path, says=lambda _: lambda _method: b"costgpu-reply {}\n")
    assert world.view.state is RunState.CLOSED
    assert world.view.reason is EndReason.MACHINE_UNUSABLE
    assert ended_by_its_lease(world)


def test_before_the_job_silence_ends_the_machine_soon(tmp_path: Path) -> None:
    """Connecting works every time, and nothing else: it was tried until the end of the lease."""

    def silent(world: World) -> Callable[[str], bytes]:
        def say(_method: str) -> bytes:
            world.clock.sleep(60)
            raise HostUnreachable("`/bin/sh` has not answered for 60 s.")

        return say

    world, _ = driven(tmp_path, says=silent)
    assert world.view.state is RunState.CLOSED
    assert world.view.reason is EndReason.SYNC_FAILED
    assert (world.clock.now() - ManualClock().now()).total_seconds() < RECONNECT_SECONDS + 300
