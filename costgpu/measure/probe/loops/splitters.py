"""How many folds a splitter of scikit-learn's kind makes, by its settings; none of its methods is called."""

from __future__ import annotations

import ast
import math
import sys

from .call_binding import arguments
from .live_values import MISSING, Unknown, own_value
from .syntax import dotted


def folds_of_call(call, evaluator):
    """Return the folds of `splitter.split(X, y, groups)`, whether it has a name or is made in place.

    None for another split.
    """
    made = call.func.value
    given = {**dict(zip(("X", "y", "groups"), call.args)), **{k.arg: k.value for k in call.keywords if k.arg}}

    def items(name):
        return evaluator.trips(given[name])

    def values(name):
        return evaluator.value(given[name])

    if isinstance(made, ast.Call) and dotted(made.func).rsplit(".", 1)[-1] == "check_cv":
        chosen = {**dict(zip(["cv"], made.args)), **{k.arg: k.value for k in made.keywords if k.arg}}.get("cv")
        if chosen is None:
            return 5
        number = evaluator.known(chosen)
        if type(number) is int:
            return number
        made = chosen
    if isinstance(made, ast.Call):
        kind = evaluator.known(made.func)
        if not isinstance(kind, type):
            return None
        settings = arguments(kind, made)
        return folds(kind, lambda name: evaluator.known(settings[name]) if name in settings else MISSING, items, values)
    owner = evaluator.known(made)
    return None if owner is MISSING else folds(type(owner), setting_of(owner), items, values)


def setting_of(owner):
    """Return what reads a splitter's settings; those that repeat others keep the number of folds among their arguments."""

    def read(name):
        found = own_value(owner, name)
        inner = own_value(owner, "cvargs")
        if found is MISSING and isinstance(inner, dict):
            found = dict.get(inner, name, MISSING)
        return vars(type(owner)).get(name, MISSING) if found is MISSING else found

    return read


def folds(kind, setting, items, values):
    """Return the folds of a splitter of this class; None for a class that is none.

    Args:
        setting: Reads one of its settings by name.
        items: The length of an argument (``X``, ``y``, ``groups``) of its `split`.
        values: The argument itself.
    """
    number, repeats = setting("n_splits"), setting("n_repeats")
    if type(number) is int:
        return number * (repeats if type(repeats) is int else 1)
    if not kind.__module__.startswith("sklearn."):
        return None
    if kind.__name__ == "LeaveOneOut":
        return items("X")
    if kind.__name__ == "LeavePOut":
        return math.comb(items("X"), setting("p"))
    if kind.__name__ in ("LeaveOneGroupOut", "LeavePGroupsOut"):
        left_out = setting("n_groups")
        return math.comb(distinct(values("groups")), left_out if type(left_out) is int else 1)
    if kind.__name__ == "PredefinedSplit":
        return distinct(setting("test_fold"), but=-1)
    return None


def distinct(values, but=None):
    """Return how many different values plain data hold, but for one."""
    arrays = sys.modules.get("numpy")
    if arrays is not None and type(values) is arrays.ndarray:
        values = arrays.unique(values).tolist()
    if not isinstance(values, (list, tuple, range)):
        raise Unknown("data of another kind")
    return len(set(values) - {but})
