"""What the commands do with runs: launch one, find one, take one over, list them."""

from __future__ import annotations

import contextlib
import getpass
import re
import secrets
import socket
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from costgpu.errors import ConfigError, CostGpuError, LedgerError, MachineUnusable, ProviderError, RunBusy, RunNotFound
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.job import EndReason, JobPhase, JobStatus
from costgpu.models.reap import TaggedInstance
from costgpu.models.run import EventKind, Plan, RunEvent, RunState, RunView
from costgpu.providers.base import Provider
from costgpu.runner.drive.loop import Detached, Driver, Tools
from costgpu.runner.machine.host import LogPosition
from costgpu.runner.machine.keys import load_keys
from costgpu.runner.state.journal import EventStore, RunJournal
from costgpu.runner.state.lock import driving, is_driven
from costgpu.runner.state.observer import NullObserver, Observer
from costgpu.runner.state.states import IllegalEvent, replay

RUN_ID_LENGTH = 12
HINT = "costgpu jobs lists runs; costgpu jobs --by-tag asks the providers."


class Books(EventStore, Protocol):
    """What the commands need of a ledger."""

    def open_runs(self) -> tuple[str, ...]:
        """Ids of runs that are not closed, oldest first."""

    def recent_runs(self, limit: int = 50) -> tuple[str, ...]:
        """Ids of the last runs, newest first."""

    def resolve(self, text: str) -> tuple[str, ...]:
        """Ids that begin with the text or whose job has that name, newest first."""


def new_run_id() -> str:
    """Twelve characters that no other run has: a letter, then letters and digits (60 bits)."""
    rest = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(RUN_ID_LENGTH - 1))
    return secrets.choice(string.ascii_lowercase) + rest


def job_name(text: str) -> str:
    """A name for people and tags: letters, digits and dashes, at most 40."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "job"


def whoami() -> str:
    """``user@host``, for the owner tag."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def launch(
    plan: Plan,
    book: EventStore,
    tools: Tools,
    observer: Observer,
    *,
    owner: str,
    environment: Mapping[str, str],
    detach: bool = False,
    run_id: str | None = None,
) -> Driver:
    """Carries out a plan that was agreed to.

    Returns:
        The driver, with the closed run and the error to end with.

    Raises:
        Detached: The run goes on without this client; its id is the argument.
        LedgerError: Nothing was created: the intent could not be recorded.
    """
    record = RunJournal(book, tools.clock, run_id or new_run_id())
    driver = Driver(record=record, tools=tools, observer=observer, secrets=environment, detach_when_running=detach)
    with driving(tools.folder / record.run_id):
        record.begin(
            {
                "name": plan.spec.name,
                "owner": owner,
                "client": socket.gethostname(),
                "spec": to_json(plan.spec),
                "identity": to_json(plan.identity),
                "options": [to_json(option) for option in plan.options],
                "estimate": _estimate(plan),
                "workload": {"key": plan.workload, "steps": plan.steps},
            }
        )
        observer.changed(record.view)
        driver.drive()
    return driver


def _estimate(plan: Plan) -> dict[str, float] | None:
    if plan.prediction is None:
        return None
    wall, cost = plan.prediction.wall_seconds, plan.prediction.cost_usd
    return {
        "seconds": wall.value,
        "seconds_low": wall.low,
        "seconds_high": wall.high,
        "cost_usd": cost.value,
        "cost_usd_low": cost.low,
        "cost_usd_high": cost.high,
        "job_seconds": plan.prediction.run_seconds.value,
    }


def load(book: EventStore, run_id: str) -> RunView:
    """The run as the ledger tells it.

    Raises:
        RunNotFound: The ledger does not know it.
        LedgerError: It cannot be read.
    """
    events: tuple[RunEvent, ...] = book.events(run_id)
    if not events:
        raise RunNotFound(f"The ledger knows no run {run_id}.")
    return replay(events)


class Expected(NamedTuple):
    """Where the machine of a run is, if there is one; the account is empty if the ledger does not say."""

    provider: str
    region: str
    account: str


def expected(events: Iterable[RunEvent]) -> Expected | None:
    """Where a run may have a machine: also one whose create call was never answered. None: it certainly has none."""
    found: Expected | None = None
    identity: Mapping[str, str] = {}
    options: Sequence[Mapping[str, Mapping[str, str]]] = ()
    for event in events:
        data = event.data
        if event.kind is EventKind.INTENDED:
            identity, options = data.get("identity") or {}, data.get("options") or ()
        elif event.kind is EventKind.ATTEMPTED:
            number = data.get("option", 0)  # rows of older versions have no offer
            offer = data.get("offer") or (options[number].get("offer", {}) if number < len(options) else {})
            name = str(offer.get("provider", ""))
            own = identity.get("account", "") if identity.get("provider") == name else ""
            found = Expected(name, str(offer.get("region", "")), str(data.get("account") or own))
        elif event.kind is EventKind.CREATED:
            name = str(data.get("provider", ""))
            account = found.account if found is not None and found.provider == name else ""
            found = Expected(name, str(data.get("region", "")), account)
        elif event.kind in (EventKind.REFUSED, EventKind.CONFIRMED):
            found = None
    return found


def find(
    text: str, book: Books, providers: Callable[[], Sequence[Provider]], owner: Callable[[], str] = whoami
) -> RunView | TaggedInstance:
    """The run that a person means: by the ledger, or else by the tags on the machines.

    By tag the beginning of an id, or a name, means only one's own: everybody's machines are in sight there.

    Args:
        text: Run id or the beginning of one, job name (of the only open run, else of the newest), or instance id.
        book: Asked first. If it cannot be read, tags have to do.
        providers: Asked if the ledger does not know.
        owner: Who asks, as in the owner tag or the part of it before the ``@``.

    Raises:
        RunNotFound: Nobody knows it, or several are meant.
    """
    damaged: CostGpuError | None = None
    if not text.strip():
        raise RunNotFound("Which run?", hint=HINT)
    try:
        ids = book.resolve(text)
        exact = [run_id for run_id in ids if run_id == text]
        views = [load(book, run_id) for run_id in (exact or ids)]
        named = [view for view in views if view.name == text]
        still_open = [view for view in named if view.state is not RunState.CLOSED]
        meant = still_open or named[:1] or views
        if len(meant) == 1:
            return meant[0]
        if meant:
            some = ", ".join(view.run_id for view in meant[:4])
            raise RunNotFound(f"{text!r} could be {len(meant)} runs: {some}.", hint="Give more of the id.")
    except (ConfigError, LedgerError) as error:
        damaged = error
    unasked: dict[str, str] = {}
    like = [i for p in providers() for i in _owned(p, unasked) if i.state.alive and _means(text, i)]
    mine = owner() if like else ""
    found = [i for i in like if text in (i.run_id, i.ref.instance_id) or _is_of(mine, i.owner)]
    if len(found) == 1:
        with contextlib.suppress(CostGpuError):
            return load(book, found[0].run_id)
        return TaggedInstance(instance=found[0])
    if len(found) > 1:
        some = ", ".join(f"{i.run_id} ({i.ref.instance_id})" for i in found[:4])
        raise RunNotFound(f"{text!r} could be {len(found)} machines: {some}.", hint="Give the run id.")
    hint = f"The ledger cannot be read ({damaged.message}). {HINT}" if damaged else HINT
    if like:
        some = ", ".join(f"{i.run_id} ({i.ref.instance_id}) of {i.owner or 'nobody known'}" for i in like[:4])
        raise RunNotFound(
            f"{text!r} is no run of {mine}; others have {some}.", hint="Give the whole run id, or the instance id."
        )
    if unasked:
        reasons = "; ".join(f"{where}: {why}" for where, why in list(unasked.items())[:3])
        raise RunNotFound(f"No run {text!r} was found, but not everybody could be asked ({reasons}).", hint=hint)
    raise RunNotFound(f"There is no run {text!r}.", hint=hint)


def _means(text: str, instance: Instance) -> bool:
    return bool(instance.run_id) and (
        instance.run_id.startswith(text) or text in (instance.name, instance.ref.instance_id)
    )


def _is_of(mine: str, owner: str) -> bool:
    return bool(mine) and (owner == mine or owner.startswith(f"{mine}@"))


def _owned(provider: Provider, unasked: dict[str, str]) -> Iterable[Instance]:
    """What a provider has of ours; notes who could not be asked, and why."""
    try:
        owned = provider.list_owned(None)
    except ProviderError as error:
        unasked[provider.name] = error.message
        return ()
    unasked.update({f"{provider.name} {region}": why for region, why in owned.unreachable})
    return owned.instances


def driver_for(
    view: RunView, book: EventStore, tools: Tools, observer: Observer, secrets: Mapping[str, str] | None
) -> Driver:
    """A driver that goes on with a run. To be used within `driving` of its folder."""
    driver = Driver(record=RunJournal(book, tools.clock, view.run_id), tools=tools, observer=observer, secrets=secrets)
    if driver.view.detached:
        driver.record.add(EventKind.ADOPTED, client=socket.gethostname())
    return driver


def provider_of(view: RunView, book: EventStore, tools: Tools) -> Provider:
    """The adapter of a run's machine, with the credentials that the run was launched with.

    Raises:
        AuthError: They are another account's: what it does not know would look as if it were gone.
    """
    return Driver(
        record=RunJournal(book, tools.clock, view.run_id), tools=tools, observer=NullObserver(), secrets=None
    ).provider()


def status_of(view: RunView, tools: Tools) -> JobStatus | None:
    """What the agent says about an open run; None if it does not answer or there is none yet."""
    if view.instance is None or view.state not in (RunState.SYNCING, RunState.RUNNING, RunState.COLLECTING):
        return None
    try:
        instance = tools.provider(view.instance.provider).describe(view.instance)
        if instance is None or not instance.state.alive:
            return None
        host = tools.connect(instance, load_keys(tools.folder / view.run_id))
    except CostGpuError:
        return None
    try:
        return host.status()
    except CostGpuError:
        return None
    finally:
        host.close()


def collect_finished(book: Books, tools: Tools, observer: Observer) -> list[str]:
    """Takes over the runs of this machine whose client is gone: what is finished comes home and is ended.

    A run whose job had not started is ended too: nobody is left to start it. A job that runs is left alone.

    Returns:
        Ids of the runs that are closed now.
    """
    done: list[str] = []
    for run_id in book.open_runs():
        folder = tools.folder / run_id
        if not folder.exists() or is_driven(folder):
            continue
        try:
            view = load(book, run_id)
            with driving(folder):
                driver = driver_for(view, book, tools, observer, None)
                if _take_over(driver):
                    driver.drive()
                if driver.view.state is RunState.CLOSED:
                    done.append(run_id)
        except (RunBusy, Detached, IllegalEvent):
            continue
        except CostGpuError as error:
            observer.note(f"Run {run_id}: {error.message}")
    return done


def _take_over(driver: Driver) -> bool:
    """Whether there is something to be done for a run whose client is gone; a job that runs is left alone."""
    view = driver.view
    if view.state is RunState.CLOSED:
        return False  # another process was quicker
    if view.state is RunState.SYNCING and (started := _job_started(driver)) is not False:
        if started is None:
            return _is_gone(driver)
        driver.record.add(EventKind.STARTED)
    if driver.view.state in (RunState.INTENT, RunState.PROVISIONING, RunState.BOOTING, RunState.SYNCING):
        driver.give_up(EndReason.UNCLAIMED)
        return True
    if view.state is RunState.COLLECTING and view.collected and not view.spec.auto_shutdown:
        return _is_gone(driver)  # kept on purpose, until its lease ends
    return driver.view.state in (RunState.TERMINATING, RunState.COLLECTING) or _job_over(driver)


def _job_started(driver: Driver) -> bool | None:
    """Whether the client that was killed has started the job; None if the machine does not say."""
    try:
        return driver.talk().status().phase is not JobPhase.WAITING
    except MachineUnusable:
        return False  # not even the agent is there
    except CostGpuError:
        return None


def _job_over(driver: Driver) -> bool:
    """Whether the machine says so, or is gone."""
    try:
        return driver.talk().status().phase is JobPhase.FINISHED
    except CostGpuError:
        return _is_gone(driver)
    finally:
        driver.let_go()


def _is_gone(driver: Driver) -> bool:
    ref: InstanceRef | None = driver.view.instance
    if ref is None:
        return False
    instance = driver.provider().describe(ref)
    return instance is None or not instance.state.alive or instance.state is InstanceState.STOPPED


def tail_position(status: JobStatus, last_bytes: int = 4096) -> LogPosition:
    """Where to start showing the output of a job that has been running for a while."""
    return LogPosition(stdout=max(0, status.stdout_bytes - last_bytes), stderr=max(0, status.stderr_bytes - last_bytes))
