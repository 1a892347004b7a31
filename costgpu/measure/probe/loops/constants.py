"""Which expressions cannot change while a loop goes on, and what they come to."""

from __future__ import annotations

import ast

from ..patching import known
from .exit_paths import STOPPING, ExitTaken
from .source import own_statements
from .syntax import dotted, is_none

SETTINGS_NAMES = ("arg", "opt", "cfg", "conf", "hparam", "param", "flag", "setting", "hp")
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.NotEq)
FIXED_CALLS = ("int", "float", "bool", "min", "max", "abs", "round", "getattr")


class Constants:
    """Which tests cannot change while these statements run again and again, and how they come out."""

    def __init__(self, repeated, source, evaluator, changing=()):
        """Take in the statements; names that are `changing` may change for another reason."""
        self.evaluator = evaluator
        nodes = [node for node in own_statements(repeated) if isinstance(getattr(node, "ctx", None), ast.Store)]
        self.stored = {dotted(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))} | set(changing)
        self.stored |= {dotted(node.value) + "[]" for node in nodes if isinstance(node, ast.Subscript)}
        self.changed = source.attributes_changed()
        self.shared = source.names_shared()

    def open_tests(self, tests, counts=False):
        """Return the tests that are not settled; None if one of them never comes out as it must.

        With `counts`, a comparison with an attribute stays open: something out of sight may change it.
        """
        left = []
        for test, truth in tests:
            settled = None if counts and self.orders_attribute(test) else self.truth(test)
            if settled is None:
                if not any(same(test, other) and truth is also for other, also in left):
                    left.append((test, truth))
            elif settled is not truth:
                return None
        return left

    def orders_attribute(self, test):
        """Return whether this is `self.epoch < limit`, and not of a setting."""
        sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
        named = [one for one in sides if isinstance(one, ast.Attribute) and not is_settings(one.value, self.evaluator)]
        return bool(named) and isinstance(test.ops[0], ORDERS)

    def truth(self, test):
        if isinstance(test, ExitTaken) or not self.fixed(test):
            return None
        return known(self.evaluator.truth, test)

    def number(self, node, sign=1):
        """Return the value of an expression that cannot change, times a sign; None if it can."""
        value = known(self.evaluator.number, node) if self.fixed(node) or self.unchanged(node) else None
        return None if value is None else sign * value

    def fixed(self, node):
        """Return whether an expression is made of constants, of names that no loop here assigns, and of settings."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return node.id not in self.stored and node.id not in self.shared
        if isinstance(node, ast.Attribute):
            if dotted(node) in self.stored or not self.fixed(node.value):
                return False
            flag = any(word in node.attr.lower() for word in STOPPING)  # which a callback in another file may raise
            return is_settings(node.value, self.evaluator) or (
                node.attr not in self.changed and dotted(node.value) in ("self", "cls") and not flag
            )
        if isinstance(node, ast.Subscript):
            plain = self.fixed(node.value) and dotted(node.value) + "[]" not in self.stored
            return plain and is_settings(node.value, self.evaluator)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                return is_settings(node.func.value, self.evaluator) and self.fixed(node.func.value)
            return dotted(node.func) in FIXED_CALLS and all(map(self.fixed, node.args))
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            inside = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
            return all(map(self.fixed, inside)) or self.about_none(node)
        return False

    def unchanged(self, node):
        """Return whether this is an attribute that nothing in this file assigns, of an object that stays: `env.num_envs`."""
        if not isinstance(node, ast.Attribute) or dotted(node) in self.stored or node.attr in self.changed:
            return False
        return self.fixed(node.value) or self.unchanged(node.value)

    def free_of_stored(self, node):
        """Return whether no name in an expression is assigned by what is repeated."""
        return not any(
            isinstance(one, (ast.Name, ast.Attribute)) and dotted(one) in self.stored for one in ast.walk(node)
        )

    def about_none(self, node):
        """`self.limit is None`: an object that is there stays there."""
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return False
        subject = node.left
        return is_none(node.comparators[0]) and dotted(subject) not in self.stored and "?" not in dotted(subject)


def same(one, other):
    return one is other or (
        isinstance(one, ast.AST) and isinstance(other, ast.AST) and ast.dump(one) == ast.dump(other)
    )


def is_settings(node, evaluator):
    """Return whether an expression names a bag of settings (args, cfg, self.config), which nobody changes while training."""
    if any(part.startswith(SETTINGS_NAMES) for part in dotted(node).lower().split(".")):
        return True
    return type(evaluator.known(node)).__name__ in ("Namespace", "SimpleNamespace", "module")
