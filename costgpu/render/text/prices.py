"""How old prices are, and what a refresh has come to: as plain text or as a JSON document. Result -> str."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from costgpu.models.offer import Offer, PurchaseOption

if TYPE_CHECKING:
    from costgpu.models.price_update import Key, MissingPrice
    from costgpu.pricing.merge_prices import Move, Refresh
    from costgpu.pricing.price_store import FailedTry

SCHEMA, REFRESH_SCHEMA = "costgpu.prices", "costgpu.prices-refresh"
VERSION = 1
WIDTH = 80
LONGEST_LIST = 10


def prices_text(
    offers: Sequence[Offer],
    now: datetime,
    *,
    refreshed: Mapping[str, Mapping[str, datetime]],
    failed: Sequence[FailedTry],
    folder: str,
) -> str:
    """One line for each region, then the sources.

    Args:
        offers: All that are in use.
        now: From which ages are counted.
        refreshed: By provider and region, when.
        failed: Refreshes that have not worked.
        folder: Where refreshed prices are kept.
    """
    rows = [("INFRA", "OFFERS", "PRICES OF", "AGE", "REFRESHED")]
    for (provider, region), group in _by_place(offers):
        days = [offer.price_as_of for offer in group]
        at = refreshed.get(provider, {}).get(region)
        ages = dict.fromkeys((now.date() - day).days for day in (max(days), min(days)))
        rows.append(
            (
                f"{provider}/{region}",
                str(len(days)),
                _span(days),
                f"{' to '.join(map(str, ages))} d",
                f"{at:%Y-%m-%d %H:%M} UTC" if at else "no",
            )
        )
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = [
        " ".join(
            cell.rjust(width) if index == 1 else cell.ljust(width) for index, (cell, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    lines += ["", "Sources:"]
    for (provider, source), group in _by_source(offers):
        words = f"{len(group)} of {provider}: {source} ({_span([offer.price_as_of for offer in group])})"
        lines += _wrapped(words, "  ")
    for one in failed:
        words = f"The refresh of {one.provider} at {one.at:%Y-%m-%d %H:%M} UTC has failed: {one.why}"
        lines += ["", *_wrapped(words, "")]
    kept = (
        f"Refreshed prices are kept in {folder}." if refreshed else "None were refreshed: they came with this version."
    )
    return "\n".join(
        [*lines, "", *_wrapped(kept, ""), *_wrapped("costgpu prices refresh fetches new ones, free of charge.", "")]
    )


def prices_json(
    offers: Sequence[Offer],
    now: datetime,
    *,
    refreshed: Mapping[str, Mapping[str, datetime]],
    failed: Sequence[FailedTry],
    folder: str,
) -> str:
    """The versioned document; arguments as for `prices_text`."""
    places = []
    for (provider, region), group in _by_place(offers):
        days = [offer.price_as_of for offer in group]
        at = refreshed.get(provider, {}).get(region)
        places.append(
            {
                "provider": provider,
                "region": region,
                "offers": len(days),
                "oldest_as_of": min(days).isoformat(),
                "newest_as_of": max(days).isoformat(),
                "oldest_age_days": (now.date() - min(days)).days,
                "newest_age_days": (now.date() - max(days)).days,
                "refreshed_at": at.isoformat() if at else None,
            }
        )
    sources = [
        {
            "provider": provider,
            "source": source,
            "offers": len(group),
            "oldest_as_of": min(offer.price_as_of for offer in group).isoformat(),
            "newest_as_of": max(offer.price_as_of for offer in group).isoformat(),
        }
        for (provider, source), group in _by_source(offers)
    ]
    tries = [{"provider": one.provider, "at": one.at.isoformat(), "why": one.why} for one in failed]
    return _json(
        {
            "schema": SCHEMA,
            "version": VERSION,
            "places": places,
            "sources": sources,
            "failed_refreshes": tries,
            "cache_folder": folder,
        }
    )


def refresh_text(results: Sequence[Refresh], now: datetime) -> str:
    """What each provider's refresh has come to."""
    lines: list[str] = []
    for result in results:
        lines += [
            f"{result.provider}: {_number(result.taken, 'price')} of {now:%Y-%m-%d} ({result.added} new offers), from "
            + _number(result.documents, "price list entry.", "price list entries.")
        ]
        lines += _moves([move for move in result.moves if not move.taken], "kept apart; --accept takes them")
        lines += _moves([move for move in result.moves if move.taken], "taken")
        lines += _failures(result.failures)
        if result.unknown:
            words = f"{_number(len(result.unknown), 'instance type')} whose hardware costgpu does not know left out."
            lines += _wrapped(words, "  ")
    return "\n".join(lines)


def refresh_json(results: Sequence[Refresh], now: datetime) -> str:
    """The versioned document."""
    return _json(
        {
            "schema": REFRESH_SCHEMA,
            "version": VERSION,
            "at": now.isoformat(),
            "providers": [
                {
                    "provider": result.provider,
                    "regions": list(result.regions),
                    "taken": result.taken,
                    "new_offers": result.added,
                    "price_list_entries": result.documents,
                    "moved": [
                        {
                            **_key(_key_of(move.new)),
                            "old_usd_per_hour": f"{move.old.price_usd_per_hour:f}",
                            "old_as_of": move.old.price_as_of.isoformat(),
                            "new_usd_per_hour": f"{move.new.price_usd_per_hour:f}",
                            "change": f"{move.change:.4f}",
                            "taken": move.taken,
                        }
                        for move in result.moves
                    ],
                    "without_price": [{**_key(failure.key), "reason": failure.reason} for failure in result.failures],
                    "unknown_instance_types": list(result.unknown),
                }
                for result in results
            ],
        }
    )


def _moves(moves: Sequence[Move], what: str) -> list[str]:
    if not moves:
        return []
    lines = [f"  Moved by more than 30 %, {what} ({len(moves)}):"]
    for move in moves[:LONGEST_LIST]:
        old, new = move.old.price_usd_per_hour, move.new.price_usd_per_hour
        lines += _wrapped(f"{_name(_key_of(move.new))}: {old:f} -> {new:f} USD/h ({move.change:+.0%})", "    ")
    return [*lines, *_more(len(moves))]


def _failures(failures: Sequence[MissingPrice]) -> list[str]:
    if not failures:
        return []
    lines = [f"  Without a new price ({len(failures)}); price and age stay as they were:"]
    reasons: dict[str, list[MissingPrice]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(failure)
    for reason, group in list(reasons.items())[:LONGEST_LIST]:
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        lines += _wrapped(f"{_name(group[0].key)}{others}: {reason}", "    ")
    return [*lines, *_more(len(reasons))]


def _more(count: int) -> list[str]:
    left = count - LONGEST_LIST
    return [f"    and {left} more; --json lists all"] if left > 0 else []


def _key_of(offer: Offer) -> Key:
    return (offer.provider, offer.region, offer.instance_type, offer.purchase_option)


def _key(key: Key) -> dict[str, str]:
    return {"provider": key[0], "region": key[1], "instance_type": key[2], "purchase_option": key[3].value}


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]} {key[2]}{' spot' if key[3] is PurchaseOption.SPOT else ''}"


def _by_place(offers: Iterable[Offer]) -> list[tuple[tuple[str, str], list[Offer]]]:
    return _grouped(offers, lambda offer: (offer.provider, offer.region))


def _by_source(offers: Iterable[Offer]) -> list[tuple[tuple[str, str], list[Offer]]]:
    return _grouped(offers, lambda offer: (offer.provider, offer.price_source))


def _grouped(offers: Iterable[Offer], key: Any) -> list[tuple[tuple[str, str], list[Offer]]]:
    return [(name, list(group)) for name, group in groupby(sorted(offers, key=key), key=key)]


def _span(days: Sequence[Any]) -> str:
    return f"{min(days)}" if min(days) == max(days) else f"{min(days)} to {max(days)}"


def _number(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _wrapped(words: str, indent: str) -> list[str]:
    return textwrap.wrap(
        words,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _json(document: Mapping[str, Any]) -> str:
    import json  # noqa: PLC0415  (the text does not pay for it)

    return json.dumps(document, indent=2)
