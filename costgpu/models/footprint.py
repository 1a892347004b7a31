"""Which files and packages a measured script used: part of the `WorkloadProfile`. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """One file, or one folder if many files of it were used.

    Attributes:
        path: Relative to the working folder with forward slashes if it lies below it, else absolute.
        size: Size in bytes; of a folder, that of the files in it that were used.
        files: Number of files that were used; 1 for a file.
    """

    path: str
    size: int
    files: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPackage:
    """One top-level module that the script or its libraries imported, and where it came from.

    Attributes:
        module: Top-level name, as in ``import NAME``.
        distribution: Name of the installed distribution that provides it; empty if none does.
        version: Version of that distribution; empty if there is none.
        origin: Absolute path of the module's file or folder.
        by_script: Whether code that is not an installed distribution imported it, and does not provide for its absence.
    """

    module: str
    distribution: str = ""
    version: str = ""
    origin: str = ""
    by_script: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the measured script opened and imported, as far as the measurement reached.

    Only what existed before the measurement counts as read. The interpreter, installed packages and the system's own
    files are left out.

    Attributes:
        read: Files below the working folder that were opened for reading.
        read_outside: Files and folders elsewhere that were opened for reading.
        written_outside: Files elsewhere that were written, temporary folders included, absolute paths as the script
            used them.
        imported: Modules that were imported, without those of the standard library.
        complete: False if something that the script did could not be watched; `read` may then miss files.
    """

    read: list[FileUse] = field(default_factory=list)
    read_outside: list[FileUse] = field(default_factory=list)
    written_outside: list[FileUse] = field(default_factory=list)
    imported: list[ImportedPackage] = field(default_factory=list)
    complete: bool = True
