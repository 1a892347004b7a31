"""Closed runs in the columns of FOCUS, the FinOps Open Cost and Usage Specification, version 1.2 (May 2025).

Source: focus.finops.org/focus-specification/v1-2 and the specification's public repository, read 2026-11-21. All its
mandatory columns are there, and the conditional ones of which the ledger knows something; columns of our own begin with
``x_``, as it asks for. One row is one run in one billing month (of UTC): a charge period never crosses a billing period.
The rows of a run add up exactly to its recorded cost.

What the ledger knows is what was metered. So BilledCost, EffectiveCost, ContractedCost and ListCost are all the metered
cost, machine, disk and address together, and the unit prices are what that makes an hour. Machine types stand for SKUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from costgpu.ledger.costs.closed_runs import ClosedRun
from costgpu.ledger.costs.export import lines
from costgpu.ledger.costs.periods import Calendar, Every, PeriodPart
from costgpu.ledger.schema import from_microseconds, from_nano, to_microseconds, to_nano
from costgpu.version import __version__

VERSION = "1.2"
SECOND_US = 1_000_000
HOUR = Decimal(3600)
QUANTITY, PRICE = Decimal("1e-9"), Decimal("1e-12")
UNKNOWN = "unknown"  # in the columns that may not be empty

Names = Mapping[str, tuple[str, str]]
"""Provider -> its publisher and the name of its service."""

# In the order of the specification: by name, our own at the end.
_NAMES = """
AvailabilityZone BilledCost BillingAccountId BillingAccountName BillingAccountType BillingCurrency BillingPeriodEnd
BillingPeriodStart ChargeCategory ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart
ConsumedQuantity ConsumedUnit ContractedCost ContractedUnitPrice EffectiveCost InvoiceId InvoiceIssuerName ListCost
ListUnitPrice PricingCategory PricingQuantity PricingUnit ProviderName PublisherName RegionId RegionName ResourceId
ResourceName ResourceType ServiceCategory ServiceName ServiceSubcategory SkuId SkuMeter SkuPriceDetails SkuPriceId
SubAccountId SubAccountName SubAccountType Tags x_EndReason x_FocusVersion x_Owner x_RunId
"""
COLUMNS = tuple(_NAMES.split())
# The specification's data types, by how the names of their columns end; all others are texts.
TYPES: Mapping[tuple[str, ...], dict[str, Any]] = {
    ("Cost", "Price", "Quantity"): {"DataType": "Decimal", "NumericPrecision": 28},
    ("PeriodStart", "PeriodEnd"): {"DataType": "Date/Time"},
    ("Tags", "Details"): {"DataType": "JSON"},
}


def as_focus(
    runs: Iterable[ClosedRun],
    names: Names,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[str]:
    """Return a FOCUS dataset as CSV: a header, then a line a run and billing month. What is null is an empty cell.

    Runs without a machine, or whose end was never recorded, have no charge and no line.

    Args:
        names: Provider -> its publisher and the name of its service; others go by their own name.
        since: Only what was charged from then on, to the second; None for the beginning.
        until: Only what was charged before then; None for no end.
    """
    months = Calendar(Every.MONTHLY, "UTC", since, until)
    return lines([COLUMNS], ([row[name] for name in COLUMNS] for run in runs for row in rows_of(run, names, months)))


def metadata(at: datetime) -> dict[str, Any]:
    """Return the metadata that the specification wants beside a dataset: version, generator, columns."""
    return {
        "DataGenerator": {"DataGenerator": "costgpu"},
        "Schema": [
            {
                "SchemaId": f"costgpu-{__version__}-focus-{VERSION}",
                "FocusVersion": VERSION,
                "CreationDate": _time(at),
                "DataGeneratorVersion": __version__,
                "ColumnDefinition": [{"ColumnName": name, **data_type(name)} for name in COLUMNS],
            }
        ],
    }


def data_type(column: str) -> dict[str, Any]:
    """Return the data type of a column, as the metadata writes it."""
    return next((kind for ends, kind in TYPES.items() if column.endswith(ends)), {"DataType": "String"})


def rows_of(run: ClosedRun, names: Names, months: Calendar) -> Iterator[dict[str, Any]]:
    """Yield the charges of one run, month by month: column -> value, None where nothing is known."""
    if run.started_at is None or run.ended_at is None or run.metered_cost_usd is None:
        return
    cost = to_nano(run.metered_cost_usd) or 0
    for part in months.split(cost, to_microseconds(run.started_at), to_microseconds(run.ended_at)):
        yield _row(run, names, part)


def _row(run: ClosedRun, names: Names, part: PeriodPart) -> dict[str, Any]:
    cost, seconds = from_nano(part.amount), Decimal(part.ended - part.began) / SECOND_US
    itself = run.provider or UNKNOWN
    publisher, service = names.get(run.provider, (itself, itself))
    hours = (max(seconds, Decimal(1)) / HOUR).quantize(QUANTITY, ROUND_HALF_EVEN)
    price = (cost / hours).quantize(PRICE, ROUND_HALF_EVEN)
    start = part.began // SECOND_US  # whole seconds, as the specification writes times
    end = max(-(-part.ended // SECOND_US), start + 1)
    spot = run.purchase_option == "spot"
    sku = f"{run.provider}:{run.instance_type}"
    gpu = {"GpuCount": run.accelerator_count, "x_GpuModel": run.accelerator} if run.accelerator else {}
    way = "spot" if spot else "on demand"
    known = {
        "AvailabilityZone": run.zone or None,
        "BilledCost": cost,
        "BillingAccountId": run.account or UNKNOWN,
        "BillingCurrency": "USD",
        "BillingPeriodEnd": _time(from_microseconds(part.end)),
        "BillingPeriodStart": _time(from_microseconds(part.start)),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"Run {run.run_id} ({run.name}) on {run.instance_type}, {way}, as metered",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _time(datetime.fromtimestamp(end, UTC)),
        "ChargePeriodStart": _time(datetime.fromtimestamp(start, UTC)),
        "ConsumedQuantity": hours,
        "ConsumedUnit": "Hours",
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "InvoiceIssuerName": publisher,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCategory": "Dynamic" if spot else "Standard",
        "PricingQuantity": hours,
        "PricingUnit": "Hours",
        "ProviderName": publisher,
        "PublisherName": publisher,
        "RegionId": run.region or None,
        "RegionName": run.region or None,
        "ResourceId": run.instance_id or None,
        "ResourceName": (run.name or None) if run.instance_id else None,
        "ResourceType": "Virtual Machine" if run.instance_id else None,
        "ServiceCategory": "Compute",
        "ServiceName": service,
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": sku,
        "SkuMeter": "Compute Usage",
        "SkuPriceDetails": {"InstanceType": run.instance_type, **gpu},
        "SkuPriceId": f"{sku}:{run.region}:{run.purchase_option}",
        "SubAccountId": run.account or None,
        "Tags": dict(run.tags) or None,
        "x_EndReason": run.reason or None,
        "x_FocusVersion": VERSION,
        "x_Owner": run.owner or None,
        "x_RunId": run.run_id,
    }
    return dict.fromkeys(COLUMNS) | known


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
