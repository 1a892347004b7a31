"""The report of a sweep: the best settings, a curve for each trial, and all trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from markupsafe import Markup

from costgpu.render.html import svg
from costgpu.render.phrases import counted, minute, visible
from costgpu.render.report import Figure, ItemList, Report, ReportSection, Table, Tile
from costgpu.render.text.sweep import STATUS_WORDS, counts_text, number_text
from costgpu.sweep.arguments import setting_words
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results, Trial, TrialStatus
from costgpu.sweep.tuner.trial_process import trial_name
from costgpu.units import format_duration
from costgpu.version import __version__

MOST_CURVES = 200  # with more, only the best ones are drawn
MOST_ROWS = 1000
MOST_TAILS = 10  # trials whose last words are shown
TICKS = 5
FOLDERS = "Each trial has a folder beside this page, with its log and its files."
LOG_SPAN = 50.0  # the largest value over the smallest from which on the axis is logarithmic


def sweep_report(results: Results, metric: Metric, *, title: str, at: datetime) -> Report:
    """Return the report.

    Args:
        title: What was swept, and where.
        at: When the report is made.
    """
    count, ranked = len(results.trials), results.ranked
    goal = "lowest" if metric.mode is Mode.MIN else "highest"
    pattern = visible(metric.pattern, 200)
    shown = [*ranked, *(trial for trial in results.trials if trial.best is None)]
    more = [f"{counted(count - MOST_ROWS, 'trial')} not listed: see trials.csv."] if count > MOST_ROWS else []
    failed = [trial for trial in results.trials if trial.status is TrialStatus.FAILED and trial.tail][:MOST_TAILS]
    tails = [f"{trial_name(trial.number, count)}: {setting_words(trial.setting)}\n{trial.tail}" for trial in failed]
    return Report(
        title=title,
        subtitle=f"{counts_text(results)}. The {goal} value of {pattern} is the best; trials are compared by their best"
        " report.",
        tiles=_tiles(results, metric),
        sections=[
            _curves_section([trial for trial in ranked if _points(trial)][:MOST_CURVES], metric),
            ReportSection(title="Trials", parts=[_table(shown[:MOST_ROWS], results, metric), *more]),
            ReportSection(
                title="Trials that failed",
                introduction="What they said last.",
                parts=[ItemList(tails, "verbatim")] if tails else [],
            ),
        ],
        footer=[f"Made {minute(at)} UTC by costgpu {__version__}.", FOLDERS],
    )


def _curves_section(drawn: Sequence[Trial], metric: Metric) -> ReportSection:
    if not drawn:
        return ReportSection(title="No values", parts=["No trial has printed a line that matches."])
    words = f"{metric.name} against the number of its report; a line for each of {counted(len(drawn), 'trial')}"
    figure = Figure(
        draw=partial(_curves, drawn=drawn),
        label=f"Curves of {metric.name}",
        description=words,
        legend=[("curve best", "best trial"), ("curve", "other trials")],
    )
    rows = [
        [
            setting_words(trial.setting),
            *map(number_text, (trial.curve[0][1], trial.best, trial.last)),
            str(trial.reports),
        ]
        for trial in drawn
    ]
    head = ["Setting", "First", "Best", "Last", "Reports"]
    table = Table(f"First, best and last {metric.name}", head, rows, folded="Numbers")
    return ReportSection(title="Curves", introduction=f"{words}.", parts=[figure, table])


def _tiles(results: Results, metric: Metric) -> list[Tile]:
    seconds, best = sum(trial.seconds or 0.0 for trial in results.trials), results.best
    tiles = [
        ("Trials", str(len(results.trials)), counts_text(results).partition(": ")[2]),
        ("Time of all trials", format_duration(seconds) if seconds else "–", "added up"),
    ]
    if best is None:
        return tiles
    at = f"at report {best.best_report} of {trial_name(best.number, len(results.trials))}"
    return [(f"Best {metric.name}", number_text(best.best), f"{setting_words(best.setting)}, {at}"), *tiles]


def _points(trial: Trial) -> list[tuple[float, float]]:
    return [(float(report), value) for report, value, _ in trial.curve if math.isfinite(value)]


def _curves(width: int, height: int, drawn: Sequence[Trial]) -> list[Markup]:
    """Values (up) against reports (across); the best trial stands out and is drawn last."""
    values = [value for trial in drawn for _, value in _points(trial)]
    reports = [report for trial in drawn for report, _ in _points(trial)]
    low, high = min(values), max(values)
    bottom, top = height - svg.BOTTOM, float(svg.TOP)
    logarithmic = low > 0 and high / low >= LOG_SPAN
    up: svg.Scale
    if logarithmic:
        up = svg.log_scale(values, bottom, top)
        powers = range(math.floor(up.low), math.ceil(up.high) + 1)
        tiers = [[(value := factor * 10.0**power, f"{value:.6g}") for power in powers] for factor in (1, 3, 2, 5)]
        ticks = svg.spaced(up, tiers, svg.ROOM_UP)
    else:
        margin = (high - low) * svg.MARGIN or abs(high) * svg.MARGIN or 1.0
        up = svg.Scale(low - margin, high + margin, bottom, top)
        ticks = [(tick, f"{tick:.6g}") for tick in _ticks(up)]
    across = svg.Scale(min(reports), max(*reports, min(reports) + 1), svg.LEFT, width - svg.RIGHT)
    parts = [
        *svg.grid_up(width, up, ticks),
        *svg.grid_across(
            width, across, [(tick, f"{tick:,.0f}") for tick in _ticks(across) if tick == round(tick)], top, bottom
        ),
    ]
    for index in reversed(range(len(drawn))):
        trial = drawn[index]
        points = [(across.at(report), up.at(value)) for report, value in _points(trial)]
        style = "curve best" if index == 0 else "curve"
        line = (
            svg.polyline(style, points)
            if len(points) > 1
            else svg.tag("circle", class_=style, cx=points[0][0], cy=points[0][1], r=2.0)
        )
        parts.append(svg.titled(f"{setting_words(trial.setting)}: {number_text(trial.best)}", line))
    return parts


def _ticks(scale: svg.Scale) -> list[float]:
    """Round values in the range, about `TICKS` of them."""
    rough = (scale.high - scale.low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.9999)
    return [step * number for number in range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1)]


def _table(trials: Sequence[Trial], results: Results, metric: Metric) -> Table:
    names = next((list(trial.setting) for trial in results.trials if trial.setting), [])
    rows = [
        [
            trial_name(trial.number, len(results.trials)),
            *(trial.setting.get(one, "") for one in names),
            number_text(trial.best) or "–",
            number_text(trial.last) or "–",
            str(trial.reports or "–"),
            format_duration(trial.seconds) if trial.seconds else "–",
            STATUS_WORDS[trial.status],
        ]
        for trial in trials
    ]
    head = ["Trial", *names, f"Best {metric.name}", "Last", "Reports", "Time", "Status"]
    return Table("All trials, the best first", head, rows, text=(len(head) - 1,))
