"""Brings a job's outputs into the user's own folder without losing anything that is there.

Outputs are first staged in a hidden folder of the working folder, verified, and on disk; then each gets its place. What
was in that place is kept. A call that was killed is finished by the next one. Imports `errors`, `host` and `job`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from costgpu.errors import RunError
from costgpu.job.files.download import OutputSource
from costgpu.job.files.paths import printable_path, why_impossible
from costgpu.job.files.safe_move import has_content, has_size, move_across, put_new, to_disk
from costgpu.models.job import FileEntry
from costgpu.units import format_binary_size

OWN_FOLDER = ".costgpu"
_SPARE_BYTES = 16 * 1024 * 1024  # left free on the disk
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LISTED = 5
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """An output that is here, whole and verified, but could not be put in its place: why, and where it is."""

    path: str
    staged_at: Path
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOutputs:
    """What came home. All of it is on this machine: the other one may end, unless something is left out."""

    files: int  # number of outputs in their places
    bytes: int  # size of those
    replaced: tuple[Path, ...] = ()  # where that is kept which was in their places
    stuck: tuple[Stuck, ...] = ()  # outputs that are here, but not in their places
    # outputs that this computer cannot hold and that are still on the machine -> why; all others are here
    left_out: Mapping[str, str] = field(default_factory=dict)
    outside: int = 0  # how many of the files lay outside the machine's working folder
    outside_folder: str = ""  # where those are in the working folder

    @property
    def problem(self) -> RunError | None:
        """Return the error to show if some outputs are not in their places."""
        if not self.stuck:
            return None
        shown = "; ".join(f"{printable_path(one.path)}: {one.why}" for one in self.stuck[:_LISTED])
        more = f"; and {len(self.stuck) - _LISTED} more" if len(self.stuck) > _LISTED else ""
        folder = os.path.commonpath([one.staged_at.parent for one in self.stuck])
        return RunError(
            f"{len(self.stuck)} of {self.files + len(self.stuck)} outputs are here, but not in their places: {shown}{more}.",
            hint=f"They are in {folder}: make room and move them.",
        )


def fetch_and_place(
    host: OutputSource, entries: Sequence[FileEntry], *, workdir: Path, run_id: str, folders: Sequence[str] = ()
) -> PlacedOutputs:
    """Bring the outputs into the working folder.

    Args:
        host: The machine that has them.
        entries: What to bring, with checksums.
        workdir: The folder that they belong into; made if it is not there.
        run_id: Names the folder under ``.costgpu/replaced`` that keeps what was in the way.
        folders: Empty ones, made if nothing is in their place.

    Raises:
        OutputsDamaged: Something arrived damaged.
        RunError: The folder cannot be written, or there is no space: not everything is on this machine.
        HostUnreachable: The connection was lost. Call again.
    """
    if not _RUN_ID.fullmatch(run_id):  # it may be from a tag that somebody else has set
        raise RunError(f"{run_id!r} is not the name of a run.")
    placement = _Placement(workdir.absolute(), run_id)
    whys = {entry.path: why_impossible(entry.path, os.fspath(workdir.absolute())) for entry in entries}
    possible = [entry for entry in entries if not whys[entry.path]]
    try:
        placement.prepare()
        if any(entry.source for entry in possible) and not placement.has_room(possible):
            whys |= {entry.path: "there is no room for it here" for entry in possible if entry.source}
            possible = [entry for entry in possible if not entry.source]
        placement.stage(host, possible)
    except OSError as exc:
        staged = f" What has come is in {placement.incoming}." if any(placement.incoming.glob("*")) else ""
        raise RunError(
            f"The outputs cannot be written to {workdir}: {exc.strerror or exc}"
            + (f" ({exc.filename})." if exc.filename else "."),
            hint=f"Free or unlock the folder and fetch again; the machine still has them.{staged}",
        ) from exc
    placed = placement.place(possible)
    placement.make_folders(folders)
    away = {one.path for one in placed.stuck}
    outside = [entry.path for entry in possible if entry.source and entry.path not in away]
    return replace(
        placed,
        left_out={path: why for path, why in whys.items() if why},
        outside=len(outside),
        outside_folder=outside[0].partition("/")[0] if outside else "",
    )


class _InTheWay(Exception):
    """Why an output cannot be put in its place; in words."""


class _Placement:
    """One call of `fetch_and_place`."""

    def __init__(self, workdir: Path, run_id: str) -> None:
        self._workdir = workdir
        self._own = workdir / OWN_FOLDER
        self.incoming = self._own / "incoming" / run_id
        self._kept = self._own / "replaced" / run_id
        self._staged: dict[str, Path] = {}  # output -> where it is staged
        self._clashing: dict[str, str] = {}  # output -> the one that this file system cannot tell it from
        self._kept_again: list[Path] = []  # under a second name
        self._made: set[Path] = set()  # folders

    def prepare(self) -> None:
        """Make the hidden folder, which git does not see either."""
        self._workdir.mkdir(parents=True, exist_ok=True)
        for folder in (self._own, self._own / "incoming", self.incoming):
            if folder.is_symlink():
                raise RunError(f"{folder} is a link: outputs are not put through it.", hint="Remove it.")
            folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError), (self._own / ".gitignore").open("x") as file:
            file.write("*\n")

    def stage(self, host: OutputSource, entries: Sequence[FileEntry]) -> None:
        """Fetch what is neither in its place nor staged yet; all of it is then on disk."""
        self._clashing = _clashes(entries, _folding(self.incoming))
        numbers = {path: number for number, path in enumerate(self._clashing, 1)}
        lacking, missing = defaultdict[Path, list[FileEntry]](list), 0
        for entry in entries:
            if not has_content(self._workdir / entry.path, entry):
                folder = self.incoming / str(numbers.get(entry.path, 0))
                self._staged[entry.path] = folder / entry.path
                lacking[folder].append(entry)
                missing += 0 if has_size(folder / entry.path, entry.size) else entry.size
        free = shutil.disk_usage(self.incoming).free
        if missing and missing + _SPARE_BYTES > free:
            raise RunError(
                f"The outputs need {format_binary_size(missing)}, and the disk of {self._workdir} has"
                f" {format_binary_size(free)} free.",
                hint="Free some space and fetch again; the machine still has them.",
            )
        for folder, these in lacking.items():
            folder.mkdir(exist_ok=True)
            host.fetch(these, folder)
        to_disk(self._staged.values())

    def has_room(self, entries: Sequence[FileEntry]) -> bool:
        """Return True if the disk takes what is neither in its place nor staged yet."""
        places = (self._workdir, self.incoming / "0")
        lacking = (one.size for one in entries if not any(has_size(each / one.path, one.size) for each in places))
        return sum(lacking) + _SPARE_BYTES <= shutil.disk_usage(self.incoming).free

    def make_folders(self, folders: Sequence[str]) -> None:
        """Make folders that have nothing in them; what is in the way stays."""
        for folder in folders:
            if not why_impossible(folder, os.fspath(self._workdir)):
                with contextlib.suppress(OSError, _InTheWay):
                    self._folder_for(f"{folder}/.")

    def place(self, entries: Sequence[FileEntry]) -> PlacedOutputs:
        """Give every output its place, whatever happens to the others."""
        stuck = []
        outside = {entry.path.partition("/")[0] for entry in entries if entry.source}
        there = {folder for folder in outside if os.path.lexists(self._workdir / folder)}
        for entry in entries:
            staged = self._staged.get(entry.path)
            if staged is None:
                continue
            try:
                self._place(entry, staged)
            except _InTheWay as exc:
                stuck.append(Stuck(path=entry.path, staged_at=staged, why=str(exc)))
            except OSError as exc:
                why = f"{exc.strerror or exc}" + (f" ({exc.filename2 or exc.filename})" if exc.filename else "")
                stuck.append(Stuck(path=entry.path, staged_at=staged, why=why))
        self._tidy(anything_left=bool(stuck))
        for folder in outside - there:  # git is not to see what a machine had in /tmp
            with contextlib.suppress(OSError), (self._workdir / folder / ".gitignore").open("x") as file:
                file.write("*\n")
        away = {one.path for one in stuck}
        placed = [entry for entry in entries if entry.path not in away]
        return PlacedOutputs(
            files=len(placed),
            bytes=sum(entry.size for entry in placed),
            # what this call and killed ones before it have kept, each under its own name
            replaced=(
                *(kept for entry in entries if os.path.lexists(kept := self._kept / entry.path)),
                *self._kept_again,
            ),
            stuck=tuple(stuck),
        )

    def _place(self, entry: FileEntry, staged: Path) -> None:
        if entry.path in self._clashing:
            raise _InTheWay(
                f"this file system does not tell its name from {printable_path(self._clashing[entry.path])}"
            )
        folder = self._folder_for(entry.path)
        target = folder / entry.path.rpartition("/")[2]
        for _ in range(_TRIES):  # somebody may put a new file there while the old one is moved
            if target.is_dir() and not target.is_symlink():
                raise _InTheWay("a folder of that name is there")
            if has_content(target, entry):
                return
            if os.path.lexists(target):
                self._keep(target, entry.path)
            with contextlib.suppress(FileExistsError):
                put_new(staged, target)
                staged.unlink(missing_ok=True)
                return
        raise _InTheWay("something keeps writing it")

    def _folder_for(self, path: str) -> Path:
        """Return the folder of this output, made if necessary.

        Never outside the working folder, nor in a repository's own.
        """
        parts = path.split("/")
        if parts[0].casefold() == OWN_FOLDER:
            raise _InTheWay("that is costgpu's own folder")
        folder = self._workdir
        for part in parts[:-1]:
            folder = folder / part
            if part.casefold() == ".git" and folder.exists() and folder not in self._made:
                raise _InTheWay(f"{folder} is a repository of yours")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                self._made.add(folder)
            if not folder.is_dir():
                raise _InTheWay(f"{folder} is there, and is not a folder")
            if folder.is_symlink():
                real, top = folder.resolve(), self._workdir.resolve()
                if top not in real.parents:
                    raise _InTheWay(f"{folder} is a link that leads out of the working folder, to {real}")
                if not {OWN_FOLDER, ".git"}.isdisjoint(real.relative_to(top).parts):
                    raise _InTheWay(f"{folder} is a link to {real}")
        return folder

    def _keep(self, target: Path, path: str) -> None:
        """Move what is in the place to the folder of what was replaced, under a name that is free."""
        kept = self._kept / path
        kept.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while os.path.lexists(kept):
            number += 1
            kept = (self._kept / path).with_name(f"{(self._kept / path).name}.{number}")
        try:
            target.rename(kept)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
            move_across(target, kept)
        if number:
            self._kept_again.append(kept)

    def _tidy(self, *, anything_left: bool) -> None:
        if anything_left:
            for folder, _, _ in os.walk(self.incoming, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            return
        shutil.rmtree(self.incoming, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self._own / "incoming").rmdir()
        with contextlib.suppress(OSError):
            if [one.name for one in self._own.iterdir()] == [".gitignore"]:
                shutil.rmtree(self._own)


def _clashes(entries: Sequence[FileEntry], fold: Callable[[str], str]) -> dict[str, str]:
    """Return the outputs whose place another one has where names are not told apart, and that one."""
    files: dict[str, str] = {}  # names as the file system compares them -> output
    folders: dict[str, str] = {}  # the same for the folders above them -> an output in it
    clashes: dict[str, str] = {}
    for entry in entries:
        name = fold(entry.path)
        parents = [name[:at] for at, one in enumerate(name) if one == "/"]
        met = (files.get(name), folders.get(name), *map(files.get, parents))
        if clash := next(filter(None, met), None):
            clashes[entry.path] = clash
        else:
            files[name] = entry.path
            folders.update(dict.fromkeys(parents, entry.path))
    return clashes


def _folding(folder: Path) -> Callable[[str], str]:
    """Return how this file system compares names."""
    probe = folder / f".probe-{secrets.token_hex(4)}"
    probe.touch()
    try:
        if not probe.with_name(probe.name.upper()).exists():
            return str
        return lambda name: unicodedata.normalize("NFC", name).casefold()
    finally:
        probe.unlink()
