"""The report's part about estimates. Result -> str."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.render.html import elements
from costgpu.render.html.spending_summary import Pair, Summary
from costgpu.render.html.svg import MOST_POINTS, Dot, said_and_done
from costgpu.units import format_duration

LISTED_RUNS = 40  # up to which every estimate is listed


def estimates_html(summary: Summary) -> str:
    """How good they were."""
    exact, pairs = summary.accuracy, summary.pairs
    if exact.median_error is None or not pairs:
        return elements.section(
            "Estimate against actual",
            "No run in this period had an estimate and succeeded on the machine it was for.",
            "",
        )
    held = (
        f" The interval held in {elements.share(exact.held)} of them; 80 % is what it promises."
        if exact.held is not None
        else ""
    )
    runs = elements.count(exact.runs, "run")
    said = f"Half of {runs} took within {elements.share(exact.median_error)} of what was said.{held}"
    dots = [_dot(pair) for pair in pairs]
    picture = elements.both(
        lambda width, height: said_and_done(
            width,
            height,
            dots,
            name="Estimated and actual time of runs",
            text=f"{said} The table below has the numbers.",
        ),
        wide=470,
        narrow=330,
        width=620,
    )
    legend = elements.legend(
        [("gpu round", "GPU run"), ("cpu", "CPU run"), ("dots", "as estimated; above it took longer")]
        + ([("bar", "interval of the estimate")] if len(dots) <= MOST_POINTS else [])
    )
    table = _runs_table(pairs) if len(pairs) <= LISTED_RUNS else _lengths_table(pairs)
    text = f"{said} From the create call to the confirmed end, of runs that succeeded."
    return elements.section(
        "Estimate against actual", text, f"<figure>{picture}{legend}</figure>{elements.folded('Numbers', table)}"
    )


def _runs_table(pairs: Sequence[Pair]) -> str:
    rows = []
    for pair in pairs:
        interval = "–"
        if pair.low is not None and pair.high is not None:
            interval = f"{format_duration(pair.low)} – {format_duration(pair.high)}"
        inside = {True: "yes", False: "no", None: "–"}[pair.inside]
        name = f"{elements.text(pair.name)} <span class='soft'>{elements.text(pair.run_id)}</span>"
        took = format_duration(pair.actual)
        rows.append([name, elements.text(pair.machine), format_duration(pair.estimated), interval, took, inside])
    return elements.table(
        ["Run", "Machine", "Estimated", "Interval", "Actual", "Held"], rows, "Runs with an estimate", text=(1,)
    )


def _lengths_table(pairs: Sequence[Pair]) -> str:
    edges = (0, 60, 600, 3600, 6 * 3600, 86400, float("inf"))
    names = ("under 1 min", "1 to 10 min", "10 min to 1 h", "1 to 6 h", "6 h to 1 day", "over 1 day")
    rows = []
    for low, high, name in zip(edges, edges[1:], names, strict=False):
        group = sorted(pair.actual / pair.estimated for pair in pairs if low <= pair.estimated < high)
        if group:
            known = [pair.inside for pair in pairs if low <= pair.estimated < high and pair.inside is not None]
            held = elements.share(sum(known) / len(known)) if known else "–"
            tenth, ninth = group[len(group) // 10], group[-1 - len(group) // 10]
            rows.append([name, f"{len(group):,}", f"{group[len(group) // 2]:.2f}", f"{tenth:.2f} – {ninth:.2f}", held])
    head = ["Estimated", "Runs", "Median of actual / estimated", "8 of 10 between", "Interval held"]
    return elements.table(head, rows, f"{elements.count(len(pairs), 'run')} by the length that was estimated")


def _dot(pair: Pair) -> Dot:
    said = f"{elements.plain(pair.name)} on {elements.plain(pair.machine)}: estimated {format_duration(pair.estimated)}"
    title = f"{said}, took {format_duration(pair.actual)}"
    return Dot(pair.estimated, pair.actual, pair.low, pair.high, "gpu" if pair.gpu else "cpu", title)
