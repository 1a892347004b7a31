"""What statements come to, without what a switch that cannot change any more leaves out."""

import ast

from ..patching import known
from .constants import Constants, is_settings
from .gates import FILLING
from .live_values import MISSING, PLAIN, Unknown
from .source import assigned_pairs, following, own_statements
from .syntax import dotted, is_none

ENDS = ("exit", "quit", "sys.exit", "os._exit")


class Reach:
    """Walks the statements of one scope, in live variables, that come after others."""

    def __init__(self, source, scope, evaluator, passed, changing=frozenset(), repeated=()):
        """Take in `passed`, which runs before: what it assigns is not known when a later statement's turn comes.

        `changing` is what changes outside of the scope: only attributes are seen from here. What is `repeated` changes
        names, too, before a test of them comes out.
        """
        self.source, self.scope, self.evaluator = source, scope, evaluator
        self.around = frozenset(one for one in changing if "." in one[0])
        self.attributes = {name.rsplit(".", 1)[-1] for name, _ in self.around}
        self.passed, self.changing, self.repeated = [], self.around, repeated
        self.pass_by(passed)

    @classmethod
    def of_call(cls, source, scope, evaluator, changing=frozenset()):
        """Return that of a function that will be called, in its variables."""
        return cls(source, scope, evaluator, (), changing, scope.body)

    def given(self, name, value):
        """Return the same with another value for one variable."""
        inner = self.evaluator.given(name, value)
        return Reach(self.source, self.scope, inner, self.passed, self.around)

    def trips(self, node):
        self.refuse_changing(node)
        return self.evaluator.trips(node)

    def truth(self, test):
        return self.evaluator.truth(test)

    def pass_by(self, statements):
        self.passed += statements
        self.changing |= changed_by(statements)
        self.constants = Constants([*self.repeated, *self.passed], self.source, self.evaluator)

    def after(self, body, line):
        """Statements that follow a line in this body, as far as they are reached, each with what ran before it as passed."""
        for statement in following(body, line):
            yield statement
            if self.leaves(statement):
                return
            self.pass_by([statement])

    def leaves(self, statement):
        """Return whether nothing of its scope comes after this statement."""
        if isinstance(statement, ast.If):
            truth = self.known(statement.test)
            taken = [] if truth is None else statement.body if truth else statement.orelse
            return any(map(self.leaves, taken))
        called = statement.value if isinstance(statement, ast.Expr) else None
        ends = isinstance(called, ast.Call) and dotted(called.func) in ENDS
        return ends or isinstance(statement, (ast.Return, ast.Raise))

    def known(self, test):
        """Return how a test comes out that nothing changes until its turn; None if that is not known."""
        if isinstance(test, ast.BoolOp):
            ends = isinstance(test.op, ast.Or)
            parts = [self.known(part) for part in test.values]
            return ends if ends in parts else None if None in parts else not ends
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.known(test.operand)
            return None if inner is None else not inner
        value = self.evaluator.known(test)
        if not isinstance(value, PLAIN) and value is not MISSING:  # a list may be filled by then
            return None
        if isinstance(test, ast.Compare) and any(map(is_none, test.comparators)):
            left = test.left
            set_later = isinstance(left, ast.Attribute) and left.attr in self.constants.changed
            if set_later and self.evaluator.known(left) is None:
                return None
        return self.constants.truth(test)

    def nodes(self, *roots):
        """Yield the nodes of statements and expressions, without branches that are not taken and loops that make no turn."""
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            yield node
            waiting += self.taken(node)[::-1]

    def taken(self, node):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            truth = self.known(node.test)
            if truth is False or (truth and not isinstance(node, ast.While)):
                branch = node.body if truth else node.orelse
                return [node.test, *(branch if isinstance(branch, list) else [branch])]
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            truths = [self.known(part) for part in node.values]
            return node.values[: truths.index(ends) + 1] if ends in truths else node.values
        if isinstance(node, ast.For) and self.is_empty(node.iter):
            return [node.iter, *node.orelse]
        return list(ast.iter_child_nodes(node))

    def is_empty(self, node):
        """Return whether this is a `range` of nothing."""
        if not isinstance(node, ast.Call) or dotted(node.func) != "range":
            return False
        return all(map(self.constants.fixed, node.args)) and known(self.evaluator.trips, node) == 0

    def refuse_changing(self, node, filled_only=False):
        """Raise Unknown for an expression with a name that changes before its turn."""
        parts = self.sources_of(node)
        names = {dotted(one) for one in parts if isinstance(one, (ast.Name, ast.Attribute))}
        for name, filled in self.changing:
            if name in names and (filled or not filled_only):
                raise Unknown("{} changes before that".format(name))
        for one in parts:
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load):
                changes = one.attr in self.attributes or one.attr in self.constants.changed
                if changes and not is_settings(one.value, self.evaluator):
                    raise Unknown("{} changes before that".format(dotted(one)))

    def sources_of(self, node):
        """Return the nodes of an expression, and of what its names are assigned in a function."""
        found, names = [], set()
        waiting = [node]
        body = [] if isinstance(self.scope, ast.Module) else self.scope.body
        pairs = [pair for statement in own_statements(body) for pair in assigned_pairs(statement)]
        while waiting:
            parts = list(ast.walk(waiting.pop()))
            found += parts
            new = {dotted(one) for one in parts if isinstance(one, ast.Name)} - names
            names |= new
            waiting += [value for target, value in pairs if dotted(target) in new]
        return found


def changed_by(statements):
    """Return the names that statements bind or fill: what is looked up in them now is not what they hold afterwards."""
    bound, filled = set(), set()
    for node in (one for statement in statements for one in ast.walk(statement)):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            bound.add(dotted(node))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            filled.add(dotted(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLING:
            filled.add(dotted(node.func.value))
    return frozenset([(name, False) for name in bound] + [(name, True) for name in filled])
