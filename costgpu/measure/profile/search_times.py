"""What the fits of a search take that were not seen yet, by what its candidates say of their length. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from costgpu.measure.probe.record import SearchFacts, SeriesRecord
from costgpu.models.workload import StepTimes

UNLIKE_FACTOR = (
    3.0  # how much longer fits may take on average whose parameters are unlike those that were seen: assumed
)


def mean_length(search: SearchFacts | None) -> float | None:
    """Return the parts (trees, rounds, epochs) of a fit on average; None where the candidates do not say."""
    planned = search["planned"] if search is not None else []
    fits = sum(count for _, count in planned)
    return sum(length * count for length, count in planned) / fits if fits else None


def search_in_words(search: SearchFacts) -> str:
    """Return where the number of its fits comes from: ``18 candidates × 5 folds, and the refit``."""
    whole = search["fits"] - search["refit"] == search["candidates"] * search["folds"]
    what = f"{search['candidates']:,} {search['what']}" + (f" × {search['folds']} folds" if search["folds"] > 1 else "")
    return (what if whole else f"{what} and their halvings") + (", and the refit" if search["refit"] else "")


def of_all_fits(step: StepTimes, series: SeriesRecord) -> StepTimes:
    """Return the mean times of the search's fits that are still to come; those of an inner part as they are.

    A fit takes a + b n seconds of its length n, by the fits seen where they differ in it; else in proportion to it. The
    drift says how far the mean may go where the candidates left have other values of other parameters.
    """
    search = series["facts"].get("search")
    if search is None or not step.count:
        return step
    if series["unit"] == "search fit" and search["planned"]:
        pairs = list(zip(search["seen"], series["seconds"], strict=False))
        if pairs:
            step = _by_length(step, pairs, search)
    return replace(step, drift=1.0 + (UNLIKE_FACTOR - 1.0) * search["unlike"])


def _by_length(step: StepTimes, pairs: Sequence[tuple[float, float]], search: SearchFacts) -> StepTimes:
    ceiling = 3.0 * max(statistics.median(s / n for n, s in pairs), 1e-12)
    pairs = [(n, min(s, ceiling * n)) if len(pairs) > 2 else (n, s) for n, s in pairs]
    base, slope = _line(pairs)
    fits = sum(count for _, count in search["planned"])
    mean = sum((base + slope * length) * count for length, count in search["planned"]) / fits
    ratios = sorted(s / max(base + slope * n, 1e-12) for n, s in pairs)
    low, high = ratios[len(ratios) // 10], ratios[min(len(ratios) - 1, len(ratios) * 9 // 10)]
    return replace(
        step,
        median_seconds=mean,
        mean_seconds=mean,
        low_seconds=mean * low,
        high_seconds=mean * high,
        by_median=True,
    )


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Seconds of a fit as a + b n, by least squares over the medians of each length; a and b are not negative."""
    groups: dict[float, list[float]] = {}
    for length, seconds in pairs:
        groups.setdefault(length, []).append(seconds)
    proportional = 0.0, sum(s for _, s in pairs) / sum(n for n, _ in pairs)
    if len(groups) < 2:
        return proportional
    points = [(n, statistics.median(found), len(found)) for n, found in groups.items()]
    weight = sum(w for *_, w in points)
    x, y = sum(n * w for n, _, w in points) / weight, sum(s * w for _, s, w in points) / weight
    slope = sum(w * (n - x) * (s - y) for n, s, w in points) / sum(w * (n - x) ** 2 for n, _, w in points)
    base = y - slope * x
    if slope < 0 or not math.isfinite(slope):
        return y, 0.0
    return (base, slope) if base >= 0 else proportional


def note_of_search(series: SeriesRecord) -> list[str]:
    """Return what a reader should know of the candidates that were not seen."""
    search = series["facts"].get("search")
    if search is None or search["tried"] >= search["candidates"]:
        return []
    seen = f"{search['tried']:,} of {search['candidates']:,} {search['what']}"
    text = f"Fits of {seen} were seen"
    if search["planned"]:
        text += ", and those of the others are taken by their length"
    if search["unlike"]:
        text += f"; others have other values of {', '.join(search['names'])}, and may take up to several times as long"
    return [text + "."]
