"""What the agent says: answers to its commands, and the stream in which it sends what its job writes."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

from costgpu.errors import HostUnreachable, MachineUnusable
from costgpu.runner.agent.log_stream import HEADER, MAGIC
from costgpu.runner.agent.main import REPLY
from costgpu.runner.machine.host import Completed

_MAX_FRAME = 16 << 20
_MAX_NOISE = 1 << 20  # bytes that a login may print before our own stream begins
_SIGNALLED = 128  # and above: what a shell makes of a command that a signal ended


def was_ended(completed: Completed) -> bool:
    """Whether a signal ended it, as when its machine is switched off."""
    return completed.returncode < 0 or completed.returncode >= _SIGNALLED


def unusable(what: str, completed: Completed) -> MachineUnusable:
    """The error for a command that failed, with its last line on stderr."""
    words = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    return MachineUnusable(f"The machine cannot be used: {what}" + (f" ({words[-1][:300]})." if words else "."))


def parse_reply(completed: Completed) -> dict[str, Any] | None:
    """The JSON object that the agent has printed; None if it has not."""
    for line in reversed(completed.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(REPLY):
            try:
                value = json.loads(line.removeprefix(REPLY))
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


def watch(chunks: Iterator[bytes], silence: float) -> Iterator[bytes]:
    """The same chunks; raises `HostUnreachable` when none came for too long."""
    arrived: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=64)
    left = threading.Event()

    def hand_on(item: bytes | BaseException | None) -> None:
        while not left.is_set():
            try:
                arrived.put(item, timeout=1.0)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for chunk in chunks:
                hand_on(chunk)
                if left.is_set():
                    return
            hand_on(None)
        except BaseException as error:  # noqa: BLE001 - handed on to whoever reads
            hand_on(error)

    threading.Thread(target=read, name="costgpu-follow", daemon=True).start()
    try:
        while True:
            try:
                item = arrived.get(timeout=silence)
            except queue.Empty:
                raise HostUnreachable(f"The machine gave no sign of life for {silence:.0f} s.") from None
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()


def read_frames(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Kind and payload of each frame; whatever comes before the stream's beginning is a login's chatter."""
    buffer = bytearray()
    begun = False
    for chunk in chunks:
        buffer += chunk
        if not begun:
            start = buffer.find(MAGIC)
            if start < 0:
                if len(buffer) > _MAX_NOISE:
                    raise HostUnreachable("The machine does not speak to us as its agent would.")
                continue
            del buffer[: start + len(MAGIC)]
            begun = True
        at = 0
        while len(buffer) - at >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer, at)
            if length > _MAX_FRAME:
                raise HostUnreachable("The stream from the machine is broken.")
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            yield kind, bytes(buffer[at + HEADER.size : end])
            at = end
        del buffer[:at]
