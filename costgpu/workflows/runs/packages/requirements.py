"""Files of requirements, as pip reads them, with the files that they name."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from costgpu.errors import UsageError
from costgpu.files import FileKind, read_bytes
from costgpu.workflows.runs.packages.source import parse, refuse_secrets

_LISTS = FileKind(most_bytes=2**25, error=UsageError)
_COMMENT = re.compile(r"(^|\s+)#.*$")
_OPTION = re.compile(r"(--[a-z-]+|-[a-zA-Z])(?:\s*=\s*|\s*)(.*)")
_OWN_OPTIONS = re.compile(r"\s--?[a-z].*$")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_REMOTE = re.compile(r"(?!file:)([a-z]+\+)?[a-z]+://", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tgz|tar\.bz2)$", re.IGNORECASE)
_HINT = "Copy it into the folder, choose a --workdir that holds it, or give --setup."


@dataclass(slots=True)
class Listing:
    """What was read, gathered over all files."""

    folder: Path  # that is sent, resolved
    requirements: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # that the machine reads, relative to the folder
    texts: list[str] = field(default_factory=list)  # in which variables may stand
    folders: list[tuple[Path, list[str]]] = field(default_factory=list)  # projects that are named, with their extras
    nameless: bool = False  # whether the name of a package is not known
    needs_uv: bool = False  # whether only uv finds the packages: other programs would take strangers' of the same name
    several_indexes: bool = False  # of which pip takes the best, and uv the first one that has a package
    notes: list[str] = field(default_factory=list)

    def travels(self, path: str, base: Path, where: str) -> Path:
        """Return a path that the machine will find; a relative one starts at `base`.

        Raises:
            UsageError: It will not find it.
        """
        plain = Path(unquote(path.removeprefix("file://").removeprefix("file:")))
        full = (base / plain).resolve()
        if not full.is_relative_to(self.folder):
            raise UsageError(f"{where} names {path}, which is not in the folder that is sent.", hint=_HINT)
        inside = full.relative_to(self.folder).as_posix()
        if plain.is_absolute():
            raise UsageError(f"{where} names {path}: the machine has another path.", hint=f"Write ./{inside} instead.")
        if not full.exists():
            raise UsageError(f"{where} names {path}, which is not there.", hint=_HINT)
        self.files.append(inside)
        return full

    def add(self, line: str, where: str) -> None:
        """Add one requirement: by name, by URL, or by path.

        Raises:
            UsageError: pip would not take it, or the machine would not find it.
        """
        self.texts.append(line)
        refuse_secrets(line, where)
        text = _OWN_OPTIONS.sub("", line).strip()
        found = parse(text)
        if "ssh://" in text:
            self.notes.append(f"{where} is fetched over SSH, and the machine has none of your keys.")
        if found is not None and not _ARCHIVE.search(found.name):
            if found.url is not None and not _REMOTE.match(found.url):
                self.travels(found.url.partition("#")[0], self.folder, where)
            self.requirements.append(text)
            return
        place = text.partition(";")[0].strip()
        named = _EGG.search(place)
        if _REMOTE.match(place):
            self._add_name(named[1] if named else _name_in(urlsplit(place).path))
            return
        path, _, extras = place.partition("#")[0].partition("[")
        if not (path.startswith((".", "file:")) or "/" in path or _ARCHIVE.search(path)):
            raise UsageError(
                f"{where}: {place!r} is no requirement.",
                hint="pip takes lines such as numpy==2.1; a list made by conda belongs into an environment.yml.",
            )
        full = self.travels(path, self.folder, where)
        if full.is_dir():
            self.folders.append((full, [each.strip() for each in extras.rstrip("]").split(",") if each.strip()]))
        else:
            self._add_name(_name_in(full.name))

    def _add_name(self, name: str) -> None:
        self.requirements += [name] if name else []
        self.nameless |= not name


def read_requirements(listing: Listing, path: Path, seen: frozenset[Path] = frozenset()) -> None:
    """Read a file of requirements, and those that it names.

    Raises:
        UsageError: It cannot be read, or names what the machine would not find.
    """
    name = path.relative_to(listing.folder).as_posix()
    for number, line in _lines(read_text(path)):
        where = f"{name}, line {number}"
        option = _OPTION.fullmatch(line) if line.startswith("-") else None
        if option is None:
            listing.add(line, where)
            continue
        refuse_secrets(line, where)
        listing.texts.append(line)
        kind, value = option[1], option[2].strip().strip("'\"")
        if _REMOTE.match(value) and kind not in ("-e", "--editable"):
            listing.several_indexes |= kind == "--extra-index-url"
        elif kind in ("-r", "--requirement", "-c", "--constraint"):
            below = listing.travels(value, path.parent, where)
            other = listing if kind in ("-r", "--requirement") else Listing(listing.folder)
            if below not in seen:
                read_requirements(other, below, seen | {path.resolve()})
        elif kind in ("-e", "--editable"):
            listing.add(value, where)
        elif kind in ("-f", "--find-links", "-i", "--index-url", "--extra-index-url"):
            listing.travels(value, path.parent if (path.parent / value).exists() else listing.folder, where)


def read_text(path: Path) -> str:
    """Return the text of a file that people or programs of theirs have written, whatever its encoding.

    Raises:
        UsageError: It is none.
    """
    raw = read_bytes(path, _LISTS) or b""
    try:
        return raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is no text: {error.reason}.", hint="Save it as UTF-8.") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers: continued ones as one, without comments and empty ones."""
    joined, start = "", 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start if joined else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            joined += line[:-1]
            continue
        whole, joined = _COMMENT.sub("", joined + line).strip(), ""
        if whole:
            yield start, whole


def _name_in(path: str) -> str:
    """Return the name of the package in the name of an archive; empty if it does not say."""
    name = unquote(path.rsplit("/", 1)[-1])
    try:
        return str(parse_wheel_filename(name)[0] if name.endswith(".whl") else parse_sdist_filename(name)[0])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""
