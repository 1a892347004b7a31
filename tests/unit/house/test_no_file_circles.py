"""No module imports one that imports it back, however indirectly: neither lazily nor for type checking only."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import costgpu

PACKAGE = Path(costgpu.__file__).parent


def imports_of(package: Path) -> dict[str, set[str]]:
    """Module -> modules of the package that it imports, anywhere in its file."""
    folders = [Path(folder) for folder, _, _ in os.walk(package, followlinks=True)]  # two rooms are symbolic links
    files = {_name(package, path): path for folder in folders for path in folder.glob("*.py")}
    return {name: _imported(name, path, files) - {name} for name, path in files.items()}


def _name(package: Path, path: Path) -> str:
    parts = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, files: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: None if path.name == "__init__.py" else -1]
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            found |= {one if (one := f"{base}.{alias.name}") in files else base for alias in node.names}
    return found & set(files)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules each of which imports all others, directly or not."""
    reached = {module: _reachable(graph, module) for module in graph}
    found: list[set[str]] = []
    for module in sorted(graph):
        group = {other for other in reached[module] if module in reached[other]}
        if group and group not in found:
            found.append(group)
    return found


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += graph[module]
    return seen


def test_no_file_of_the_product_is_part_of_a_circle() -> None:
    assert circles(imports_of(PACKAGE)) == []


@pytest.mark.parametrize(
    "back",
    [
        "from planted.first import one",
        "from . import first",
        "def later():\n    import planted.first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.first import one",
    ],
)
def test_a_planted_circle_is_seen(tmp_path: Path, back: str) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text("from planted import second\n")
    (package / "second.py").write_text("import planted.third\n")
    (package / "third.py").write_text(back)
    assert circles(imports_of(package)) == [{"planted.first", "planted.second", "planted.third"}]
