"""What the tests before a statement come down to, in live frames: constants, and counters that grow with a loop.

A test is closed: what cannot change while the loops go on becomes its value, what the loop assigns becomes what it
assigns, and an argument becomes what the caller passes.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable
from typing import Any

from ..patching import known
from .call_binding import LengthOnly, evaluated, plain_function
from .constants import Constants
from .counters import counter
from .exit_paths import walked
from .live_values import MISSING, PLAIN, Unknown, one_return
from .loop_position import assigned_before
from .loop_stack import Place, counter_of
from .safe_eval import FOREVER, Evaluator
from .script_frames import variables_of
from .source import encloses
from .syntax import dotted, is_none

PARTS = (ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.List, ast.Tuple, ast.Set)
FILLING = ("append", "extend", "add", "update", "insert", "appendleft", "put", "setdefault", "pop", "remove", "clear")
HELD = (list, tuple, set, frozenset, dict, range)
MOST_DEEP = 4  # names that stand for names


class Counted:
    """A name in a test: its value now, and by how much it grows in each iteration of a loop (None if not known)."""

    def __init__(self, value, body, by=None, key=None, start=None, trips=None, line=-1.0, with_step=False):
        self.value, self.body = value, body
        self.by, self.key, self.start, self.trips, self.with_step = by, key, start, trips, with_step
        self.line = line  # of its increment; that of a loop's variable is before everything
        # whether this iteration has raised it from `start` on already
        self.raised = int(-1.0 < line < body.line)

    @property
    def passed(self):
        """Return the iterations of its loop before this one; None if its first value is not known."""
        if self.start is None or (self.value - self.start) % self.by:
            return None
        return max(0, int((self.value - self.start) // self.by) - self.raised)

    def shift(self, body, line):
        """Return the increments between the step and a statement of the same iteration, less one for each before it."""
        return (self.line > body.line) - (self.line > line) if body is self.body else 0


class CountedName(ast.Name):
    """A name in a closed test; `counted` is None where nothing is known of it."""

    def __init__(self, node, counted):
        name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        super().__init__(id=name, ctx=ast.Load())
        ast.copy_location(self, node)
        self.counted = counted


class Outside:
    """A library's frame with loops around the step, of which nothing else is read."""

    def __init__(self, key, caller):
        self.key, self.live = key, None
        self.order = [*(caller.order if caller is not None else []), key]


class Body(Place):
    """A live frame, the loops around its step, and the frame that calls it; `key` tells its innermost loop."""

    def __init__(self, live, source, scope, torch, caller):
        super().__init__(live, live, source, scope, 0, torch)
        self.caller, self.path = caller, live.f_code.co_filename
        outer = caller.key if caller is not None else None
        self.around = source.loops(scope, live.f_lineno)
        self.called_again = outer is not None and scope is not source.tree  # a loop further out brings it back
        self.keys = [(loop.lineno, self.path) for loop in self.around]
        self.order = [*(caller.order if caller is not None else []), *self.keys]
        if self.called_again:
            made = ast.While(test=ast.Constant(value=True), body=scope.body, orelse=[])
            ast.copy_location(made.test, scope)
            self.around = [ast.copy_location(made, scope), *self.around]
            self.keys.insert(0, outer)
        self.key = self.keys[-1] if self.keys else outer
        self.assigned, self.constants = [], None
        if self.around:
            self.assigned = walked(self.around[0].body, self.around[0], self.line).assigned
            self.constants = Constants([self.around[0]], self.source, self.evaluator)

    def loops(self):
        return self.around

    def closed(self, node, depth=0):
        """Return a test with constants and `Counted` names alone, which are nodes with a `counted`."""
        if isinstance(node, ast.Constant) or hasattr(node, "counted"):
            return node
        present = self.is_there(node)
        if present is not MISSING:
            return ast.copy_location(ast.Constant(value=present), node)
        if isinstance(node, PARTS):
            return rebuilt(node, lambda part: self.closed_part(part, node, depth))
        if isinstance(node, ast.Call) and dotted(node.func) == "bool" and len(node.args) == 1:
            return self.closed(node.args[0], depth)
        said = self.said(node) if isinstance(node, ast.Call) and depth < MOST_DEEP else None
        if said is not None:
            return self.closed(said, depth + 1)
        given = self.given(node.id) if isinstance(node, ast.Name) and depth < MOST_DEEP else None
        if given is not None:
            return given[1].closed(given[0], depth + 1)
        value = self.fixed_value(node)
        if value is not MISSING:
            return ast.copy_location(ast.Constant(value=value), node)
        return CountedName(node, self.counted(node))

    def closed_part(self, part, node, depth):
        """Return a part of a test closed; a modulus that may change is taken as it is now."""
        made = self.closed(part, depth)
        modulus = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and part is node.right
        now = known(self.evaluator.number, part) if modulus and not is_settled(made) else None
        return made if now is None else ast.copy_location(ast.Constant(value=now), part)

    def is_there(self, node):
        """Return the truth of `loader is not None`, where that cannot change; MISSING of anything else."""
        if not isinstance(node, ast.Compare) or not is_none(node.comparators[0]) or not self.constants.fixed(node.left):
            return MISSING
        value = evaluated(self.evaluator, node.left)
        if value is MISSING or isinstance(value, LengthOnly) or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return MISSING
        return (value is None) is isinstance(node.ops[0], ast.Is)

    def given(self, name):
        """Return the expression that a name stands for in each iteration, and the body that it is of; None without one."""
        values = [one for one in self.assigned if name in {dotted(node) for node in ast.walk(one[0])}]
        if values:
            target, value, tests = values[0]
            plain = len(values) == 1 and dotted(target) == name and value is not None and not tests
            return (value, self) if plain and name not in map(dotted, ast.walk(value)) else None
        return self.passed(name) if self.is_argument(name) else None

    def said(self, call):
        """Return what a call of a function with one `return` gives, in this body's names; None if it needs others."""
        function = evaluated(self.evaluator, call.func)
        bound, function = isinstance(function, types.MethodType), plain_function(function)[0]
        try:
            names, returned = one_return(function)
        except Unknown:
            return None
        values = {keyword.arg: keyword.value for keyword in call.keywords}
        values.update(zip(names[bound:], call.args))
        if bound:
            values[names[0]] = call.func.value
        made = copy.deepcopy(returned)
        asked = [one for one in ast.walk(made) if isinstance(one, ast.Name) and one.id not in values]
        there, here = Evaluator({}, function.__globals__), self.evaluator
        same = all(there.known(name) is here.known(name) is not MISSING for name in asked)
        return Filled(values).visit(made) if same else None

    def is_argument(self, name):
        code = self.live.f_code
        return self.called_again and name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def passed(self, name):
        """Return what the caller passes for an argument; None if that cannot be told."""
        live, caller = self.live, self.caller
        call = caller.call_of(live) if caller.live is live.f_back else None
        if call is None:
            return None
        names = live.f_code.co_varnames[: live.f_code.co_argcount]
        bound = isinstance(call.func, ast.Attribute) and names[:1] in (("self",), ("cls",))
        by_name = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in by_name:
            return by_name[name], caller
        at = names.index(name) - bound if name in names else -1
        if 0 <= at < len(call.args):
            starred = any(isinstance(one, ast.Starred) for one in call.args[: at + 1])
            return None if starred else (call.args[at], caller)
        value = variables_of(live).get(name)
        return (ast.Constant(value=value), self) if isinstance(value, PLAIN) and None not in by_name else None

    def call_of(self, live):
        """Return the only call at this body's line that may have begun a frame."""
        calls = [
            node
            for node in ast.walk(self.scope)
            if isinstance(node, ast.Call)
            and encloses(node, self.line)
            and dotted(node.func).rsplit(".", 1)[-1] == live.f_code.co_name
        ]
        return calls[0] if len(calls) == 1 else None

    def fixed_value(self, node):
        """Return the value of an expression that cannot change while the loops go on; MISSING if it may."""
        length = isinstance(node, ast.Call) and dotted(node.func) == "len" and len(node.args) == 1
        if not self.constants.fixed(node.args[0] if length else node):
            return MISSING
        value = self.evaluator.known(node)
        if isinstance(node, ast.Name) and self.is_argument(node.id) and type(value) in (int, float):
            return MISSING  # who calls it is not known, and a number may be another one next time
        if isinstance(value, HELD) and any(dotted(one) in self.filled() for one in ast.walk(node)):
            return MISSING
        return value if isinstance(value, (*PLAIN, *HELD)) else MISSING

    def filled(self):
        """Return the names of lists, sets and dictionaries that this file adds to or takes from."""
        calls = [node.func for node in ast.walk(self.source.tree) if isinstance(node, ast.Call)]
        return {dotted(one.value) for one in calls if isinstance(one, ast.Attribute) and one.attr in FILLING}

    def counted(self, node):
        value = known(self.evaluator.number, node)
        if value is None or isinstance(value, bool):
            return None
        grows = counter(node, self.around[-1], self, self.constants)
        heads = [loop for loop in self.around if isinstance(loop, ast.For) and loop.lineno in grows["targets"]]
        if heads:
            counts = known(counter_of, heads[-1], self.evaluator)
            start, by = counts[2:] if counts is not None and counts[0] == dotted(node) else (None, 1)
            trips = known(self.evaluator.trips, heads[-1].iter)
            trips = int(trips) if trips is not None and trips < FOREVER else None
            return Counted(value, self, by, self.key_at(heads[-1].lineno), start, trips)
        if not isinstance(grows["increment"], int) or not grows["increment"] or grows["unsteady"]:
            return Counted(value, self)
        start, home = None, grows["loop_line"]
        if grows["reset_line"] is None:
            start = assigned_before(self.scope, dotted(node), home, self.source)
        by, line = grows["increment"], grows["increment_line"]
        return Counted(value, self, by, self.key_at(home), start, line=line, with_step=grows["with_step"])

    def key_at(self, line):
        return next((key for loop, key in zip(self.around, self.keys) if loop.lineno == line), self.key)


class Filled(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values):
        self.values = values

    def visit_Name(self, node):
        return self.values.get(node.id, node)


def rebuilt(node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> Any:
    """Return a copy of an expression with its parts changed; a set becomes a list."""
    fields = dict(ast.iter_fields(node))
    for field, value in fields.items():
        if isinstance(value, ast.expr):
            fields[field] = change(value)
        elif isinstance(value, list):
            fields[field] = [change(one) if isinstance(one, ast.expr) else one for one in value]
    made = ast.List(ctx=ast.Load(), **fields) if isinstance(node, ast.Set) else type(node)(**fields)
    return ast.copy_location(made, node)


def counted_in(node):
    """Return the `counted` of the names in a closed test: None for one of which nothing is known."""
    return [one.counted for one in ast.walk(node) if hasattr(one, "counted")]


def is_settled(node):
    return not counted_in(node)
