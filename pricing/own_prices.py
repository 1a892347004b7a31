"""The user's own prices: what a contract, credits or a reservation make of a list price until a day.

They are kept in the config folder, in one JSON file, and are laid over the list prices where offers are read. May import
`border`, `config`, `files`, `models`, `units` and `errors`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

from costgpu import border
from costgpu.config.paths import config_file
from costgpu.errors import ConfigError, UsageError
from costgpu.files import FileKind, exclusive_lock, parse_json, read_bytes, write_whole
from costgpu.models.offer import MOST_USD_PER_HOUR, Offer, OwnPrice, PurchaseOption
from costgpu.pricing.hardware import nearest
from costgpu.pricing.not_supported import place_error
from costgpu.units import LAST_YEAR, shortened

STORED = FileKind(most_bytes=2**20, write_hint="Own prices are stored there. Make the folder one that you may write.")
FILE_NAME = "own-prices.json"
MOST_DECIMALS = 9
LONGEST_NOTE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrice:
    """One own price, as the file has it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    provider: str
    instance_type: str
    region: str | None = None  # None for all
    purchase_option: PurchaseOption = PurchaseOption.ON_DEMAND
    usd_per_hour: Decimal  # 0 for what is paid for already
    until: date  # the last day, UTC, on which it holds
    set_on: date
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str | None, PurchaseOption]:
        """Return what it is the price of: of two with the same key the later one counts."""
        return self.provider, self.instance_type, self.region, self.purchase_option


def prices_file() -> Path:
    """Return where own prices are kept; it need not exist."""
    return config_file().with_name(FILE_NAME)


def read_prices() -> tuple[StoredPrice, ...]:
    """Return all own prices, those that do not hold any more included.

    Raises:
        ConfigError: The file is damaged.
    """
    path = prices_file()
    raw = read_bytes(path, STORED)
    if raw is None:
        return ()
    try:
        found = border.read(tuple[StoredPrice, ...], parse_json(raw), ValueError)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    for price in found:
        if not 0 <= price.usd_per_hour <= MOST_USD_PER_HOUR:
            raise _damaged(path, f"{price.usd_per_hour} is no price")
        if not price.set_on <= price.until or price.until.year > LAST_YEAR:
            raise _damaged(
                path, f"the price of {price.instance_type} is of {price.set_on} and holds until {price.until}"
            )
    return found


def with_own_prices(offers: Iterable[Offer], today: date | None = None) -> list[Offer]:
    """Return the offers with the own prices that hold on a day; the one for a region goes before the one for all.

    Args:
        today: By UTC; None for the day that it is.

    Raises:
        ConfigError: The file is damaged.
    """
    stored = read_prices()
    if not stored:
        return list(offers)
    day = today or datetime.now(UTC).date()
    holding = {price.key: price for price in stored if day <= price.until}
    return [_priced(offer, holding) for offer in offers]


def _priced(offer: Offer, holding: dict[tuple[str, str, str | None, PurchaseOption], StoredPrice]) -> Offer:
    keys = [(offer.provider, offer.instance_type, region, offer.purchase_option) for region in (offer.region, None)]
    mine = next((holding[key] for key in keys if key in holding), None)
    if mine is None:
        return offer
    own = OwnPrice(
        set_on=mine.set_on,
        until=mine.until,
        note=mine.note,
        list_usd_per_hour=offer.price_usd_per_hour,
        list_as_of=offer.price_as_of,
        list_source=offer.price_source,
    )
    return replace(
        offer, price_usd_per_hour=mine.usd_per_hour, price_source="own price", price_as_of=mine.set_on, own_price=own
    )


def set_price(price: StoredPrice, listed: Sequence[Offer]) -> StoredPrice:
    """Keep an own price, instead of one for the same machine, region and way of paying; return it as it is kept.

    Args:
        price: Names as the user wrote them.
        listed: The offers at list prices.

    Raises:
        UsageError: There is no such offer.
        ConfigError: The file is damaged, or cannot be written.
    """
    known = _named(price, listed)
    _change(lambda stored: (*(each for each in stored if each.key != known.key), known))
    return known


def unset_price(provider: str, instance_type: str, region: str | None, purchase_option: PurchaseOption) -> StoredPrice:
    """Forget an own price and return it.

    Raises:
        UsageError: There is none.
        ConfigError: The file is damaged, or cannot be written.
    """
    key = provider.lower(), instance_type.lower(), region and region.lower(), purchase_option
    gone: list[StoredPrice] = []

    def change(stored: tuple[StoredPrice, ...]) -> tuple[StoredPrice, ...]:
        gone.extend(each for each in stored if (each.provider, each.instance_type.lower(), *each.key[2:]) == key)
        if not gone:
            known = ", ".join(name_of(each) for each in stored) or "none at all"
            raise UsageError("There is no such own price.", hint=f"There is {known}.")
        return tuple(each for each in stored if each not in gone)

    _change(change)
    return gone[0]


def name_of(price: StoredPrice) -> str:
    """Return ``aws p5.48xlarge in us-east-1, spot``."""
    where = f" in {price.region}" if price.region else ""
    return f"{price.provider} {price.instance_type}{where}{', spot' * (price.purchase_option is PurchaseOption.SPOT)}"


def parse_price(text: str) -> Decimal:
    """Return the US dollars an hour of ``42.00``, ``$42`` or ``0``.

    Raises:
        UsageError: It is no price.
    """
    cleaned = text.strip().removeprefix("$")
    whole, _, decimals = cleaned.partition(".")
    digits = f"{whole}{decimals}"
    if not (digits.isascii() and digits.isdigit()) or len(decimals) > MOST_DECIMALS or len(whole) > MOST_DECIMALS:
        raise UsageError(f"{shortened(text)} is no price in US dollars an hour.", hint="Write 42.00, $42 or 0.")
    price = Decimal(cleaned)
    if price > MOST_USD_PER_HOUR:
        raise UsageError(
            f"{shortened(text)} is more than ${MOST_USD_PER_HOUR:,} an hour.", hint="Write 42.00, $42 or 0."
        )
    return price


def parse_last_day(text: str, today: date) -> date:
    """Return the last day on which an own price holds.

    Raises:
        UsageError: It is no day, is over, or is beyond the calendar of costgpu.
    """
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"--until {shortened(text)} is no day.", hint="Write 2027-03-31, the last day.") from None
    if not today <= day or day.year > LAST_YEAR:
        raise UsageError(f"--until {day} is over, or further away than any contract.", hint=f"Today is {today} by UTC.")
    return day


def _named(price: StoredPrice, listed: Sequence[Offer]) -> StoredPrice:
    """Return the price with the names of an offer that there is."""
    providers = {offer.provider for offer in listed}
    provider = price.provider.strip().lower()
    if provider not in providers:
        raise place_error(provider, dict.fromkeys(providers, ())) or UsageError(
            f"There is no provider {price.provider!r} with prices.",
            hint=f"costgpu knows {', '.join(sorted(providers))}.",
        )
    paid = [o for o in listed if o.provider == provider and o.purchase_option is price.purchase_option]
    types = {offer.instance_type.lower(): offer.instance_type for offer in paid}
    kind = types.get(price.instance_type.strip().lower())
    if kind is None:
        spot = "spot " * (price.purchase_option is PurchaseOption.SPOT)
        raise UsageError(
            f"No {spot}offer of {provider} is of the type {price.instance_type!r}.",
            hint=f"The nearest names are {', '.join(nearest(price.instance_type, types.values()))}.",
        )
    regions = {offer.region for offer in paid if offer.instance_type == kind}
    region = price.region and price.region.strip().lower().removeprefix(f"{provider}/")
    if region is not None and region not in regions:
        raise place_error(f"{provider}/{region}", {provider: regions}) or UsageError(
            f"There is no offer of {kind} in the region {price.region!r} of {provider}.",
            hint=f"The nearest names are {', '.join(nearest(region, regions))}.",
        )
    return replace(price, provider=provider, instance_type=kind, region=region)


def _change(change: Callable[[tuple[StoredPrice, ...]], tuple[StoredPrice, ...]]) -> None:
    """Replace the file in one step; two at once do not lose each other's price."""
    path = prices_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exclusive_lock(path.with_suffix(".lock")):
            rows = [dataclasses.asdict(price) for price in change(read_prices())]
            write_whole(path, [json.dumps(rows, indent=2, default=str).encode()], STORED)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}.", hint=STORED.write_hint) from error


def _damaged(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"The own prices in {path} cannot be read: {why}.",
        hint="Mend the file, or remove it and set the prices again: costgpu prices set.",
    )
