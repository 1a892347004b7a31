"""Finds frames on the live stack: the user's own line, a library's function, and loops of libraries."""

from __future__ import annotations

import os
import sys

PROBE_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARIES = (os.path.dirname(os.__file__), "site-packages", "dist-packages", "_costgpu_probe")


def outwards(frame):
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def own_place():
    """``train.py:31``, where the user's own code is on the stack; empty if it is not."""
    for frame in outwards(sys._getframe(1)):
        path = frame.f_code.co_filename
        if not path.startswith((PROBE_ROOT, "<")) and not any(part in path for part in LIBRARIES):
            return "{}:{}".format(os.path.basename(path), frame.f_lineno)
    return ""


def locals_of(name, *file_endings):
    """Variables of the nearest function of this name on the stack that is in such a file; empty without one."""
    for depth, frame in enumerate(outwards(sys._getframe(1))):
        path = frame.f_code.co_filename.replace("\\", "/")
        if frame.f_code.co_name == name and path.endswith(file_endings):
            return dict(frame.f_locals)
        if depth == 40:
            break
    return {}


def library_loops():
    """Loops of scikit-learn's own around this place, outermost first, as far as they say how long they are."""
    found = []
    for frame in outwards(sys._getframe(1)):
        count = COUNTS.get(frame.f_code.co_name)
        if count is not None and "model_selection" in frame.f_code.co_filename:
            try:
                trips = int(count(frame.f_locals))
            except Exception:  # noqa: BLE001 - another version keeps it elsewhere
                trips = None
            found.append({"trips": trips, "file": frame.f_code.co_name, "line": 0})
    return found[::-1]


def count_splits(local):
    return local["cv"].get_n_splits(local["X"], local["y"], local.get("groups"))


COUNTS = {
    "cross_validate": count_splits,
    "cross_val_predict": count_splits,
    "evaluate_candidates": lambda local: local["n_candidates"] * local["n_splits"],
}
