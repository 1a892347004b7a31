"""How many folds a splitter of scikit-learn's kind makes: by its settings, which for most of them is all that it takes."""

from __future__ import annotations

import ast

from .call_binding import arguments, evaluated, given_to
from .live_values import MISSING, own_value
from .syntax import dotted


def folds_of_call(call, evaluator):
    """Return the folds of `splitter.split(X, y, groups)`, whether it has a name or is made in place.

    None for another split.
    """
    made = call.func.value
    given = {**dict(zip(("X", "y", "groups"), call.args)), **{k.arg: k.value for k in call.keywords if k.arg}}

    def value(name):
        return evaluated(evaluator, given[name]) if name in given else None

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

        def make():
            values, named = given_to(made, evaluator)
            return kind(*values, **named)

        return folds(kind, lambda name: evaluator.known(settings[name]) if name in settings else MISSING, make, value)
    owner = evaluator.known(made)
    return None if owner is MISSING else folds(type(owner), setting_of(owner), lambda: owner, value)


def setting_of(owner):
    """Return what reads a splitter's settings; those that repeat others keep the number of folds among their arguments."""

    def read(name):
        found = own_value(owner, name)
        inner = own_value(owner, "cvargs")
        if found is MISSING and isinstance(inner, dict):
            found = dict.get(inner, name, MISSING)
        return vars(type(owner)).get(name, MISSING) if found is MISSING else found

    return read


def folds(kind, setting, make, value):
    """Return the folds of a splitter of this class; None for a class that is none.

    Args:
        setting: Reads one of its settings by name.
        make: Returns the splitter itself, which is only asked where it is scikit-learn's own.
        value: Returns an argument (``X``, ``groups``) of its `split`.
    """
    number, repeats = setting("n_splits"), setting("n_repeats")
    if type(number) is int:
        return number * (repeats if type(repeats) is int else 1)
    return make().get_n_splits(value("X"), None, value("groups")) if kind.__module__.startswith("sklearn.") else None
