"""What arrives damaged from a machine becomes a typed value or an error of ours.

Thousands of damages to true answers from fixed seeds. A seed that fails is in the name of its test, and replays.
"""

import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import CostGpuError, HostUnreachable, MachineUnusable
from costgpu.models.job import FileEntry, JobOrder, JobStatus, LogStream, Outputs
from costgpu.runner.files.bucket_outputs import LOGS, OUTPUTS, BucketOutputs
from costgpu.runner.files.paths import is_inside
from costgpu.runner.machine.host import Completed, LogPosition, Selection
from costgpu.runner.machine.log_frames import LogData, read_frames
from tests.fuzz.mutate import damaged
from tests.fuzz.planted_agent import ANSWERS, PlantedAgent, reply, whole_stream
from tests.runner.examples import spec

SELECTION = Selection(root=Path("/nonexistent"), files=(FileEntry(path="train.py", size=0, sha256="0" * 64),))
ORDER = JobOrder(
    argv=("train.py",),
    setup="",
    outputs=(),
    processes=0,
    python="",
    deadline_epoch=1.8e9,
    max_duration_seconds=None,
    idle_seconds=None,
    grace_seconds=1.0,
    spot=False,
    provider="local",
    power_off=True,
)
CALLS: dict[str, Callable[[PlantedAgent, Path], Any]] = {
    "status": lambda agent, _: agent.host.status(),
    "outputs": lambda agent, _: agent.host.outputs(),
    "logs": lambda agent, folder: agent.host.fetch_logs(folder),
    "expect": lambda agent, _: agent.host.send(SELECTION),
    "start": lambda agent, _: agent.host.start(ORDER, {}, {}),
    "cancel": lambda agent, _: agent.host.cancel(),
    "collected": lambda agent, _: agent.host.collected(),
    "install": lambda agent, _: agent.host.install(),
}


def check_entries(entries: tuple[FileEntry, ...]) -> None:
    assert all(is_inside(entry.path) and len(entry.sha256) in (0, 64) for entry in entries)


def check(value: Any) -> None:
    if isinstance(value, Outputs):
        check_entries(value.files)
        assert all(isinstance(text, str) for text in (*value.missing, *value.unreadable, *value.unreadable.values()))
    else:
        assert value is None or isinstance(value, int | JobStatus)


def outcome(work: Callable[[], Any]) -> Any:
    """The typed value, or the name of our error; everything else is a fault."""
    try:
        return work()
    except CostGpuError as error:
        if not error.message:
            raise AssertionError("an error that says nothing") from error
        return type(error).__name__


pytestmark = pytest.mark.slow
SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", CALLS)
def test_damaged_answers(method: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{method}-{seed}")
    for number in range(25):
        line = damaged(reply(ANSWERS[method]), rng)
        completed = Completed(returncode=rng.choice([0, 0, 0, 1, 127, -9, 137]), stdout=line, stderr=rng.randbytes(9))
        agent = PlantedAgent(lambda asked, said=completed: said if asked == method else reply(ANSWERS[asked]))  # type: ignore[misc]
        folder = tmp_path / str(number)
        folder.mkdir()
        got = outcome(lambda agent=agent, folder=folder: CALLS[method](agent, folder))  # type: ignore[misc]
        if not isinstance(got, str):
            check(got)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_streams(seed: int) -> None:
    rng = random.Random(f"stream-{seed}")
    for _ in range(60):
        data = damaged(whole_stream(), rng)
        if rng.random() < 0.3:
            data = damaged(data, rng)
        size = rng.choice([1, 7, 1000])
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        got = outcome(lambda chunks=chunks: list(read_frames(iter(chunks), 25.0, ManualClock().monotonic)))  # type: ignore[misc]
        for one in got if isinstance(got, list) else ():
            if isinstance(one, LogData):
                assert one.position >= 0
        agent = PlantedAgent(sends=lambda chunks=chunks: chunks)  # type: ignore[misc]
        followed = outcome(lambda agent=agent: agent.host.follow(LogPosition(), ignore))  # type: ignore[misc]
        assert isinstance(followed, JobStatus) or followed in ("HostUnreachable", "MachineUnusable")


def archive(*members: tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


@pytest.mark.parametrize("seed", range(6))
def test_damaged_archives_in_the_bucket(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"bucket-{seed}")
    view: Any = SimpleNamespace(run_id="abcdefghijkl", spec=spec(bucket="s3://b/p"))
    status = json.dumps(ANSWERS["status"]).encode()
    for number in range(40):
        if rng.random() < 0.4:
            status = damaged(status, rng)
        odd = rng.choice(["ok", "../x", "a", "a/b.pt/c"])
        objects = {
            f"{view.run_id}/{LOGS}": archive(("stdout.log", b"1\n"), ("status.json", status)),
            f"{view.run_id}/{OUTPUTS}": archive(("a/b.pt", bytes(3000)), (odd, b"2")),
        }
        name = rng.choice(list(objects))
        if rng.random() < 0.7:
            objects[name] = damaged(objects[name], rng)
        bucket: Any = SimpleNamespace(
            exists=objects.__contains__, download=lambda name, path, objects=objects: path.write_bytes(objects[name])
        )
        folder = tmp_path / str(number) / "run"
        got = outcome(lambda: BucketOutputs(ManualClock(), lambda _: bucket).recover(view, folder))  # noqa: B023
        if isinstance(got, tuple):
            assert isinstance(got[0], JobStatus)
            check_entries(got[1])
        assert {path.name for path in folder.parent.iterdir()} <= {"run"}


def ignore(_stream: LogStream, _data: bytes) -> None:
    """Looks at nothing."""


def endless(chunk: bytes, clock: ManualClock, seconds: float) -> Iterator[bytes]:
    """The same chunk for ever, each after so many seconds."""
    while True:
        clock.sleep(seconds)
        yield chunk


@pytest.mark.parametrize("chunk", [b"x", b"\0", b"costgpu-follow-1\n", b"\xff"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_drip_of_bytes_ends_by_the_clock(chunk: bytes, begun: bool) -> None:
    clock = ManualClock()

    def drip() -> Iterator[bytes]:
        if begun:
            yield whole_stream()[:40]
        yield from endless(chunk, clock, 1.0)

    agent = PlantedAgent(sends=drip, clock=clock)
    with pytest.raises((HostUnreachable, MachineUnusable)):
        agent.host.follow(LogPosition(), ignore)
    assert clock.monotonic() < 400  # the reader of the stream may be some chunks ahead
