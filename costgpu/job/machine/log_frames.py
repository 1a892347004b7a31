"""The border to the stream in which the agent sends what the job writes: frames, each parsed once into a typed value.

No wait is without an end: a stream without a whole frame for too long counts as lost. A stream of nothing but signs of
life yields those, so that whoever reads looks at the clock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from costgpu.errors import HostUnreachable
from costgpu.files import parse_json
from costgpu.job.agent.log_stream import HEADER, MAGIC, POSITION
from costgpu.job.files import agent_report
from costgpu.job.machine import agent_reply
from costgpu.models.job import JobStatus, LogStream

MAX_FRAME = 1 << 20  # bytes; the agent sends at most a quarter of that
_MAX_NOISE = 1 << 20  # bytes that a login may print before our own stream begins
_SLOWEST_BYTES_PER_SECOND = 10_000.0  # a frame that comes slower counts as stuck
_STREAMS = {b"o": LogStream.STDOUT, b"e": LogStream.STDERR}


@dataclass(frozen=True, slots=True)
class LogData:
    """Bytes that the job has written, and where they begin in its stream."""

    stream: LogStream
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The line is alive, and the job silent."""


Frame = LogData | SignOfLife | JobStatus
"""A `JobStatus` is the last one: the job is over."""


def read_frames(chunks: Iterator[bytes], silence: float, monotonic: Callable[[], float]) -> Iterator[Frame]:
    """Yield the stream's frames; whatever comes before its beginning is a login's chatter.

    Args:
        chunks: The bytes as they come.
        silence: Seconds within which the next frame must be whole; a long one may take longer.
        monotonic: Tells the time.

    Raises:
        HostUnreachable: It is too slow.
        MachineUnusable: It is not what an agent sends.
    """
    buffer = bytearray()
    needed = -1  # bytes of the frame that is coming, header included; -1 before the stream begins
    since = monotonic()
    for chunk in chunks:
        searched = max(0, len(buffer) - len(MAGIC))
        buffer += chunk
        at = 0
        if needed < 0:
            start = buffer.find(MAGIC, searched)
            if start >= 0:
                at, needed, since = start + len(MAGIC), HEADER.size, monotonic()
            elif len(buffer) > _MAX_NOISE:
                raise agent_reply.bad_reply("follow", ValueError("it is not the stream of an agent"))
        while 0 <= needed <= len(buffer) - at:
            kind, length = HEADER.unpack_from(buffer, at)
            if length > MAX_FRAME:
                raise agent_reply.bad_reply("follow", ValueError(f"a frame of {length} bytes"))
            needed = HEADER.size + length
            if len(buffer) - at < needed:
                break
            yield _frame(kind, bytes(buffer[at + HEADER.size : at + needed]))
            at, needed, since = at + needed, HEADER.size, monotonic()
        del buffer[:at]
        if monotonic() - since > silence + max(0, needed) / _SLOWEST_BYTES_PER_SECOND:
            raise HostUnreachable(f"The machine has sent nothing whole for {monotonic() - since:.0f} s.")


def _frame(kind: bytes, payload: bytes) -> Frame:
    try:
        if kind == b"k":
            return SignOfLife()
        if kind == b"s":
            return agent_report.status(parse_json(payload))
        if kind in _STREAMS:
            (position,) = POSITION.unpack_from(payload)
            return LogData(_STREAMS[kind], position, payload[POSITION.size :])
        raise ValueError(f"a frame of the unknown kind {kind!r}")
    except (ValueError, struct.error) as error:
        raise agent_reply.bad_reply("follow", error) from error
