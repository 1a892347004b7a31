"""The tests between a loop and the step in its body: every how many iterations it is made, and from when on."""

from __future__ import annotations

import ast

from ..patching import known
from ..record import Gate
from .constants import Constants
from .counters import counter
from .exit_paths import walked
from .loop_exits import COMPARE
from .loop_position import MIRRORED, NEGATED
from .source import assigned_pairs, names_in, own_statements
from .syntax import dotted


def read_gates(record, loop, body, place):
    """Add to a loop's record what the tests in `body` say, its own or that of a function that it calls."""
    around = [(place.loops() or [loop])[0], loop]
    constants = Constants(around, place.source, place.evaluator) if loop is not None else None
    for test, truth, block in walked(body, loop, place.line).led:
        parts, either = parts_of(test, truth, body, place.line)
        counted = [found for part in parts for found in [remainder(*part) or restarted(*part, block)] if found]
        if counted:
            record["ragged"] |= either  # `(i + 1) % n == 0 or last`: a partial group steps too
            if "gate" not in record and len(counted) == 1:
                gate = gate_of(*counted[0], loop, place, constants, record)
                if gate is not None:
                    record["gate"] = gate
        elif either and block is not None:
            record["ragged"] = True
        elif constants is not None and all(map(constants.fixed, [part for part, _ in parts])):
            continue  # a switch
        elif (
            constants is not None and not either and all(opens(*part, loop, place, constants, record) for part in parts)
        ):
            record["opens"] = True
        elif not any(isinstance(node, ast.Mod) for node in ast.walk(test)):
            record.setdefault("skips" if block is None else "guard", test.lineno)


def parts_of(test, truth, body, line):
    """Return the comparisons that a test is made of, each with its truth, and whether one of them is enough."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    if isinstance(test, ast.Name):  # `ready = (i + 1) % n == 0`
        given = [
            one.value
            for one in own_statements(body)
            if isinstance(one, ast.Assign) and one.lineno < line and names_in(one, ast.Store) == {test.id}
        ]
        if len(given) == 1 and isinstance(given[0], (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            return parts_of(given[0], truth, body, line)
    if not isinstance(test, ast.BoolOp):
        return [(test, truth)], False
    inner = [parts_of(value, truth, body, line) for value in test.values]
    either = isinstance(test.op, ast.Or) is truth or any(one for _, one in inner)
    return [part for parts, _ in inner for part in parts], either


def remainder(test, truth):
    """Return `n` and `every` of the test `n % every == k`; None for another test."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.ops[0], (ast.Eq, ast.NotEq)) and isinstance(test.ops[0], ast.Eq) is truth:
            test, truth = test.left, False
    if not truth and isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
        return test.left, test.right
    return None


def restarted(test, truth, block):
    """Return `n` and `every` of `n == every` or `n >= every`, where the block sets `n` to 0; None for another test."""
    if not truth or block is None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], (ast.Eq, ast.GtE)) or not isinstance(test.left, (ast.Name, ast.Attribute)):
        return None
    for one in own_statements(block):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant) and one.value.value == 0:
            if dotted(test.left) in map(dotted, one.targets):
                return test.left, test.comparators[0]
    return None


def gate_of(counted, every, loop, place, constants, record) -> Gate | None:
    """Return how often the step is made by a counter and its modulus; None if that cannot be read."""
    number = known(place.evaluator.number, every)
    if number is None or not 1 <= number < 1e9:
        return None
    while isinstance(counted, ast.BinOp) and isinstance(counted.op, (ast.Add, ast.Sub)):
        counted = counted.left
    fixed = constants.fixed(every) if constants is not None else True
    text = place.source.segment(every)
    return {"every": number, "text": text, "fixed": fixed, "goes_on": goes_on(counted, loop, place, constants, record)}


def goes_on(counted, loop, place, constants, record):
    """Return whether a counter lives on from one execution of the loop to the next; None if that cannot be read."""
    if loop is None:  # an argument of a function that the loop calls
        return None
    names = names_in(counted, ast.Load)
    if isinstance(loop, ast.For) and names & names_in(loop.target, ast.Store):
        return False
    found = counter(counted, loop, place, constants)
    around = [line for line in (one.lineno for one in place.loops()) if line < loop.lineno]
    if found["reset_line"] in around:
        return False
    if found["loop_line"] == loop.lineno and found["increment"] == 1:
        return not restarts(counted, loop, place)
    return None


def restarts(counted, loop, place):
    """Return whether the loop around this one sets a counter to nothing before this one begins."""
    loops = place.loops()
    outer = loops[loops.index(loop) - 1] if loop in loops and loops.index(loop) else None
    text = place.source.segment(counted)
    before = [one for one in outer.body if one is not loop] if outer is not None else []
    given = [target for one in own_statements(before) for target, _ in assigned_pairs(one)]
    return any(place.source.segment(target) == text for target in given)


def opens(test, truth, loop, place, constants, record):
    """Return whether a test stays true once it is: it compares what only grows with what does not change."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in COMPARE:
        return False
    for growing, limit, mirrored in (
        (test.left, test.comparators[0], False),
        (test.comparators[0], test.left, True),
    ):
        operator = COMPARE[type(test.ops[0])]
        operator = operator if truth else NEGATED[operator]
        operator = MIRRORED[operator] if mirrored else operator
        if operator in (">", ">=") and constants.fixed(limit) and grows(growing, loop, place, constants, record):
            return True
    return False


def grows(node, loop, place, constants, record):
    """Return whether a value only grows from iteration to iteration: a variable of this loop, or a counter."""
    if isinstance(node, ast.Name) and record.get("target") == node.id and place.loops()[:1] == [loop]:
        return record["stride"] > 0
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    found = counter(node, loop, place, constants)
    raised = isinstance(found["increment"], (int, float)) and found["increment"] > 0
    return raised and found["reset_line"] is None and not found["unsteady"]
