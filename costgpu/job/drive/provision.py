"""From intent to an instance with an id: the next place, the create call, and what became of an unanswered one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from datetime import datetime, timedelta

from costgpu.errors import (
    CapTooSmall,
    CostGpuError,
    InvalidRequest,
    LedgerConflict,
    NoCapacity,
    ProviderError,
    RefusedHere,
    Retry,
    RunCancelled,
    Throttled,
    Unreachable,
)
from costgpu.job.drive.context import RunContext
from costgpu.job.drive.next_attempt import looks_again
from costgpu.job.drive.receipt import close_run
from costgpu.job.end_instance import clean_up, end_instance
from costgpu.job.machine.boot_script import boot_script
from costgpu.job.machine.host import Keys
from costgpu.job.place_policy import Place, is_about_place, place_rank
from costgpu.job.plan import LEAST_JOB_SECONDS, boot_seconds
from costgpu.job.timeouts import CREATE_SECONDS, FIND_POLL_SECONDS, VISIBLE_SECONDS
from costgpu.models.events import Adopted, Attempted, Created, Refused, Searched
from costgpu.models.instance import CreateRequest, Instance, NodeGroup
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, LaunchOption, RunState, RunView
from costgpu.providers import registry
from costgpu.retry import retry_provider_call


def choose_place(context: RunContext) -> None:
    """Choose the next place and record the create call before it is made; close the run if there is none."""
    given_up = context.cancelling or context.view.given_up
    if context.secrets is None and context.view.spec.env_names and not (given_up or context.error):
        _cannot_ask(context, EndReason.CANCELLED, environment_lost(context.view))
        return
    place = None if given_up or context.error is not None else _next_place(context)
    if place is None:
        error = context.error or _nothing_left(context)
        if _reason(error) is EndReason.NO_CAPACITY and looks_again(context, EndReason.NO_CAPACITY):
            context.journal.add(Searched())
            context.excluded = frozenset()
            return
        context.error = error
        close_run(context, _reason(error), EndedBy.NOTHING_CREATED)
        return
    index, zone = place
    option = context.view.options[index]
    try:
        account = context.account(context.services.provider(option.offer.provider))
    except ProviderError as error:
        _cannot_ask(context, EndReason.PROVISION_FAILED, error)
        return
    until = context.clock.now() + timedelta(seconds=option.lease.lifetime_seconds)
    context.keys()
    refused: list[CostGpuError] = []

    def admit() -> None:
        ask = context.services.refusal
        # all machines of a job are admitted with its first one
        refusal = ask(context.view) if ask is not None and context.view.is_first_machine else None
        if refusal is not None:
            refused.append(refusal)
            raise refusal

    try:
        _record_call(context, admit, index, zone, option, until, account)
    except CostGpuError as error:
        if error not in refused:
            raise
        _cannot_ask(context, EndReason.PROVISION_FAILED, error)


def _cannot_ask(context: RunContext, reason: EndReason, error: CostGpuError) -> None:
    """Close a run that may not ask for a machine; one that waits stays where it is, and nothing is billed.

    Raises:
        CostGpuError: It waits.
    """
    if context.view.waits:
        raise error
    context.error = context.error or error
    close_run(context, reason, EndedBy.NOTHING_CREATED)


def _record_call(
    context: RunContext,
    admit: Callable[[], None],
    index: int,
    zone: str | None,
    option: LaunchOption,
    until: datetime,
    account: str,
) -> None:
    number = context.view.create_call.number + 1 if context.view.create_call is not None else 1
    context.own_token = f"{context.view.run_id}-{number}"
    context.create_called_at = context.created_at = None
    call = Attempted(
        attempt=number,
        token=context.own_token,
        option=index,
        zone=zone,
        lease_until=until.replace(microsecond=0),
        allow_from=context.services.allow_from(option.offer.provider),
        account=account,
        offer=option.offer,
        lifetime_seconds=option.lease.lifetime_seconds,
        worst_cost_usd=option.lease.worst_cost_usd,
        usd_per_hour=option.lease.usd_per_hour,
    )
    context.journal.add(call, admit)


def environment_lost(view: RunView) -> RunCancelled:
    """Return the error for a job that cannot be started any more."""
    return RunCancelled(
        f"The job had not started, and its environment ({', '.join(view.spec.env_names)}) is known only to the client that"
        " is gone.",
        hint="Run it again.",
    )


def create_instance(context: RunContext) -> None:
    """Make the create call, again and again while it is not answered.

    A refusal proves that nothing was created only if no call before it, by whatever process, went unanswered.
    """
    context.journal.refresh()
    if context.view.state is not RunState.PROVISIONING:
        return  # ended from another computer while this one slept
    provider, clock = context.provider(), context.clock
    request = create_request(context.view, context.keys())
    # nor one of this process's own that Ctrl-C has cut off: it is being made again
    certain = context.own_token == request.token and context.create_called_at is None
    left = (request.lease_until - clock.now()).total_seconds()
    if not certain and left < boot_seconds(request.offer) + LEAST_JOB_SECONDS:
        late = CapTooSmall(f"Of the lease of run {request.run_id} too little is left to boot a machine.")
        context.end(EndReason.UNCLAIMED, error=late)  # only looked for, not created
        return
    if context.own_token != request.token and context.create_called_at is None:
        # another process's call is made again: a machine of it may become visible only from now on
        context.journal.add(Adopted(client=socket.gethostname()))
    zone = f" in {request.zone or request.offer.region}"
    context.observer.waiting(context.view, f"asking {provider.name} for {request.offer.instance_type}{zone}")

    def call() -> Instance:
        nonlocal certain
        context.create_called_at = clock.monotonic()
        try:
            return provider.create(request)
        except (Throttled, Unreachable):
            certain = False
            raise

    try:
        instance = retry_provider_call(clock, call, limit_seconds=CREATE_SECONDS)
    except Unreachable as error:
        context.end(EndReason.PROVISION_FAILED, error=error)  # it may exist: looked for from there
        return
    except ProviderError as error:
        found = None if certain else find_created(context)
        if found is None:
            record_refusal(context, error)
            return
        instance = found
    record_instance(context, instance)


def create_request(view: RunView, keys: Keys) -> CreateRequest:
    """Return the current create call: the same each time, in each process."""
    tried, option = view.create_call, view.option
    assert tried is not None and option is not None  # noqa: S101, PT018 - there is no call without them
    spec = registry.spec(option.offer.provider)
    waits = spec.watchdog_delay_seconds
    script = boot_script(
        deadline=tried.lease_until + timedelta(seconds=waits),
        lifetime_seconds=option.lease.lifetime_seconds + waits,
        user_public_key=keys.user_public if spec.over_ssh else "",
        host_private_key=keys.host_private if spec.over_ssh else "",
        host_public_key=keys.host_public if spec.over_ssh else "",
    )
    return CreateRequest(
        run_id=view.run_id,
        token=tried.token,
        name=view.name,
        owner=view.owner,
        offer=option.offer,
        zone=tried.zone,
        disk_gib=option.disk_gib,
        lease_until=tried.lease_until,
        boot_script=script,
        allow_from=tried.allow_from,
        tags=view.spec.tags,
        group=_group(view, option),
    )


def _group(view: RunView, option: LaunchOption) -> NodeGroup | None:
    """Return the machines that this one works with; None if it works alone."""
    if not view.has_peers:
        return None
    return NodeGroup(
        group_id=view.machine_ids[0],
        nodes=len(view.machine_ids),
        node=view.machine,
        placement=option.placement,
        efa_interfaces=option.efa_interfaces,
    )


def record_refusal(context: RunContext, error: ProviderError, confirmed_state: str = "") -> None:
    """Clean up, and record that nothing came of a create call, and whether another place is tried or the run ends.

    Args:
        confirmed_state: Of a machine that its provider has ended while it was being launched; empty if there was none.
    """
    view, option = context.view, context.view.option
    assert option is not None  # noqa: S101 - a create call was made
    # first: whoever comes after an end in between cleans up as long as the refusal is not recorded
    left = clean_up(context.provider(), view.run_id, option.offer.region, context.clock)
    name, message = type(error).__name__, error.message
    context.journal.add(Refused(error=name, message=message, confirmed_state=confirmed_state, left_behind=left))
    if is_about_place(error, context.view):
        context.observer.note(error.message)
        context.last_refusal = error
    else:
        context.error = error


def record_instance(context: RunContext, instance: Instance) -> None:
    """Record the id, before anything is waited for."""
    context.created_at = context.clock.monotonic()
    provider = context.provider()
    layers = provider.layers(create_request(context.view, context.keys()))
    created = Created(
        provider=instance.ref.provider,
        region=instance.ref.region,
        instance_id=instance.ref.instance_id,
        zone=instance.zone,
        instance_type=instance.instance_type,
        launched_at=instance.launched_at,
        layers=tuple(layers),
    )
    while context.view.instance is None:
        if context.view.state is RunState.CLOSED:  # from another computer: nobody would come for it
            end_instance(provider, instance.ref, context.clock, known_since=context.clock.monotonic())
            return
        with contextlib.suppress(LedgerConflict):  # somebody has written meanwhile: the id is not to be lost
            context.journal.add(created)
            attempt = context.view.spec.attempt
            if attempt is not None and attempt.searches and context.view.is_first_machine:
                looked = "look" if attempt.searches == 1 else "looks"
                context.observer.note(
                    f"A machine is there: {instance.ref.instance_id}, after {attempt.searches} {looked} that found none."
                )


def find_created(context: RunContext) -> Instance | None:
    """Return the machine of a create call whose answer was lost, looked for until it would have to be visible.

    Counted from the last call: this process's own, or the last that another one can have made, which is gone by now.
    """
    tried = context.view.create_call
    assert tried is not None  # noqa: S101 - provisioning has one
    provider, clock = context.provider(), context.clock
    request = create_request(context.view, context.keys())
    last_at = max(tried.at, context.view.adopted_at or tried.at)
    since_attempt = max(0.0, (clock.now() - last_at).total_seconds())  # the clock may have been set back
    last_call = clock.monotonic() - since_attempt
    if context.own_token != tried.token:
        last_call = max(last_call + CREATE_SECONDS, context.began_monotonic)  # or have been set forward
    if context.create_called_at is not None:
        last_call = max(last_call, context.create_called_at)
    while True:
        found = retry_provider_call(clock, lambda: provider.find(request), limit_seconds=CREATE_SECONDS)
        if found is not None or clock.monotonic() - last_call > VISIBLE_SECONDS:
            return found
        context.observer.waiting(context.view, "making sure that no machine was created")
        clock.sleep(FIND_POLL_SECONDS)


def _next_place(context: RunContext) -> Place | None:
    """Return the first option and zone that have not refused, by the order of `place_policy`."""
    tried = {(index, zone) for index, zone, _ in context.view.refusals} | context.excluded
    if context.only_place is not None:
        return None if context.only_place in tried else context.only_place
    later: list[tuple[int, int, str | None]] = []  # rank and place
    for index, option in enumerate(context.view.options):
        try:
            zones = context.services.provider(option.offer.provider).zones(option.offer)
        except (InvalidRequest, RefusedHere) as error:
            context.observer.note(error.message)
            continue
        for zone in zones:
            rank = place_rank(context.view, (index, zone), context.avoided)
            if rank is None or (index, zone) in tried:
                continue
            if rank == 0:
                return index, zone
            later.append((rank, index, zone))
    return min(later, key=lambda place: place[:2])[1:] if later else None


def _nothing_left(context: RunContext) -> CostGpuError:
    if context.cancelling or context.view.given_up:
        return RunCancelled("Cancelled before anything was created.")
    if context.excluded and not context.view.refusals:
        full = ", ".join(sorted({zone or context.view.options[index].offer.region for index, zone in context.excluded}))
        refusal = context.last_refusal
        if isinstance(refusal, RefusedHere):
            tried = f"No place granted all {context.view.spec.nodes} machines of the job; tried: {full}."
            return RefusedHere(f"{tried} {refusal.message}", hint=refusal.hint)
        return NoCapacity(
            f"No place had room for all {context.view.spec.nodes} machines of the job at once; tried: {full}.",
            hint="Try again later, with fewer machines, or allow more places: another --infra or --gpus.",
        )
    if not context.view.refusals:
        return InvalidRequest("There is no place to launch in.")
    index, zone, message = context.view.refusals[-1]
    offer = context.view.options[index].offer
    last = f"The last one, {offer.instance_type} in {zone or offer.region}: {message}"
    if isinstance(context.last_refusal, RefusedHere):
        hint = context.last_refusal.hint or "Allow more places: another --infra or --gpus."
        return RefusedHere(f"No machine was granted in any of {len(context.view.refusals)} places. {last}", hint=hint)
    return NoCapacity(
        f"No machine was free in any of {len(context.view.refusals)} places. {last}",
        hint="Try again later, or allow more: another --infra or --gpus, or no --spot.",
    )


def _reason(error: CostGpuError) -> EndReason:
    if isinstance(error, RunCancelled):
        return EndReason.CANCELLED
    none_there = isinstance(error, ProviderError) and error.retry is Retry.ELSEWHERE
    return EndReason.NO_CAPACITY if none_there else EndReason.PROVISION_FAILED
