"""Passes on what the job writes until it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.errors import HostUnreachable, MachineUnusable
from costgpu.job.drive.checkpoints import save_when_due
from costgpu.job.drive.context import RunContext
from costgpu.job.timeouts import RECONNECT_SECONDS, SILENT_SECONDS
from costgpu.models.job import EndReason, JobPhase, LogStream
from costgpu.models.run import RunState


def follow(context: RunContext, *, meanwhile: Callable[[], None] = lambda: None, quiet: bool = False) -> None:
    """Pass the job's output on until it is over.

    Args:
        meanwhile: Called whenever the machine gives a sign of life; may raise to end this.
        quiet: Whether the output is not to be shown.
    """
    if context.detach_when_running and not context.cancelling:
        context.leave()

    def show(stream: LogStream, data: bytes) -> None:
        if context.past_lease:  # the machine still talks: it is ended from here
            raise HostUnreachable("its lease is over")
        context.answered()
        meanwhile()
        save_when_due(context)
        if data:
            seen = context.log_position
            context.log_position = replace(seen, **{stream.value: getattr(seen, stream.value) + len(data)})
            if not quiet:
                context.observer.output(stream, data)

    host = None
    try:
        host = context.connection()
        status = host.follow(context.log_position, show)
    except HostUnreachable as error:
        silent = context.seconds_silent(connected=host is not None)
        limit = RECONNECT_SECONDS if host is None else SILENT_SECONDS
        if context.cancelling and max(silent, context.seconds_disconnected()) > limit:
            context.end(EndReason.CANCELLED, error=error)  # nobody wants the job any more, and it cannot be asked
            return
        context.await_connection(error)
        if silent > SILENT_SECONDS and context.view.state is RunState.RUNNING:
            lost = f"The machine can be connected to, and the agent on it has not answered for {silent:.0f} s."
            context.keep_machine(HostUnreachable(lost), "What the job has made may still be on the machine")
        return
    except MachineUnusable as error:  # its agent talks nonsense: the machine is left to its lease, with what is on it
        if context.cancelling:
            context.end(EndReason.CANCELLED, error=error)
            return
        context.keep_machine(error, "What the job has made may still be on the machine")
    if status.phase is JobPhase.FINISHED:
        context.journal.add(status)
