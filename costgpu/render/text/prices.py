"""How old prices are, and what a refresh has brought; as text and as JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import Key, MissingPrice, key_of
from costgpu.pricing.own_prices import StoredPrice, name_of
from costgpu.render.document import document, picked
from costgpu.render.phrases import counted, visible
from costgpu.render.text.layout import Column, table, wrap
from costgpu.render.text.offers import day_span
from costgpu.units import format_usd

if TYPE_CHECKING:
    from costgpu.pricing.merge_prices import PriceChange, RefreshResult
    from costgpu.pricing.price_store import FailedRefresh

LONGEST_LIST = 10
Group = tuple[tuple[str, str], list[Offer]]


def own_prices_text(own: Sequence[StoredPrice], now: datetime) -> str:
    """Return a line for each own price, with those that are over marked."""
    if not own:
        return "No own prices. costgpu prices set aws p5.48xlarge 42.00 --until 2027-03-31 sets one."
    lines = ["Own prices:"]
    for price in own:
        over = " (over)" if price.until < now.date() else ""
        note = f"; {visible(price.note)}" if price.note else ""
        what = f"{name_of(price)}: {format_usd(price.usd_per_hour)}/h until {price.until}{over}, set on {price.set_on}{note}"
        lines.append(wrap(what, "  ", "    "))
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesInUse:
    """All offers, and where their prices are from."""

    offers: Sequence[Offer]
    refreshed: Mapping[str, Mapping[str, datetime]]  # time of the last refresh by provider and region
    failed: Sequence[FailedRefresh]  # since then
    folder: str  # of refreshed prices
    own: Sequence[StoredPrice]  # the user's own prices


def prices_text(used: PricesInUse, now: datetime) -> str:
    """One line for each region, then the sources."""

    def ages(group: Group, option: PurchaseOption) -> str:
        days = sorted({(now.date() - one.price_as_of).days for one in group[1] if one.purchase_option is option})
        return "-" if not days else f"{days[0]} d" if len(days) == 1 else f"{days[0]} to {days[-1]} d"

    def refreshed_at(group: Group) -> str:
        at = used.refreshed.get(group[0][0], {}).get(group[0][1])
        return f"{at:%Y-%m-%d %H:%M} UTC" if at else "no"

    columns: tuple[Column[Group], ...] = (
        Column("INFRA", lambda group: "/".join(group[0])),
        Column("OFFERS", lambda group: str(len(group[1])), right=True),
        Column("AGE ON DEMAND", lambda group: ages(group, PurchaseOption.ON_DEMAND)),
        Column("AGE OF SPOT", lambda group: ages(group, PurchaseOption.SPOT)),
        Column("REFRESHED", refreshed_at),
    )
    lines = [*table(columns, _grouped(used.offers, "region")), "", "Sources:"]
    for group in _grouped(used.offers, "price_source"):
        (provider, source), rows = group
        days = day_span([offer.price_as_of for offer in rows])
        lines.append(wrap(f"{len(rows)} of {provider}: {source} ({days})", "  ", "    "))
    if used.own:
        lines += ["", own_prices_text(used.own, now)]
    for one in used.failed:
        lines += [
            "",
            wrap(f"The refresh of {one.provider} at {one.at:%Y-%m-%d %H:%M} UTC has failed: {one.why}", rest="  "),
        ]
    kept = f"Refreshed prices are kept in {used.folder}."
    kept = kept if used.refreshed else "None were refreshed: they came with this version."
    return "\n".join([*lines, "", wrap(kept, rest="  "), "costgpu prices refresh fetches new ones, free of charge."])


def prices_json(used: PricesInUse, now: datetime) -> str:
    """Return the same as a versioned document."""
    places = [
        {
            "provider": provider,
            "region": region,
            **_dates(rows),
            "oldest_age_days": (now.date() - min(offer.price_as_of for offer in rows)).days,
            "newest_age_days": (now.date() - max(offer.price_as_of for offer in rows)).days,
            "by_purchase_option": {
                option: _dates(found)
                for option in PurchaseOption
                if (found := [offer for offer in rows if offer.purchase_option is option])
            },
            "refreshed_at": used.refreshed.get(provider, {}).get(region),
        }
        for (provider, region), rows in _grouped(used.offers, "region")
    ]
    sources = [
        {"provider": provider, "source": source, **_dates(rows)}
        for (provider, source), rows in _grouped(used.offers, "price_source")
    ]
    return document(
        "costgpu.prices",
        places=places,
        sources=sources,
        failed_refreshes=used.failed,
        cache_folder=used.folder,
        own_prices=[own_price_value(price) for price in used.own],
    )


def own_price_value(price: StoredPrice) -> dict[str, Any]:
    """Return an own price as a part of a document."""
    names = ("provider", "instance_type", "region", "purchase_option", "usd_per_hour", "until", "set_on", "note")
    return picked(price, *names)


def refresh_text(results: Sequence[RefreshResult], now: datetime) -> str:
    """Return what each provider's refresh has brought."""
    lines: list[str] = []
    for result in results:
        entries = counted(result.documents, "price list entry")
        prices = counted(result.taken, "price")
        lines.append(f"{result.provider}: {prices} of {now:%Y-%m-%d} ({result.added} new offers), from {entries}.")
        lines += _moves([move for move in result.moves if not move.taken], "kept apart; --accept takes them")
        lines += _moves([move for move in result.moves if move.taken], "taken")
        if result.failures:
            lines.append(f"  Without a new price ({len(result.failures)}); price and age stay as they were:")
        reasons: dict[str, list[MissingPrice]] = {}
        for failure in result.failures:
            reasons.setdefault(failure.reason, []).append(failure)
        for reason, group in list(reasons.items())[:LONGEST_LIST]:
            others = f" and {len(group) - 1} more" if len(group) > 1 else ""
            lines.append(wrap(f"{_name(group[0].key)}{others}: {reason}", " " * 4, " " * 6))
        lines += _more(len(reasons))
        if result.unknown:
            types = counted(len(result.unknown), "instance type")
            lines.append(wrap(f"{types} whose hardware costgpu does not know left out.", "  ", "    "))
    return "\n".join(lines)


def refresh_json(results: Sequence[RefreshResult], now: datetime) -> str:
    """Return the same as a versioned document."""
    return document(
        "costgpu.prices-refresh",
        at=now,
        providers=[
            {
                "provider": result.provider,
                "regions": result.regions,
                "taken": result.taken,
                "new_offers": result.added,
                "price_list_entries": result.documents,
                "moved": [
                    {
                        **_key_value(key_of(move.new)),
                        "old_usd_per_hour": move.old.price_usd_per_hour,
                        "old_as_of": move.old.price_as_of,
                        "new_usd_per_hour": move.new.price_usd_per_hour,
                        "change": f"{move.change:.4f}",
                        "taken": move.taken,
                    }
                    for move in result.moves
                ],
                "without_price": [{**_key_value(failure.key), "reason": failure.reason} for failure in result.failures],
                "unknown_instance_types": result.unknown,
            }
            for result in results
        ],
    )


def _moves(moves: Sequence[PriceChange], what: str) -> list[str]:
    if not moves:
        return []
    lines = [f"  Moved by more than 30 %, {what} ({len(moves)}):"]
    for move in moves[:LONGEST_LIST]:
        old, new = move.old.price_usd_per_hour, move.new.price_usd_per_hour
        lines.append(
            wrap(f"{_name(key_of(move.new))}: {old:f} -> {new:f} USD/h ({move.change:+.0%})", " " * 4, " " * 6)
        )
    return [*lines, *_more(len(moves))]


def _more(count: int) -> list[str]:
    left = count - LONGEST_LIST
    return [f"    and {left} more; --json lists all"] if left > 0 else []


def _key_value(key: Key) -> dict[str, Any]:
    return dict(zip(("provider", "region", "instance_type", "purchase_option"), key, strict=True))


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]} {key[2]}{' spot' if key[3] is PurchaseOption.SPOT else ''}"


def _grouped(offers: Iterable[Offer], attribute: str) -> list[Group]:
    """Return the offers by provider and an attribute."""
    key = attrgetter("provider", attribute)
    return [(name, list(group)) for name, group in groupby(sorted(offers, key=key), key=key)]


def _dates(rows: Sequence[Offer]) -> dict[str, Any]:
    days = [offer.price_as_of for offer in rows]
    return {"offers": len(rows), "oldest_as_of": min(days), "newest_as_of": max(days)}
