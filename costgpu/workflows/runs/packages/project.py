"""Projects: pyproject.toml with and without uv.lock, setup.py, and scripts that name their packages (PEP 723)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from costgpu.errors import UsageError
from costgpu.workflows.runs.packages.requirements import Listing, read_text
from costgpu.workflows.runs.packages.source import normal, refuse_secrets

PROJECT, LOCK = "pyproject.toml", "uv.lock"
_BLOCK = re.compile(r"^# /// script[ \t]*\n((?:#(?:| .*)\n)+?)^# ///[ \t]*$", re.MULTILINE)
_OPENED = re.compile(r"^# /// script[ \t]*$", re.MULTILINE)

Table = dict[str, Any]


def read_toml(path: Path, text: str | None = None) -> Table:
    """Return what a TOML file says, or a part of a script; nothing if there is no file.

    Raises:
        UsageError: It is broken, or has a secret in it.
    """
    if text is None:
        text = read_text(path)
    refuse_secrets(text, path.name)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path.name}: {error}.", hint="Correct it, or give --setup.") from None


def inline_metadata(script: Path) -> Table | None:
    """Return what a script says about its packages (PEP 723); None if it says nothing.

    Raises:
        UsageError: It cannot be read.
    """
    text = read_text(script).replace("\r\n", "\n") + "\n"
    blocks = _BLOCK.findall(text)
    if len(_OPENED.findall(text)) != len(blocks) or len(blocks) > 1:
        raise UsageError(
            f"{script.name} has a line '# /// script' that no line '# ///' ends, or two of them.",
            hint="Correct it, or give --setup.",
        )
    found = read_toml(script, re.sub(r"^# ?", "", blocks[0], flags=re.MULTILINE)) if blocks else {}
    return found if "dependencies" in found else None


def texts_of(found: Any) -> list[str]:
    """Return a list of texts; nothing for anything else."""
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def below(table: Any, *names: str) -> Table:
    """Return a table in a table; an empty one if there is none."""
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def is_built(data: Table, folder: Path) -> bool:
    """Return whether a project is installed itself, and not only what it needs."""
    uv, poetry = below(data, "tool", "uv"), below(data, "tool", "poetry")
    if False in (uv.get("package"), poetry.get("package-mode")):
        return False
    built = "build-system" in data or uv.get("package") or any((folder / "src").glob("*/*.py"))
    return bool((built and (below(data, "project") or poetry)) or has_setup(folder))


def has_setup(folder: Path) -> bool:
    """Return whether there is a setup.py, or a setup.cfg that is not for tools alone."""
    package = re.search(r"^\[(metadata|options)\]", read_text(folder / "setup.cfg"), re.MULTILINE)
    return package is not None or (folder / "setup.py").is_file()


def needs_uv(data: Table) -> bool:
    """Return whether only uv finds the packages: another program would take strangers' of the same name."""
    uv = below(data, "tool", "uv")
    places = ("index", "index-url", "extra-index-url", "find-links", "no-index")
    return any(
        table.get(each) for table in (uv, below(uv, "pip")) for each in ("sources", *places, "override-dependencies")
    )


def check_sources(listing: Listing, data: Table, folder: Path, where: str) -> None:
    """Check the places that uv or Poetry is told to take packages from.

    Raises:
        UsageError: The machine would not find one.
    """
    uv = below(data, "tool", "uv")
    sources = {**below(uv, "sources"), **below(data, "tool", "poetry", "dependencies")}
    indexes = [each for each in uv.get("index", []) if isinstance(each, dict)]
    for name, entry in [*sources.items(), *((f"the index {each.get('name', '')}", each) for each in indexes)]:
        for each in entry if isinstance(entry, list) else [entry]:
            if below(each).get("workspace") and not below(uv, "workspace"):
                raise UsageError(
                    f"{where} takes {name} from a workspace that is not in the folder that is sent.",
                    hint="Choose the workspace's folder with --workdir.",
                )
            place = below(each).get("path") or below(each).get("url")
            listing.texts += [place] if isinstance(place, str) else []
            if isinstance(place, str) and ("://" not in place or place.startswith("file:")):
                listing.travels(place, folder, f"{where}, {name},")


def add_project(
    listing: Listing, folder: Path, data: Table, extras: Sequence[str] = (), groups: Iterable[str] = ()
) -> None:
    """Add what a project in a folder needs, and its own name.

    Raises:
        UsageError: There is no such extra, or something is named that the machine would not find.
    """
    where = (folder / PROJECT).relative_to(listing.folder).as_posix()
    project = below(data, "project")
    dynamic, optional = texts_of(project.get("dynamic")), below(project, "optional-dependencies")
    check_sources(listing, data, folder, where)
    listing.needs_uv |= needs_uv(data)
    listing.files += [where] if data else []
    listing.nameless |= not project or "dependencies" in dynamic
    found = texts_of(project.get("dependencies"))
    for extra in extras:
        named = {normal(name): texts_of(needs) for name, needs in optional.items()}
        if normal(extra) not in named and project and "optional-dependencies" not in dynamic:
            raise UsageError(f"{where} has no extra {extra}.", hint=f"It has: {', '.join(optional) or 'none'}.")
        listing.nameless |= normal(extra) not in named
        found += named.get(normal(extra), [])
    for each in [*found, *(need for group in groups for need in group_of(data, group))]:
        listing.add(each, where)
    if is_built(data, folder) and isinstance(name := project.get("name"), str):
        listing.requirements.append(name)
    readme = project.get("readme")
    if isinstance(readme, str) and is_built(data, folder):
        listing.travels(readme, folder, f"{where}, readme,")


def add_named_projects(listing: Listing) -> None:
    """Add what the folders need that requirements name as projects, and what those name."""
    seen: set[Path] = set()
    while listing.folders:
        folder, extras = listing.folders.pop()
        if folder not in seen:
            seen.add(folder)
            add_project(listing, folder, read_toml(folder / PROJECT), extras)


def group_of(data: Table, name: str, seen: tuple[str, ...] = ()) -> list[str]:
    """Return what a group of dependencies names, with the groups that it includes."""
    found: list[str] = []
    for each in below(data, "dependency-groups").get(name, []) if name not in seen else []:
        included = str(below(each).get("include-group"))
        found += [each] if isinstance(each, str) else group_of(data, included, (*seen, name))
    return found


def add_locked(listing: Listing, lock: Table, extras: Iterable[str]) -> None:
    """Add what a uv.lock installs: all that is reached from the project, its groups, and these extras of it.

    Raises:
        UsageError: It names a place that the machine would not find.
    """
    packages: dict[str, list[Table]] = {}
    todo: list[tuple[str, frozenset[str]]] = []
    for each in lock.get("package", []):
        name, source = str(each.get("name")), below(each, "source")
        packages.setdefault(name, []).append(each)
        for place in (source.get(kind) for kind in ("path", "directory", "editable", "virtual")):
            todo += [(name, frozenset(extras))] if place == "." else []
            if isinstance(place, str):
                listing.travels(place, listing.folder, f"{LOCK}, {name},")
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        key = todo.pop()
        for package in packages.get(key[0], []) if key not in seen else []:
            optional = below(package, "optional-dependencies")
            parts = [optional[extra] for extra in key[1].intersection(optional)]
            parts += [package.get("dependencies", []), *below(package, "dev-dependencies").values()]
            todo += [(str(need.get("name")), frozenset(texts_of(need.get("extra")))) for part in parts for need in part]
        seen.add(key)
    listing.requirements += sorted({name for name, _ in seen})
