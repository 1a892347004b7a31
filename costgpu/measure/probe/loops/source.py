"""The parsed source around a line: loops, blocks, increments, and functions that train."""

import ast
import io

from .syntax import dotted

CONSTRUCTORS = ("__init__", "__post_init__", "__new__", "setup", "build")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def own_statements(body):
    """Yield every statement under `body`, not descending into inner functions."""
    stack = list(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def encloses(node, line):
    return node.lineno <= line <= getattr(node, "end_lineno", node.lineno)


class Source:
    """The parsed source of one file, and the loops around a line of it."""

    cache: "dict[str, object]" = {}

    def __init__(self, path):
        with io.open(path, "rb") as stream:
            self.text = stream.read().decode("utf-8", "replace")
        self.tree = ast.parse(self.text)
        self.lines = self.text.encode().splitlines()
        self.changed = self.shared = self.functions = None
        self.scopes, self.repeating, self.segments = {}, {}, {}  # of code objects, of scopes, of nodes

    @classmethod
    def of(cls, path):
        if path not in cls.cache:
            try:
                cls.cache[path] = cls(path)
            except (OSError, SyntaxError, ValueError):
                cls.cache[path] = None
        return cls.cache[path]

    @classmethod
    def of_code(cls, code):
        """Return the source of a code object's file and the node of its function; None twice where one is missing."""
        source = cls.of(code.co_filename)
        scope = source.scope(code) if source is not None else None
        return (source, scope) if scope is not None else (None, None)

    def attributes_changed(self):
        """Return the names of attributes that some function of this file, other than a constructor, assigns."""
        if self.changed is None:
            made = {
                id(node)
                for function in ast.walk(self.tree)
                if isinstance(function, ast.FunctionDef) and function.name in CONSTRUCTORS
                for node in ast.walk(function)
            }
            self.changed = {
                node.attr
                for node in ast.walk(self.tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in made
            }
        return self.changed

    def scope(self, code):
        """Return the function (or module) node of a code object."""
        if code.co_name == "<module>":
            return self.tree
        if self.functions is None:
            nodes = ast.walk(self.tree)
            self.functions = [one for one in nodes if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
        key = name, line = code.co_name, code.co_firstlineno
        if key not in self.scopes:
            self.scopes[key] = None
            for node in self.functions:
                first = min([node.lineno] + [d.lineno for d in node.decorator_list])
                if node.name == name and first <= line <= node.body[0].lineno:
                    self.scopes[key] = node
        return self.scopes[key]

    def loops(self, scope, line):
        """For and while statements of `scope` whose body holds `line`, outermost first."""
        nodes = [node for node in self.repeats(scope) if isinstance(node, LOOPS)]
        found = [node for node in nodes if node.body[0].lineno <= line <= node.body[-1].end_lineno]
        return sorted(found, key=lambda n: (n.lineno, -n.end_lineno))

    def repeats(self, scope):
        """Return all loops and comprehensions of `scope`, without those of inner functions."""
        nodes = self.repeating.get(scope)
        if nodes is None:
            nodes = [node for node in own_statements(scope.body) if isinstance(node, (*LOOPS, *COMPREHENSIONS))]
            self.repeating[scope] = nodes
        return nodes

    def loops_at(self, scope, line):
        """Line numbers of the loops and comprehensions whose head is drawing an item at `line`."""
        found = []
        for node in self.repeats(scope):
            if isinstance(node, (ast.For, ast.AsyncFor)) and node.iter.lineno <= line <= node.iter.end_lineno:
                found.append(node.lineno)
            elif isinstance(node, COMPREHENSIONS):
                found.extend(g.iter.lineno for g in node.generators if encloses(g.iter, line))
        return found

    def comprehension(self, scope, line):
        inside = [n for n in self.repeats(scope) if isinstance(n, COMPREHENSIONS) and encloses(n, line)]
        return inside[0].generators if len(inside) == 1 else []

    def names_shared(self):
        """Return the names that functions of this file assign in the module, or in the function around them."""
        if self.shared is None:
            shared = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Global, ast.Nonlocal))]
            self.shared = {name for node in shared for name in node.names}
        return self.shared

    def segment(self, node, limit=60):
        key = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        text = self.segments.get(key)
        if text is None:
            text = self.segments[key] = self.words(*key)
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def words(self, first, begin, last, end):
        """Return the source between two places; ``ast.get_source_segment`` would take the whole file apart each time."""
        lines = self.lines[first - 1 : last]
        if not lines:
            return "?"
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][begin:]
        return " ".join(b" ".join(lines).decode("utf-8", "replace").split()) or "?"


def loops_around(live):
    """Return the loops of a live frame around its line; none where its source cannot be read."""
    source, scope = Source.of_code(live.f_code)
    return source.loops(scope, live.f_lineno) if scope is not None else []


def encloses_any(body, line):
    return bool(body) and body[0].lineno <= line <= body[-1].end_lineno


def assigned_pairs(statement):
    """Yield the targets of an assignment with what each is given; those of `a, b = 1, 2` one by one."""
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            yield from zip(target.elts, statement.value.elts)
        else:
            yield target, statement.value


def made_before(scope, text, line, source):
    """Return the expressions that are assigned to a name before a line, `with` among them."""
    found = []
    for statement in own_statements(scope.body):
        pairs = list(assigned_pairs(statement))
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            pairs = [(one.optional_vars, one.context_expr) for one in statement.items if one.optional_vars is not None]
        found += [made for name, made in pairs if statement.lineno < line and source.segment(name) == text]
    return found


def made_last(scope, text, line, source):
    """Return the expression that is assigned to a name last before a line; None if there is none."""
    found = made_before(scope, text, line, source)
    return max(found, key=lambda one: (one.lineno, one.col_offset), default=None)


def training_functions(tree, calls=("backward",)):
    """Names of the functions of a file that make one of these calls (a backward pass), directly or through each other."""
    bodies = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            made = {dotted(n.func).rsplit(".", 1)[-1] for n in ast.walk(node) if isinstance(n, ast.Call)}
            bodies.setdefault(node.name, set()).update(made)
    training = {name for name, made in bodies.items() if made & set(calls)}
    grown = True
    while grown:
        telling = training - {"train", "step", "forward"}
        more = {name for name, made in bodies.items() if name not in training and made & telling}
        grown = bool(more)
        training |= more
    return training


def following(body, line):
    """Yield the statements that run after `line` in this body or in a block of it that encloses the line."""
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
    """Return the values of `for name in [constant, ...]`; None for any other loop."""
    if isinstance(loop.target, ast.Name) and isinstance(loop.iter, (ast.List, ast.Tuple)):
        if loop.iter.elts and all(isinstance(e, ast.Constant) for e in loop.iter.elts):
            return [e.value for e in loop.iter.elts]
    return None


def names_in(node, context):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def depends_on_outer(loop, enclosing):
    """Return whether the length of `loop` is computed from an outer loop's variable (a curriculum)."""
    for outer in enclosing:
        if outer is loop or not isinstance(outer, ast.For) or outer.lineno >= loop.lineno:
            continue
        known = names_in(outer.target, ast.Store)
        for statement in 2 * list(own_statements(outer.body)):  # twice over: assignments come in any order here
            if isinstance(statement, ast.Assign) and names_in(statement.value, ast.Load) & known:
                known |= set().union(*(names_in(t, ast.Store) for t in statement.targets))
        ranged = isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) in ("range", "trange")
        telling = known if ranged else known - names_in(outer.target, ast.Store)
        if isinstance(loop.iter, (ast.Name, ast.Call)) and names_in(loop.iter, ast.Load) & telling:
            return True
    return False
