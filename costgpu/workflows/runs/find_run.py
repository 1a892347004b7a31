"""The run that a person means, its machine, and a connection to that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from costgpu.errors import CostGpuError, HostUnreachable, RunNotFound
from costgpu.job.adopt import provider_of
from costgpu.job.find_run import resolve_run
from costgpu.job.launch import current_owner
from costgpu.job.machine.host import Host
from costgpu.job.machine.keys import load_keys
from costgpu.models.instance import Instance
from costgpu.models.run import RunState, RunView
from costgpu.workflows.context import AppContext


def find_run(context: AppContext, text: str) -> RunView | Instance:
    """Return a run by its id, name or machine: as the ledger tells it or, without one, as its machine's tags do."""
    return resolve_run(text, context.ledger, context.providers, lambda: context.settings.owner or current_owner())


def recorded_run(context: AppContext, text: str) -> RunView:
    """Return a run that the ledger knows."""
    found = find_run(context, text)
    if isinstance(found, Instance):
        raise RunNotFound(
            f"Run {found.run_id} is known only by the tag on its machine: this ledger has no record of it.",
            hint=f"costgpu logs -f, fetch and cancel {found.run_id} work by the tag.",
        )
    return found


def run_and_machine(context: AppContext, text: str) -> tuple[RunView | None, Instance | None]:
    """Return the run and its machine as it is now. Raises `AuthError` if the credentials are not the run's."""
    found = find_run(context, text)
    if isinstance(found, Instance):
        return None, found
    if found.instance is None or found.state is RunState.CLOSED:  # then its end is confirmed: nobody need be asked
        return found, None
    return found, provider_of(found, context.ledger, context.tools).describe(found.instance)


@contextlib.contextmanager
def connection(context: AppContext, instance: Instance) -> Iterator[Host]:
    """To a machine whose run was launched from this computer. Raises `HostUnreachable`."""
    try:
        keys = load_keys(context.tools.folder / instance.run_id)
    except CostGpuError as error:
        raise HostUnreachable(
            f"The key of run {instance.run_id} is not on this computer.",
            hint="It is where the run was launched from. costgpu cancel works from anywhere.",
        ) from error
    try:
        host = context.tools.connect(instance, keys)
    except HostUnreachable:  # perhaps this computer has another address than before
        context.provider(instance.ref.provider).open_access(instance, context.tools.allow_from(instance.ref.provider))
        host = context.tools.connect(instance, keys)
    try:
        yield host
    finally:
        host.close()
