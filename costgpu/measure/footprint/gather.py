"""Puts together what was seen of a measurement, from inside and from outside: its `Footprint`."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections import defaultdict
from collections.abc import Iterable

from costgpu.measure.footprint.packages import imported_packages
from costgpu.measure.footprint.paths import KnownFolders, fold, source_of
from costgpu.measure.footprint.watch import FileWatch
from costgpu.measure.isolation.layers import Changes
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.scratch import Scratch
from costgpu.models.footprint import Footprint

MOST_OUTSIDE = 50  # entries: nobody chooses among them file by file


def gather(watch: FileWatch, scratch: Scratch, changes: Changes, level: Isolation) -> Footprint:
    """Return what a program used.

    What inotify tells is the program's own doing in a copy-on-write world, and in a copy of its folder. Elsewhere others may
    have read the files, so that it only tells that something may be missing; and there, files younger than the measurement
    are the program's.
    """
    alone, journal = level is Isolation.COPY_ON_WRITE, read_journal(scratch.opened())
    places = KnownFolders(
        workdir=watch.workdir,
        home=os.path.realpath(os.path.expanduser("~")),
        own=(os.path.realpath(scratch.folder.parent.parent),),
        prefixes=tuple(sorted({*journal["prefixes"], sys.prefix, sys.base_prefix})),
    )
    look = _Look(places, None if alone else watch.since_ns)
    read = look.sizes(journal["opened"] | journal["sources"])
    cut = {os.path.realpath(path) for path in journal["cut"]}
    held, notified, own = (
        {path: size for path, size in look.sizes(paths).items() if path not in cut}
        for paths in (watch.held, watch.notified, watch.notified if alone else watch.alone)
    )
    read = {**read, **held, **own}
    names = {path: places.inside(path) for path in read}
    wrote = [path for path in changes.sizes if places.inside(path) is None and places.is_told(path, written=True)]
    modules = dict(one.split(" ", 1) for one in journal["modules"] if " " in one)
    return Footprint(
        read=fold({name: read[path] for path, name in names.items() if name is not None}),
        read_outside=fold({path: read[path] for path, name in names.items() if name is None}, MOST_OUTSIDE),
        written_outside=fold({path: changes.sizes[path] for path in wrote}, MOST_OUTSIDE),
        imported=imported_packages(
            {
                name: file
                for name, file in modules.items()
                if "-packages/" in file or not places.inside(os.path.realpath(file))
            },
            sorted(journal["sources"]),
        ),
        complete=watch.complete and not journal["more"] and notified.keys() <= read.keys(),
    )


def read_journal(text: str) -> defaultdict[str, set[str]]:
    """Read the lines of `costgpu.measure.probe.sandbox.reads` by their kinds; what a program wrote over is left out."""
    found = defaultdict[str, set[str]](set)
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError):
            for kind, values in json.loads(line).items():
                found[kind].update(value for value in values if isinstance(value, str))
    return found


class _Look:
    """Looks at files, and at the way to each folder only once."""

    def __init__(self, places: KnownFolders, since_ns: int | None) -> None:
        self._places, self._since_ns = places, since_ns
        self._known: dict[str, dict[str, int]] = {}
        self._folders: dict[str, list[str]] = {}

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the sizes of what was there of these files, by real paths, and links of the working folder to them."""
        found: dict[str, int] = {}
        for path in paths:
            if path not in self._known:
                self._known[path] = {}
                with contextlib.suppress(OSError, ValueError, RecursionError):  # gone, no path, links in a circle
                    *links, real = self._way(source_of(path))
                    status = os.lstat(real)
                    young = self._since_ns is not None and min(status.st_mtime_ns, status.st_ctime_ns) >= self._since_ns
                    if self._places.is_told(real) and stat.S_ISREG(status.st_mode) and not young:
                        inner = {link: 0 for link in links if self._places.inside(link)}
                        self._known[path] = {real: status.st_size, **inner}
            found.update(self._known[path])
        return found

    def _way(self, path: str) -> list[str]:
        """Return the links over which a path leads, which a copy of the folder must have, too, and the real path."""
        folder, name = os.path.split(path)
        if not name:
            return [folder] if folder == "/" else self._way(folder)
        if folder not in self._folders:
            self._folders[folder] = self._way(folder)
        *links, real = self._folders[folder]
        if name in (".", ".."):
            return [*links, real if name == "." else os.path.dirname(real)]
        here = os.path.join(real, name)
        if not os.path.islink(here):
            return [*links, here]
        return [*links, here, *self._way(os.path.join(real, os.readlink(here)))]
