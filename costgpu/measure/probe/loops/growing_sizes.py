"""Sizes of tensors that follow a loop's variable: a sequence that grows from step to step, images from epoch to epoch."""

from __future__ import annotations

import ast

from .loop_stack import counter_of
from .safe_eval import Evaluator, wraps
from .script_frames import variables_of
from .source import Source, loops_around, own_statements
from .syntax import dotted

LEAST_SIZE = 8  # smaller numbers are sides of a tensor by chance
MOST_VALUES = 64  # of a loop's variable, at which a size is looked up
COMPUTED = (ast.BinOp, ast.Subscript, ast.IfExp, ast.Call)
MOST_SIDES = 4  # of one tensor


def sides_of(rows):
    """Return the sides of the tensors of a trace's forward ops, each with how often one tensor has it at most."""
    found = {}
    for row in rows:
        for shape, _, _ in [*row["inputs"], *row["outputs"]] if row["phase"] == "forward" else ():
            for side in set(shape):
                found[side] = min(MOST_SIDES, max(found.get(side, 0), shape.count(side)))
    return found


def elements_of(rows):
    """Return the number of values that the forward ops of a trace make."""
    total = 0.0
    for row in rows:
        for shape, _, _ in row["outputs"] if row["phase"] == "forward" else ():
            values = 1.0
            for side in shape:
                values *= side
            total += row["count"] * values
    return total


def sizes_at(loop_stack, frame, rows):
    """Return the expressions with a loop's variable that are a side of these tensors now.

    The keys are places in the source; what they hold is a `FollowedSize` but for `before`.
    """
    sides, found = sides_of(rows), {}
    for live in loop_stack.frames(frame):
        for loop in loops_around(live) if not loop_stack.is_library(live.f_code.co_filename) else ():
            if isinstance(loop, ast.For):
                found.update(sizes_of(loop, live, Source.of(live.f_code.co_filename), sides, loop_stack.torch))
    return found


def sizes_of(loop, live, source, sides, torch):
    """Return the sizes that follow the variable of one loop."""
    evaluator, found = Evaluator(variables_of(live), live.f_globals, torch), {}
    try:
        name, values = turns(loop, evaluator)
    except Exception:  # noqa: BLE001 - what it is over cannot be read, or has no numbers
        return found
    covered = set()  # parts of what was found
    for node in [loop.target, *(one for one in own_statements(loop.body) if isinstance(one, COMPUTED))]:
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if id(node) in covered or (node is not loop.target and name not in names):
            continue
        try:
            node = ast.Name(id=name, ctx=ast.Load()) if node is loop.target else node
            now = evaluator.number(node)
            if type(now) is not int or now < LEAST_SIZE or now not in sides:
                continue
            all_sizes = [evaluator.given(name, one).number(node) for one in values]
        except Exception:  # noqa: BLE001, S112 - not a plain number
            continue
        covered.update(id(one) for one in ast.walk(node))
        mean = sum(all_sizes) / len(all_sizes)
        values = sum(one ** sides[now] for one in all_sizes) / len(all_sizes)
        text = name if not hasattr(node, "lineno") else source.segment(node)
        key = "{}:{}:{}".format(live.f_code.co_filename, loop.lineno, text)
        found[key] = {
            "line": loop.lineno,
            "text": text,
            "now": now,
            "mean": mean,
            "sides": sides[now],
            "values": values,
        }
    return found


def turns(loop, evaluator):
    """Return the name of a loop's variable, and some of the numbers that it takes from the first turn to the last."""
    counts, over = counter_of(loop, evaluator), loop.iter
    if counts is not None:
        name, _, first, stride = counts
        values = range(first, first + stride * int(evaluator.trips(over)), stride)
    else:
        while isinstance(over, ast.Call) and over.args and wraps(over) and dotted(over.func) != "enumerate":
            over = over.args[0]
        name, values = loop.target.id, evaluator.value(over)
        if not isinstance(values, (list, tuple, range)):
            raise TypeError("not a list of numbers")
    last, some = len(values) - 1, min(len(values), MOST_VALUES)
    return name, [values[place * last // max(1, some - 1)] for place in range(some)]


def followed(early, late):
    """Return the sizes that were a side of the tensors at both moments, with what they were at the first one."""
    return [dict(late[key], before=early[key]["now"]) for key in early if key in late]
