"""Notices that the machine of a run is gone, and waits for one that does not answer."""

from __future__ import annotations

from datetime import timedelta

from costgpu.errors import CostGpuError
from costgpu.models.instance import Instance, InstanceState
from costgpu.models.job import EndReason
from costgpu.runner.drive.context import RunContext
from costgpu.runner.timeouts import CLEAN_UP_SECONDS, RECONNECT_POLL_SECONDS, VISIBLE_SECONDS


class MachineEnded(Exception):
    """The machine has ended, or is ending, and nobody of ours has asked for it.

    Attributes:
        instance: As its provider describes it; None if it does not know it (any more).
    """

    def __init__(self, instance: Instance | None) -> None:
        super().__init__()
        self.instance = instance


def check_alive(context: RunContext, instance: Instance | None) -> None:
    """Raises `MachineEnded` for a machine that is no more; not as long as it is there, or may be."""
    if instance is None:
        known_since = context.view.known_since
        assert known_since is not None  # noqa: S101 - recorded with the machine
        if (context.clock.now() - known_since).total_seconds() < VISIBLE_SECONDS:
            return
    elif instance.state in (InstanceState.PENDING, InstanceState.RUNNING):
        return
    raise MachineEnded(instance)


def is_past_lease(context: RunContext) -> bool:
    """Whether the machine should have ended itself some time ago."""
    until = context.view.lease_until
    return until is not None and context.clock.now() > until + timedelta(seconds=CLEAN_UP_SECONDS)


def await_connection(context: RunContext, error: CostGpuError) -> None:
    """After a lost connection: waits a little, and the loop tries again. Raises `MachineEnded` if it is gone."""
    context.disconnect()
    check_alive(context, context.describe())
    if is_past_lease(context):
        context.end(EndReason.DEADLINE, error=error)  # its own watchdog should have ended it
        return
    context.observer.waiting(context.view, f"no connection ({error.message}); the job goes on without it")
    context.clock.sleep(RECONNECT_POLL_SECONDS)
    context.journal.refresh()
