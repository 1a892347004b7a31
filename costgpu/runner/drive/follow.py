"""Passes on what the job writes until it is over."""

from __future__ import annotations

from costgpu.errors import HostUnreachable
from costgpu.ledger.codec import to_json
from costgpu.models.job import JobPhase, LogStream
from costgpu.models.run import EventKind
from costgpu.runner.drive.context import RunContext
from costgpu.runner.drive.liveness import await_connection, is_past_lease
from costgpu.runner.machine.host import LogPosition


def follow(context: RunContext) -> None:
    """Passes the job's output on until it is over."""
    if context.detach_when_running and not context.cancelling:
        context.leave()

    def show(stream: LogStream, data: bytes) -> None:
        if is_past_lease(context):  # the machine still talks: it is ended from here
            raise HostUnreachable("its lease is over")
        if data:
            _count(context, stream, len(data))
            context.observer.output(stream, data)

    try:
        status = context.connection().follow(context.log_position, show)
    except HostUnreachable as error:
        await_connection(context, error)
        return
    if status.phase is JobPhase.FINISHED:
        context.journal.add(EventKind.FINISHED, **to_json(status))


def _count(context: RunContext, stream: LogStream, size: int) -> None:
    seen = context.log_position
    if stream is LogStream.STDOUT:
        context.log_position = LogPosition(stdout=seen.stdout + size, stderr=seen.stderr)
    else:
        context.log_position = LogPosition(stdout=seen.stdout, stderr=seen.stderr + size)
