"""Passes on what the job writes until it is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.errors import HostUnreachable, MachineUnusable
from costgpu.ledger.codec import to_json
from costgpu.models.job import EndReason, JobPhase, LogStream
from costgpu.models.run import EventKind
from costgpu.runner.drive import node
from costgpu.runner.drive.context import RunContext
from costgpu.runner.timeouts import DASHBOARD_POLL_SECONDS, RECONNECT_SECONDS


def follow(context: RunContext, *, meanwhile: Callable[[], None] = lambda: None, quiet: bool = False) -> None:
    """Passes the job's output on until it is over.

    Args:
        meanwhile: Called whenever the machine gives a sign of life; may raise to end this.
        quiet: Whether the output is not to be shown.
    """
    if context.detach_when_running and not context.cancelling:
        context.leave()

    look_at = 0.0  # monotonic; from then on it is looked for a dashboard again

    def show(stream: LogStream, data: bytes) -> None:
        nonlocal look_at
        if context.past_lease:  # the machine still talks: it is ended from here
            raise HostUnreachable("its lease is over")
        context.answered()
        meanwhile()
        if context.clock.monotonic() >= look_at:
            look_at = context.clock.monotonic() + DASHBOARD_POLL_SECONDS
            _tell_dashboard(context)
        if data:
            seen = context.log_position
            context.log_position = replace(seen, **{stream.value: getattr(seen, stream.value) + len(data)})
            if not quiet:
                context.observer.output(stream, data)

    try:
        status = context.connection().follow(context.log_position, show)
    except HostUnreachable as error:
        if context.cancelling and context.seconds_disconnected() > RECONNECT_SECONDS:
            context.end(EndReason.CANCELLED, error=error)  # nobody wants the job any more, and it cannot be asked
        else:
            context.await_connection(error)
        return
    except MachineUnusable as error:  # its agent talks nonsense: the machine is left to its lease, with what is on it
        if context.cancelling:
            context.end(EndReason.CANCELLED, error=error)
            return
        context.keep_machine(error, "What the job has made may still be on the machine")
    if status.phase is JobPhase.FINISHED:
        context.journal.add(EventKind.FINISHED, **to_json(status))


def _tell_dashboard(context: RunContext) -> None:
    """Says where the dashboard of a Ray cluster is, once it can be opened; again if that has changed."""
    ray = node.ray_access(context) if node.number(context.view) == 0 else None
    if ray is None:
        return
    port = context.connection().forward(ray.dashboard_port)
    if port is None or port == context.dashboard_port:
        return
    context.dashboard_port = port
    way = "through SSH, while this client runs" if port != ray.dashboard_port else "as long as the job runs"
    context.observer.note(f"Ray's dashboard: http://{node.LOOPBACK}:{port} ({way}); it asks for the token {ray.token}")
