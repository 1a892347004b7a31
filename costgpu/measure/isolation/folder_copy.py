"""A copy of the folder in which a program runs, for systems that give no copy-on-write world.

The copy lies below a root of its own, at the path that the folder has: so ``..`` leads to what lies beside it. That, large
files, environments and repositories are links, for reading. The home folder stands there in the same way, with copies of
what tools write there: settings and caches. Without the root, a path in the copy is the real one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from costgpu.measure.isolation.layers import Changes, files_below

MAX_FILE_BYTES = 256 << 20  # of a file that is copied; a larger one is a link
MAX_BYTES = 1 << 30  # of all that is copied, the smallest files first
FREE_SHARE = 0.25  # of the free space, if that is less
MAX_ENTRIES = 20_000  # of the folder; a folder in it that would exceed this is a link
MAX_SETTINGS = 2_000  # of each of these in the home folder
SETTINGS = (".cache", ".config", ".ipython", ".keras", ".local", ".matplotlib", ".nv", ".triton")
LINKED = (".git", ".hg", ".svn", "node_modules", "site-packages")
ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # what lies in a folder that is linked as a whole


@dataclass(slots=True)
class FolderCopy:
    """The copy of a folder below `root`, and what was in it before the program ran; nothing of `own` is in it."""

    root: str
    folder: str
    own: str
    _before: dict[str, object] = field(default_factory=dict)  # of each file, by its real path: how it was made
    _settings: list[str] = field(default_factory=list)
    _files: list[tuple[int, str]] = field(default_factory=list)  # to be copied: bytes, real path

    @classmethod
    def make(cls, root: Path, folder: Path, own: Path) -> FolderCopy:
        """Copy a folder, and the settings in the home folder.

        Args:
            root: Where; it is made.
            folder: What, as an absolute path.
            own: Folder of costgpu's, which a copy of the home folder leaves out.

        Raises:
            OSError: There is no room, or the folder cannot be read.
        """
        root.mkdir(mode=0o700)
        copy = cls(os.path.realpath(root), os.path.realpath(folder), os.path.realpath(own))
        copy._copy_folders(copy.folder, MAX_ENTRIES)
        home = os.path.realpath(os.path.expanduser("~"))
        settings = (f"{home}/{name}" for name in SETTINGS)
        copy._settings = [path for path in settings if os.path.isdir(path) and os.path.realpath(path) == path]
        for path in copy._settings:
            copy._copy_folders(path, MAX_SETTINGS)
        copy._copy_files()
        for top in (copy.folder, os.path.join(home, ".")):
            copy._link_what_is_beside(top)
        return copy

    def inside(self, word: str) -> str:
        """Return a path, or an option with one, as the program must have it: in the copy, if it lies in the folder."""
        option, equals, path = word.rpartition("=")
        real = os.path.realpath(os.path.dirname(path)) + os.sep + os.path.basename(path) if path[:1] == os.sep else ""
        copied = f"{real}/".startswith(f"{self.folder}/") and not f"{real}/".startswith(f"{self.own}/")
        if not copied or not os.path.realpath(f"{self.root}{os.path.dirname(real)}/").startswith(self.root):
            return word  # elsewhere, or below a folder that is a link
        return f"{option}{equals}{self.root}{real}"

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that lead to the settings in the copy."""
        found = {name: f"{self.root}{value}" for name, value in variables.items() if self._is_of_settings(value)}
        home = os.path.realpath(os.path.expanduser("~"))
        return {**found, "HOME": f"{self.root}{home}"}

    def _is_of_settings(self, value: str) -> bool:
        return os.pathsep not in value and any(f"{value}/".startswith(f"{path}/") for path in self._settings)

    def changes(self) -> Changes:
        """Return what the program changed, and remove what it did not change."""
        changed: list[str] = []
        created: list[str] = []
        sizes: dict[str, int] = {}
        written = 0
        for path, found in files_below(Path(self.root)):
            real = path.removeprefix(self.root)
            if self._before.get(real) == _state(path, found):
                os.unlink(path)
                del self._before[real]
                continue
            sizes[real] = found.st_size
            written += found.st_blocks * 512
            (changed if real in self._before else created).append(real)
        removed = sorted(self._before.keys() - sizes.keys())
        return Changes(sorted(changed), sorted(created), removed, sizes, written, Path(self.root))

    def _copy_folders(self, top: str, most: int) -> None:
        """Make the folders at and below `top`, and note the files in them; what is beyond `most` entries is linked."""
        folders = [top]
        os.makedirs(self.root + top, exist_ok=True)
        for folder in folders:  # grows meanwhile
            for entry in _entries(folder):
                if entry.path in (self.own, self.root) or os.path.lexists(self.root + entry.path):
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    self._note_file(entry)
                    continue
                most -= sum(1 for _ in _entries(entry.path))
                environment = any(os.path.lexists(f"{entry.path}/{name}") for name in ENVIRONMENT)
                if most < 0 or environment or entry.name in LINKED:
                    self._link(entry.path)
                else:
                    os.mkdir(self.root + entry.path, mode=0o700)
                    folders.append(entry.path)

    def _note_file(self, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink():
            target = os.readlink(entry.path)
            self._link(entry.path, self.inside(target) if target.startswith(os.sep) else target)
            return
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            self._files.append((found.st_size, entry.path))

    def _copy_files(self) -> None:
        space = os.statvfs(self.root)
        left = min(MAX_BYTES, FREE_SHARE * space.f_bavail * space.f_frsize)
        for size, path in sorted(self._files):
            left -= size
            target = self.root + path
            try:
                if size > MAX_FILE_BYTES or left < 0:
                    self._link(path)
                else:
                    shutil.copy2(path, target)
                    self._before[path] = _state(target, os.lstat(target))
            except PermissionError:  # nor may the program read it
                self._link(path)

    def _link(self, path: str, target: str = "") -> None:
        os.symlink(target or path, self.root + path)
        self._before[path] = target or path

    def _link_what_is_beside(self, top: str) -> None:
        while top != os.sep:
            top = os.path.dirname(top)
            os.makedirs(self.root + top, exist_ok=True)
            for entry in _entries(top):
                if not os.path.lexists(self.root + entry.path):
                    self._link(entry.path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        yield from found


def _state(path: str, found: os.stat_result) -> object:
    """Return what tells whether a file is as it was: its size and time, or where a link leads."""
    return os.readlink(path) if stat.S_ISLNK(found.st_mode) else (found.st_size, found.st_mtime_ns)
