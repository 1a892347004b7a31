"""What a call would see: a function's variables for given arguments, without calling it."""

import ast
import inspect
import types

from ..patching import known
from .live_values import MISSING, Unknown
from .script_frames import package_of_file
from .source import Source, assigned_pairs, own_statements

MOST_DECORATORS = 8


class LengthOnly:
    """Stands for an argument of which only the length could be read."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def evaluated(evaluator, node):
    """Return the value of an expression, `LengthOnly` where only its length can be read, or else MISSING."""
    value = evaluator.known(node)
    return known(lambda: LengthOnly(int(evaluator.trips(node))), default=MISSING) if value is MISSING else value


def bind_call(call, evaluator):
    """(source, function node, evaluator of its variables) of a call to a plain Python function; raises Unknown."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        owner = imagine(call.func.value, evaluator)
        return bind(inspect.getattr_static(type(owner), call.func.attr, None), owner, call, evaluator)
    return bind(*plain_function(evaluator.value(call.func)), call, evaluator)


def imagine(call, evaluator):
    """Return an object of a class of the user's as a plain constructor would make it, which is read, not run.

    Raises Unknown.
    """
    kind = evaluator.value(call.func)
    init = inspect.getattr_static(kind, "__init__", None) if isinstance(kind, type) else None
    if not is_own(init) or kind.__new__ is not object.__new__ or hasattr(kind, "__del__"):
        raise Unknown("no plain class")
    made = object.__new__(kind)
    _, scope, inside = bind(init, made, call, evaluator)
    for statement in scope.body:
        for target, given in assigned_pairs(statement):
            if isinstance(target, ast.Attribute) and inside.known(target.value) is made:
                value = evaluated(inside, given)
                if value is not MISSING:
                    vars(made)[target.attr] = value
    return made


def bind(function, bound, call, evaluator):
    """As `bind_call`, for a function that has been found, with the object that it is bound to."""
    code = function.__code__ if isinstance(function, types.FunctionType) else None
    source, scope = Source.of_code(code) if code is not None else (None, None)
    if scope is None:
        raise Unknown("no source")
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    positional = names[: code.co_argcount]
    defaults = function.__defaults__ or ()
    local = dict(zip(positional[len(positional) - len(defaults) :], defaults))
    local.update(function.__kwdefaults__ or {})
    values, named = given_to(call, evaluator)
    values = ([bound] if bound is not None else []) + values
    local.update(zip(positional, values))
    local.update({name: value for name, value in named.items() if name in names})
    others = list(code.co_varnames[len(names) :])

    def whole(many):
        """Return the arguments that a function takes together; missing if one of them is."""
        parts = many.values() if isinstance(many, dict) else many
        return MISSING if any(one is MISSING for one in parts) else many

    if code.co_flags & inspect.CO_VARARGS:
        local[others.pop(0)] = whole(tuple(values[len(positional) :]))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        local[others.pop(0)] = whole({name: value for name, value in named.items() if name not in names})
    local = {k: v for k, v in local.items() if v is not MISSING}
    inside = evaluator.within(local, function.__globals__)
    first_loop = next((s.lineno for s in scope.body if isinstance(s, (ast.For, ast.While, ast.With))), 1 << 30)
    for statement in own_statements(scope.body):
        if isinstance(statement, (ast.AugAssign, ast.Assign)) and statement.lineno > first_loop:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    local.pop(node.id, None)
    for statement in scope.body:
        if isinstance(statement, ast.Assign) and statement.lineno < first_loop:
            value = evaluated(inside, statement.value)
            for target in statement.targets:
                if isinstance(target, ast.Name) and value is not MISSING:
                    local[target.id] = value
                else:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            local.pop(node.id, None)
    return source, scope, inside


def given_to(call, evaluator):
    """Return the values of a call's arguments, by position and by name, with those in `*values` and `**values`.

    Raises Unknown.
    """
    values, named = [], {}
    for node in call.args:
        many = evaluator.value(node.value) if isinstance(node, ast.Starred) else None
        if many is not None and not isinstance(many, (list, tuple)):
            raise Unknown("arguments")
        values += [evaluated(evaluator, node)] if many is None else list(many)
    for keyword in call.keywords:
        many = evaluator.value(keyword.value) if keyword.arg is None else {}
        if type(many) is not dict:
            raise Unknown("arguments")
        named.update({keyword.arg: evaluated(evaluator, keyword.value)} if keyword.arg is not None else many)
    return values, named


def is_own(function):
    """Return whether this is a Python function or method of the user's own files."""
    function = plain_function(function)[0]
    return function is not None and not package_of_file(function.__code__.co_filename)


def plain_function(value):
    """Return a Python function and what it is bound to; None twice for anything else, none of whose attributes is asked for.

    Decorators that keep the function (`torch.no_grad()` does) are seen through.
    """
    bound = None
    for _ in range(MOST_DECORATORS):
        if isinstance(value, types.MethodType):
            value, bound = value.__func__, value.__self__
        elif isinstance(value, types.FunctionType) and "__wrapped__" in vars(value):
            value = value.__wrapped__
        else:
            break
    return (value, bound) if isinstance(value, types.FunctionType) else (None, None)


def arguments(kind, call):
    """Return the expression of each argument that a call of a class gives it, its default where it gives none."""
    parameters = list(inspect.signature(kind).parameters.values())
    found = dict(zip([one.name for one in parameters if one.kind < one.VAR_POSITIONAL], call.args))
    found.update({k.arg: k.value for k in call.keywords if k.arg})
    for one in parameters:
        if one.default is not one.empty:
            found.setdefault(one.name, ast.Constant(value=one.default))
    return found
