"""The parsed source around a line: loops, blocks, increments, and functions that train."""

import ast
import io

from .safe_eval import dotted

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def own_statements(body):
    """Every statement under `body`, not descending into inner functions."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def unconditional(body):
    """The statements of a block that run whenever it does: not those under a further `if` or loop."""
    for node in body:
        yield node
        if isinstance(node, (ast.With, ast.AsyncWith, ast.Try)):
            yield from unconditional(node.body)


def encloses(node, line):
    return node.lineno <= line <= getattr(node, "end_lineno", node.lineno)


class Source:
    """The parsed source of one file, and the loops around a line of it."""

    cache: "dict[str, object]" = {}

    def __init__(self, path):
        with io.open(path, "rb") as stream:
            self.text = stream.read().decode("utf-8", "replace")
        self.tree = ast.parse(self.text)

    @classmethod
    def of(cls, path):
        if path not in cls.cache:
            try:
                cls.cache[path] = cls(path)
            except (OSError, SyntaxError, ValueError):
                cls.cache[path] = None
        return cls.cache[path]

    def scope(self, code):
        """The function (or module) node of a code object."""
        if code.co_name == "<module>":
            return self.tree
        best = None
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
                first = min([node.lineno] + [d.lineno for d in node.decorator_list])
                if first <= code.co_firstlineno <= node.body[0].lineno:
                    best = node
        return best

    def loops(self, scope, line):
        """For/while statements and comprehensions of `scope` whose body holds `line`, outermost first."""
        found = []
        for node in own_statements(scope.body):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                if node.body[0].lineno <= line <= node.body[-1].end_lineno:
                    found.append(node)
        return sorted(found, key=lambda n: (n.lineno, -n.end_lineno))

    def loops_at(self, scope, line):
        """Line numbers of the loops and comprehensions whose head is drawing an item at `line`."""
        found = []
        for node in own_statements(scope.body):
            if isinstance(node, (ast.For, ast.AsyncFor)) and node.iter.lineno <= line <= node.iter.end_lineno:
                found.append(node.lineno)
            elif isinstance(node, COMPREHENSIONS):
                found.extend(g.iter.lineno for g in node.generators if encloses(g.iter, line))
        return found

    def comprehension(self, scope, line):
        inside = [n for n in own_statements(scope.body) if isinstance(n, COMPREHENSIONS) and encloses(n, line)]
        return inside[0].generators if len(inside) == 1 else []

    def segment(self, node, limit=60):
        text = " ".join((ast.get_source_segment(self.text, node) or "?").split())
        return text if len(text) <= limit else text[: limit - 1] + "…"


def is_bool(node, kind):
    return isinstance(node, ast.BoolOp) and isinstance(node.op, kind)


def encloses_any(body, line):
    return bool(body) and body[0].lineno <= line <= body[-1].end_lineno


def encloses_step(gate, calls):
    return any(name.endswith((".step", ".backward", ".zero_grad")) for name in calls) or any(
        isinstance(n, ast.Call) and dotted(n.func).endswith((".step", ".backward")) for n in ast.walk(gate)
    )


def increment(statement, text, source):
    """The constant by which `statement` raises the variable `text`, or None."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        if source.segment(statement.target) == text and isinstance(statement.value, ast.Constant):
            amount, sign = statement.value.value, -1 if isinstance(statement.op, ast.Sub) else 1
            return sign * amount if isinstance(amount, (int, float)) else None
    if isinstance(statement, ast.Assign) and [source.segment(target) for target in statement.targets] == [text]:
        value = statement.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and source.segment(value.left) == text:
            return value.right.value if isinstance(value.right, ast.Constant) else None
    return None


def assigns(statement, text, source):
    """Whether `statement` itself, not a loop inside it, assigns `text`."""
    if isinstance(statement, (ast.For, ast.While, ast.FunctionDef)):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign) and any(source.segment(t) == text for t in node.targets):
            return True
    return False


def training_functions(tree):
    """Names of the functions of a file that run a backward pass, directly or through each other."""
    bodies = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = {dotted(n.func).rsplit(".", 1)[-1] for n in ast.walk(node) if isinstance(n, ast.Call)}
            bodies.setdefault(node.name, set()).update(calls)
    training = {name for name, calls in bodies.items() if "backward" in calls}
    grown = True
    while grown:
        telling = training - {"train", "step", "forward"}
        more = {name for name, calls in bodies.items() if name not in training and calls & telling}
        grown = bool(more)
        training |= more
    return training


def following(body, line):
    """Statements that run after `line` in this body or in a block of it that encloses the line."""
    for statement in body:
        if statement.lineno > line:
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield statement
        elif encloses(statement, line) and not isinstance(statement, (ast.For, ast.While, ast.AsyncFor)):
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None) or []
                if any(encloses(s, line) for s in inner) or name == "finalbody":
                    yield from following(inner, line)


def literal_values(loop):
    """The values of `for name in [constant, ...]`; None for any other loop."""
    if isinstance(loop.target, ast.Name) and isinstance(loop.iter, (ast.List, ast.Tuple)):
        if loop.iter.elts and all(isinstance(e, ast.Constant) for e in loop.iter.elts):
            return [e.value for e in loop.iter.elts]
    return None


def names_in(node, context):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def depends_on_outer(loop, enclosing):
    """Whether the length of `loop` is computed from an outer loop's variable (a curriculum)."""
    for outer in enclosing:
        if outer is loop or not isinstance(outer, ast.For) or outer.lineno >= loop.lineno:
            continue
        known = names_in(outer.target, ast.Store)
        for statement in 2 * list(own_statements(outer.body)):  # twice over: assignments come in any order here
            if isinstance(statement, ast.Assign) and names_in(statement.value, ast.Load) & known:
                known |= set().union(*(names_in(t, ast.Store) for t in statement.targets))
        if isinstance(loop.iter, (ast.Name, ast.Call)) and names_in(loop.iter, ast.Load) & (
            known - names_in(outer.target, ast.Store) | ranged_by(loop, known)
        ):
            return True
    return False


def ranged_by(loop, known):
    """Outer variables that bound a `range` directly."""
    call = loop.iter
    return known if isinstance(call, ast.Call) and dotted(call.func) in ("range", "trange") else set()
