"""Puts together what was seen of a measurement: its `Footprint`."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costgpu.measure.footprint.packages import imported_packages
from costgpu.measure.footprint.paths import Places, fold, source_of
from costgpu.measure.footprint.watch import Opened
from costgpu.measure.isolation.layers import Changes
from costgpu.models.footprint import Footprint


@dataclass(slots=True)
class Journal:
    """What the probe has noted in its Python processes; see `costgpu.measure.probe.sandbox.reads`."""

    opened: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)  # opened to be written anew, so that nothing that was there is read
    modules: dict[str, str] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)
    sites: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    complete: bool = True


def read_journal(text: str) -> Journal:
    """Read the probe's lines; what a program has written over is left out."""
    found = Journal()
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, str):
            found.opened.add(entry)
        elif isinstance(entry, dict):
            _read_object(entry, found)
    return found


def _read_object(entry: dict[str, Any], found: Journal) -> None:
    if isinstance(entry.get("cut"), str):
        found.cut.add(entry["cut"])
    if entry.get("more"):
        found.complete = False
    modules = entry.get("modules")
    if isinstance(modules, dict):
        found.modules.update({name: file for name, file in modules.items() if isinstance(file, str)})
    for name in ("sources", "sites", "prefixes"):
        values = entry.get(name)
        getattr(found, name).update(one for one in values if isinstance(one, str)) if isinstance(values, list) else None


def gather(
    opened: Opened,
    journal: Journal,
    changes: Changes,
    *,
    workdir: Path,
    own: Iterable[Path],
    alone: bool,
    since_ns: int,
) -> Footprint:
    """Return what the script used.

    Args:
        opened: What was seen from outside.
        journal: What was seen from inside.
        changes: What it wrote.
        workdir: Where it ran.
        own: Folders of costgpu's.
        alone: Whether nobody else can have caused what inotify tells, as in a copy-on-write world.
        since_ns: When it began; where it could really write, files that are younger are its own.
    """
    places = Places(
        workdir=os.path.realpath(workdir),
        home=os.path.realpath(os.path.expanduser("~")),
        own=tuple(os.path.realpath(folder) for folder in own),
        prefixes=tuple(sorted({*journal.prefixes, sys.prefix, sys.base_prefix})),
    )
    look = _Look(places, None if alone else since_ns)
    sure = look.sizes({*journal.opened, *journal.sources})
    cut = {os.path.realpath(path) for path in journal.cut} - set(sure)
    seen = {path: size for path, size in look.sizes(opened.held).items() if path not in cut}
    told = {path: size for path, size in look.sizes(opened.notified).items() if path not in cut}
    read = {**sure, **seen, **(told if alone else {})}
    inside = {path: places.inside(path) for path in read}
    return Footprint(
        read=fold({name: read[path] for path, name in inside.items() if name is not None}),
        read_outside=fold({path: read[path] for path, name in inside.items() if name is None}),
        written_outside=fold(
            {
                path: size
                for path, size in changes.sizes.items()
                if places.inside(path) is None and places.is_told(path, written=True)
            }
        ),
        imported=imported_packages(
            journal.modules,
            sorted(journal.sources),
            sorted(journal.sites),
            lambda file: places.inside(os.path.realpath(file)) is not None,
        ),
        complete=opened.complete and journal.complete and set(told) <= set(read),
    )


class _Look:
    """Looks at files once, and at folders of many files only once."""

    def __init__(self, places: Places, since_ns: int | None) -> None:
        self._places, self._since_ns = places, since_ns
        self._folders: dict[str, list[str]] = {}

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the files among these that are worth telling, by their real paths, and links in the working folder."""
        found: dict[str, int] = {}
        for path in map(source_of, paths):
            for one in self._on_the_way(path):
                status = self._status(one)
                if status is not None and self._places.is_told(one):
                    found[one] = status.st_size if stat.S_ISREG(status.st_mode) else 0
        return found

    def _on_the_way(self, path: str) -> list[str]:
        """Return the links of the working folder over which a path leads, for they have to be there, and the real path."""
        try:
            *links, real = self._resolved(path)
        except (OSError, ValueError, RecursionError):  # links in a circle
            return []
        return [*(link for link in links if self._places.inside(link) is not None), real]

    def _resolved(self, path: str) -> list[str]:
        """Return the links over which a path leads, and at the end the real path."""
        folder, name = os.path.split(path)
        if not name:
            return [folder] if folder == "/" else self._resolved(folder)
        if folder not in self._folders:
            self._folders[folder] = self._resolved(folder)
        *links, real = self._folders[folder]
        if name in (".", ".."):
            return [*links, real if name == "." else os.path.dirname(real)]
        here = os.path.join(real, name)
        if not os.path.islink(here):
            return [*links, here]
        return [*links, here, *self._resolved(os.path.join(real, os.readlink(here)))]

    def _status(self, path: str) -> os.stat_result | None:
        """Return what a file is; None for what is none, and for what the script has made itself."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            return None
        young = self._since_ns is not None and min(status.st_mtime_ns, status.st_ctime_ns) >= self._since_ns
        return None if young else status
