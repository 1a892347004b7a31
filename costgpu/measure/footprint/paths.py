"""Which paths are worth telling, and how many of them are told as few. Pure: it asks no file system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costgpu.models.footprint import FileUse

MOST_ENTRIES = 200
TOPS = (".", "/")  # folders that are in no other
SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "__pycache__", "site-packages", "dist-packages", ".costgpu"})
# Folders of the system: every machine has its own.
SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/run", "/sbin", "/snap", "/sys"),
    *("/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/sbin"),
    *("/usr/share", "/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool", "/opt/homebrew"),
    *("/System", "/Library", "/Applications", "/private/etc", "/private/var/db"),
)
# Folders of an interpreter's prefix, which may itself be a home folder or /usr.
OF_PREFIX = ("bin", "lib", "lib64", "libexec", "include", "share", "etc", "ssl", "conda-meta", "pyvenv.cfg")
# Settings and caches of tools below the home folder: they are made again, or are of no account.
OF_TOOLS = (
    *(".config", ".local", ".ipython", ".jupyter", ".matplotlib", ".triton", ".nv", ".keras/keras.json", ".conda"),
    *(".pyenv", ".rustup", ".cargo", ".npm", ".ssh/known_hosts", "Library"),
    *(".cache/costgpu", ".cache/fontconfig", ".cache/matplotlib", ".cache/mesa_shader_cache", ".cache/nvidia"),
    *(".cache/numba", ".cache/pip", ".cache/uv", ".cache/pypoetry", ".cache/torch_extensions", ".cache/torch/kernels"),
    *(".cache/torch/inductor", ".cache/triton", ".cache/conda"),
)
WRITTEN_BY_TOOLS = (*OF_TOOLS, ".cache", ".keras", ".dbus", ".pki")
_TEMPORARY = re.compile(
    r"(/private)?(/tmp|/var/tmp|/var/folders/[^/]+/[^/]+/T)/"
    r"(\.?tmp[\w]{6,12}([./_-].*)?|(pymp|torch|torchinductor|costgpu|pip|uv|ray|matplotlib|numba|jax|tensorflow)[-_].*"
    r"|hsperfdata_.*|\.[^/]*(/.*)?|cuda[^/]*)",
    re.DOTALL,
)
_COMPILED = re.compile(r"__pycache__/([^/]+?)\.cpython-[^/]*\.pyc$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What decides whose a path is; all are absolute and have no links in them."""

    workdir: str
    home: str
    own: tuple[str, ...] = ()  # folders of costgpu's
    prefixes: tuple[str, ...] = ()  # of the interpreters

    def inside(self, path: str) -> str | None:
        """Return the path relative to the working folder; None if it lies elsewhere."""
        return _below(path, self.workdir)

    def is_told(self, path: str, *, written: bool = False) -> bool:
        """Return whether the user has to know that this file was read, or `written`."""
        within = self.inside(path)
        if SKIPPED_FOLDERS.intersection((within if within is not None else path).split("/")):
            return False
        libraries = (f"{prefix.rstrip('/')}/{part}" for prefix in self.prefixes for part in OF_PREFIX)
        for folder in (*self.own, *libraries, *SYSTEM):
            if _below(path, folder) is not None and _below(self.workdir, folder) is None:
                return False
        if within is not None:
            return True
        of_home = _below(path, self.home)
        if of_home is not None:
            tools = WRITTEN_BY_TOOLS if written else OF_TOOLS
            hidden_file = of_home.startswith(".") and "/" not in of_home
            return not hidden_file and not any(_below(of_home, tool) is not None for tool in tools)
        return not _TEMPORARY.fullmatch(path)


def source_of(path: str) -> str:
    """Return the Python source of a compiled file that lies in ``__pycache__``; other paths as they are."""
    return _COMPILED.sub(r"\1.py", path)


def fold(files: Mapping[str, int], most: int = MOST_ENTRIES) -> list[FileUse]:
    """Return the files with their sizes, largest first; folders in the place of their files where there are many.

    The fullest folders are folded first; where that is not enough, the deepest, so that nothing is left out.
    """
    found = {path: (size, 1) for path, size in files.items()}
    while len(found) > most:
        inside: dict[str, list[str]] = {}
        for path in found:
            if path not in TOPS:
                inside.setdefault(_parent(path), []).append(path)
        chosen = [folder for folder, paths in inside.items() if len(paths) + (folder in found) > 1]
        if not chosen:
            deepest = max((folder.count("/") for folder in inside), default=0)
            chosen = [folder for folder in inside if folder.count("/") == deepest]
        if not chosen:
            break
        for folder in sorted(chosen, key=lambda one: (one in TOPS, -len(inside[one]))):
            parts = [found.pop(path) for path in {folder, *inside[folder]} if path in found]
            found[folder] = (sum(size for size, _ in parts), sum(count for _, count in parts))
            if len(found) <= most:
                break
    uses = [FileUse(path=path, size=size, files=count) for path, (size, count) in found.items()]
    return sorted(uses, key=lambda use: (-use.size, use.path))


def _parent(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def _below(path: str, folder: str) -> str | None:
    """Return the path relative to a folder; None if it does not lie in it."""
    if path == folder:
        return "."
    start = f"{folder.rstrip('/')}/"
    return path[len(start) :] if path.startswith(start) else None
