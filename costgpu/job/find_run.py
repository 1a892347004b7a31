"""The run that a person means: by the ledger, or else by the tags on the machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from costgpu.errors import (
    ConfigError,
    CostGpuError,
    LedgerError,
    ProviderError,
    RunNotFound,
)
from costgpu.job.launch import current_owner
from costgpu.job.state.attempts import attempts_of_job, machines_of_attempt
from costgpu.job.state.journal import EventStore
from costgpu.job.state.states import replay
from costgpu.models.instance import Instance
from costgpu.models.run import EventKind, RunEvent, RunState, RunView
from costgpu.providers.base import Provider

HINT = "costgpu jobs lists runs; costgpu jobs --by-tag asks the providers."
_LISTED = 4


class RunStore(EventStore, Protocol):
    """What the commands need of a ledger."""

    def open_runs(self) -> tuple[str, ...]:
        """Return the ids of runs that are not closed, oldest first."""

    def resolve(self, text: str) -> tuple[str, ...]:
        """Return the ids that begin with the text or whose job has that name, newest first."""


def load_run(ledger: EventStore, run_id: str) -> RunView:
    """Return the run as the ledger tells it.

    Raises:
        RunNotFound: The ledger does not know it.
        LedgerError: It cannot be read.
    """
    events = ledger.events(run_id)
    if not events:
        raise RunNotFound(f"The ledger knows no run {run_id}.")
    return replay(events)


def runs_of_job(ledger: EventStore, view: RunView) -> tuple[RunView, ...]:
    """Return the runs of a run's job: of all its machines, by number; of all attempts, if it is one that goes on."""
    if not view.spec.goes_on:
        return machines_of_attempt(ledger, view)
    return tuple(one for machines in attempts_of_job(ledger, view) for one in machines)


def current_run(ledger: EventStore, view: RunView) -> RunView:
    """Return the run that a person means who names any run of a job: the first machine of its last attempt.

    Itself, if it is of that attempt.
    """
    attempts = attempts_of_job(ledger, view) or ((view,),)  # its record may be lost meanwhile
    return view if view in attempts[-1] else attempts[-1][0]


def resolve_run(
    text: str, ledger: RunStore, providers: Callable[[], Sequence[Provider]], owner: Callable[[], str] = current_owner
) -> RunView | Instance:
    """Return the run that a person means.

    By tag the beginning of an id, or a name, means only one's own: everybody's machines are in sight there.

    Args:
        text: Run id or the beginning of one, job name (of the only open run, else of the newest), or instance id.
        ledger: Asked first. If it cannot be read, tags have to do.
        providers: Asked if the ledger does not know.
        owner: Who asks, as in the owner tag or the part of it before the ``@``.

    Raises:
        RunNotFound: Nobody knows it, or several are meant.
        LedgerError, ConfigError: No machine bears its tag, and the ledger cannot be read.
    """
    if not text.strip():
        raise RunNotFound("Which run?", hint=HINT)
    unread: CostGpuError | None = None
    try:
        if (view := _in_ledger(text, ledger)) is not None:
            return view
    except (ConfigError, LedgerError) as error:
        unread = error
    instance = _by_tag(text, providers(), owner, unread)
    with contextlib.suppress(CostGpuError):
        return load_run(ledger, instance.run_id)
    return instance


def _in_ledger(text: str, ledger: RunStore) -> RunView | None:
    ids = ledger.resolve(text)
    views = [load_run(ledger, run_id) for run_id in ([text] if text in ids else ids)]
    named = [view for view in views if view.name == text and view.is_first_machine]
    still_open = [view for view in named if view.state is not RunState.CLOSED]
    meant = still_open or named[:1] or views
    if len(meant) > 1:
        some = ", ".join(view.run_id for view in meant[:_LISTED])
        raise RunNotFound(f"{text!r} could be {len(meant)} runs: {some}.", hint="Give more of the id.")
    return meant[0] if meant else None


def _by_tag(
    text: str, providers: Sequence[Provider], owner: Callable[[], str], unread: CostGpuError | None
) -> Instance:
    not_asked: dict[str, str] = {}
    like = [i for p in providers for i in _owned(p, not_asked) if i.state.alive and _is_meant(text, i)]
    mine = owner() if like else ""
    found = [i for i in like if text in (i.run_id, i.ref.instance_id) or _belongs_to(mine, i.owner)]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(f"{i.run_id} ({i.ref.instance_id})" for i in found[:_LISTED])
        raise RunNotFound(f"{text!r} could be {len(found)} machines: {some}.", hint="Give the run id.")
    if like:
        some = ", ".join(f"{i.run_id} ({i.ref.instance_id}) of {i.owner or 'nobody known'}" for i in like[:_LISTED])
        raise RunNotFound(
            f"{text!r} is no run of {mine}; others have {some}.", hint="Give the whole run id, or the instance id."
        )
    reasons = "; ".join(f"{where}: {why}" for where, why in list(not_asked.items())[:3])
    if unread is not None:
        others = f", but not everybody could be asked ({reasons})" if reasons else ""
        raise type(unread)(f"{unread.message} No machine bears the tag of a run {text!r}{others}.", hint=unread.hint)
    if reasons:
        raise RunNotFound(f"No run {text!r} was found, but not everybody could be asked ({reasons}).", hint=HINT)
    raise RunNotFound(f"There is no run {text!r}.", hint=HINT)


def _is_meant(text: str, instance: Instance) -> bool:
    return bool(instance.run_id) and (
        instance.run_id.startswith(text) or text in (instance.name, instance.ref.instance_id)
    )


def _belongs_to(mine: str, owner: str) -> bool:
    return bool(mine) and (owner == mine or owner.startswith(f"{mine}@"))


def _owned(provider: Provider, not_asked: dict[str, str]) -> Iterable[Instance]:
    """Return what a provider has of ours; notes who could not be asked, and why."""
    try:
        owned = provider.list_owned(None)
    except ProviderError as error:
        not_asked[provider.name] = error.message
        return ()
    not_asked.update({f"{provider.name} {region}": why for region, why in owned.unreachable})
    return owned.instances


class ExpectedMachine(NamedTuple):
    """Where the machine of a run is, if there is one; the account is empty if the ledger does not say."""

    provider: str
    region: str
    account: str


def expected_machine(events: Iterable[RunEvent]) -> ExpectedMachine | None:
    """Return where a run may have a machine: also one whose create call was never answered. None: it certainly has none."""
    found: ExpectedMachine | None = None
    identity: Mapping[str, Any] = {}
    options: Any = ()
    for event in events:
        data = event.data
        if event.kind is EventKind.INTENDED:
            identity, options = _mapping(data.get("identity")), data.get("options")
        elif event.kind is EventKind.ATTEMPTED:
            number = data.get("option", 0)  # rows of older versions have no offer
            known = isinstance(options, list | tuple) and isinstance(number, int) and 0 <= number < len(options)
            offer = _mapping(data.get("offer") or (_mapping(options[number]).get("offer") if known else None))
            name = str(offer.get("provider", ""))
            own = identity.get("account", "") if identity.get("provider") == name else ""
            found = ExpectedMachine(name, str(offer.get("region", "")), str(data.get("account") or own))
        elif event.kind is EventKind.CREATED:
            name = str(data.get("provider", ""))
            account = found.account if found is not None and found.provider == name else ""
            found = ExpectedMachine(name, str(data.get("region", "")), account)
        elif event.kind in (EventKind.REFUSED, EventKind.CONFIRMED):
            found = None
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
