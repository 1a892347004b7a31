"""A sweep as one HTML page: the best settings, a curve for each trial, and all trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from costgpu.render.html import svg
from costgpu.render.html.page import PageSection, minute, name, render, responsive
from costgpu.render.phrases import counted
from costgpu.render.report import Table
from costgpu.render.text.sweep import STATUS_WORDS, counts_text, number_text
from costgpu.sweep.arguments import setting_words
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results, Trial, TrialStatus
from costgpu.sweep.tuner.trial_process import trial_name
from costgpu.units import format_duration

MOST_CURVES = 200  # with more, only the best ones are drawn
MOST_ROWS = 1000
TICKS = 5
LOG_SPAN = 50.0  # the largest value over the smallest from which on the axis is logarithmic


def sweep_html(results: Results, metric: Metric, *, title: str, version: str, at: datetime) -> str:
    """Return the page.

    Args:
        title: What was swept, and where.
        at: When the page is made.
    """
    best, ranked = results.best, results.ranked
    drawn = [trial for trial in ranked if _points(trial)][:MOST_CURVES]
    figure = None
    if drawn:
        description = (
            f"{metric.name} against the number of its report; a line for each of {counted(len(drawn), 'trial')}"
        )
        picture = responsive(
            lambda width, height: _curves(width, height, drawn), f"Curves of {metric.name}", description
        )
        rows = [
            [
                name(setting_words(trial.setting)),
                *map(number_text, (trial.curve[0][1], trial.best, trial.last)),
                str(trial.reports),
            ]
            for trial in drawn
        ]
        caption, head = f"First, best and last {metric.name}", ["Setting", "First", "Best", "Last", "Reports"]
        figure = PageSection(
            title="Curves", description=f"{description}.", picture=picture, table=Table(caption, head, rows)
        )
    rest = [trial for trial in results.trials if trial.best is None]
    return render(
        "sweep.html",
        title=title,
        version=version,
        made=f"{minute(at)} UTC",
        tiles=_tiles(results, metric, best),
        counts=counts_text(results),
        goal="lowest" if metric.mode is Mode.MIN else "highest",
        pattern=metric.pattern,
        curves=figure,
        table=_table([*ranked, *rest][:MOST_ROWS], results, metric),
        more=max(0, len(results.trials) - MOST_ROWS),
        failed=[
            (trial_name(trial.number, len(results.trials)), setting_words(trial.setting), trial.tail)
            for trial in results.trials
            if trial.status is TrialStatus.FAILED and trial.tail
        ][:10],
    )


def _tiles(results: Results, metric: Metric, best: Trial | None) -> list[tuple[str, str, str]]:
    seconds = sum(trial.seconds or 0.0 for trial in results.trials)
    tiles = [
        ("Trials", str(len(results.trials)), counts_text(results).partition(": ")[2]),
        ("Time of all trials", format_duration(seconds) if seconds else "–", "added up"),
    ]
    if best is None:
        return tiles
    at = f"at report {best.best_report} of {trial_name(best.number, len(results.trials))}"
    words = Markup("{}, {}").format(name(setting_words(best.setting)), at)
    return [(f"Best {metric.name}", number_text(best.best), words), *tiles]


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
            *(name(trial.setting.get(one, "")) for one in names),
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
