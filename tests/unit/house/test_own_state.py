"""In the probe each object writes to itself only: what one of them sees, the others are told by calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from costgpu.measure import probe

PROBE = Path(probe.__file__).parent
OWN = ("self", "cls")
INTERPRETER = ("os", "sys")  # whose environment, arguments and modules are the script's, which the probe prepares
OURS = ("recorder", "seen", "phase", "progress", "series", "schemes", "loaders", "WORLD")
PATCHING = "patching.py"  # what is put into libraries goes through it


def foreign_writes(source: str) -> list[str]:
    """Return each place in a module that sets or deletes an attribute of another object, or an item of one."""
    tree = ast.parse(source)
    found: list[ast.expr] = [target for node in ast.walk(tree) for target in _targets(node) if _is_foreign(target)]
    found += [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _sets_by_name(node)]
    return [f"{node.lineno}: {ast.unparse(node)}" for node in sorted(found, key=lambda one: one.lineno)]


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement assigns to or deletes, without the items of it that it names."""
    waiting: list[ast.expr] = []
    if isinstance(node, (ast.Assign, ast.Delete)):
        waiting = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension, ast.NamedExpr)):
        waiting = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        waiting = [node.optional_vars]
    while waiting:
        target = waiting.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            waiting += target.elts
        elif isinstance(target, (ast.Starred, ast.Subscript)):
            waiting.append(target.value)
        else:
            yield target


def _is_foreign(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and not (
        isinstance(target.value, ast.Name) and target.value.id in OWN + INTERPRETER
    )


def _sets_by_name(node: ast.Call) -> bool:
    if not node.args:
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    owner = node.args[0]
    if called == "put":  # into libraries' objects and the script's, not into the probe's own
        return ast.unparse(owner).rpartition(".")[2] in OURS
    named = called in ("setattr", "delattr", "__setattr__", "__delattr__")
    return named and not (isinstance(owner, ast.Name) and owner.id in OWN + INTERPRETER)


def test_the_probe_writes_to_no_other_object() -> None:
    places = []
    for path in sorted(PROBE.rglob("*.py")):
        name = path.relative_to(PROBE).as_posix()
        found = foreign_writes(path.read_text()) if name != PATCHING else []
        places += [f"{name}:{one}" for one in found]
    assert not places, "written to from outside; tell the object by a call:\n" + "\n".join(places)


@pytest.mark.parametrize(
    "line",
    [
        "recorder.wait = 0.0",
        "recorder.wait += 1",
        "recorder.wait: float = 0.0",
        "del recorder.wait",
        "recorder.events['save'] = 1.0",
        "recorder.events['a']['b'] += 1.0",
        "self.recorder.wait = 0.0",
        "first, (self.recorder.last, *rest) = values",
        "for recorder.last in values: pass",
        "with opened as recorder.file: pass",
        "setattr(recorder, 'wait', 0.0)",
        "put(self.recorder, wait=0.0)",
        "object.__setattr__(recorder, 'wait', 0.0)",
    ],
)
def test_a_breach_is_found(line: str) -> None:
    assert foreign_writes(f"def hook(self, recorder):\n    {line}")


@pytest.mark.parametrize(
    "line", ["self.wait = 0.0", "self.events['save'] = 1.0", "recorder = self", "os.environ['RANK'] = '0'"]
)
def test_what_an_object_does_to_itself_is_none(line: str) -> None:
    assert not foreign_writes(f"def hook(self, recorder):\n    {line}")
