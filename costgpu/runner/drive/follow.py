"""Passes on what the job writes until it is over."""

from __future__ import annotations

from dataclasses import replace

from costgpu.errors import HostUnreachable
from costgpu.ledger.codec import to_json
from costgpu.models.job import JobPhase, LogStream
from costgpu.models.run import EventKind
from costgpu.runner.drive.context import RunContext


def follow(context: RunContext) -> None:
    """Passes the job's output on until it is over."""
    if context.detach_when_running and not context.cancelling:
        context.leave()

    def show(stream: LogStream, data: bytes) -> None:
        if context.past_lease:  # the machine still talks: it is ended from here
            raise HostUnreachable("its lease is over")
        if data:
            seen = context.log_position
            context.log_position = replace(seen, **{stream.value: getattr(seen, stream.value) + len(data)})
            context.observer.output(stream, data)

    try:
        status = context.connection().follow(context.log_position, show)
    except HostUnreachable as error:
        context.await_connection(error)
        return
    if status.phase is JobPhase.FINISHED:
        context.journal.add(EventKind.FINISHED, **to_json(status))
