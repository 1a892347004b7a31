"""Which packages a script imported, and which installed distribution each is from."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

from costgpu.models.footprint import ImportedPackage

MOST_SOURCES, MOST_BYTES = 500, 1 << 20  # files of the script's own that are read for what they import
_GUARD = re.compile(r"\b(ImportError|ModuleNotFoundError|Exception|BaseException)\b")
_ENDS = re.compile(r"\braise\b|\bexit\(")
_SITE = re.compile(r".*/(site|dist)-packages/")


def imported_packages(modules: Mapping[str, str], sources: Iterable[str]) -> list[ImportedPackage]:
    """Return the modules by name.

    Args:
        modules: Top-level name -> the file that it was imported from.
        sources: Files of modules that are not installed: who imports them. An import that may fail, as the file itself
            provides for, is none.
    """
    asked: set[str] = set()  # by a statement, or by a function that is given the name
    for path in list(sources)[:MOST_SOURCES]:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError), Path(path).open("rb") as file:
            for node in _certain(ast.parse(file.read(MOST_BYTES))):
                if isinstance(node, ast.Import):
                    asked |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    asked.add(node.module.partition(".")[0])
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                    asked |= {str(each.value).partition(".")[0] for each in node.args if isinstance(each, ast.Constant)}
    provided = _providers(modules)
    return [
        ImportedPackage(
            module=name,
            distribution=provided.get(file, ("", ""))[0],
            version=provided.get(file, ("", ""))[1],
            origin=file.removesuffix("/__init__.py"),
            by_script=name in asked,
        )
        for name, file in sorted(modules.items())
    ]


def _providers(modules: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """File -> name and version of the distribution that lists it, or lists its module where there is no record."""
    found: dict[str, tuple[str, str]] = {}
    for site in {match[0] for match in map(_SITE.match, modules.values()) if match}:
        for distribution in distributions(path=[site]):
            with contextlib.suppress(Exception):  # damaged metadata of a package that may have nothing to do with it
                lines = (distribution.read_text("RECORD") or "").splitlines()
                files = {site + line.partition(",")[0].strip('"') for line in lines}
                if not files:  # Debian's packages, and old ones
                    tops = (distribution.read_text("top_level.txt") or "").split()
                    files = {modules[top] for top in tops if modules.get(top, "").startswith(site)}
                for file in files.intersection(modules.values()):
                    found[file] = (distribution.metadata["Name"], distribution.version)
    return found


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below that do not stand where a missing package is provided for."""
    guarded = node.body if isinstance(node, ast.Try | ast.With | ast.If) and _provides(node) else []
    for child in ast.iter_child_nodes(node):
        if child not in guarded:
            yield child
            yield from _certain(child)


def _provides(node: ast.Try | ast.With | ast.If) -> bool:
    """Return whether the job goes on if an import in the body fails, or is not reached for that reason."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return "find_spec" in test and not test.startswith("not ") and not test.endswith(" is None")
    if isinstance(node, ast.With):
        return any("suppress" in text and _GUARD.search(text) for text in map(ast.unparse, node.items))
    caught = [each for each in node.handlers if each.type is None or _GUARD.search(ast.unparse(each.type))]
    return bool(caught) and not any(_ENDS.search(ast.unparse(each)) for each in caught)
