"""At which iterations of a loop closed tests hold: how often, and where the next ones are."""

from __future__ import annotations

import ast
import itertools
import math

from .gates import HELD, counted_in, is_settled, rebuilt
from .safe_eval import Unknown

ROUNDED = (ast.Mod, ast.FloorDiv)
MOST_LOOKS = 10**6  # about a tenth of a second; at tests of large remainders alone
FAR = 1 << 20  # iterations over which growth is taken: few would leave too few digits of fractions
NOT_REACHED = 10**15  # iterations that no script makes
MOST_OF_A_LAP = 256
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


class AtIteration:
    """Evaluates closed tests at an iteration of one loop, counted from the present one."""

    def __init__(self, key, body, line):
        self.key, self.body, self.line = key, body, line

    def moves(self, counted):
        return counted is not None and counted.by is not None and counted.key == self.key

    def function(self, *tests):
        """Return whether all tests come out as they must, as a function of the iteration."""
        values = {}

        def name_of(value):
            values["value{}".format(len(values))] = value
            return ast.Name(id="value{}".format(len(values) - 1), ctx=ast.Load())

        def written(node):
            counted = getattr(node, "counted", None)
            if self.moves(counted):
                begin = counted.value + counted.by * counted.shift(self.body, self.line)
                grown = ast.BinOp(ast.Name(id="now", ctx=ast.Load()), ast.Mult(), name_of(counted.by))
                return ast.BinOp(name_of(begin), ast.Add(), grown)
            if counted is not None or isinstance(node, ast.Constant):
                return name_of(node.value if counted is None else counted.value)
            return rebuilt(node, written)

        parts = [written(test) if truth else ast.UnaryOp(ast.Not(), written(test)) for test, truth in tests]
        head = ast.parse("lambda now: now", mode="eval").body.args
        made = ast.Expression(ast.Lambda(head, ast.BoolOp(ast.And(), [name_of(True), *parts])))
        return eval(compile(ast.fix_missing_locations(made), "<tests>", "eval"), values)  # noqa: S307 - no names but these

    def hold(self, tests, iteration):
        return bool(self.function(*tests)(iteration))

    def value(self, node, iteration=0):
        """Return the value of an expression now, or at an iteration from now."""
        return self.function((node, True))(iteration)

    def any_moves(self, node):
        return any(map(self.moves, counted_in(node)))

    def grows(self, node):
        """Return whether a number grows evenly from iteration to iteration, or in the same steps in each period.

        False if it stays or only comes again. Raises Unknown for one that does neither.
        """
        if not self.any_moves(node) or hasattr(node, "counted"):
            return self.any_moves(node)
        if isinstance(node, ast.Compare):
            return False
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, *ROUNDED)):
            left, right = self.grows(node.left), self.grows(node.right)
            if isinstance(node.op, ast.Mod) or not (left or right):
                return False
            both = self.any_moves(node.left) and self.any_moves(node.right)
            if not both and (left or not isinstance(node.op, (ast.Div, ast.FloorDiv))):
                return True
            if left and right and isinstance(node.op, (ast.Add, ast.Sub)):
                return True
        raise Unknown("it does not grow evenly")

    def period(self, nodes):
        """Return the iterations after which remainders in closed tests come out the same, and quotients grow the same."""
        every = 1
        for node in nodes:
            number = None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ROUNDED) and self.any_moves(node):
                number = self.value(node.right)
                parts = [one for one in ast.walk(node.left) if isinstance(one, ast.expr)]
                if not number or int(number) != number or self.any_moves(node.right):
                    raise Unknown("no remainder")
                if not all(isinstance(self.value(one), int) for one in parts):
                    raise Unknown("a remainder of fractions")
                inner = [one for one in parts if isinstance(one, ast.BinOp) and isinstance(one.op, ROUNDED)]
                for one in filter(is_quotient, inner):  # in steps of these: `it // 10 % 2`
                    number *= self.value(one.right) if self.any_moves(one) else 1
                if not inner:
                    number //= math.gcd(number, self.value(node.left, 1) - self.value(node.left))
            elif isinstance(node, ast.Constant) and isinstance(node.value, range):
                number = node.value.step
            if number is not None:
                every = every * abs(int(number)) // math.gcd(every, int(number))
        return every

    def turns(self, nodes):
        """Yield iterations at which, or right after which, what grows evenly comes to a value that it is compared with."""
        stepped, lap = any(map(is_quotient, nodes)), self.period(nodes)
        far = lap * (1 + FAR // lap)  # in whole laps, which each grow the same
        pairs = [(node, 0) for node in nodes if isinstance(node, (ast.Name, ast.BinOp))]
        for node in nodes:
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for left, right in zip(sides, sides[1:]):
                if isinstance(right, (ast.List, ast.Tuple)):
                    pairs += [(ast.BinOp(left, ast.Sub(), one), 0) for one in right.elts]
                elif isinstance(right, ast.Constant) and isinstance(right.value, HELD):
                    held = right.value
                    pairs += [(left, one) for one in ((held.start, held.stop) if isinstance(held, range) else held)]
                elif self.any_moves(left) or self.any_moves(right):
                    pairs.append((ast.BinOp(left, ast.Sub(), right), 0))
        for node, value in pairs:
            if self.grows(node) and isinstance(value, (int, float)) and abs(value) < math.inf:
                at = self.function((node, True))
                begin, grown = at(0), at(far) - at(0)
                if abs(begin) < math.inf and grown:
                    turn = int((value - begin) * far // grown)
                    yield from range(turn - 2 * lap, turn + 3 * lap, lap) if stepped else (turn,)

    def pattern(self, tests):
        """Return when these tests hold; raises Unknown where that takes too many looks, or cannot be told."""
        nodes = [node for test, _ in tests for node in ast.walk(test) if isinstance(node, ast.expr)]
        turns, period = set(self.turns(nodes)), self.period(nodes)
        steps = [one.by for test, _ in tests for one in counted_in(test) if self.moves(one)]
        if period > 1 and not all(isinstance(one, int) for one in steps):
            raise Unknown("a remainder of fractions")
        place, stride = self.sieve(tests)
        if period // stride * (1 + len(turns)) > MOST_LOOKS:
            raise Unknown("too many looks")
        return OpeningPattern(self.function(*tests), turns, period, place, stride)

    def sieve(self, tests):
        """Return an iteration at which a remainder comes out as it must, and how far others are; 0 and 1 without one."""
        place, stride = 0, 1
        for test, truth in tests:
            node, wanted = test, 0
            if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_equality(test, truth):
                node, wanted, truth = test.left, test.comparators[0], False
                wanted = None if self.any_moves(wanted) else self.value(wanted)
            if (
                truth
                or not isinstance(node, ast.BinOp)
                or not isinstance(node.op, ast.Mod)
                or not isinstance(wanted, int)
                or any(map(is_quotient, ast.walk(node.left)))
            ):
                continue
            if self.grows(node.left):
                at, number = self.function((node.left, True)), abs(int(self.value(node.right)))
                begin, grown = at(0), at(1) - at(0)
                common = math.gcd(grown, number)
                every = number // common
                if every > stride and (wanted - begin) % common == 0:
                    place, stride = (wanted - begin) // common * pow(grown // common, -1, every) % every, every
        return place, stride

    def rhythm(self, tests, first, step, resets):
        """Return the rhythm of tests that all move with one loop.

        Args:
            first: Whether the statement is still to come in this iteration (0) or in the next (1).
            step: The step that has just been made.
            resets: Whether the loop may begin anew.
        """
        names, pattern = [one for test, _ in tests for one in counted_in(test)], self.pattern(tests)
        lead = next(one for one in names if self.moves(one))
        passed, by_steps = lead.passed, any(one.with_step for one in names)
        left = lead.trips - passed if lead.trips is not None and passed is not None else None
        if resets and left is not None and all(map(self.moves, names)):
            lap = list(itertools.islice(pattern.openings(-passed, left), MOST_OF_A_LAP))
            if not lap:
                return NEVER
            if len(lap) < MOST_OF_A_LAP:
                every = lead.trips / len(lap)
                lap = [one + n * lead.trips for n in range(1 + MOST_AHEAD // len(lap)) for one in lap]
                behind = sum(one < first for one in lap)
                return OpeningRhythm(every, lap[: behind + MOST_AHEAD])
        behind = list(pattern.openings(max(-MOST_AHEAD, 1 - step if passed is None else -passed), first))
        high = left if left is not None and not resets else NOT_REACHED
        ahead = list(itertools.islice(pattern.openings(first, high), MOST_AHEAD))
        every = (ahead[-1] - ahead[0]) / (len(ahead) - 1) if len(ahead) > 1 else math.inf
        if ahead and pattern.lap and len(pattern.lap) < MOST_OF_A_LAP and pattern.starts[-1] < high:
            every = pattern.period / len(pattern.lap)
        evenly = len({after - before for before, after in zip(ahead, ahead[1:])}) == 1
        if not pattern.lap and len(ahead) < MOST_AHEAD and not (evenly and ahead[-1] + every >= high):
            every = math.inf  # it ends before the loop does
        return OpeningRhythm(every, behind + ahead, by_steps)


class OpeningPattern:
    """The iterations at which tests hold: from one of their `turns` to the next, the same in each lap of `period`.

    They hold at each `stride` from `place` only.
    """

    def __init__(self, holds, turns, period, place, stride):
        self.holds, self.period, self.place, self.stride = holds, period, place, stride
        self.starts = sorted({0, *(one + n for one in turns for n in (-1, 0, 1, 2))})
        self.lap = self.lap_from(self.starts[-1], math.inf)

    def lap_from(self, start, end):
        """Return the first iterations of a lap that hold, as many as anybody asks for."""
        lap = range(start + (self.place - start) % self.stride, min(start + self.period, end), self.stride)
        return list(itertools.islice(filter(self.holds, lap), MOST_OF_A_LAP))

    def openings(self, low, high):
        """Yield up to MOST_OF_A_LAP iterations from `low` to before `high`."""
        starts = [low, *(one for one in self.starts if low < one < high)]
        for start, end in zip(starts, [*starts[1:], high]):
            lap = self.lap_from(start, end)
            for begin in itertools.count(0, self.period) if lap else ():
                for place in lap:
                    if begin + place >= end:
                        break
                    yield begin + place
                if begin + start + self.period >= end:
                    break


def is_quotient(node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)


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
                if not at.hold([(node, truth)], 0):
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
