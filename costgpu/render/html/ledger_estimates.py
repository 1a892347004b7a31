"""The report's part about how good the estimates were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from costgpu.render.html.ledger_charts import MOST_POINTS, EstimatePoint, estimate_against_actual
from costgpu.render.html.page import Table, name, responsive, share
from costgpu.render.html.spending_summary import Pair, Summary
from costgpu.render.phrases import counted, visible
from costgpu.units import format_duration

LISTED_RUNS = 40  # up to which every estimate is listed
LENGTHS = {
    "under 1 min": 60,
    "1 to 10 min": 600,
    "10 min to 1 h": 3600,
    "1 to 6 h": 6 * 3600,
    "6 h to 1 day": 86400,
    "over 1 day": float("inf"),
}  # groups of runs by their longest estimate in seconds


@dataclass(frozen=True, slots=True)
class EstimatesSection:
    """How good the estimates were, in words, in a picture with its legend, and in numbers."""

    description: str
    picture: Markup
    legend: Sequence[tuple[str, str]]
    table: Table


def estimates_section(summary: Summary) -> EstimatesSection | None:
    """None without a run that had an estimate and succeeded."""
    accuracy, pairs = summary.accuracy, summary.pairs
    if accuracy.median_error is None or not pairs:
        return None
    description = (
        f"Half of {counted(accuracy.runs, 'run')} took within {share(accuracy.median_error)} of what was said."
    )
    if accuracy.held is not None:
        description += f" The interval held in {share(accuracy.held)} of them; 80 % is what it promises."
    points = [_point(pair) for pair in pairs]
    picture = responsive(
        lambda width, height: estimate_against_actual(
            width,
            height,
            points,
            name="Estimated and actual time of runs",
            description=f"{description} The table below has the numbers.",
        ),
        wide=470,
        narrow=330,
        width=620,
    )
    legend = [("gpu round", "GPU run"), ("cpu", "CPU run"), ("dots", "as estimated; above it took longer")]
    legend += [("bar", "interval of the estimate")] if len(points) <= MOST_POINTS else []
    table = _runs_table(pairs) if len(pairs) <= LISTED_RUNS else _lengths_table(pairs)
    return EstimatesSection(description, picture, legend, table)


def _runs_table(pairs: Sequence[Pair]) -> Table:
    rows = []
    for pair in pairs:
        interval = "–"
        if pair.low is not None and pair.high is not None:
            interval = f"{format_duration(pair.low)} – {format_duration(pair.high)}"
        rows.append(
            [
                Markup('{} <span class="soft">{}</span>').format(name(pair.name), name(pair.run_id)),
                name(pair.machine),
                format_duration(pair.estimated),
                interval,
                format_duration(pair.actual),
                {True: "yes", False: "no", None: "–"}[pair.inside],
            ]
        )
    head = ["Run", "Machine", "Estimated", "Interval", "Actual", "Held"]
    return Table("Runs with an estimate", head, rows, text=(1,))


def _lengths_table(pairs: Sequence[Pair]) -> Table:
    rows, low = [], 0.0
    for length, high in LENGTHS.items():
        group = [pair for pair in pairs if low <= pair.estimated < high]
        low = high
        if not group:
            continue
        ratios = sorted(pair.actual / pair.estimated for pair in group)
        known = [pair.inside for pair in group if pair.inside is not None]
        tenth, ninth = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        held = share(sum(known) / len(known)) if known else "–"
        middle = ratios[len(ratios) // 2]
        rows.append([length, f"{len(ratios):,}", f"{middle:.2f}", f"{tenth:.2f} – {ninth:.2f}", held])
    head = ["Estimated", "Runs", "Median of actual / estimated", "8 of 10 between", "Interval held"]
    return Table(f"{counted(len(pairs), 'run')} by the length that was estimated", head, rows)


def _point(pair: Pair) -> EstimatePoint:
    estimated, actual = format_duration(pair.estimated), format_duration(pair.actual)
    title = f"{visible(pair.name)} on {visible(pair.machine)}: estimated {estimated}, took {actual}"
    style = "gpu" if pair.gpu else "cpu"
    return EstimatePoint(pair.estimated, pair.actual, pair.low, pair.high, style, title)
