"""Which packages a script imported, and which installed distribution each is from."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from costgpu.models.footprint import ImportedPackage

MOST_SOURCES, MOST_BYTES = 500, 1 << 20  # files of the script's own that are read for what they import
_SITE = re.compile(r".*/(site|dist)-packages/")
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)


def imported_packages(
    modules: Mapping[str, str], sources: Iterable[str], sites: Iterable[str], is_own: Callable[[str], bool]
) -> list[ImportedPackage]:
    """Return the modules that are no part of the script's folder, by name.

    Args:
        modules: Top-level name -> the file that it was imported from.
        sources: Files of modules that are not installed.
        sites: Folders in which the interpreter looks for installed distributions.
        is_own: Tells whether a file lies in the script's folder.
    """
    asked = _imports(sources)
    installed = {name: file for name, file in modules.items() if _SITE.match(file)}
    others = {name: file for name, file in modules.items() if name not in installed and not is_own(file)}
    provided = _providers(installed)
    if others:
        provided.update(_editable(others, sites))
    found = []
    for name, file in sorted({**installed, **others}.items()):
        distribution, version = provided.get(name, ("", ""))
        origin = file.rpartition("/")[0] if file.endswith(("/__init__.py", "/__init__.pyc")) else file
        found.append(
            ImportedPackage(
                module=name, distribution=distribution, version=version, origin=origin, by_script=name in asked
            )
        )
    return found


def _providers(installed: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return name and version of the distributions that list these files, or these names."""
    by_site: dict[str, dict[str, str]] = {}
    for name, file in installed.items():
        if match := _SITE.match(file):
            by_site.setdefault(match[0], {})[file[match.end() :]] = name
    found: dict[str, tuple[str, str]] = {}
    for site, wanted in by_site.items():
        for distribution in distributions(path=[site]):
            with contextlib.suppress(Exception):  # damaged metadata of a package that may have nothing to do with it
                lines = (distribution.read_text("RECORD") or "").splitlines()
                names = [wanted[path] for line in lines if (path := line.partition(",")[0].strip('"')) in wanted]
                if not lines:  # of Debian, of conda, and old ones
                    tops = (distribution.read_text("top_level.txt") or "").split()
                    names = [name for name in wanted.values() if name in tops and name not in found]
                if names:
                    found.update(dict.fromkeys(names, _named(distribution)))
    return found


def _editable(others: Mapping[str, str], sites: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return name and version of what was installed from the folders that hold these files, and is used there."""
    found: dict[str, tuple[str, str]] = {}
    for distribution in distributions(path=list(sites)):
        with contextlib.suppress(Exception):  # as above
            told = json.loads(distribution.read_text("direct_url.json") or "{}")
            if told.get("dir_info", {}).get("editable"):
                folder = unquote(urlsplit(told["url"]).path).rstrip("/") + "/"
                names = [name for name, file in others.items() if file.startswith(folder)]
                found.update(dict.fromkeys(names, _named(distribution)))
    return found


def _named(distribution: Distribution) -> tuple[str, str]:
    return distribution.metadata["Name"] or "", distribution.version or ""


def _imports(sources: Iterable[str]) -> set[str]:
    """Return the top-level names that these files import by a statement."""
    found: set[str] = set()
    for path in list(dict.fromkeys(sources))[:MOST_SOURCES]:
        with contextlib.suppress(OSError):
            with Path(path).open("rb") as file:
                text = file.read(MOST_BYTES)
            found |= _imported_by(text)
    return found


def _imported_by(text: bytes) -> set[str]:
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):  # of another Python, or cut off
        return set(_IMPORT.findall(text.decode(errors="replace")))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    return {name.partition(".")[0] for name in names} - {""}
