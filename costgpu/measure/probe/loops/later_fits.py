"""Fits that a script makes after the one that is going on, and the boosting rounds of those that its source tells."""

import ast
import inspect
import math
import os

from .call_binding import bind_call
from .safe_eval import Evaluator, Unknown
from .script_frames import PROBE_ROOT, outwards, package_of_file
from .script_loops import NO_TORCH
from .source import Source, following, training_functions
from .syntax import dotted

FITS = ("fit", "fit_predict", "train", "cv", "cross_val_score", "cross_validate", "cross_val_predict")
MOST_LATER, MOST_DEEP = 20, 4
# Expressions that are evaluated any number of times.
SOMETIMES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.IfExp, ast.BoolOp)
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
        evaluator = Evaluator(live.f_locals, live.f_globals, NO_TORCH)
        for statement in following(scope.body, end):
            if fit_calls(statement, source):
                trips, why = None, ""
                try:
                    trips = rounds_of([statement], source, scope, evaluator)
                except Exception as error:  # noqa: BLE001 - unknown is an honest answer here
                    why = str(error) or type(error).__name__
                place = {"file": os.path.basename(path), "line": statement.lineno}
                found.append({**place, "source": source.segment(statement), "trips": trips, "why": why})
    return found[:MOST_LATER]


def fit_calls(statement, source):
    """Call in a statement that fit something, or that lead to one that does."""
    fitting = training_functions(source.tree, FITS)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if dotted(call.func).rsplit(".", 1)[-1] in FITS or dotted(call.func) in fitting]


def rounds_of(body, source, scope, evaluator, depth=0):
    """Boosting rounds that these statements will make; raises Unknown where it is not all written out."""
    if depth > MOST_DEEP:
        raise Unknown("too deep")
    total = 0
    for statement in body:
        calls = fit_calls(statement, source)
        if not calls or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.For):
            trips = evaluator.trips(statement.iter)
            if math.isinf(trips):
                raise Unknown("unbounded")
            total += trips * rounds_of(statement.body, source, scope, evaluator, depth)
        elif isinstance(statement, (ast.With, ast.Try)):
            total += rounds_of(statement.body, source, scope, evaluator, depth)
        elif isinstance(statement, ast.If):
            branch = statement.body if evaluator.truth(statement.test) else statement.orelse
            total += rounds_of(branch, source, scope, evaluator, depth)
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            inside = [one for node in ast.walk(statement) if isinstance(node, SOMETIMES) for one in ast.walk(node)]
            if any(call is one for call in calls for one in inside):
                raise Unknown(type(statement).__name__)
            total += sum(rounds_of_call(call, scope, evaluator, depth) for call in calls)
        else:
            raise Unknown(type(statement).__name__)
    return total


def rounds_of_call(call, scope, evaluator, depth):
    name = dotted(call.func).rsplit(".", 1)[-1]
    refuse_early_ends(call)
    if name == "fit" and isinstance(call.func, ast.Attribute):
        return rounds_of_estimator(call.func.value, call.lineno, scope, evaluator)
    function = evaluator.value(call.func)
    if name == "train" and str(getattr(function, "__module__", "")).split(".")[0] in BOOSTERS:
        return argument(call, "num_boost_round", function, scope, evaluator)
    source, callee, inside = bind_call(call, evaluator)
    return rounds_of(callee.body, source, callee, inside, depth + 1)


def refuse_early_ends(call):
    """Raise Unknown for arguments that speak of stopping, and for those that are not written out."""
    for keyword in call.keywords:
        if keyword.arg is None or "early_stop" in keyword.arg:
            raise Unknown("it may end early")
        if keyword.arg == "callbacks" and "stop" in ast.dump(keyword.value).lower():
            raise Unknown("it may end early")


def rounds_of_estimator(owner, line, scope, evaluator):
    """Round of a fit of the estimator that the last assignment before this line makes."""
    made = None
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.lineno < line and isinstance(node.value, ast.Call):
            if any(dotted(target) == dotted(owner) for target in node.targets):
                made = node if made is None or node.lineno > made.lineno else made
    if made is None or not isinstance(owner, ast.Name):
        raise Unknown("an estimator that is made elsewhere")
    kind = evaluator.value(made.value.func)
    if not isinstance(kind, type) or kind.__module__.split(".")[0] not in BOOSTERS:
        raise Unknown("no booster")
    refuse_early_ends(made.value)
    given = {keyword.arg: keyword.value for keyword in made.value.keywords}
    return number(given["n_estimators"], scope, evaluator) if "n_estimators" in given else DEFAULT_ROUNDS


def argument(call, name, function, scope, evaluator):
    """Return the number that a call passes for a parameter, by name, by place, or by default."""
    parameters = inspect.signature(function).parameters
    place = list(parameters).index(name)
    given = [keyword.value for keyword in call.keywords if keyword.arg == name] + call.args[place : place + 1]
    return number(given[0], scope, evaluator) if given else parameters[name].default


def number(node, scope, evaluator):
    """Return the number that it will be when it is reached: a name that is assigned twice may be another one by then."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    stored = [one.id for one in ast.walk(scope) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    if any(stored.count(name) > 1 for name in names):
        raise Unknown("assigned more than once")
    return evaluator.number(node)
