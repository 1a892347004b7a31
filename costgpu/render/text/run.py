"""Runs as text and as JSON documents: the plan, the list that `costgpu jobs` prints, the receipt, and how to come back.

A new column of the list is one more entry in `run_fields`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from costgpu.errors import CostGpuError
from costgpu.models.attempts import summarize
from costgpu.models.defaults import BOOT_DISK_GIB
from costgpu.models.instance import Instance
from costgpu.models.job import Launcher, OutputsFrom, Recovery
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.run import LaunchOption, Plan, RunState, RunView
from costgpu.models.storage import StorageNeed
from costgpu.providers import registry
from costgpu.render.document import document, json_value, picked
from costgpu.render.phrases import accelerator_name, counted, machines_name, price_mark, used_file, with_interval
from costgpu.render.text.layout import Column, labelled, table, wrap
from costgpu.render.text.receipt import safeguards_text
from costgpu.units import format_bare_usd, format_duration, format_size, format_usd

STAYING_ROWS = 5


def plan_text(plan: Plan, now: datetime, job: Sequence[tuple[str, str]] = ()) -> str:
    """Return a row for each fact, then what ends the machine, then notes.

    Args:
        job: Rows that say what is run; none for the command of the run.
    """
    spec = plan.spec
    command = shlex.join(spec.argv if spec.program else ("python", *spec.argv))
    rows = [("verdict", plan.verdict)] if plan.verdict else []
    rows += [
        *(job or [("job", f"{command}, sent from {spec.workdir}")]),
        ("files", _files(plan)),
    ]
    if plan.inputs.staying:
        what = ", ".join(f"{used_file(one.path, one)} ({one.why})" for one in plan.inputs.staying[:STAYING_ROWS])
        more = len(plan.inputs.staying) - STAYING_ROWS
        rows.append(("stays here", f"though the script reads it: {what}{f', and {more} more' if more > 0 else ''}"))
    if plan.packages:
        rows.append(("packages", plan.packages))
    if spec.setup:
        rows.append(("set-up", spec.setup))
    if plan.storage is not None:
        rows.append(("disk", _disk(plan.storage, plan.options[0])))
    if spec.env_names:
        rows.append(("variables", f"{', '.join(spec.env_names)} (values are neither shown nor stored)"))
    rows += _machine_rows(plan, now)
    outputs = ", ".join(spec.outputs) or "all new and changed files"
    if spec.recovery is not None:
        rows += _recovery_rows(plan, spec.recovery)
    if spec.retry_until_up:
        within = "" if spec.search_seconds is None else f", for {format_duration(spec.search_seconds)}"
        again = "again and again, at last every 10 min; that costs nothing"
        rows.append(("search", f"if no machine is free, they are looked for {again}{within}"))
    if spec.on_oom_next_size:
        rows.append(("memory", _larger_machines(plan)))
    if spec.nodes > 1:
        if not spec.launcher.runs_once:
            accelerator = plan.options[0].offer.accelerator
            each = spec.processes if spec.processes > 0 else max(1, int(accelerator.count) if accelerator else 1)
            after = f"goes on with {spec.min_nodes} machines or more" if spec.min_nodes else "all machines, or none"
            ranks = f"{spec.nodes * each}, {each} on each machine, started by {spec.launcher.value}; {after}"
            rows.append(("ranks", f"{spec.nodes}, one on each machine" if spec.launcher is Launcher.NONE else ranks))
        every = spec.outputs_from is OutputsFrom.ALL
        outputs += ", of every machine in a folder rank-N" if every else ", of machine 0"
    if spec.launcher.runs_once:
        several = f"{spec.nodes} machines; machine 0 is the head and runs the script; all machines, or none"
        rows.append(("cluster", f"{spec.launcher.title()} on {several if spec.nodes > 1 else 'one machine'}"))
    rows.append(("outputs", outputs + (f"; also to {spec.bucket}" if spec.bucket else "")))
    if not spec.auto_shutdown:
        cap = format_usd(spec.nodes * plan.options[0].lease.worst_cost_usd)
        rows.append(("shutdown", f"NOT when the job is over, but at the end of the lease: {cap} in all"))
    for who in (plan.identity, *plan.others):
        source = f" ({who.source})" if who.source else ""
        rows.append(("identity", f"{who.principal} in {who.provider} {who.account}{source}"))
    machines = "the machine" if spec.nodes == 1 else "each machine"
    blocks = ["\n".join(labelled(*row) for row in rows), f"What ends {machines}:\n{safeguards_text(plan.layers)}"]
    if plan.notes:
        blocks.append("\n".join(wrap(note, "- ") for note in plan.notes))
    return "\n\n".join(blocks)


def _files(plan: Plan) -> str:
    """Return what travels, what does not, and how far it is known what the script needs."""
    parts = [f"{counted(plan.files, 'file')}, {format_size(plan.bytes)}"]
    if plan.left_out:
        parts.append(f"left out: {', '.join(f'{why} ({number})' for why, number in plan.left_out.items())}")
    if plan.largest:
        parts.append(f"the largest of these: {', '.join(used_file(one.path, one) for one in plan.largest)}")
    if not plan.inputs.known:
        parts.append("what the script reads was not measured")
    elif not plan.inputs.complete:
        parts.append("what the script reads was seen in part")
    return "; ".join(parts)


def _disk(storage: StorageNeed, option: LaunchOption) -> str:
    """Return how large the disk is, what it has room for, and how long the download takes."""
    default, disk = BOOT_DISK_GIB[option.offer.accelerator is not None], option.disk_gib
    needed = storage.disk_gib(default)
    parts = [f"{disk} GiB"]
    if storage.kept:
        checkpoints = f"{counted(storage.kept, 'checkpoint')} of {format_size(storage.checkpoint_bytes)}"
        parts[0] += f", with room for {checkpoints}" if disk >= needed else f", and {checkpoints} may not fit"
    if disk < needed:
        parts.append(f"--disk {needed} has room for it all")
    elif storage.saves > storage.kept:
        most = storage.disk_gib(default, storage.saves)
        parts.append(f"if the job keeps all of its {storage.saves}, --disk {most} has room for them")
    if storage.download_bytes:
        took = format_duration(storage.download_seconds)
        parts.append(f"{format_size(storage.download_bytes)} of weights are downloaded to it, in about {took}")
    return "; ".join(parts)


def _recovery_rows(plan: Plan, recovery: Recovery) -> list[tuple[str, str]]:
    """Return what happens when the machine is taken back, and who has to be there."""
    spec, most = plan.spec, counted(recovery.most, "further machine")
    spot = [option for option in plan.options if option.offer.purchase_option is PurchaseOption.SPOT]
    dear = " on demand where no spot machine is free," if len(spot) < len(plan.options) else ""
    what = ", ".join(recovery.checkpoints) or "all new and changed files"
    if spec.bucket:
        where = f"by the machine to {spec.bucket}"
        who = "this client, costgpu attach or costgpu queue"
    else:
        where, who = "to this computer, while this client is there", "this client or costgpu attach"
    when = f"if it is taken back, up to {most}, one after the other,{dear} within the same limits"
    return [("recovery", f"{when}; begun by {who}"), ("saved", f"{what}, once a minute at most, {where}")]


def _larger_machines(plan: Plan) -> str:
    """Return what happens when the job runs out of memory."""
    sizes = {option.size: option for option in reversed(plan.options) if option.size}
    if not sizes:
        return "if the job runs out of it, it ends: no larger machine with as many GPUs is within the limits"
    machines = []
    for _, option in sorted(sizes.items()):
        offer = option.offer
        what = accelerator_name(offer.accelerator) if offer.accelerator else f"{offer.memory_gib:g} GiB"
        price = format_usd(option.lease.usd_per_hour)
        machines.append(f"{offer.provider} {offer.instance_type} ({what}), at most {price} an hour")
    begins = "begins again" if plan.spec.recovery is None else "goes on"
    most = f"within the same limits, at most {format_usd(plan.most_usd)} in all"
    return f"if the job runs out of it, it {begins} on a larger machine: {', then '.join(machines)}; {most}"


def plan_json(plan: Plan, now: datetime) -> str:
    """Return the plan as a versioned document."""
    return document("costgpu.plan", at=now, plan=plan)


def _machine_rows(plan: Plan, now: datetime) -> list[tuple[str, str]]:
    """Return where, at what price, for how long; of a rented machine also the places to turn to where there is none."""
    offer, lease = plan.options[0].offer, plan.options[0].lease
    free = offer.price_usd_per_hour == 0
    if here := registry.label(offer.provider):
        places = f", in {plan.spec.nodes} places of it" if plan.spec.nodes > 1 else ""
        rows = [("machine", f"{here} ({offer.vcpus} CPUs, {offer.memory_gib:g} GiB){places}")]
        rows += [] if free else [("price", f"{format_usd(offer.price_usd_per_hour)} an hour, as given")]
    else:
        purchase = offer.purchase_option.value.replace("_", "-")
        days = (now.date() - plan.price_as_of).days
        age = "of today" if days < 1 else f"{counted(days, 'day')} old"
        price, most = format_usd(offer.price_usd_per_hour), format_usd(lease.usd_per_hour)
        times, each = (f"{plan.spec.nodes}x ", " each") if plan.spec.nodes > 1 else ("", "")
        rows = [
            ("machine", f"{times}{offer.provider} {machines_name(offer)}, {offer.region}, {purchase}"),
            ("price", f"{price} an hour{each}, {age}; with disk and address at most {most} an hour{each}"),
        ]
        rows += [("own price", mark.removeprefix("own price "))] if (mark := price_mark(offer)) else []
        alike = [option for option in plan.options if not option.size]
        if len(alike) > 1:
            most = format_usd(plan.spec.nodes * max(option.lease.worst_cost_usd for option in alike))
            others = counted(len(alike) - 1, "other place")
            rows.append(("else", f"{others} if there is no capacity; at most {most}"))
    if plan.prediction is None:
        rows.append(("estimate", "none for the whole job"))
    else:
        cost, span = plan.prediction.cost_usd, with_interval(plan.prediction.wall_seconds, format_duration)
        money = f", {format_usd(cost.value)} [{format_bare_usd(cost.low)}-{format_bare_usd(cost.high)}]"
        rows.append(("estimate", f"{span}{'' if free else money}, 80 % interval"))
    cap = "" if free else f"{format_usd(plan.spec.nodes * lease.worst_cost_usd)}; "
    if plan.spec.goes_on:
        lived = f"{format_duration(lease.lifetime_seconds)} of machines, one after the other ({lease.limited_by})"
        return [*rows, ("at most", f"{cap}{lived}")]
    end = now + timedelta(seconds=lease.lifetime_seconds)
    length = format_duration(lease.lifetime_seconds)
    rows.append(("at most", f"{cap}ended after {length}, by {end:%Y-%m-%d %H:%M} UTC ({lease.limited_by})"))
    return rows


@dataclass(frozen=True, slots=True)
class RunField:
    """What is told of a run, in the JSON document and perhaps in the table, too."""

    key: str  # its name in the document
    value: Callable[[RunView], Any]  # its value there
    column: Column[RunView] | None = None  # its place in the table; None to leave it out
    always: bool = True  # whether the document names it where it has no value, too


def run_fields(now: datetime | None) -> tuple[RunField, ...]:
    """Return everything that is told of a run, in the order of the table; open runs are metered until `now`."""

    def offer(view: RunView) -> Offer | None:
        return view.option.offer if view.option else None

    def metered(view: RunView) -> tuple[float, Decimal] | tuple[None, None]:
        return view.metered_at_most(now) if now is not None and view.receipt is None else (None, None)

    def age(view: RunView) -> str:
        return format_duration(max(1.0, (now - view.created_at).total_seconds())) if now else ""

    def cost(view: RunView) -> str:
        return format_usd(view.receipt.metered_cost_usd if view.receipt else metered(view)[1] or 0)

    return (
        RunField("run_id", lambda view: view.run_id, Column("RUN", lambda view: view.run_id)),
        RunField("name", lambda view: view.name, Column("JOB", _job, width=14)),
        RunField("node", lambda view: view.spec.node, always=False),
        RunField("attempt", lambda view: view.spec.attempt if view.spec.goes_on else None, always=False),
        RunField("saved_at", lambda view: view.saved_at, always=False),
        RunField("state", lambda view: view.state, Column("STATE", _state, width=13)),
        RunField("reason", lambda view: view.reason),
        RunField("owner", lambda view: view.owner),
        RunField("instance", lambda view: view.instance),
        RunField("offer", offer, Column("WHERE", lambda view: machine_name(offer(view)), width=18)),
        RunField("created_at", lambda view: view.created_at, Column("SINCE", age, right=True, width=7)),
        RunField("lease_until", lambda view: view.lease_until),
        RunField("status", _status),
        RunField("outputs_home", lambda view: view.outputs_home),
        RunField("metered_seconds", lambda view: metered(view)[0]),
        RunField("metered_cost_usd", lambda view: metered(view)[1], Column("COST", cost, right=True)),
    )


def jobs_text(views: Sequence[RunView], tagged: Sequence[Instance], now: datetime) -> str:
    """One line for each run, how long open ones' leases last, and the machines that only their tags tell of."""
    if not views and not tagged:
        return "No runs. costgpu run train.py starts one."
    lines = table([field.column for field in run_fields(now) if field.column], views) if views else []
    for view in views:
        if view.state not in (RunState.CLOSED, RunState.INTENT) and view.lease_until:
            ref = view.instance.instance_id if view.instance else "being created"
            lines.append(f"{view.run_id}: {ref}, {lease_left(view.lease_until, now)}")
    lines += [f"{view.run_id} waits: costgpu queue says what for" for view in views if view.waits]
    if tagged:
        columns: tuple[Column[Instance], ...] = (
            Column("TAGGED RUN", lambda item: item.run_id),
            Column("JOB", lambda item: item.name, width=14),
            Column("STATE", lambda item: item.state.value),
            Column("WHERE", lambda item: item.instance_type, width=18),
            Column("LEASE", lambda item: lease_left(item.lease_until, now), right=True),
        )
        lines += table(columns, tagged)
    return "\n".join(lines)


def jobs_json(views: Sequence[RunView], tagged: Sequence[Instance], now: datetime) -> str:
    """Return the list as a versioned document."""
    return document("costgpu.jobs", at=now, runs=[run_value(view, now) for view in views], tagged=tagged)


def run_value(view: RunView, now: datetime | None = None) -> dict[str, Any]:
    """Return a run as a part of a document."""
    told = ((field, field.value(view)) for field in run_fields(now))
    return {field.key: value for field, value in told if field.always or value is not None}


def lease_left(until: datetime | None, now: datetime) -> str:
    """``2.0 h left``, ``5 min over``."""
    if until is None:
        return "no lease"
    seconds = (until - now).total_seconds()
    return f"{format_duration(seconds)} left" if seconds > 0 else f"{format_duration(-seconds)} over"


def _status(view: RunView) -> dict[str, Any] | None:
    """Return how the job fares; what it has run out of is named only if that is known."""
    told = json_value(view.status)
    return told if told is None or told["out_of_memory"] else {key: told[key] for key in told if key != "out_of_memory"}


def _job(view: RunView) -> str:
    again = f" #{view.spec.attempt.number}" if view.is_later_attempt and view.spec.attempt is not None else ""
    which = f"{view.machine + 1}/{len(view.machine_ids)} " if view.has_peers else ""
    return f"{which}{view.name}{again}"


def _state(view: RunView) -> str:
    if view.waits:
        return "waiting"
    reason = view.reason if view.state is RunState.CLOSED else None
    return reason.words if reason else view.state.value


def machine_name(offer: Offer | None) -> str:
    """Return the type of a machine, in a column."""
    return "-" if offer is None else registry.label(offer.provider) or offer.instance_type


def run_json(view: RunView) -> str:
    """Run and receipt as a versioned document; the receipt is null while the run goes on."""
    return document("costgpu.run", run=run_value(view), receipt=view.receipt, error=None)


def launched_json(
    plan: Plan,
    views: Sequence[RunView],
    error: CostGpuError | None,
    now: datetime,
    schema: str = "costgpu.run",
    **more: Any,
) -> str:
    """Return a job that was carried out, as a versioned document: the run of its first machine, and those of the others.

    Args:
        more: Further parts of the document.
    """
    chain = views[0].spec.goes_on
    view = [one for one in views if one.is_first_machine][-1]
    failure = error and {"type": type(error).__name__, **picked(error, "message", "hint", "exit_code")}
    rest = [{"run": run_value(one), "receipt": one.receipt} for one in views if one is not view]
    others: dict[str, Any] = {"earlier_attempts" if chain else "other_nodes": rest} if rest else {}
    if chain and rest:
        others["attempts"] = summarize(views)
    return document(
        schema, at=now, plan=plan, **more, run=run_value(view), receipt=view.receipt, **others, error=failure
    )


def detached_text(view: RunView) -> str:
    """Return how to come back to a run that goes on."""
    until = f"{view.lease_until:%Y-%m-%d %H:%M} UTC" if view.lease_until else "its lease ends"
    cap = view.option.lease.worst_cost_usd if view.option else Decimal(0)
    if not view.spec.auto_shutdown:
        end = f"The machine stays until {until}, unless you end it."
    elif view.spec.bucket:
        end = f"When the job is over, its outputs go to {view.spec.bucket} and the machine ends itself."
    else:
        end = f"When the job is over, its outputs stay on the machine, which ends itself at {until}: fetch them first."
    if view.spec.needs_client:
        end += " Its checkpoints are saved only while a client is there: come back soon."
    most = f" It costs at most {format_usd(cap)} in all." if cap else ""
    return "\n".join(
        [
            wrap(f"Detached. Run {view.run_id} ({view.name}) goes on without this terminal.{most} {end}", rest="  "),
            f"  costgpu attach {view.run_id}    watch it again, fetch the outputs, end it",
            f"  costgpu logs -f {view.run_id}   only watch",
            f"  costgpu cancel {view.run_id}    end it now",
        ]
    )
