"""Make the files in pricing/data from a folder of collected facts.

    python -m costgpu.pricing.sources.facts --facts DIR --out pricing/data

Every row is checked; the same facts give the same bytes. Older snapshots of offers stay, and stay in the
manifest.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costgpu.errors import ConfigError
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.pricing import hardware, snapshot
from costgpu.pricing.sources import hardware_facts
from costgpu.pricing.sources.gpu_names import DERIVED_MARKS, PRICED_AS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from costgpu.pricing.sources.hardware_facts import Fact

PRICE_FILES = ("aws_prices.csv", "gcp_prices.csv")
PRICE_COLUMNS = (
    "provider,region,instance_type,arch,vcpus,memory_gib,gpu,gpu_count,gpu_memory_gib,"
    "usd_per_hour,usd_per_hour_spot,source,as_of"
)
MEMORY_TOLERANCE = 0.01  # price lists say 268 GiB for the B300, its data sheet 270


def build(facts: Path, out: Path) -> list[str]:
    """Write every data file; the names of the files written.

    Args:
        facts: Folder with aws_prices.csv, gcp_prices.csv, gpu_specs.csv and cpu_families.csv.
        out: Folder for the results; it must exist.

    Raises:
        ConfigError: A fact cannot be right.
    """
    prices = {name: read_facts(facts / name, PRICE_COLUMNS) for name in PRICE_FILES}
    boards = read_facts(facts / hardware_facts.GPU_SPECS, hardware_facts.GPU_SPEC_COLUMNS)
    families = read_facts(facts / hardware_facts.CPU_FAMILIES, hardware_facts.CPU_FAMILY_COLUMNS)
    dates = sorted(fact["as_of"] for rows in prices.values() for fact in rows)
    if not dates:
        raise ConfigError(f"There are no prices in {facts}.")

    # The hardware tables carry no dates of their own: they were current when the newest price was read.
    accelerators = hardware_facts.accelerator_rows(boards, as_of=dates[-1])
    cpus = hardware_facts.cpu_rows(families, as_of=dates[-1])
    measurements = hardware_facts.cpu_measurement_rows(families)
    memory = hardware_facts.memory_of(accelerators)
    offers = [
        offer for name, rows in prices.items() for fact in rows for offer in to_offers(fact, memory, name)
    ]
    _check_offers(offers, {(row[0], row[1]) for row in cpus})

    offers_file = f"offers-{dates[-1]}.csv"
    snapshot.write_offers(out / offers_file, offers)
    tables = {
        hardware.ACCELERATORS_FILE: (hardware.ACCELERATOR_COLUMNS, accelerators, ()),
        hardware.CPUS_FILE: (hardware.CPU_COLUMNS, cpus, ()),
        hardware.CPU_MEASUREMENTS_FILE: (
            hardware.CPU_MEASUREMENT_COLUMNS,
            measurements,
            hardware_facts.MEASUREMENTS_PREAMBLE,
        ),
    }
    for name, (columns, rows, preamble) in tables.items():
        snapshot.write_table(out / name, columns, rows, preamble=preamble)
    origin = {
        offers_file: PRICE_FILES,
        hardware.ACCELERATORS_FILE: (hardware_facts.GPU_SPECS,),
        hardware.CPUS_FILE: (hardware_facts.CPU_FAMILIES,),
        hardware.CPU_MEASUREMENTS_FILE: (hardware_facts.CPU_FAMILIES,),
    }
    _write_manifest(out, {name: _entry(out / name, facts, used) for name, used in origin.items()})
    return list(origin)


def read_facts(path: Path, header: str) -> list[Fact]:
    """The rows of a facts file as dictionaries of stripped text.

    Args:
        path: The file.
        header: Its first line, exactly.

    Raises:
        ConfigError: The file is missing or does not have exactly these columns.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = header.split(",")
            if list(reader.fieldnames or ()) != columns:
                odd = sorted(set(reader.fieldnames or ()) ^ set(columns)) or "their order"
                raise ConfigError(f"{path}: the columns are not those expected: {odd}.")
            rows = list(reader)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ConfigError(f"{path}:{number}: the row does not have {len(columns)} cells.")
    return [{column: text.strip() for column, text in row.items()} for row in rows]


def to_offers(fact: Fact, memory_gib: Mapping[str, float], file: str) -> list[Offer]:
    """The on-demand and the spot offer of one line of a price list, as far as it has their prices.

    Args:
        fact: The line.
        memory_gib: Memory of each accelerator, by canonical name.
        file: The price list's name, for messages.

    Raises:
        ConfigError: The line cannot be right.
    """
    where = f"{file}: {fact['instance_type']} in {fact['region']}"
    provider, instance_type = fact["provider"], fact["instance_type"]
    if provider not in _FAMILY or fact["arch"] not in {"x86_64", "arm64"} or not fact["region"]:
        raise ConfigError(f"{where}: unknown provider, architecture or region.")
    if not fact["source"]:
        raise ConfigError(f"{where}: the price has no source.")
    offers = []
    for option, column in _PRICE_COLUMN.items():
        if not fact[column]:
            continue
        offers.append(
            Offer(
                provider=provider,
                instance_type=instance_type,
                family=_FAMILY[provider].split(instance_type)[0],
                region=fact["region"],
                zone=None,
                purchase_option=option,
                price_usd_per_hour=_positive(fact, column, where),
                vcpus=int(_positive(fact, "vcpus", where)),
                memory_gib=float(_positive(fact, "memory_gib", where)),
                architecture=fact["arch"],
                accelerator=_accelerator(fact, memory_gib, where),
                price_source=source_of(fact["source"], option),
                price_as_of=_day(fact["as_of"], where),
            )
        )
    if not offers:
        raise ConfigError(f"{where}: there is no price.")
    return offers


def source_of(source: str, option: PurchaseOption) -> str:
    """The source of one of the two prices on a line, with ``derived`` in it if it was computed.

    A part that starts with ``spot`` tells of the spot price alone; the other parts of such a line tell of
    the on-demand price, unless the spot part says that it was estimated from that one.
    """
    parts = source.split("; ")
    spot_parts = [part for part in parts if part.startswith("spot ")]
    rest = [part for part in parts if part not in spot_parts]
    if option is PurchaseOption.SPOT and spot_parts:
        chosen = spot_parts if "spot estimated" not in spot_parts else [*rest, *spot_parts]
        text = "; ".join(chosen).removeprefix("spot ")
    else:
        text = "; ".join(rest)
    if "derived" not in text and any(mark in text for mark in DERIVED_MARKS):
        text = f"derived: {text}"
    return text


_FAMILY = {"aws": re.compile(r"\."), "gcp": re.compile(r"-")}
_PRICE_COLUMN = {PurchaseOption.ON_DEMAND: "usd_per_hour", PurchaseOption.SPOT: "usd_per_hour_spot"}


def _accelerator(fact: Fact, memory_gib: Mapping[str, float], where: str) -> Accelerator | None:
    if not fact["gpu"]:
        if fact["gpu_count"] not in {"", "0"}:
            raise ConfigError(f"{where}: {fact['gpu_count']} accelerators without a name.")
        return None
    if fact["gpu"] not in PRICED_AS:
        raise ConfigError(f"{where}: the accelerator {fact['gpu']!r} is not in sources/boards.py.")
    name, share = PRICED_AS[fact["gpu"]]
    count = float(_positive(fact, "gpu_count", where)) * share
    listed = float(_positive(fact, "gpu_memory_gib", where))
    # AWS lists a slice as a part of one accelerator with its whole memory, Google as one with the slice's.
    memory = listed * count if count < 1 and share == 1 else listed
    if abs(memory / (memory_gib[name] * min(count, 1.0)) - 1) > MEMORY_TOLERANCE:
        raise ConfigError(
            f"{where}: {name}:{count:g} with {memory:g} GiB each is not {memory_gib[name]:g} GiB."
        )
    return Accelerator(name=name, count=count, memory_gib=memory)


def _positive(fact: Fact, column: str, where: str) -> Decimal:
    try:
        value = Decimal(fact[column])
    except InvalidOperation:
        value = Decimal(0)
    if not value.is_finite() or value <= 0:
        raise ConfigError(f"{where}: {column} is {fact[column]!r}, not a number above zero.")
    return value


def _day(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{where}: as_of is {text!r}, not a date.") from error


def _check_offers(offers: Sequence[Offer], families: set[tuple[str, str]]) -> None:
    seen = set()
    for offer in offers:
        key = offer.provider, offer.region, offer.instance_type, offer.purchase_option
        if key in seen:
            raise ConfigError(
                f"{offer.instance_type} in {offer.region} has two prices ({offer.purchase_option})."
            )
        seen.add(key)
        if (offer.provider, offer.family) not in families:
            raise ConfigError(f"{offer.instance_type}: no CPU is known for the family {offer.family!r}.")


def _entry(path: Path, facts: Path, used: Sequence[str]) -> dict[str, Any]:
    dates = [row[0] for row in snapshot.read_table(path, ("as_of", "source"))]
    return {
        "sha256": snapshot.sha256(path),
        "rows": len(dates),
        "facts": {name: snapshot.sha256(facts / name) for name in used},
        "oldest_as_of": min(dates),
        "newest_as_of": max(dates),
    }


def _write_manifest(out: Path, entries: Mapping[str, Any]) -> None:
    earlier = snapshot.read_manifest(out) if (out / snapshot.MANIFEST).exists() else {}
    kept = {name: entry for name, entry in earlier.items() if (out / name).exists()}
    document = {
        "schema": snapshot.MANIFEST_SCHEMA,
        "version": snapshot.MANIFEST_VERSION,
        "files": {**kept, **entries},
    }
    text = json.dumps(document, indent=2, sort_keys=True)
    (out / snapshot.MANIFEST).write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Make the files in pricing/data from collected facts.")
    parser.add_argument("--facts", type=Path, required=True, help="folder of the collected facts")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    arguments = parser.parse_args()
    for name in build(arguments.facts, arguments.out):
        sys.stdout.write(f"{arguments.out / name}\n")


if __name__ == "__main__":
    main()
