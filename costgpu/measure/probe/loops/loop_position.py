"""How far a live loop has come: by its counter, or by the item that it is at, for a loop that no framework counts."""

from __future__ import annotations

import ast
import math

from ..patching import known
from .safe_eval import wraps
from .source import made_last
from .syntax import dotted

MOST_ITEMS = 100000
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def position(record, node, place):
    """Return iterations of the loop in all, and so far (None for what cannot be read); whether it may end earlier."""
    counted = [of_counter(bound, record, node, place) for bound in record["bounds"]]
    early = bool(record["early_exit"]) or "clock" in record or None in counted
    if record["kind"] == "while":
        trips, at = min((one for one in counted if one is not None), default=(None, None))
        return trips, at, early
    trips = record["trips"]
    if record["index"] is not None and record["stride"]:
        return trips, (record["index"] - record["start"]) / record["stride"], early
    return trips, known(of_item, node, place.evaluator), early


def of_counter(bound, record, node, place):
    """Return the iterations in all and so far of `while t < n` or `if t == n: break`; None if nothing is counted."""
    sides = [
        side
        for side in (0, 1)
        if isinstance(bound["counters"][side]["increment"], (int, float))
        and bound["counters"][side]["loop_line"] == record["line"]
        and "loop_depth" not in bound["counters"][side]
    ]
    values = (bound["left"], bound["right"])
    if len(sides) != 1 or "inf" in values:
        return None
    counter = bound["counters"][sides[0]]
    if counter["reset_line"] == record["line"]:
        return None  # set back inside the loop
    step, now, limit = counter["increment"], values[sides[0]], values[1 - sides[0]]
    operator = bound["operator"] if bound["how"] == "while" else NEGATED[bound["operator"]]
    if sides[0] == 1:
        operator = MIRRORED[operator]
    start = assigned_before(place.scope, counter["text"], node.lineno, place.source)
    if start is None:
        if step < 0:
            return None
        start = 1 if operator == "<=" and now >= 1 else 0
    if not step or operator not in (("<", "<=", "!=") if step > 0 else (">", ">=", "!=")):
        return None
    span = (limit - start) / step
    trips = math.floor(span + 1e-9) + 1 if operator in ("<=", ">=") else math.ceil(span - 1e-9)
    return (trips, (now - start) / step) if trips > 0 else None


def assigned_before(scope, text, line, source):
    """Return the number that the last `text = 0` before a line assigns; None if there is none, or it is no constant."""
    last = made_last(scope, text, line, source)
    return last.value if isinstance(last, ast.Constant) and type(last.value) in (int, float) else None


def of_item(node, evaluator):
    """Return where in a list (tuple, dict, array) the item is that the loop is at; None unless it is there once."""
    over, target = node.iter, node.target
    while isinstance(over, ast.Call) and over.args and wraps(over) and dotted(over.func) not in ("reversed", "sorted"):
        over = over.args[0]
    if not isinstance(target, ast.Name):
        return None
    values, item = evaluator.value(over), evaluator.name(target.id)
    if isinstance(values, (list, tuple, dict)) and len(values) <= MOST_ITEMS:
        places = [place for place, one in enumerate(values) if one is item]
    elif getattr(values, "ndim", None) == 1 and hasattr(item, "item") and len(values) <= MOST_ITEMS:
        wanted = item.item()
        places = [place for place, one in enumerate(values.tolist()) if one == wanted]
    else:
        return None
    return places[0] if len(places) == 1 else None
