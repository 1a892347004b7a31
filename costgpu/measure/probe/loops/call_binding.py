"""What a call would see: a function's variables for given arguments, without calling it."""

import ast
import types

from .safe_eval import Evaluator, Unknown
from .source import Source, own_statements

MOST_DECORATORS = 8


class Absent:
    """Marks an argument that could not be evaluated; its use in the callee says Unknown."""


def evaluated(evaluator, node):
    try:
        return evaluator.value(node)
    except Exception:  # noqa: BLE001 - the user's objects may raise anything
        return Absent()


def plain_function(value):
    """The function behind a bound method and decorators that keep it (`torch.no_grad()` does); else the value itself."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    for _ in range(MOST_DECORATORS):
        if not isinstance(value, types.FunctionType) or "__wrapped__" not in vars(value):
            break
        value = value.__wrapped__
    return value


def bind_call(call, evaluator):
    """(source, function node, evaluator of its variables) of a call to a plain Python function; raises Unknown."""
    function = evaluator.value(call.func)
    bound = getattr(function, "__self__", None)
    function = plain_function(function)
    code = getattr(function, "__code__", None)
    source = Source.of(code.co_filename) if code is not None else None
    scope = source.scope(code) if source is not None else None
    if scope is None or any(isinstance(a, ast.Starred) for a in call.args):
        raise Unknown("no source")
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    positional = names[: code.co_argcount]
    defaults = function.__defaults__ or ()
    local = dict(zip(positional[len(positional) - len(defaults) :], defaults))
    local.update(function.__kwdefaults__ or {})
    values = ([bound] if bound is not None else []) + [evaluated(evaluator, a) for a in call.args]
    local.update(zip(positional, values))
    local.update({k.arg: evaluated(evaluator, k.value) for k in call.keywords if k.arg})
    local = {k: v for k, v in local.items() if not isinstance(v, Absent)}
    inside = Evaluator(local, function.__globals__, evaluator.torch)
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
                if isinstance(target, ast.Name) and not isinstance(value, Absent):
                    local[target.id] = value
                else:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name):
                            local.pop(node.id, None)
    return source, scope, inside


def generator_trips(call, evaluator):
    """How many items a call of a generator function with one loop around its only `yield` gives; raises Unknown."""
    _, scope, inside = bind_call(call, evaluator)
    yields = [n for n in own_statements(scope.body) if isinstance(n, ast.Yield)]
    loops = [n for n in own_statements(scope.body) if isinstance(n, (ast.For, ast.While))]
    around = [n for n in loops if isinstance(n, ast.For) and yields and n.lineno <= yields[0].lineno <= n.end_lineno]
    if len(yields) != 1 or len(around) != len(loops) or not around:
        raise Unknown("a generator")
    if any(isinstance(n, (ast.Break, ast.Return, ast.Continue)) for n in own_statements(scope.body)):
        raise Unknown("a generator that may end early")
    total = 1
    for loop in around:
        total *= inside.trips(loop.iter)
    return total
