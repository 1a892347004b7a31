"""A Ray cluster whose head takes no driver: it is asked again, and in the end what Ray said is told."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import pytest

from costgpu.job.agent.launch_ray import JOIN_SECONDS, RayFailed, RayNode

ROOM = "costgpu.job.agent.launch_ray"


class RefusedDriver:
    """The process of a driver that says why it is refused, and ends."""

    def __init__(self, words: list[str], *, stderr: IO[bytes], **_: Any) -> None:
        stderr.write(b"Failed to register worker to Raylet\n")
        stderr.flush()

    def poll(self) -> int:
        return 1

    wait = poll

    def kill(self) -> None:
        """It has ended."""


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RayNode:
    monkeypatch.setattr(f"{ROOM}.signal.signal", lambda *_: None)
    monkeypatch.setattr(f"{ROOM}.tempfile.mkdtemp", lambda **_: str(tmp_path))
    monkeypatch.setattr(f"{ROOM}.subprocess.Popen", RefusedDriver)
    address = {"nodes": 2, "node": 0, "address": "127.0.0.1", "port": 1, "own_address": "127.0.0.1", "token": "t"}
    return RayNode({"rendezvous": address}, "python")


def test_what_ray_said_is_told_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], head: RayNode
) -> None:
    now = [0.0]
    monkeypatch.setattr(f"{ROOM}.time.monotonic", lambda: now[0])
    monkeypatch.setattr(f"{ROOM}.time.sleep", lambda _: now.append(now.pop() + JOIN_SECONDS / 3))
    with pytest.raises(RayFailed, match=r"Not all of 2 machines came to the Ray cluster\.\nFailed to register"):
        head._gather()
    assert capsys.readouterr().err == "costgpu: Ray's head takes no driver yet: it is asked again for up to 5 min.\n"


def test_the_end_is_asked_for_while_it_is_refused(monkeypatch: pytest.MonkeyPatch, head: RayNode) -> None:
    monkeypatch.setattr(f"{ROOM}.time.sleep", lambda _: head._end())
    assert head._gather() is False
