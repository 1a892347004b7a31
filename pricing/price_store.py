"""The prices in use: the shipped snapshot, and over it what was refreshed, which is kept in the user's cache folder.

One file for each provider, ``offers-gcp.csv``: all of its offers, those that were refreshed and the others as shipped, each
with its own source and day. The first line says when which region was refreshed, upon which snapshot the file is built, and
the checksum of the rest. A file that is damaged, or was built upon another snapshot, is passed over with one line of words:
the shipped prices, with their age, are always there.

May import `snapshot`, `models` and `errors`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import platformdirs

from costgpu.errors import ConfigError, PriceNotFound
from costgpu.files import FileKind, exclusive_lock, parse_json, read_bytes, read_json, write_whole
from costgpu.models.offer import Offer
from costgpu.pricing import snapshot
from costgpu.providers import registry
from costgpu.units import parse_time

STORED = FileKind(
    most_bytes=128 * 2**20,
    write_hint="Refreshed prices are stored there. Make room, or set XDG_CACHE_HOME to a folder that you may write.",
)
MARK = "# costgpu.live-prices 1 "
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrices:
    """First line of a provider's file."""

    provider: str
    snapshot: str  # name of the shipped file that it was built upon
    regions: Mapping[str, datetime] = field(default_factory=dict)  # time of the last refresh of each region


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRefresh:
    """A refresh that failed after the last one that worked."""

    provider: str
    at: datetime
    why: str


def cache_folder() -> Path:
    """Return where refreshed prices are kept; it need not exist."""
    return platformdirs.user_cache_path("costgpu", appauthor=False) / "prices"


def offers(*, warn: Warn | None = None) -> list[Offer]:
    """Return all offers at the prices in use: the user's own where there are some, else those of `list_offers`.

    Args:
        warn: As there.

    Raises:
        ConfigError: The shipped snapshot or the own prices are damaged.
    """
    from costgpu.pricing.own_prices import with_own_prices  # noqa: PLC0415  it needs the prices of this room

    return with_own_prices(list_offers(warn=warn))


def list_offers(*, warn: Warn | None = None) -> list[Offer]:
    """Return all offers at list prices: those that are shipped, and over them what was refreshed.

    Args:
        warn: Called with a line of words for every file that cannot be used.

    Raises:
        ConfigError: The shipped snapshot is missing or damaged.
    """
    shipped = snapshot.newest()
    found: list[Offer] = []
    replaced: set[str] = set()
    for spec in registry.specs():
        rows = _refreshed_offers(spec.name, shipped, warn)
        if rows is not None:
            found += rows
            replaced.add(spec.name)
        elif spec.offers_file is not None:
            found += snapshot.read_offers(spec.offers_file)
    return [offer for offer in snapshot.read_offers(shipped) if offer.provider not in replaced] + found


def _refreshed_offers(provider: str, shipped: Path, warn: Warn | None) -> list[Offer] | None:
    """Return what was refreshed of a provider; None if there is nothing that can be used."""
    path = _prices_file(provider)
    try:
        return None if _read_header(path, provider, shipped) is None else snapshot.read_offers(path)
    except (OSError, ValueError, csv.Error, ConfigError, PriceNotFound) as error:
        if warn is not None:
            why = getattr(error, "message", None) or f"it cannot be read ({error})"
            warn(
                f"The refreshed prices of {provider} are not used, the shipped ones are: {path}: {why.rstrip('.')}."
                f" `costgpu prices refresh --infra {provider}` makes them anew."
            )
        return None


def stored_prices(provider: str) -> StoredPrices | None:
    """Return what is stored of a provider; None if there is nothing that can be used."""
    try:
        return _read_header(_prices_file(provider), provider, snapshot.newest())
    except ConfigError:
        return None


def last_failure(provider: str) -> FailedRefresh | None:
    """Return the last refresh, if it failed."""
    try:
        document = read_json(_failure_file(provider), STORED)
        return FailedRefresh(provider=provider, at=parse_time(document["at"]), why=str(document["why"]))
    except (ConfigError, ValueError, KeyError, TypeError):
        return None


def record_failure(failure: FailedRefresh) -> None:
    """Record that a refresh failed; a cache folder that cannot be written is not a further error."""
    document = {"at": failure.at.isoformat(), "why": failure.why}
    with contextlib.suppress(OSError, ConfigError):
        _write(_failure_file(failure.provider), json.dumps(document).encode())


def store_prices(
    provider: str,
    regions: Sequence[str],
    now: datetime,
    change: Callable[[Sequence[Offer]], Sequence[Offer]],
) -> Path:
    """Replace the stored prices of a provider in one step; the path of the file.

    Args:
        change: From the provider's offers as they are to the new ones. It is called under a lock, so that two refreshes
            at once do not lose each other's work.

    Raises:
        ConfigError: The folder cannot be written.
    """
    path, shipped = _prices_file(provider), snapshot.newest()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(path.with_suffix(".lock")):
            before = stored_prices(provider)
            rows = change([offer for offer in list_offers() if offer.provider == provider])
            times = {**(before.regions if before else {}), **dict.fromkeys(regions, now)}
            body = snapshot.offers_text(rows).encode()
            head = {
                "provider": provider,
                "snapshot": shipped.name,
                "crc32": zlib.crc32(body),
                "regions": {region: at.isoformat() for region, at in sorted(times.items())},
            }
            _write(path, f"{MARK}{json.dumps(head)}\n".encode() + body)
            _failure_file(provider).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint=STORED.write_hint,
        ) from error
    return path


def _prices_file(provider: str) -> Path:
    return cache_folder() / f"offers-{provider}.csv"


def _failure_file(provider: str) -> Path:
    return cache_folder() / f"failed-{provider}.json"


def _read_header(path: Path, provider: str, shipped: Path) -> StoredPrices | None:
    """Return the first line of a file, checked with the rest of it; None if there is no file."""
    raw = read_bytes(path, STORED)
    if raw is None:
        return None
    head, _, body = raw.partition(b"\n")
    if not head.startswith(MARK.encode()):
        raise ConfigError("it does not begin as it should")
    try:
        document = parse_json(head[len(MARK) :])
        known = StoredPrices(
            provider=document["provider"],
            snapshot=document["snapshot"],
            regions={region: parse_time(at) for region, at in document["regions"].items()},
        )
        checksum = document["crc32"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError("its first line cannot be read") from error
    if known.provider != provider or checksum != zlib.crc32(body):
        raise ConfigError("it is damaged")
    if known.snapshot != shipped.name:
        raise ConfigError(f"it was built upon {known.snapshot}, and this version has {shipped.name}")
    return known


def _write(path: Path, content: bytes) -> None:
    """Write the file atomically: a reader sees the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, [content], STORED)
