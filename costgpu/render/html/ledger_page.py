"""The ledger as one HTML page that needs nothing else: no script, no font, no request. Result -> str; no I/O.

Every text that a user or a provider has chosen goes through `pieces.text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from html import escape
from importlib.resources import files
from zoneinfo import ZoneInfo

from costgpu.render.cost_outcome import FATES, WASTED, Fate
from costgpu.render.html import elements
from costgpu.render.html.ledger_budgets import budgets_html
from costgpu.render.html.ledger_estimates import estimates_html
from costgpu.render.html.spending_summary import Summary, Tally
from costgpu.render.html.svg import MONTHS, Series, stacked_bars
from costgpu.units import format_duration, format_usd

BY_DAY, BY_WEEK = 120, 800  # days of a report up to which it goes by day, and by week
PREPOSITIONS = {"day": "on", "week": "in the", "month": "in"}
MOST_OPEN = 40  # runs that are listed
MOST_ROWS = 10  # of a list of names; the rest is summed up
STYLES = {
    Fate.SUCCEEDED: "fine",
    Fate.OVERHEAD: "mid",
    Fate.CANCELLED: "mid",
    Fate.LIMITED: "mid",
    Fate.OPEN: "gpu",
    Fate.OTHER: "mid",
}
CSP = "default-src 'none'; style-src 'unsafe-inline'"


def report_html(summary: Summary, *, place: str, version: str, all_time: Decimal) -> str:
    """The page.

    Args:
        summary: What it says.
        place: Of the ledger; without a password.
        version: Of costgpu.
        all_time: What all closed runs of the ledger have cost, the period aside.
    """
    style = files("costgpu.render.html").joinpath("ledger_page.css").read_text(encoding="utf-8")
    zone = ZoneInfo(summary.zone)
    first, last = summary.since.astimezone(zone), (summary.until - timedelta(microseconds=1)).astimezone(zone)
    period = f"{elements.day(first.date())} to {elements.day(last.date())}"
    basis = "All costs are <strong>metered, not billed</strong>: price × seconds as costgpu saw them."
    where = f"{period}, days of {elements.text(summary.zone)}"
    parts = [f"<header><h1>What the training runs have cost</h1><p class='soft'>{where}. {basis}</p></header>"]
    if summary.total.runs:
        parts += [_tiles(summary), _by_day(summary)]
        parts += [budgets_html(summary)] if summary.budgets else []
        parts += [_open(summary, zone)] if summary.open_runs else []
        parts += [_providers(summary), _accelerators(summary), _fates(summary), estimates_html(summary)]
        parts += [_names("By job", "Job", summary.jobs, summary.total.usd)]
        parts += [_names("By person", "Person", summary.people, summary.total.usd)] if len(summary.people) > 1 else []
    else:
        where = (
            f" {format_usd(all_time)} was spent at other times: choose with --since and --until." if all_time else ""
        )
        hint = where or " <code>costgpu run</code> launches the first run, and its cost will be here."
        parts.append(f"<section><h2>No runs in this period</h2><p>The ledger has none.{hint}</p></section>")
        parts += [budgets_html(summary)] if summary.budgets else []
    parts.append(_footer(summary, place, version, all_time, zone))
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>costgpu: {period}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _tiles(summary: Summary) -> str:
    total = summary.total
    gpu = sum(summary.gpu_usd, Decimal(0))
    wasted = summary.wasted
    running = len(summary.open_runs)
    good = summary.fates.get(Fate.SUCCEEDED, Tally()).runs
    exact = summary.accuracy
    tiles = [
        ("Spent", format_usd(total.usd), f"{elements.hours(total.seconds)} of machines"),
        ("Runs", f"{total.runs:,}", f"{good:,} succeeded" + (f", {running} running" if running else "")),
        ("Of it on GPUs", elements.percent(gpu, total.usd), f"{format_usd(gpu)}; CPU {format_usd(total.usd - gpu)}"),
        (
            "Wasted",
            format_usd(wasted.usd),
            f"{elements.percent(wasted.usd, total.usd)} of it, in {elements.count(wasted.runs, 'run')}",
        ),
    ]
    if exact.median_error is not None:
        held = "" if exact.held is None else f"interval held in {elements.share(exact.held)}"
        tiles.append(
            (
                "Estimates off by",
                elements.share(exact.median_error),
                held or f"median of {elements.count(exact.runs, 'run')}",
            )
        )
    if running:
        so_far = sum((view.metered_at_most(summary.now)[1] for view in summary.open_runs), Decimal(0))
        tiles.append(("Running now", format_usd(so_far), f"so far; at most {format_usd(_cap(summary))}"))
    cells = "".join(f'<div class="tile"><dt>{n}</dt><dd>{v}</dd><dd>{d}</dd></div>' for n, v, d in tiles)
    return f'<dl class="tiles">{cells}</dl>'


def _by_day(summary: Summary) -> str:
    step, buckets = _buckets(summary.days)
    gpu = [sum(summary.gpu_usd[a:b], Decimal(0)) for a, b in buckets]
    cpu = [sum(summary.cpu_usd[a:b], Decimal(0)) for a, b in buckets]
    days = [summary.days[a] for a, _ in buckets]
    titles = [
        f"{_bucket_name(day, step)}: {format_usd(g + c)} (GPU {format_usd(g)}, CPU {format_usd(c)})"
        for day, g, c in zip(days, gpu, cpu, strict=True)
    ]
    most = max(range(len(days)), key=lambda i: gpu[i] + cpu[i])
    top = f"{format_usd(gpu[most] + cpu[most])}, {PREPOSITIONS[step]} {_bucket_name(days[most], step)}"
    said = f"{format_usd(summary.total.usd)} in all; the most, {top}"
    series = [Series("gpu", [float(v) for v in gpu]), Series("cpu", [float(v) for v in cpu])]
    picture = elements.both(
        lambda width, height: stacked_bars(
            width,
            height,
            days,
            series,
            titles,
            name=f"Spent by {step}",
            text=f"{said}. The table below has the numbers.",
        )
    )
    rows = [
        [_bucket_name(day, step), format_usd(g), format_usd(c), format_usd(g + c)]
        for day, g, c in zip(days, gpu, cpu, strict=True)
        if g or c
    ]
    foot = ["All", *(format_usd(v) for v in (sum(gpu, Decimal(0)), sum(cpu, Decimal(0)), summary.total.usd))]
    table = elements.table(
        ["", "GPU", "CPU", "Together"], rows, f"Spent by {step}; those without cost are left out", foot
    )
    legend = elements.legend([("gpu", "on GPU machines"), ("cpu", "on CPU machines")])
    return elements.section(
        f"Spent by {step}", f"{said}.", f"<figure>{picture}{legend}</figure>{elements.folded('Numbers', table)}"
    )


def _open(summary: Summary, zone: ZoneInfo) -> str:
    rows = []
    for view in sorted(summary.open_runs, key=lambda v: -v.metered_at_most(summary.now)[1])[:MOST_OPEN]:
        seconds, usd = view.metered_at_most(summary.now)
        offer = view.option.offer if view.option else None
        cap = format_usd(view.option.lease.worst_cost_usd) if view.option else "–"
        until = elements.minute(view.lease_until, zone) if view.lease_until else "–"
        rows.append(
            [
                (
                    f"{elements.text(view.name)}<br>"
                    f"<span class='soft'>{elements.text(view.run_id)}, {elements.text(view.owner)}</span>"
                ),
                elements.text(f"{offer.provider} {offer.instance_type}" if offer else "–"),
                format_duration(seconds),
                format_usd(usd),
                cap,
                until,
            ]
        )
    head = ["Job", "Machine", "For", "So far", "At most", "Gone by"]
    more = len(summary.open_runs) - len(rows)
    note = f" {elements.count(more, 'cheaper run')} not listed." if more > 0 else ""
    return elements.section(
        "Running now",
        f"What has begun and not ended, metered until {elements.minute(summary.now, zone)}.{note}",
        elements.table(head, rows, "Open runs", text=(1,)),
    )


def _providers(summary: Summary) -> str:
    found: dict[str, dict[str, Tally]] = {}
    for (provider, purchase), tally in summary.providers.items():
        found.setdefault(provider or "no machine", {})[purchase] = tally
    sums = {name: _sum(kinds.values()) for name, kinds in found.items()}
    most = max((t.usd for t in sums.values()), default=Decimal(0))
    rows = []
    for name in sorted(found, key=lambda n: (-sums[n].usd, n)):
        tally, spot = sums[name], found[name].get("spot", Tally())
        bar = [("one", elements.part(tally.usd - spot.usd, most)), ("two", elements.part(spot.usd, most))]
        name = "this machine" if name == "local" else name
        cells = [format_usd(tally.usd), format_usd(spot.usd), elements.hours(tally.seconds), f"{tally.runs:,}"]
        rows.append((elements.text(name), bar, cells))
    table = elements.bars("Provider", ["Cost", "Of it spot", "Machine time", "Runs"], rows)
    return elements.section("By provider", "", table + elements.legend([("one", "on demand"), ("two", "spot")]))


def _accelerators(summary: Summary) -> str:
    rows = []
    kinds = sorted(summary.accelerators.items(), key=lambda item: (-item[1].usd, item[0]))
    most = max((t.usd for _, t in kinds), default=Decimal(0))
    shown, rest = kinds[:MOST_ROWS], kinds[MOST_ROWS:]
    for name, tally in [*shown, *([("others", _sum(t for _, t in rest))] if rest else [])]:
        hours = tally.seconds / 3600
        rate = f"{format_usd(tally.usd / Decimal(hours))}/h" if hours and tally.usd else "–"
        style = "gpu" if name else "cpu"
        cells = [format_usd(tally.usd), elements.hours(tally.seconds), rate, f"{tally.runs:,}"]
        rows.append((elements.text(name or "CPU only"), [(style, elements.part(tally.usd, most))], cells))
    table = elements.bars("Accelerator", ["Cost", "Machine time", "On average", "Runs"], rows)
    return elements.section("GPU against CPU", "", table + elements.legend([("gpu", "GPU"), ("cpu", "CPU")]))


def _fates(summary: Summary) -> str:
    order = [fate for fate in Fate if fate in summary.fates]
    most = max((summary.fates[fate].usd for fate in order), default=Decimal(0))
    rows = []
    for fate in order:
        tally = summary.fates[fate]
        style = "bad" if fate in WASTED else STYLES[fate]
        cells = [format_usd(tally.usd), elements.percent(tally.usd, summary.total.usd), elements.hours(tally.seconds)]
        cells.append(f"{tally.runs:,}" if tally.runs else "–")
        rows.append((escape(fate.value), [(style, elements.part(tally.usd, most))], cells))
    wasted = summary.wasted
    said = (
        f"{format_usd(wasted.usd)}, {elements.percent(wasted.usd, summary.total.usd)}, went to runs that failed, sat idle, "
        "lost their machine, or never started their job."
        if wasted.runs
        else "No run failed, sat idle or lost its machine."
    )
    table = elements.bars("Run", ["Cost", "Share", "Machine time", "Runs"], rows)
    legend = elements.legend([("fine", "did its work"), ("mid", "neither"), ("bad", "wasted")])
    return elements.section("Wasted", said, table + legend + elements.folded("What counts as what", _mapping()))


def _mapping() -> str:
    ends: dict[Fate, list[str]] = {}
    for reason, fate in FATES.items():
        ends.setdefault(fate, []).append(reason.value.replace("_", " "))
    rows = [
        [escape(fate.value), "wasted" if fate in WASTED else "not wasted", ", ".join(names)]
        for fate, names in ends.items()
    ]
    return elements.table(
        ["Here", "", "Ends of runs, as the ledger has them"], rows, "A run counts as a whole", text=(1, 2)
    )


def _names(title: str, what: str, tallies: dict[str, Tally], total: Decimal) -> str:
    ranked = sorted(tallies.items(), key=lambda item: (-item[1].usd, -item[1].seconds, item[0]))
    shown, rest = ranked[:MOST_ROWS], ranked[MOST_ROWS:]
    most = max((t.usd for _, t in ranked), default=Decimal(0))
    rows = []
    for name, tally in shown:
        cells = [
            format_usd(tally.usd),
            elements.percent(tally.usd, total),
            elements.hours(tally.seconds),
            f"{tally.runs:,}",
        ]
        rows.append((elements.text(name or "without a name"), [("one", elements.part(tally.usd, most))], cells))
    if rest:
        others = _sum(tally for _, tally in rest)
        cells = [
            format_usd(others.usd),
            elements.percent(others.usd, total),
            elements.hours(others.seconds),
            f"{others.runs:,}",
        ]
        rows.append((f"{len(rest):,} others", [("mid", elements.part(min(others.usd, most), most))], cells))
    return elements.section(title, "", elements.bars(what, ["Cost", "Share", "Machine time", "Runs"], rows))


def _footer(summary: Summary, place: str, version: str, all_time: Decimal, zone: ZoneInfo) -> str:
    missing = ""
    if summary.unpriced:
        missing += (
            f" {elements.count(summary.unpriced, 'run')} had a machine whose cost is not known and counts as nothing."
        )
    if summary.unreadable:
        missing += f" {elements.count(summary.unreadable, 'open run')} cannot be read and is not counted."
    return (
        f"<footer><p>Made {elements.minute(summary.now, zone)} by costgpu {escape(version)} from the ledger "
        f"<code>{elements.text(place, 300)}</code>, "
        f"in which closed runs have cost {format_usd(all_time)} in all.{missing}</p>"
        "<p>Metered: the price when the run was launched, with disk and address, × the seconds from the create call to the "
        "end that the provider confirmed, recorded when the run closed and never re-priced. What the provider bills may "
        "differ: taxes, discounts, free tiers, traffic. A run across an edge of the period counts by its share of "
        "time.</p></footer>"
    )


def _buckets(days: Sequence[date]) -> tuple[str, list[tuple[int, int]]]:
    """How the days are put together, and from which to which."""
    if len(days) <= BY_DAY:
        return "day", [(i, i + 1) for i in range(len(days))]
    step = "week" if len(days) <= BY_WEEK else "month"
    starts = [i for i, day in enumerate(days) if i == 0 or (day.weekday() == 0 if step == "week" else day.day == 1)]
    return step, list(zip(starts, [*starts[1:], len(days)], strict=True))


def _bucket_name(day: date, step: str) -> str:
    return (
        f"{MONTHS[day.month - 1]} {day.year}"
        if step == "month"
        else f"{'week of ' * (step == 'week')}{elements.day(day)}"
    )


def _cap(summary: Summary) -> Decimal:
    return sum((view.option.lease.worst_cost_usd for view in summary.open_runs if view.option), Decimal(0))


def _sum(tallies: Iterable[Tally]) -> Tally:
    found = Tally()
    for tally in tallies:
        found.add(tally.usd, tally.seconds, tally.runs)
    return found
