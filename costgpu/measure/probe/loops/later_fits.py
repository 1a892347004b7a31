"""Fits that a script makes after the one that is going on, and the boosting rounds of those that its source tells."""

import ast
import inspect
import os

from .call_binding import bind_call
from .executions import Executions
from .reach import Reach
from .safe_eval import Evaluator, Unknown
from .script_frames import PROBE_ROOT, outwards, package_of_file, variables_of
from .script_loops import NO_TORCH
from .source import Source, following, training_functions
from .syntax import dotted
from .trainings import call_made_last

FITS = ("fit", "fit_predict", "train", "cv", "cross_val_score", "cross_validate", "cross_val_predict")
MOST_LATER = 20
BOOSTERS = ("xgboost", "lightgbm")
DEFAULT_ROUNDS = 100  # of their estimators: n_estimators in the documentation of both, read 2026-11


def later_fits(frame):
    """Return the fits of the script's own code after the loop (or the line) where it is now, of whatever framework."""
    found = []
    for live in outwards(frame):
        path = live.f_code.co_filename
        source, scope = Source.of_code(live.f_code)
        if scope is None or package_of_file(path) or path.startswith((PROBE_ROOT, "<")):
            continue
        loops = source.loops(scope, live.f_lineno)
        end = loops[0].end_lineno if loops else live.f_lineno
        reach = Reach(source, scope, Evaluator(variables_of(live), live.f_globals, NO_TORCH), loops[:1])
        for statement in following(scope.body, end):
            if any(isinstance(node, ast.Call) and fits(node, source) for node in ast.walk(statement)):
                trips, why = None, ""
                try:
                    trips = BoostingRounds().of(statement, reach)
                except Exception as error:  # noqa: BLE001 - unknown is an honest answer here
                    why = str(error) or type(error).__name__
                place = {"file": os.path.basename(path), "line": statement.lineno}
                found.append({**place, "source": source.segment(statement), "trips": trips, "why": why})
    return found[:MOST_LATER]


def fits(call, source):
    """Return whether a call fits something, or leads to one that does."""
    name = dotted(call.func)
    return name.rsplit(".", 1)[-1] in FITS or name in training_functions(source.tree, FITS)


class BoostingRounds(Executions):
    """Counts the boosting rounds that statements will make, each of which sees a `Reach`."""

    def event(self, node, there, depth):
        if not isinstance(node, ast.Call) or not fits(node, there.source):
            return 0
        name = dotted(node.func).rsplit(".", 1)[-1]
        refuse_early_ends(node)
        if name == "fit" and isinstance(node.func, ast.Attribute):
            return rounds_of_estimator(node.func.value, node.lineno, there)
        function = there.evaluator.value(node.func)
        if name == "train" and str(getattr(function, "__module__", "")).split(".")[0] in BOOSTERS:
            parameters = inspect.signature(function).parameters
            place = list(parameters).index("num_boost_round")
            given = [one.value for one in node.keywords if one.arg == "num_boost_round"] + node.args[place : place + 1]
            return number(given[0], there) if given else parameters["num_boost_round"].default
        source, scope, inside = bind_call(node, there.evaluator)
        return self.of_function(scope, Reach.of_call(source, scope, inside, there.changing), depth)


def refuse_early_ends(call):
    """Raise Unknown for arguments that speak of stopping, and for those that are not written out."""
    for keyword in call.keywords:
        if keyword.arg is None or "early_stop" in keyword.arg:
            raise Unknown("it may end early")
        if keyword.arg == "callbacks" and "stop" in ast.dump(keyword.value).lower():
            raise Unknown("it may end early")


def rounds_of_estimator(owner, line, there):
    """Return the rounds of a fit of the estimator that the last assignment before this line makes."""
    made = call_made_last(owner, line, there) if isinstance(owner, ast.Name) else None
    if made is None:
        raise Unknown("an estimator that is made elsewhere")
    kind = there.evaluator.value(made.func)
    if not isinstance(kind, type) or kind.__module__.split(".")[0] not in BOOSTERS:
        raise Unknown("no booster")
    refuse_early_ends(made)
    given = {keyword.arg: keyword.value for keyword in made.keywords}
    return number(given["n_estimators"], there) if "n_estimators" in given else DEFAULT_ROUNDS


def number(node, there):
    """Return the number that it will be when it is reached: a name that is assigned twice may be another one by then."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    stored = [one.id for one in ast.walk(there.scope) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    if any(stored.count(name) > 1 for name in names):
        raise Unknown("assigned more than once")
    return there.evaluator.number(node)
