"""Searches that end by the clock: the seconds that a call of a library was given, where it is going on."""

from __future__ import annotations

import math
import sys

from .script_frames import outwards, package_of_file, place_of, variables_of

# Package -> functions, what says how long the search goes on (an argument, or with a dot an attribute of its object or
# of its argument), and the seconds of its unit. Source: the documentation of each, read 2026-11.
BUDGETS = {
    "optuna": (("optimize", "_optimize"), "timeout", 1.0),
    "hyperopt": (("fmin",), "timeout", 1.0),
    "flaml": (("fit",), "time_budget", 1.0),
    "ray": (("run",), "time_budget_s", 1.0),
    "tpot": (("fit",), "self.max_time_mins", 60.0),
    "autosklearn": (("fit",), "self.time_left_for_this_task", 1.0),
    "autogluon": (("fit",), "time_limit", 1.0),
    "supervised": (("fit",), "self.total_time_limit", 1.0),
    "evalml": (("search",), "self.max_time", 1.0),
    "pycaret": (("compare_models",), "budget_time", 60.0),
    "skopt": (("base_minimize",), "callbacks.total_time", 1.0),
}


def time_budget(thread, loops_around):
    """Seconds after which a library's call ends that goes on in this thread, the outermost's; None without one.

    Args:
        loops_around: Reads the script's loops around a frame: the call has as much time in each iteration.
    """
    found, caller = [], ""
    for frame in outwards(sys._current_frames().get(thread)):
        package = package_of_file(frame.f_code.co_filename)
        functions, name, unit = BUDGETS.get(package, ((), "", 0.0))
        if frame.f_code.co_name not in functions:
            continue
        seconds = given(variables_of(frame), name)
        if seconds is None:
            continue
        own = next((one for one in outwards(frame) if not package_of_file(one.f_code.co_filename)), None)
        trips = [loop["trips"] for loop in loops_around(own)] if own is not None else []
        if all(isinstance(one, (int, float)) and math.isfinite(one) for one in trips):
            caller = place_of(own) if own is not None else package
            times = math.prod(trips)
            words = "{}'s {}={:g} ({})".format(package, name.rpartition(".")[2], seconds, caller)
            found.append({"seconds": seconds * unit * times, "times": times, "words": words})
    return found[-1] if found else None


def given(local, name):
    """Return a positive, finite number that an argument holds, or a plain attribute of it or of one of its items."""
    owner, _, attribute = name.rpartition(".")
    values = [local.get(owner or attribute)]
    if owner:
        owners = values[0] if isinstance(values[0], (list, tuple)) else values
        values = [vars(one).get(attribute) for one in owners if hasattr(one, "__dict__")]
    for value in values:
        if type(value) in (int, float) and 0 < value < math.inf:
            return float(value)
    return None
