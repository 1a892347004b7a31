"""Whatever a machine says becomes a typed value or an error of ours, within a counted number of steps.

Thousands of mutations of true answers from fixed seeds. A seed that fails is in the name of its test, and replays.
"""

import io
import json
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import CostGpuError, HostUnreachable, MachineUnusable
from costgpu.models.job import FileEntry, JobOrder, JobStatus, LogStream, Outputs
from costgpu.providers.local import records
from costgpu.runner.files.bucket_outputs import LOGS, OUTPUTS, BucketOutputs
from costgpu.runner.files.paths import is_inside
from costgpu.runner.machine import agent_reply
from costgpu.runner.machine.host import Completed, LogPosition, Selection
from costgpu.runner.machine.log_frames import LogData, read_frames
from tests.fuzz.mutate import damaged, mutations
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


class StepsExceeded(Exception):
    """It took more function calls than its input allows."""


def counted(work: Callable[[], Any], limit: int) -> Any:
    """What the work returns; it may call so many functions, of Python and of C."""
    steps = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")
        if steps > limit:
            raise StepsExceeded(f"more than {limit} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return work()
    finally:
        sys.setprofile(before)


def is_number(value: float | None, most: float) -> bool:
    return value is None or 0 <= value <= most


def check_status(status: JobStatus) -> None:
    assert isinstance(status, JobStatus)
    assert is_number(status.exit_code, 255)
    assert all(is_number(at, 1e12) for at in (status.started_epoch, status.job_started_epoch, status.finished_epoch))
    assert is_number(status.stdout_bytes, 1 << 60)
    assert is_number(status.stderr_bytes, 1 << 60)
    assert isinstance(status.detail, str)
    assert len(status.detail) <= agent_reply.MAX_TEXT


def check_entries(entries: tuple[FileEntry, ...]) -> None:
    for entry in entries:
        assert is_inside(entry.path)
        assert 0 <= entry.size <= 1 << 60
        assert 0 <= entry.mode <= 0o777
        assert len(entry.sha256) == 64


def check(value: Any) -> None:
    if isinstance(value, JobStatus):
        check_status(value)
    elif isinstance(value, Outputs):
        check_entries(value.files)
        assert all(isinstance(text, str) for text in (*value.missing, *value.unreadable, *value.unreadable.values()))
    else:
        assert value is None or value == 0


def outcome(work: Callable[[], Any], limit: int) -> Any:
    """The typed value, or the name of our error; everything else is a fault."""
    try:
        return counted(work, limit)
    except CostGpuError as error:
        if not error.message:
            raise AssertionError("an error that says nothing") from error
        return type(error).__name__


pytestmark = pytest.mark.slow
SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", CALLS)
def test_mutated_answers(method: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{method}-{seed}")
    for number in range(25):
        said = mutations(ANSWERS[method], rng)
        line = b"costgpu-reply " + said.replace(b"\n", b" ") + b"\n"
        if rng.random() < 0.1:
            line = damaged(line, rng)
        completed = Completed(returncode=rng.choice([0, 0, 0, 1, 127, -9, 137]), stdout=line, stderr=rng.randbytes(9))
        agent = PlantedAgent(lambda asked, said=completed: said if asked == method else reply(ANSWERS[asked]))  # type: ignore[misc]
        folder = tmp_path / str(number)
        folder.mkdir()
        got = outcome(lambda agent=agent, folder=folder: CALLS[method](agent, folder), 20_000 + 40 * len(line))  # type: ignore[misc]
        if not isinstance(got, str):
            check(got)
        assert {path.name for path in folder.iterdir()} <= {"stdout.log", "stderr.log"}


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_streams(seed: int) -> None:
    rng = random.Random(f"stream-{seed}")
    for _ in range(60):
        data = damaged(whole_stream(), rng)
        if rng.random() < 0.3:
            data = damaged(data, rng)
        size = rng.choice([1, 7, 1000])
        chunks = [data[at : at + size] for at in range(0, len(data), size)]

        def frames(chunks: list[bytes] = chunks) -> list[Any]:
            return list(read_frames(iter(chunks), 25.0, ManualClock().monotonic))

        got = outcome(frames, 20_000 + 40 * len(data))
        for one in got if isinstance(got, list) else ():
            if isinstance(one, JobStatus):
                check_status(one)
            elif isinstance(one, LogData):
                assert one.position >= 0
        agent = PlantedAgent(sends=lambda chunks=chunks: chunks)  # type: ignore[misc]
        followed = outcome(lambda agent=agent: agent.host.follow(LogPosition(), ignore), 1 << 40)  # type: ignore[misc]
        assert isinstance(followed, JobStatus) or followed in ("HostUnreachable", "MachineUnusable")


DOCUMENTS: dict[str, tuple[dict[str, Any], Callable[[dict[str, object]], Any]]] = {
    "instance.json": (
        {
            "tags": {"costgpu-run": "r", "costgpu-lease": "2026-01-01T00:00:00Z"},
            "region": "local",
            "instance_type": "this",
            "launched_epoch": 1.7e9,
            "lease_epoch": 1.7e9,
            "lifetime_seconds": 60.0,
            "fingerprint": "f",
            "host": "h",
            "boot_id": "b",
        },
        records.facts,
    ),
    "host.json": ({"pid": 1, "started": "2", "boot_id": "b"}, records.host_record),
    "terminated.json": ({"by": "client", "reason": "user initiated", "at": 1.7e9}, records.ending),
    "noted.json": ({"processes": [[1, "2"], [3, "4"]]}, records.noted),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_mutated_records_of_local_machines(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    true, parse = DOCUMENTS[name]
    path = tmp_path / name
    for _ in range(300):
        data = mutations(true, rng)
        path.write_bytes(data)

        def read() -> Any:
            found = records.read(path)
            return None if found is None else parse(found)

        try:
            got = counted(read, 5_000 + 20 * len(data))
        except records.Damaged:
            continue
        if isinstance(got, tuple):
            assert all(not isinstance(value, float) or is_number(value, 1e12) for value in got)


def archive(*members: tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


@pytest.mark.parametrize("seed", range(6))
def test_mutated_archives_in_the_bucket(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"bucket-{seed}")
    view: Any = SimpleNamespace(run_id="abcdefghijkl", spec=spec(bucket="s3://b/p"))
    status = json.dumps(ANSWERS["status"]).encode()
    for number in range(40):
        if rng.random() < 0.4:
            status = mutations(ANSWERS["status"], rng)
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
        got = outcome(lambda: BucketOutputs(ManualClock(), lambda _: bucket).recover(view, folder), 200_000)  # noqa: B023
        if isinstance(got, tuple):
            check_status(got[0])
            check_entries(got[1])
        assert {path.name for path in folder.parent.iterdir()} <= {"run"}


def test_a_reply_without_an_end_is_refused_by_its_size() -> None:
    many = {"files": [[f"f{n}", 1, "0" * 64, 420] for n in range(agent_reply.MAX_FILES + 1)], "missing": []}
    with pytest.raises(MachineUnusable, match="200001 items"):
        PlantedAgent(lambda _: reply(many)).host.outputs()


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
