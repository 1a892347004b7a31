"""Progress of scripts that show it with tqdm's bars."""

from __future__ import annotations

import operator
import sys
from functools import partial

from ..loops.progress_series import COUNTS_BYTES
from ..loops.script_frames import driver, own_place, place_of
from ..patching import harmless, known, observe, patch, put
from .registry import TQDM

BYTES = ("b", "ib", "byte", "bytes", "kb", "mb", "kib", "mib")


def attach_tqdm(progress, module):
    open_series = harmless(series_of)

    def count(bar, n=1):
        if getattr(bar, "_costgpu_iterated", False) or not hasattr(n, "__index__") or n <= 0:
            return
        series = series_of(progress, bar, sys._getframe(2))
        series.note(total=length_of(bar))
        progress.step(series, operator.index(n))

    def make_iter(inner):
        def __iter__(bar):
            series = None
            if not getattr(bar, "disable", False) or bar.total is not None:
                series = open_series(progress, bar, sys._getframe(1), iterated=True)
            try:
                for item in inner(bar):
                    yield item
                    if series is not None:
                        progress.step(series)
            finally:
                if series is not None:
                    series.close()

        return __iter__

    def close(bar):
        series = getattr(bar, "_costgpu_series", None)
        if series is not None:
            series.close()

    def created(bar, *_, **__):
        """Note where a bar that is not iterated over begins: its life holds the loops that are entered afterwards."""
        if getattr(bar, "iterable", None) is None:
            frame, _ = driver(sys._getframe(2))
            made = (place_of(frame), progress.loops_around(frame)) if frame is not None else None
            put(bar, _costgpu_made=made)

    patch(module.tqdm, "__iter__", make_iter)
    observe(module.tqdm, "update", count)
    observe(module.tqdm, "close", close)
    observe(module.tqdm, "__init__", created)


def length_of(bar):
    """Return how many items the bar is over, without those that it began with; None if it does not say."""
    length = known(lambda: len(bar.iterable))
    if length is not None:
        return length
    total, begun = getattr(bar, "total", None), getattr(bar, "initial", 0) or 0
    return total - begun if total is not None else None


def series_of(progress, bar, frame, iterated=False):
    series = getattr(bar, "_costgpu_series", None)
    if series is not None:
        return series
    own, library = driver(frame)
    made = getattr(bar, "_costgpu_made", None)
    place = made[0] if made else place_of(own) if own is not None else own_place()
    outer = [one for one in progress.series if one.framework is TQDM and one.open and one.label != place]
    label, unit = outer[-1].label if outer else "", str(getattr(bar, "unit", "it"))
    key = ("tqdm", place, library)
    again = key in progress.keyed
    around = made[1] if made else progress.loops_around(own) if own is not None and not again else []
    series = progress.open(TQDM, unit, None, key=key, around=around, may_stop=False, outer=label)
    series.label_with(place)
    series.note(
        total=length_of(bar),
        told=known(lambda: len(bar.iterable)) is None,
        description=str(getattr(bar, "desc", None) or "").strip(" :")[:80],
    )
    if library:
        series.is_preparation("it is {}'s own".format(library))
    elif unit.lower() in BYTES or (getattr(bar, "unit_scale", False) and getattr(bar, "unit_divisor", 0) == 1024):
        series.is_preparation(COUNTS_BYTES)
    elif own is not None and iterated and not again:
        # ``line 12: loss < 0.1``: what may end the loop whose head draws from the bar
        stack = progress.recorder.plain_loop_stack()
        series.note(may_stop_at=known(stack.exit_at, own, default=""))
    put(bar, _costgpu_series=series, _costgpu_iterated=iterated)
    return series


def hooks(recorder):
    return {"tqdm.std": partial(attach_tqdm, recorder.progress)}
