"""How a number that ends a loop is raised: in the loop itself, in loops beside the step, or in functions below."""

from __future__ import annotations

import ast
import inspect
import math

from ..patching import known
from ..record import Counter
from .call_binding import bind, is_own, plain_function
from .constants import Constants
from .generators import leaves
from .live_values import MISSING, index_of, one_return
from .source import LOOPS, assigned_pairs, encloses, encloses_any, own_statements

MOST_CALLS_DEEP = 3
NOWHERE = -1  # a line at which no step is made


class Raise:
    """A place where a counter changes: by how much (None if that varies), and in which loop.

    `when` is ``always``, ``sometimes`` or ``with step``; `sets` if it is given another value there.
    """

    def __init__(self, amount, line, when, home=None, sets=False):
        self.amount, self.line, self.when, self.home, self.sets = amount, line, when, home, sets

    def seen_from(self, home, line):
        return Raise(self.amount, line, self.when, home, self.sets)


class Subject:
    """The variable that counts: its text where the test is, and the object that it is an attribute of."""

    def __init__(self, side, place):
        self.text = str(side.value) if isinstance(side, ast.Constant) else place.source.segment(side)
        self.spot = spot_of(side, place.evaluator)
        if self.spot is None and isinstance(side, ast.Name) and side.id in place.source.names_shared():
            self.spot = (id(place.evaluator.globals), side.id)

    def is_at(self, node, there):
        """Return whether an expression in another place is this variable."""
        if there.own and there.source.segment(node) == self.text:
            return True
        if isinstance(node, ast.Name):
            shared = not there.own and node.id in there.source.names_shared()
            return shared and self.spot == (id(there.evaluator.globals), node.id)
        return self.spot is not None and self.spot == spot_of(node, there.evaluator)


class There:
    """A body of statements, with what it sees; `own` if it is in the function that makes the test."""

    def __init__(self, source, evaluator, constants, own=False, deep=0):
        self.source, self.evaluator, self.constants, self.own, self.deep = source, evaluator, constants, own, deep


def spot_of(node, evaluator):
    """Return the object and the name that an attribute really is, behind properties, or the key of an item; else None."""
    if isinstance(node, ast.Subscript):
        owner, key = evaluator.known(node.value), evaluator.known(index_of(node))
        return (id(owner), [key]) if isinstance(key, (int, str)) and owner is not MISSING else None
    if not isinstance(node, ast.Attribute):
        return None
    owner, name = evaluator.known(node.value), node.attr
    if owner is MISSING:
        return None
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, property):
        try:
            names, returned = one_return(found.fget)
            return spot_of(returned, evaluator.within({names[0]: owner}, found.fget.__globals__))
        except Exception:  # noqa: BLE001 - a property of another kind
            return None
    return id(owner), name


def counter(side, loop, place, constants) -> Counter:
    """Return how one side of a comparison changes: where, by how much, and which loop starts it anew."""
    subject = Subject(side, place)
    found = Counter(
        text=subject.text,
        increment=None,
        increment_line=None,
        loop_line=None,
        reset_line=None,
        targets=[],
        with_step=False,
        unsteady=False,
    )
    names = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)}
    enclosing, around = place.source.loops(place.scope, loop.body[0].lineno), place.loops()
    for candidate in [*enclosing, *around]:
        if isinstance(candidate, ast.For):
            if names & {n.id for n in ast.walk(candidate.target) if isinstance(n, ast.Name)}:
                found["targets"].append(candidate.lineno)
    raises = []
    for candidate in around or enclosing:
        here = There(place.source, place.evaluator, constants, own=True)
        home = (place.depth, candidate.lineno)
        raises += [one.seen_from(home, one.line) for one in raises_in(candidate.body, place.line, subject, here)]
    if not found["targets"] and subject.spot is not None:
        raises += raises_below(subject, place)
    settle(found, raises, place)
    return found


def settle(found, raises, place):
    """Add to a counter where it is raised by the same amount each time, if there is one such loop."""
    steady = [one for one in raises if not one.sets and one.when != "sometimes"]
    found["unsteady"] = any(one.when == "sometimes" for one in raises)
    for one in raises:
        if one.sets and one.home[0] == place.depth:
            found["reset_line"] = one.home[1]
    if not steady or any(one.amount is None or one.home != steady[0].home for one in steady):
        return
    if any(one.sets and one.home[0] != place.depth for one in raises):
        return
    if len({(one.line < place.line, one.when) for one in steady}) > 1:
        return
    found["increment"], found["increment_line"] = sum(one.amount for one in steady), steady[0].line
    found["loop_line"], found["with_step"] = steady[0].home[1], steady[0].when == "with step"
    if steady[0].home[0] != place.depth:
        found["loop_depth"] = steady[0].home[0]


def raises_below(subject, place):
    """Yield what the functions do that are on their way to the step.

    Their lines are before or after the one that leads there.
    """
    around = place.loops()
    home = (place.depth, around[-1].lineno) if around else None
    for below in place.below:
        repeated = [below.scope, *below.scope.body]
        constants = Constants(repeated, below.source, below.evaluator, parameters(below.scope))
        there = There(below.source, below.evaluator, constants)
        loops = below.loops()
        for body, at in [(below.scope.body, home), *((loop.body, (below.depth, loop.lineno)) for loop in loops)]:
            skips = (ast.Continue, ast.Return) if body is below.scope.body else ast.Continue
            for one in raises_in(body, below.line, subject, there, skips) if at is not None else ():
                yield one.seen_from(at, place.line + (0.5 if one.line > below.line else -0.5))
        home = (below.depth, loops[-1].lineno) if loops else home


def raises_in(body, line, subject, there, skips=ast.Continue):
    """Yield where a body raises the counter, or loops and calls in it do that are not on the way to the step.

    What follows a test that ends in a statement of the kind `skips` is not always reached.
    """
    for statement, when in sorted_out(body, line, there.constants, skips=skips):
        added = increment(statement, subject, there)
        if added is not None:
            yield Raise(there.constants.number(*added), line_of(statement, body, line), when)
        elif assigns(statement, subject, there):
            yield Raise(None, statement.lineno, "sometimes" if chooses(statement) else when, sets=True)
        elif isinstance(statement, LOOPS):
            if not encloses(statement, line):
                inner = list(raises_in(statement.body, NOWHERE, subject, there))
                if inner:
                    yield Raise(
                        sum_of_raises(inner, laps(statement, there)), statement.lineno, unless_set_back(inner, when)
                    )
        elif subject.spot is not None and there.deep < MOST_CALLS_DEEP:
            for call in own_statements([statement]):
                if isinstance(call, ast.Call) and not encloses(call, line):
                    inner = raises_of_call(call, subject, there)
                    if inner:
                        yield Raise(
                            sum_of_raises(inner, 1), line_of(statement, body, line), unless_set_back(inner, when)
                        )


def sum_of_raises(raises, times):
    """By how much a counter is raised in so many rounds; None if that varies."""
    steady = times is not None and all(one.amount is not None and one.when == "always" for one in raises)
    return times * sum(one.amount for one in raises) if steady else None


def unless_set_back(raises, when):
    """`when`, but ``sometimes`` for raises one of which is a test's choice of another value, as patience starts anew."""
    return "sometimes" if any(one.sets and one.when == "sometimes" for one in raises) else when


def chooses(statement):
    """Return whether the value that `statement` assigns is one or another, by a test: `bad = bad + 1 if worse else 0`."""
    tests = (ast.IfExp, ast.Compare, ast.BoolOp)
    return not isinstance(statement, ast.Assign) or any(isinstance(node, tests) for node in ast.walk(statement.value))


def laps(loop, there):
    """Return how often a loop beside the step runs each time; None if that varies or cannot be read."""
    if leaves(loop.body, ast.Break) or isinstance(loop, ast.While) or not there.constants.free_of_stored(loop.iter):
        return None
    found = known(there.evaluator.trips, loop.iter, default=math.inf)
    return found if math.isfinite(found) else None


def raises_of_call(call, subject, there):
    """Return where a function raises the counter that is called beside the step: one of the user's, or of the same file."""
    called = there.evaluator.known(call.func)
    plain, bound = plain_function(called)
    if plain is None:  # an object that can be called
        plain, bound = plain_function(inspect.getattr_static(type(called), "__call__", None))[0], called
    if plain is None or not (is_own(plain) or there.source is there.source.of(plain.__code__.co_filename)):
        return []
    found = known(bind, plain, bound, call, there.evaluator)
    if found is None:  # no source, or arguments that cannot be told apart
        return []
    source, scope, inside = found
    same = all(map(there.constants.free_of_stored, [*call.args, *(one.value for one in call.keywords)]))
    constants = Constants([scope, *scope.body], source, inside, () if same else parameters(scope))
    inside = There(source, inside, constants, deep=there.deep + 1)
    return list(raises_in(scope.body, NOWHERE, subject, inside, (ast.Continue, ast.Return)))


def parameters(scope):
    """Return the names of a function's parameters, but for the object that it is a method of."""
    return (
        {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)} - {"self", "cls"}
        if hasattr(scope, "args")
        else set()
    )


def increment(statement, subject, there):
    """Return what `statement` adds to the counter, and the sign; None if it does not."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        if subject.is_at(statement.target, there):
            return statement.value, -1 if isinstance(statement.op, ast.Sub) else 1
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        value = statement.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            if subject.is_at(statement.targets[0], there) and subject.is_at(value.left, there):
                return value.right, -1 if isinstance(value.op, ast.Sub) else 1
    return None


def assigns(statement, subject, there):
    """Return whether `statement` itself, not a loop inside it, assigns the counter."""
    if isinstance(statement, (*LOOPS, ast.FunctionDef)):
        return False
    assigned = [node for node in ast.walk(statement) if isinstance(node, ast.Assign)]
    targets = [target for node in assigned for target, _ in assigned_pairs(node)]
    targets += [part for target in targets if isinstance(target, ast.Tuple) for part in target.elts]
    return any(subject.is_at(target, there) for target in targets)


def line_of(statement, body, line):
    """Return the line of an increment; half a line off where the step is on it, too: `step(); n += 1`."""
    if statement.lineno != line:
        return statement.lineno
    calls = [node for node in own_statements(body) if isinstance(node, ast.Call) and encloses(node, line)]
    after = any(node.col_offset < statement.col_offset for node in calls)
    return line + 0.5 if after else line - 0.5


def sorted_out(body, line, constants, when="always", skips=ast.Continue):
    """Yield the statements of a loop's body, without inner loops, and whether they run always, at times or per step."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.If):
            truth = constants.truth(statement.test)
            for branch, wanted in ((statement.body, True), (statement.orelse, False)):
                if truth is None:
                    inside = "with step" if encloses_any(branch, line) and when != "sometimes" else "sometimes"
                    yield from sorted_out(branch, line, constants, inside, skips)
                elif truth is wanted:
                    yield from sorted_out(branch, line, constants, when, skips)
            if truth is None and when != "sometimes" and isinstance(statement.body[-1], skips):
                when = "with step" if encloses_any(body[place + 1 :], line) else "sometimes"
        elif isinstance(statement, (ast.With, ast.AsyncWith)) or statement.__class__.__name__ in ("Try", "TryStar"):
            yield from sorted_out(statement.body, line, constants, when, skips)
            for part in ("orelse", "finalbody"):
                yield from sorted_out(getattr(statement, part, []), line, constants, when, skips)
            for handler in getattr(statement, "handlers", []):
                yield from sorted_out(handler.body, line, constants, "sometimes", skips)
        else:
            yield statement, when
