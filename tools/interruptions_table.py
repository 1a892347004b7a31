"""The interruptions of pricing/data, from what AWS publishes and what others measured: rows of text, checked, in one order.

AWS publishes the share of machines of a type that it interrupted in the trailing month, in steps, and not how long they
ran. As a rate per hour that they run, a share f is -ln(1 - f) / E with an exposure of E hours, which is assumed: a day; a
month for the low end of the interval, an hour for its high end. The open step ("more than 20 %") has no upper end: there
the rate is the geometric middle between 20 % a day and the rate that was measured on types in this step, and the high
end is that of the zone where most were taken back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from tools.checked_csv import Row, needed, read_rows

INTERRUPTIONS, TRACES = "interruptions.csv", "interruption_traces.csv"
INTERRUPTION_HEADER = "provider,region,instance_type,percent_a_month,source,as_of"
TRACE_HEADER = "provider,zone,instance_type,machines,hours,interruptions,measured,source,as_of"
PREAMBLE = (
    "How often a spot machine is taken back, for each hour that it runs, with its 80 % interval.",
    "Only the share a month is published (by AWS's Spot Instance Advisor): the rates are computed from it, by assumptions",
    "that tools/interruptions_table.py names. Rows for any region are for types that have no row of their own.",
)
HOUR, DAY, MONTH = 1.0, 24.0, 730.0  # exposure in hours
STEPS = {"<5": (0.0, 0.05), "5-10": (0.05, 0.10), "10-15": (0.10, 0.15), "15-20": (0.15, 0.20), ">20": (0.20, 1.0)}
OPEN, MIDDLE = ">20", "10-15"
LEAST_HOURS = 100.0  # of a zone's trace that is to be an upper end
# Of Google's machines without GPUs. Source: Google's documentation of preemptible instances, "between 5% and 15% per day per
# project", as quoted in kyma-project/test-infra issue #48 on 2019-01-25; today's documentation gives no figure.
GOOGLE_A_DAY = (0.05, 0.10, 0.15)
GOOGLE_SOURCE = "5-15 % a day (Google's documentation of 2019), and NSDI '24 traces"
GOOGLE_AS_OF = "2019-01-25"
ASSUMED_SOURCE = "taken as AWS's types of which {step} % are interrupted in a month"
TRACES_WORDS = " and NSDI '24 traces"

TableRow = tuple[str, ...]


class Rate(NamedTuple):
    """Interruptions per hour that a machine runs, with the 80 % interval."""

    low: float
    middle: float
    high: float

    def cells(self) -> tuple[str, str, str]:
        """Return the three with three digits."""
        return f"{self.low:.3g}", f"{self.middle:.3g}", f"{self.high:.3g}"


def interruption_rows(facts: Path, types: Collection[tuple[str, str, str]]) -> list[TableRow]:
    """Return the rows of interruptions.csv.

    Args:
        facts: Folder of the facts.
        types: (provider, region, instance type) of every spot offer.

    Raises:
        ConfigError: A figure is wrong, a type is listed twice or has no offer.
    """
    traces = list(read_rows(facts / TRACES, TRACE_HEADER.split(",")))
    rates = step_rates(traces)
    rows: dict[tuple[str, ...], TableRow] = {}
    newest = ""
    for fact in read_rows(facts / INTERRUPTIONS, INTERRUPTION_HEADER.split(",")):
        key = fact.text("provider"), fact.text("region"), fact.text("instance_type")
        if key in rows:
            raise fact.wrong("instance_type", f"{key[2]!r} is listed twice")
        if key not in types:
            raise fact.wrong("instance_type", f"there is no spot offer of {key[2]!r} in {key[1]}")
        step, as_of = fact.text("percent_a_month", among=tuple(STEPS)), fact.day("as_of").isoformat()
        source = fact.text("source") + (TRACES_WORDS if step == OPEN else "")
        rows[key] = (*key, step, *rates[step].cells(), "published", source, as_of)
        newest = max(newest, as_of)
    for kind, step in (("gpu", OPEN), ("cpu", MIDDLE)):
        source = ASSUMED_SOURCE.format(step=step.replace(">", "more than "))
        rows["any", "any", kind] = ("any", "any", kind, "", *rates[step].cells(), "assumed", source, newest)
    google = Rate(*(-math.log1p(-share) / DAY for share in GOOGLE_A_DAY))
    google = google._replace(high=max(google.high, measured(one for one in traces if one.cells["provider"] == "gcp")))
    rows["gcp", "any", "cpu"] = ("gcp", "any", "cpu", "", *google.cells(), "assumed", GOOGLE_SOURCE, GOOGLE_AS_OF)
    return sorted(rows.values())


def step_rates(traces: Collection[Row]) -> dict[str, Rate]:
    """Return the rate of each step of the advisor."""
    found = {
        step: Rate(_rate(low, MONTH), _rate((low + high) / 2, DAY), _rate(high, HOUR))
        for step, (low, high) in STEPS.items()
        if step != OPEN
    }
    seen = [one for one in traces if one.cells["provider"] == "aws"]
    long = [one for one in seen if (one.number("hours") or 0.0) >= LEAST_HOURS]
    share = STEPS[OPEN][0]
    middle = math.sqrt(_rate(share, DAY) * measured(seen))
    return {**found, OPEN: Rate(_rate(share, MONTH), middle, max(measured([one]) for one in long))}


def measured(traces: Iterable[Row]) -> float:
    """Interruptions per hour over all of these traces together."""
    hours = interruptions = 0.0
    for one in traces:
        hours += needed(one, "hours", one.number("hours"))
        interruptions += needed(one, "interruptions", one.whole("interruptions", least=0))
    return interruptions / hours if hours else 0.0


def _rate(share: float, hours: float) -> float:
    return -math.log1p(-share) / hours
