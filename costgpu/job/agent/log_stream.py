"""Both logs as one stream of frames, until the job is over and every byte was sent.

The stream begins with `MAGIC`. A frame is a kind (one byte), the length of its payload (four bytes, big endian) and the
payload: ``o`` and ``e`` are stdout and stderr (eight bytes of position, then the bytes), ``k`` says that the line is
alive, ``s`` is the final status as JSON, and the last one.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time

from .rpc import is_answering
from .state_files import Home, setting
from .status import LOGS, job_end, job_status

MAGIC = b"\x00costgpu-follow-1\n"
HEADER = struct.Struct(">cI")
POSITION = struct.Struct(">Q")
_CHUNK = 1 << 18
_POLL_SECONDS = 0.05
_PING_SECONDS = 1.0
_SILENCE_SECONDS = 40.0  # a daemon that asks a driver may be busy for 30 s


def stream_logs(home: Home, positions: list[int]) -> None:
    """Write the stream to stdout. Looks at the sizes of the files: what the job does costs nothing extra."""
    out = sys.stdout.fileno()
    keepalive = setting("KEEPALIVE_SECONDS", 5.0)
    files: list[int | None] = [None, None]
    _write(out, MAGIC)
    alive_at = time.monotonic() - keepalive
    answered_at = float("-inf")
    while True:
        over = job_end(home) is not None  # before reading: what was written before the end is then read
        sent = False
        for index, name in enumerate(LOGS):
            if files[index] is None and home.exists(name):
                files[index] = os.open(home.file(name), os.O_RDONLY)
            descriptor = files[index]
            if descriptor is None or os.fstat(descriptor).st_size <= positions[index]:
                continue
            data = os.pread(descriptor, _CHUNK, positions[index])
            if data:
                payload = POSITION.pack(positions[index]) + data
                _write(out, HEADER.pack(b"oe"[index : index + 1], len(payload)) + payload)
                positions[index] += len(data)
                sent = True
        if time.monotonic() - alive_at >= keepalive:
            home.record_contact()
            if is_answering(home, _PING_SECONDS):
                answered_at = time.monotonic()
            if time.monotonic() - answered_at < _SILENCE_SECONDS:  # else nobody guards the job: that is no life
                _write(out, HEADER.pack(b"k", 0))
            alive_at = time.monotonic()
        if sent:
            continue
        if over:
            status = json.dumps(job_status(home)).encode()
            _write(out, HEADER.pack(b"s", len(status)) + status)
            return
        time.sleep(_POLL_SECONDS)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
