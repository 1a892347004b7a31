"""Which packages a script imported, and which installed distribution each is from."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

from costgpu.models.footprint import ImportedPackage

MOST_SOURCES, MOST_BYTES = 500, 1 << 20  # files of the script's own that are read for what they import
_SITE = re.compile(r".*/(site|dist)-packages/")


def imported_packages(modules: Mapping[str, str], sources: Iterable[str]) -> list[ImportedPackage]:
    """Return the modules by name.

    Args:
        modules: Top-level name -> the file that it was imported from.
        sources: Files of modules that are not installed.
    """
    provided, asked = _providers(modules), _imported_by(sources)
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


def _imported_by(sources: Iterable[str]) -> set[str]:
    """Return the top-level names that these files import by a statement, or by a function that is given the name."""
    found: set[str] = set()
    for path in list(sources)[:MOST_SOURCES]:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError), Path(path).open("rb") as file:
            for node in ast.walk(ast.parse(file.read(MOST_BYTES))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                    found |= {
                        str(value.value).partition(".")[0] for value in node.args if isinstance(value, ast.Constant)
                    }
    return found
