"""The rows that follow from events: pure. Imports `schema` and `job`.

What is stored must never stop a run from being closed: a value that cannot be read becomes NULL or an empty text here,
and stays in the event as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from costgpu.ledger.schema import LARGEST, to_microseconds, to_nano
from costgpu.models.run import EventKind, RunEvent

LONGEST_TEXT = 1000  # characters; PostgreSQL refuses index entries of more than 2704 bytes
EXPLAINING = (  # what `closings` and `outcomes` need besides the end
    EventKind.INTENDED,
    EventKind.ATTEMPTED,
    EventKind.CREATED,
    EventKind.FINISHED,
)
LATEST = to_microseconds(datetime.max.replace(tzinfo=UTC))
CLOCK_SLACK_SECONDS = 60.0  # the machine's clock may run differently from that of the client, who meters

Row = dict[str, Any]


def run_row(first: RunEvent) -> Row:
    """Return the row of `runs`, without its number, from the first event of a run."""
    return {
        "run_id": first.run_id,
        "at_us": to_microseconds(first.at),
        "name": text_of(first.data, "name"),
        "owner": text_of(first.data, "owner"),
    }


def tag_rows(first: RunEvent) -> list[Row]:
    """Return the rows of `run_tags`, without the run's number, from the first event of a run."""
    tags = _part(_part(first.data, "spec"), "tags")
    values = {plain(key): text_of(tags, key) for key in tags}
    return [{"key": key, "value": value} for key, value in values.items()]


def closing_row(explaining: Iterable[RunEvent], closed: RunEvent) -> Row:
    """Return the row of `closings`, without the run's number, from the events in `EXPLAINING` and the CLOSED one."""
    last = {event.kind: event for event in explaining}
    intended = last[EventKind.INTENDED].data if EventKind.INTENDED in last else {}
    attempt, creation = last.get(EventKind.ATTEMPTED), last.get(EventKind.CREATED)
    created: Mapping[str, Any] = {}
    if creation is not None and (attempt is None or creation.sequence > attempt.sequence):
        created = creation.data
    receipt = _part(closed.data, "receipt")
    instance = _part(receipt, "instance")
    if not created and not instance:
        attempt = None  # it came to nothing
    offer = _part(attempt.data, "offer") if attempt else {}
    accelerator = _part(offer, "accelerator")
    seconds = number_of(closed.data, "metered_seconds")
    started = to_microseconds(attempt.at) if attempt else None
    ended = None if started is None or seconds is None or seconds < 0 else started + round(seconds * 1e6)
    return {
        "at_us": to_microseconds(closed.at),
        "reason": text_of(closed.data, "reason"),
        "ended_by": text_of(closed.data, "ended_by"),
        "provider": first_text((created, "provider"), (instance, "provider"), (offer, "provider")),
        "account": first_text((attempt.data if attempt else {}, "account"), (_part(intended, "identity"), "account")),
        "region": first_text((created, "region"), (instance, "region"), (offer, "region")),
        "zone": first_text((created, "zone"), (attempt.data if attempt else {}, "zone"), (offer, "zone")),
        "instance_type": first_text((offer, "instance_type"), (receipt, "instance_type")),
        "instance_id": first_text((created, "instance_id"), (instance, "instance_id")),
        "purchase_option": text_of(offer, "purchase_option"),
        "accelerator": text_of(accelerator, "name"),
        "accelerator_count": number_of(accelerator, "count"),
        "started_us": started,
        "ended_us": ended if ended is None or ended <= LATEST else None,
        "metered_seconds": seconds,
        "metered_nano_usd": nano_of(closed.data, "metered_cost_usd"),
    }


def outcome_row(explaining: Iterable[RunEvent], closed: RunEvent, closing: Mapping[str, Any]) -> Row | None:
    """Return the row of `outcomes`, without the run's number; None if neither the job's time nor an estimate is known."""
    last = {event.kind: event.data for event in explaining}
    intended, attempted, finished = (
        last.get(kind, {}) for kind in (EventKind.INTENDED, EventKind.ATTEMPTED, EventKind.FINISHED)
    )
    seconds = _job_seconds(finished, closing)
    estimate = _part(intended, "estimate")
    if seconds is None and not estimate:
        return None
    # The estimate is for the first option. Another machine takes another time, another place has another price.
    options = intended.get("options")
    first = options[0] if isinstance(options, list) and options and isinstance(options[0], Mapping) else {}
    meant, launched = _part(first, "offer"), _part(attempted, "offer")
    same_machine = not launched or _same(meant, launched, "provider", "instance_type")
    same_price = same_machine and (
        not launched or _same(meant, launched, "region", "purchase_option", "price_usd_per_hour")
    )
    of_time = estimate if same_machine else {}
    of_cost = estimate if same_price else {}
    workload = _part(intended, "workload")
    return {
        "at_us": to_microseconds(closed.at),
        "workload": text_of(workload, "key"),
        **{key: closing[key] for key in ("provider", "instance_type", "purchase_option", "reason")},
        "job_seconds": seconds,
        "steps": number_of(workload, "steps"),
        "estimated_job_seconds": number_of(of_time, "job_seconds"),
        "estimated_seconds": number_of(of_time, "seconds"),
        "estimated_seconds_low": number_of(of_time, "seconds_low"),
        "estimated_seconds_high": number_of(of_time, "seconds_high"),
        "estimated_nano_usd": nano_of(of_cost, "cost_usd"),
        "estimated_nano_usd_low": nano_of(of_cost, "cost_usd_low"),
        "estimated_nano_usd_high": nano_of(of_cost, "cost_usd_high"),
    }


def _job_seconds(finished: Mapping[str, Any], closing: Mapping[str, Any]) -> float | None:
    """Return how long the job ran, without boot and set-up; None if that is not known, or cannot be."""
    began, ended = number_of(finished, "job_started_epoch"), number_of(finished, "finished_epoch")
    if began is None or ended is None:
        return None
    seconds, metered = ended - began, closing["metered_seconds"]
    # The machine's clock was set in between, if the job took longer than its machine was there.
    impossible = seconds <= 0 or (metered is not None and seconds > metered + CLOCK_SLACK_SECONDS)
    return None if impossible else seconds


def _same(one: Mapping[str, Any], other: Mapping[str, Any], *keys: str) -> bool:
    return all(one.get(key) == other.get(key) for key in keys)


def plain(text: str) -> str:
    """Return the text as every database can hold and index it."""
    return text[:LONGEST_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def text_of(data: Mapping[str, Any], key: str) -> str:
    """Return the text at a key, such as every database can hold; empty if there is none."""
    value = data.get(key)
    return plain(value) if isinstance(value, str) else ""


def first_text(*places: tuple[Mapping[str, Any], str]) -> str:
    """Return the first text that is not empty."""
    return next(filter(None, (text_of(*place) for place in places)), "")


def number_of(data: Mapping[str, Any], key: str) -> float | None:
    """Return the finite number at a key; None if there is none."""
    try:
        number = float(_scalar(data, key))
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST / 1e6 else None  # not for NaN, either


def nano_of(data: Mapping[str, Any], key: str) -> int | None:
    """Return the amount at a key in 1e-9 US dollars; None if there is none."""
    try:
        return to_nano(Decimal(str(_scalar(data, key))))
    except (InvalidOperation, ValueError):
        return None


def _scalar(data: Mapping[str, Any], key: str) -> int | float | str:
    """Return the number or text at a key; an empty text, which is no number, for anything else."""
    value = data.get(key)
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else ""


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}
