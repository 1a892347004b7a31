"""Whatever a POSIX file may be called, it travels there and back with every byte of its name and content."""

import os
import random
from pathlib import Path

import pytest

from costgpu.job.agent.outputs import find_outputs
from costgpu.job.agent.outputs.workdir import apply_manifest, expect_files, receive
from costgpu.job.agent.state_files import Home
from costgpu.job.files import agent_report
from costgpu.job.files.download import fetch_verified
from costgpu.job.files.place_outputs import fetch_and_place
from costgpu.job.files.select import select
from costgpu.job.files.tar import tar_stream
from costgpu.job.machine import agent_reply
from costgpu.job.machine.host import Completed
from costgpu.job.machine.transport.local import LocalTransport
from costgpu.models.job import FileEntry
from tests.fuzz.planted_agent import reply

BYTES = bytes(each for each in range(1, 256) if each != ord("/"))
ODD = [
    b"-rf",
    b"~",
    b"a b",
    b"a\nb",
    b"\xff\xfe",
    b"\x1b[2J",
    b"..a",
    b"...",
    b"\\",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"x" * 255,
]


def names(count: int, seed: int) -> list[bytes]:
    """So many different ones, none of which stays behind for what it is called."""
    rng = random.Random(seed)
    found = set(ODD)
    while len(found) < count:
        name = bytes(rng.choice(BYTES) for _ in range(rng.choice([1, 2, 3, 8, 60, 200])))
        if not name.startswith(b".") and not name.lower().endswith((b".pyc", b".pyo", b".key", b".pem", b".env")):
            found.add(name)
    return sorted(found)


class Reader:
    """A stream of pieces as a file."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._data, self._at = b"".join(pieces), 0

    def read(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_names_make_the_round_trip(tmp_path: Path, count: int) -> None:
    source, home = tmp_path / "source", Home(str(tmp_path / "machine"))
    Path(home.path).mkdir()
    content = {}
    for number, name in enumerate(names(count, seed=13)):
        path = os.fsdecode((b"%d-\xfe\\/" % (number % 7) if number % 3 else b"") + name)
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        content[path] = str(number).encode()
        (source / path).write_bytes(content[path])
    chosen = select(source, limit_bytes=1 << 30)
    assert {entry.path for entry in chosen.files} == set(content)

    rows = [[entry.path, entry.size, entry.sha256, entry.mode] for entry in chosen.files]
    lacking = expect_files(home, rows, {})
    assert agent_reply.value(_answered({"lacking": lacking}), "lacking", frozenset[str]) == set(content)
    assert receive(home, Reader(list(tar_stream(source, chosen.files)))) == len(content)  # type: ignore[arg-type]
    apply_manifest(home)
    Path(home.file("manifest.json")).unlink()  # all of it counts as made by the job

    found = find_outputs.find_outputs(home, [])
    files = find_outputs.with_checksums(home, found)
    outputs = agent_report.outputs(_answered({"files": files, "missing": [], "unreadable": found.unreadable}))
    assert outputs.unreadable == {}

    class Machine:
        def fetch(self, entries: tuple[FileEntry, ...], folder: Path) -> None:
            fetch_verified(LocalTransport(Path(home.path)).download, home.work, entries, folder)

    placed = fetch_and_place(Machine(), outputs.files, workdir=tmp_path / "here", run_id="r")  # type: ignore[arg-type]
    assert placed.stuck == ()
    for path, data in content.items():
        assert (tmp_path / "here" / path).read_bytes() == data


def _answered(value: dict[str, object]) -> agent_reply.Reply:
    """As it arrives here."""
    parsed = agent_reply.parse_reply(Completed(returncode=0, stdout=reply(value), stderr=b""), "test")
    assert isinstance(parsed, dict)
    return parsed
