"""At which iterations of a loop closed tests hold: how often, and where the next ones are."""

from __future__ import annotations

import ast
import itertools
import math

from .gates import counted_in, is_settled
from .safe_eval import Evaluator, Unknown

MOST_BRUTE, MOST_LOOKS, MOST_OF_A_LAP = 10000, 4000, 256
MOST_AHEAD = 64  # openings that are told


class OpeningRhythm:
    """Iterations from one opening to the next, and openings counted from this iteration on (earlier ones are negative).

    `every` is inf for what does not come back, None for what cannot be told; `opens` is None where it is not known.
    With `by_steps` both count steps. It is `at_most` that often where something that is not known decides, too.
    """

    def __init__(self, every, opens=None, by_steps=False, at_most=False):
        self.every, self.opens, self.by_steps, self.at_most = every, opens, by_steps, at_most

    @property
    def never(self):
        return self.every == math.inf and not self.opens


NEVER = OpeningRhythm(math.inf, [])


class AtIteration(Evaluator):
    """Evaluates closed tests at an iteration `now` of one loop, counted from the present one."""

    def __init__(self, key, body, line):
        Evaluator.__init__(self, {}, {})
        self.key, self.body, self.line, self.now = key, body, line, 0

    def moves(self, counted):
        return counted.by is not None and counted.key == self.key

    def value(self, node):
        counted = getattr(node, "counted", None)
        if counted is not None:
            if not self.moves(counted):
                return counted.value
            return counted.value + counted.by * (self.now + counted.shift(self.body, self.line))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            inside = self.value(node.left) in self.value(node.comparators[0])
            return inside is isinstance(node.ops[0], ast.In)
        return Evaluator.value(self, node)

    def at(self, iteration, node):
        self.now = iteration
        return self.value(node)

    def hold(self, tests, iteration):
        self.now = iteration
        return all(self.truth(test) is truth for test, truth in tests)

    def line_of(self, *nodes):
        """Return the first of these expressions, less the others, as a + b * iteration in whole numbers."""
        values = []
        for iteration in range(3):
            first, *others = [self.at(iteration, node) for node in nodes]
            values.append(first - sum(others))
        by = values[1] - values[0]
        if by != values[2] - values[1] or int(by) != by or int(values[0]) != values[0]:
            raise Unknown("it does not grow evenly")
        return int(values[0]), int(by)

    def period(self, test, truth):
        """Return iterations after which a test with a remainder comes out the same, and those at which it holds; or None."""
        moduli = [
            node
            for node in ast.walk(test)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod)
            and any(self.moves(one) for one in counted_in(node.left))
        ]
        if not moduli:
            return None
        numbers = [self.value(node.right) for node in moduli]
        if not all(one and int(one) == one for one in numbers):
            raise Unknown("no remainder")
        every = 1
        for number in numbers:
            every = every * abs(int(number)) // math.gcd(every, abs(int(number)))
        if len(moduli) == 1 and is_equality(test, truth):
            return self.solved(test, truth, moduli[0])
        if every > MOST_BRUTE:
            raise Unknown("too long")
        return every, [one for one in range(every) if self.hold([(test, truth)], one)]

    def solved(self, test, truth, modulus):
        """Return the same of `a % n == b`: only what `b` can be is tried."""
        first, by = self.line_of(modulus.left)
        number = abs(int(self.value(modulus.right)))
        common = math.gcd(by, number)
        every = number // common
        inverse = pow(by // common, -1, every) if every > 1 else 0
        fixed = [self.value(one) for one in ast.walk(test) if isinstance(one, ast.expr) and is_settled(one)]
        wanted = {0, *(int(one) for one in fixed if isinstance(one, (int, float)) and math.isfinite(one))}
        places = {(one - first) // common * inverse % every for one in wanted if (one - first) % common == 0}
        return every, sorted(one for one in places if self.hold([(test, truth)], one))

    def single(self, test, truth):
        """Return iterations at which `n == 5` or `n in (3, 9)` holds; None for another test."""
        if not isinstance(test, ast.Compare):
            return None
        right = test.comparators[0]
        if isinstance(test.ops[0], ast.In) and truth and is_settled(right):
            (first, by), values = self.line_of(test.left), list(self.value(right))
        elif is_equality(test, truth):
            (first, by), values = self.line_of(test.left, right), [0]
        else:
            return None
        found = [(one - first) / by for one in values if isinstance(one, (int, float))] if by else []
        return sorted(int(one) for one in found if one == int(one))

    def places(self, tests, low):
        """Return iterations from about `low` on, in ascending order, at which tests may hold; and whether these are all."""
        periods, singles = [], []
        for test, truth in tests:
            period = self.period(test, truth)
            single = self.single(test, truth) if period is None else None
            periods += [period] if period is not None else []
            singles += [single] if single is not None else []
        if singles:
            return iter(singles[0]), True
        if not periods:
            return itertools.count(low), False
        every, inside = max(periods, key=lambda one: one[0])
        if not inside:
            return iter(()), True
        begin = math.floor(low / every) * every
        return (start + one for start in itertools.count(begin, every) for one in inside), False

    def openings(self, tests, low, high):
        """Yield iterations from `low` to before `high` at which all tests hold; raise Unknown after many looks."""
        places, all_told = self.places(tests, low)
        for place in itertools.islice(places, MOST_LOOKS):
            if place >= high:
                return
            if place >= low and self.hold(tests, place):
                yield place
        if not all_told:
            raise Unknown("too many looks")

    def rhythm(self, tests, first, step, resets):
        """Return the rhythm of tests that all move with one loop.

        Args:
            first: Whether the statement is still to come in this iteration (0) or in the next (1).
            step: The step that has just been made.
            resets: Whether the loop may begin anew.
        """
        names = [one for test, _ in tests for one in counted_in(test)]
        lead = next(one for one in names if self.moves(one))
        passed, by_steps = lead.passed, any(one.with_step for one in names)
        left = lead.trips - passed if lead.trips is not None and passed is not None else None
        if resets and left is not None and all(map(self.moves, names)):
            lap = list(itertools.islice(self.openings(tests, -passed, left), MOST_OF_A_LAP))
            if not lap:
                return NEVER
            if len(lap) < MOST_OF_A_LAP:
                every = lead.trips / len(lap)
                lap = [one + n * lead.trips for n in range(1 + MOST_AHEAD // len(lap)) for one in lap]
                behind = sum(one < first for one in lap)
                return OpeningRhythm(every, lap[: behind + MOST_AHEAD])
        behind = list(self.openings(tests, max(-MOST_AHEAD, 1 - step if passed is None else -passed), first))
        high = left if left is not None and not resets else math.inf
        ahead = list(itertools.islice(self.openings(tests, first, high), MOST_AHEAD))
        if len(ahead) < 2 or self.places(tests, first)[1]:
            return OpeningRhythm(math.inf, behind + ahead, by_steps)
        return OpeningRhythm((ahead[-1] - ahead[0]) / (len(ahead) - 1), behind + ahead, by_steps)


def is_equality(test, truth):
    """Return whether a test holds for one value alone: `a == b`, or `not a`."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Eq if truth else ast.NotEq)
    return not truth


def rhythm_of(alternatives, line, body, key, step):
    """Return the rhythm of a statement under alternatives of tests, in iterations of the loop with this key."""
    found = distinct(of_all(tests, line, body, key, step) for tests in alternatives)
    if not found:
        return NEVER
    known = [one for one in found if one.every is not None]
    again = [one for one in known if one.every < math.inf]
    if not known or (len(known) < len(found) and not again):
        return OpeningRhythm(None)
    if not again:
        return OpeningRhythm(math.inf, sorted({place for one in known for place in one.opens}), known[0].by_steps)
    every = 1 / sum(1 / one.every for one in again)
    sure = len(known) == len(found) and all(one.opens is not None for one in known)
    opens = sorted({place for one in known for place in one.opens}) if sure else None
    return OpeningRhythm(max(1.0, every), opens, again[0].by_steps, any(one.at_most for one in known))


def distinct(rhythms):
    """Return the rhythms that occur, but for those that only occur together with another."""
    found = []
    for one in rhythms:
        same = [
            other for other in found if one.opens is not None and (one.every, one.opens) == (other.every, other.opens)
        ]
        if not one.never and not same:
            found.append(one)
    return found


def of_all(tests, line, body, key, step):
    """Return the rhythm of tests that must all hold.

    Those that nothing is known of are left out if another tells a rhythm.
    """
    at = AtIteration(key, body, line)
    known, unknown = [], False
    for test, truth in tests:
        node = body.closed(test) if isinstance(test, ast.AST) else None
        names = counted_in(node) if node is not None else [None]
        if not names:
            try:
                if at.truth(node) is not truth:
                    return NEVER
            except Exception:  # noqa: BLE001 - a test of an object
                unknown = True
        elif any(one is None for one in names):
            unknown = True
        elif any(one.by is None or one.key not in body.order for one in names):
            stranger = of_stranger(at, node, truth)
            if stranger.every is not None:
                return stranger
            unknown = True
        else:
            known.append((node, truth))
    try:
        rhythm = of_known(at, known, body.order, 0 if line > body.line else 1, step)
    except Exception:  # noqa: BLE001 - a modulus of 0, an object that cannot be compared, too many looks
        return OpeningRhythm(None)
    if not unknown or rhythm.never:
        return rhythm
    if rhythm.every in (1.0, math.inf):
        return OpeningRhythm(None)
    return OpeningRhythm(rhythm.every, rhythm.opens, rhythm.by_steps, at_most=True)


def of_stranger(at, node, truth):
    """Return the rhythm of a test of a counter that grows where nobody looked: by one, if it is asked for a remainder."""
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) and is_settled(one.right):
            number = at.value(one.right)
            if isinstance(number, (int, float)) and number and is_equality(node, truth):
                return OpeningRhythm(float(abs(number)))
    return OpeningRhythm(None)


def of_known(at, tests, order, first, step):
    """Return the rhythm of tests of counters: those of loops further out hold for a whole lap of this one, or do not."""
    rank = order.index(at.key)
    here, outside = [], []
    for test, truth in tests:
        names = counted_in(test)
        if any(at.moves(one) for one in names):
            here.append((test, truth))
        elif all(order.index(one.key) < rank for one in names):
            outside.append((test, truth))
        else:
            return OpeningRhythm(None)
    rhythm = (
        at.rhythm(here, first, step, rank > 0)
        if here
        else OpeningRhythm(1.0, list(range(min(first, 1 - step), first + MOST_AHEAD)))
    )
    if not outside or rhythm.never or rhythm.every is None:
        return rhythm
    key = max((one.key for test, _ in outside for one in counted_in(test)), key=order.index)
    further = AtIteration(key, at.body, at.line)
    around = of_known(further, outside, order, 1, step)
    if around.never or around.every is None:
        return around
    opens = rhythm.opens if further.hold(outside, 0) and rhythm.opens is not None else []
    return OpeningRhythm(rhythm.every * around.every, opens, rhythm.by_steps)
