"""One machine among those of a job: its number, how it finds the others, how it fares, and what to say of it."""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Sequence

from costgpu.errors import HostUnreachable, MachineUnusable, NodesApart, ProviderError
from costgpu.job.drive.context import RunContext
from costgpu.models.defaults import MEETING_PORT
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason, JobPhase, Rendezvous
from costgpu.models.run import RunState, RunView
from costgpu.providers import registry

ENDING = (RunState.TERMINATING, RunState.CLOSED)
LOOPBACK = "127.0.0.1"
_TOKEN_DIGITS = 32  # 128 bits
# Below those that Linux hands out by itself (32768 and more).
_LOCAL_PORTS, _LOCAL_PORT_COUNT = 20000, 10000


def rendezvous_of(view: RunView, addresses: Sequence[str], token: str) -> Rendezvous:
    """Return how the machine of a run finds the others.

    Args:
        addresses: Private addresses of all machines, by number.
        token: What `token_of` tells.
    """
    spec, port = view.spec, view.spec.port
    assert view.instance is not None  # noqa: S101 - the caller's condition
    if port == MEETING_PORT and not registry.spec(view.instance.provider).over_ssh:
        # jobs on this computer are not to meet each other, and each process of ours has to find the same port
        port = _LOCAL_PORTS + zlib.crc32(view.machine_ids[0].encode()) % _LOCAL_PORT_COUNT
    return Rendezvous(
        nodes=len(addresses),
        node=view.machine,
        address=addresses[0],
        port=port,
        own_address=addresses[view.machine],
        launcher=spec.launcher,
        launcher_options=spec.launcher_options,
        min_nodes=spec.min_nodes,
        max_restarts=spec.max_restarts,
        token=token,
    )


def token_of(first: RunContext) -> str:
    """Return a secret of a job's machines; each process of ours makes the same from the private key of machine 0's run."""
    key = first.keys().user_private.read_bytes()
    return hashlib.sha256(b"costgpu token " + key).hexdigest()[:_TOKEN_DIGITS]


def private_address(context: RunContext) -> str:
    """At which the others reach the machine. Raises `NodesApart` if it has none."""
    instance = context.describe()
    if instance is None or not instance.private_address:
        raise NodesApart(f"{name(context.view)} has no private address, at which the others could reach it.")
    return instance.private_address


def is_missing(view: RunView) -> bool:
    """Return whether a machine has ended, or is to end, whose job had not ended well, as far as that is known."""
    known = view.reason not in (EndReason.SUCCEEDED, EndReason.UNKNOWN)
    return view.state in ENDING and view.status is None and known


def look(context: RunContext) -> None:
    """Ask a machine that is not followed how its job fares.

    One that is ending is left to it, since others compute or have outputs meanwhile.

    Raises:
        MachineEnded: It is gone.
    """
    try:
        status = context.connection().status()
    except (HostUnreachable, MachineUnusable):
        context.disconnect()
        context.seconds_disconnected()  # from now on
        with contextlib.suppress(ProviderError):
            instance = context.describe()
            if instance is None or instance.state is not InstanceState.TERMINATING:
                context.check_alive(instance)
        return
    context.answered()
    if status.phase is JobPhase.FINISHED:
        context.journal.add(status)


def name(view: RunView) -> str:
    """Return the machine, for people."""
    return f"Machine {view.machine}" + (f" ({view.instance.instance_id})" if view.instance is not None else "")


def what_happened(view: RunView) -> str:
    """Return why it is missing, in words that follow on its name."""
    if view.instance is None:
        why = view.refusals[-1][2].rstrip(".") if view.refusals else ""
        return "could not be had" + (f": {why}" if why else "")
    return (view.reason or EndReason.INSTANCE_LOST).happened


def finished_at(view: RunView) -> float:
    """When its job was over, Unix time by its own clock; infinite if that is not known."""
    at = view.status.finished_epoch if view.status is not None else None
    return at if at is not None else float("inf")
