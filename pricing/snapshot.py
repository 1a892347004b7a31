"""The file format of prices: reading, writing and checking the dated snapshots in `data`.

The columns are listed here, so that a change of `Offer` cannot change the files unnoticed. This room is read
at the start of every command: with the csv module, without a validation library.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from costgpu.errors import ConfigError, PriceNotFound
from costgpu.models.offer import Accelerator, Grade, Offer, PurchaseOption
from costgpu.models.price_update import read_price

T = TypeVar("T")
DATA = Path(__file__).parent / "data"
MOST = 1e6  # vCPUs, GiB, accelerators of one machine
NOT_SOLD_FILE = "not_sold.csv"
"""List prices at which nobody can start a machine, in the columns of offers: the most that a spot machine of it costs."""


def columns(names: str) -> tuple[str, ...]:
    """Return the columns of a file, in its order."""
    return tuple(names.split())


OFFER_COLUMNS = columns(
    """
    provider region zone instance_type family purchase_option price_usd_per_hour vcpus memory_gib architecture
    accelerator accelerator_count accelerator_memory_gib source as_of
    """
)


def format_number(value: float) -> str:
    """Return the shortest text of a quantity: ``16``, ``30.5``, ``0.125``."""
    return str(int(value)) if value == int(value) else repr(value)


def table_text(columns: Sequence[str], rows: Iterable[Sequence[str]], *, preamble: Sequence[str] = ()) -> str:
    """Return a CSV file with Unix line ends, each preamble line as a comment."""
    text = io.StringIO()
    text.writelines(f"# {line}".rstrip() + "\n" for line in preamble)
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a CSV file with the cells in the order of `columns`; other columns are ignored.

    Raises:
        ConfigError: The file is missing, lacks a column, or a row has too few cells.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = (line for line in stream if line[0] != "#")
            header = next(csv.reader(lines), [])
            missing = [column for column in columns if column not in header]
            if missing:
                raise ConfigError(f"{path} lacks the column {', '.join(missing)}.", hint=_REINSTALL)
            pick = itemgetter(*(header.index(column) for column in columns))
            yield from map(pick, csv.reader(lines))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint=_REINSTALL) from error
    except IndexError as error:
        raise ConfigError(f"{path} is cut short.", hint=_REINSTALL) from error


def read_records(
    path: Path, kind: type[T], more: Callable[[dict[str, str]], Mapping[str, str]] = lambda _: {}
) -> Iterator[tuple[dict[str, str], T]]:
    """Yield the rows of a table: its texts by column, and the value of `kind` that they make, each field by its type.

    Args:
        more: Texts of fields that are not columns, or not filled in.

    Raises:
        ConfigError: The file is missing or damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for cells in csv.DictReader(line for line in stream if line[0] != "#"):
                every = {**cells, **more(cells)}
                value = kind(**{field.name: _CONVERTED[str(field.type)](every[field.name]) for field in fields(kind)})  # type: ignore[arg-type]
                yield cells, value
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint=_REINSTALL) from error
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged: {error}.", hint=_REINSTALL) from error


def _optional(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: convert(text) if text else None


_CONVERTED: Mapping[str, Callable[[str], Any]] = {
    "str": str.strip,
    "int": int,
    "float": float,
    "bool": lambda text: text == "yes",
    "date": date.fromisoformat,
    "Grade": Grade,
    "int | None": _optional(int),
    "float | None": _optional(float),
    "tuple[int, int] | None": _optional(lambda text: tuple(map(int, text.split(".")))),
}


def offers_text(offers: Iterable[Offer]) -> str:
    """Return the file of offers in their one order (provider, region, zone, type, option)."""
    return table_text(OFFER_COLUMNS, sorted(map(_to_row, offers)))


def read_offers(path: Path) -> list[Offer]:
    """Return the offers of a snapshot.

    Raises:
        ConfigError: The file is missing or damaged.
        PriceNotFound: A row has no price, or one that is not above zero.
    """
    options = {option.value: option for option in PurchaseOption}
    offers = []
    for row in read_table(path, OFFER_COLUMNS):
        (provider, region, zone, instance_type, family, option, price, vcpus, memory, architecture) = row[:10]
        name, count, gpu_memory = row[10:13]
        try:
            accelerator = (
                Accelerator(name=name, count=_positive(count), memory_gib=_positive(gpu_memory)) if name else None
            )
            offers.append(
                Offer(
                    provider=provider,
                    instance_type=instance_type,
                    family=family,
                    region=region,
                    zone=zone or None,
                    purchase_option=options[option],
                    price_usd_per_hour=_price(price, row, path),
                    vcpus=int(_positive(vcpus)),
                    memory_gib=_positive(memory),
                    architecture=architecture,
                    accelerator=accelerator,
                    price_source=row[13],
                    price_as_of=date.fromisoformat(row[14]),
                )
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{path}: the row {','.join(row)!r} is damaged.", hint=_REINSTALL) from error
    return offers


def newest(data: Path = DATA) -> Path:
    """Return the snapshot of offers with the latest date in its name.

    Raises:
        ConfigError: There is none.
    """
    paths = sorted(data.glob("offers-*.csv"))
    if not paths:
        raise ConfigError(f"There is no price snapshot in {data}.", hint=_REINSTALL)
    return paths[-1]


_REINSTALL = (
    "Reinstall costgpu, or write the files again with `python -m tools.build_data` in a checkout of its source."
)


def _to_row(offer: Offer) -> tuple[str, ...]:
    accelerator = offer.accelerator
    return (
        offer.provider,
        offer.region,
        offer.zone or "",
        offer.instance_type,
        offer.family,
        offer.purchase_option.value,
        format(offer.price_usd_per_hour, "f"),
        str(offer.vcpus),
        format_number(offer.memory_gib),
        offer.architecture,
        accelerator.name if accelerator else "",
        format_number(accelerator.count) if accelerator else "",
        format_number(accelerator.memory_gib) if accelerator else "",
        offer.price_source,
        offer.price_as_of.isoformat(),
    )


def _price(text: str, row: Sequence[str], path: Path) -> Decimal:
    price = read_price(text)
    if price is None:
        raise PriceNotFound(
            f"{path.name} has no price for {row[3]} in {row[0]}/{row[1]} ({row[5]}): {text!r}.",
            hint=_REINSTALL,
        )
    return price


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= MOST:
        raise ValueError(f"{text} is out of range")
    return value
