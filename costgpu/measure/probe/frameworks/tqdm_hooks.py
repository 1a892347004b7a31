"""Progress of scripts that show it with tqdm's bars."""

from __future__ import annotations

from ..loops.script_frames import own_place
from ..patching import harmless, observe, patch


def attach_tqdm(progress, module):
    open_series = harmless(series_of)

    def count(bar, n=1):
        if not getattr(bar, "_costgpu_iterated", False) and isinstance(n, int) and n > 0:
            progress.step(series_of(progress, bar), min(n, 1000))

    def make_iter(inner):
        def __iter__(bar):
            series = None
            if not getattr(bar, "disable", False) or bar.total is not None:
                series = open_series(progress, bar, iterated=True)
            for item in inner(bar):
                yield item
                if series is not None:
                    progress.step(series)
            if series is not None:
                series.open = False

        return __iter__

    patch(module.tqdm, "__iter__", make_iter)
    observe(module.tqdm, "update", count)


def series_of(progress, bar, iterated=False):
    series = getattr(bar, "_costgpu_series", None)
    if series is not None:
        return series
    place = own_place()
    outer = [one for one in progress.series if one.source == "tqdm" and one.open and one.label != place]
    label, unit = outer[-1].label if outer else "", str(getattr(bar, "unit", "it"))
    series = progress.open("tqdm", unit, None, key=("tqdm", place), may_stop=False, outer=label)
    series.facts["total"] = getattr(bar, "total", None)
    bar._costgpu_series = series
    bar._costgpu_iterated = iterated
    return series
