"""One machine among those of a job: its number, how it finds the others, how it fares, and what to say of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from costgpu.errors import HostUnreachable, MachineUnusable, NodesApart, ProviderError
from costgpu.ledger.codec import to_json
from costgpu.models.defaults import MEETING_PORT
from costgpu.models.job import EndReason, JobPhase, Rendezvous
from costgpu.models.run import EventKind, RunState, RunView
from costgpu.providers import registry
from costgpu.runner.drive.context import RunContext

ENDING = (RunState.TERMINATING, RunState.CLOSED)
_LOCAL_PORTS, _LOCAL_PORT_COUNT = 20000, 10000  # below those that Linux hands out by itself (32768 and more)


def rendezvous_of(view: RunView, addresses: Sequence[str]) -> Rendezvous:
    """How the machine of a run finds the others.

    Args:
        addresses: Private addresses of all machines, by number.
    """
    spec = view.spec
    assert spec.node is not None and view.instance is not None  # noqa: S101, PT018 - the caller's condition
    port = spec.port
    if port == MEETING_PORT and not registry.spec(view.instance.provider).over_ssh:
        # Jobs of one computer are not to meet each other; each process of ours has to choose the same for one job.
        port = _LOCAL_PORTS + zlib.crc32(spec.node.group_id.encode()) % _LOCAL_PORT_COUNT
    return Rendezvous(
        nodes=len(addresses),
        node=spec.node.node,
        address=addresses[0],
        port=port,
        own_address=addresses[spec.node.node],
        launcher=spec.launcher,
        launcher_options=spec.launcher_options,
        min_nodes=spec.min_nodes,
        max_restarts=spec.max_restarts,
    )


def private_address(context: RunContext) -> str:
    """At which the others reach the machine. Raises `NodesApart` if it has none."""
    instance = context.describe()
    if instance is None or not instance.private_address:
        raise NodesApart(f"{name(context.view)} has no private address, at which the others could reach it.")
    return instance.private_address


def is_missing(view: RunView) -> bool:
    """Whether a machine has ended, or is to end, whose job had not ended well."""
    return view.state in ENDING and view.status is None and view.reason is not EndReason.SUCCEEDED


def look(context: RunContext) -> None:
    """Asks a machine that is not followed how its job fares. Raises `MachineEnded` if it is gone."""
    try:
        status = context.connection().status()
    except (HostUnreachable, MachineUnusable):
        context.disconnect()
        context.seconds_disconnected()  # from now on
        try:
            context.check_alive(context.describe())
        except ProviderError:
            return
        return
    context.answered()
    if status.phase is JobPhase.FINISHED:
        context.journal.add(EventKind.FINISHED, **to_json(status))


def number(view: RunView) -> int:
    """Number of the machine; 0 without others."""
    node = view.spec.node
    return node.node if node is not None else 0


def name(view: RunView) -> str:
    """The machine, for people."""
    return f"Machine {number(view)}" + (f" ({view.instance.instance_id})" if view.instance is not None else "")


def what_happened(view: RunView) -> str:
    """Why it is missing, in words that follow on its name."""
    if view.instance is None:
        why = view.refusals[-1][2].rstrip(".") if view.refusals else ""
        return "could not be had" + (f": {why}" if why else "")
    words = {
        EndReason.BOOT_FAILED: "did not come up",
        EndReason.PREEMPTED: "was taken back by the provider",
        EndReason.INSTANCE_LOST: "is gone",
        EndReason.SYNC_FAILED: "could not be sent the files",
    }
    return words.get(view.reason or EndReason.INSTANCE_LOST, f"is ended ({(view.reason or 'lost').replace('_', ' ')})")


def has_failed(view: RunView) -> bool:
    """Whether its job is over, and not well."""
    return view.status is not None and not view.status.ended_well


def finished_at(view: RunView) -> float:
    """When its job was over, Unix time by its own clock; infinite if that is not known."""
    at = view.status.finished_epoch if view.status is not None else None
    return at if at is not None else float("inf")
