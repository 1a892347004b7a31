"""The files of a working folder that travel to a machine. Imports `models` only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from costgpu.models.job import FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSelection:
    """The files of a working folder that travel."""

    root: Path
    files: tuple[FileEntry, ...]  # sorted by path, with checksums
    # symbolic links inside the folder: path -> target; the target is relative to the link's own folder
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()  # those in which nothing travels; a job may expect to find them and write into them
    # files and whole folders (with a slash at the end) that were kept back -> the pattern or reason
    stays: Mapping[str, str] = field(default_factory=dict)
    # files that come from elsewhere: path -> where they are here
    added: Mapping[str, Path] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Return the size of all files."""
        return sum(entry.size for entry in self.files)

    def with_files(self, files: Sequence[FileEntry], contents: Path) -> FileSelection:
        """Return the same with files of an earlier attempt put over it; what is in their way does not travel.

        Args:
            contents: Folder in which they are, named by their checksums.
        """
        over = {entry.path: replace(entry, modified_ns=entry.modified_ns or 1) for entry in files}
        above = {parent for path in over for parent in _parents(path)}

        def stays(path: str) -> bool:
            return path not in over and path not in above and over.keys().isdisjoint(_parents(path))

        kept = [entry for entry in self.files if stays(entry.path)]
        return replace(
            self,
            files=tuple(sorted([*kept, *over.values()], key=lambda entry: entry.path)),
            links={path: target for path, target in self.links.items() if stays(path)},
            folders=tuple(path for path in self.folders if stays(path)),
            added={**self.added, **{path: contents / entry.sha256 for path, entry in over.items()}},
        )

    @property
    def left_out(self) -> dict[str, int]:
        """Return how many files and whole folders each pattern or reason kept back."""
        return dict(sorted(Counter(self.stays.values()).items()))


def _parents(path: str) -> list[str]:
    return [path[:at] for at, letter in enumerate(path) if letter == "/"]
