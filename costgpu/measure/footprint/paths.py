"""Which paths are worth telling, and how many of them are told as few. Pure: it asks no file system."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from costgpu.models.footprint import FileUse

MOST_ENTRIES = 200
TOPS = (".", "/")  # folders that are in no other
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "site-packages", "dist-packages", "node_modules", ".costgpu"}
)
# Folders of the system: every machine has its own.
SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/proc", "/run", "/sbin", "/snap", "/sys"),
    *("/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/sbin"),
    *("/usr/share", "/var/cache", "/var/lib", "/var/log", "/var/run", "/System", "/Library", "/opt/homebrew"),
)
OF_PREFIX = ("bin", "lib", "lib64", "include", "share", "etc", "ssl", "conda-meta", "pyvenv.cfg")
# Settings and caches of tools below the home folder: they are made again, or are of no account.
_OF_TOOLS = """
    .config .local .ipython .jupyter .matplotlib .triton .nv .keras/keras.json .fonts .pyenv .conda Library
    .cache/fontconfig .cache/matplotlib .cache/mesa_shader_cache .cache/nvidia .cache/numba .cache/pip .cache/uv
    .cache/torch_extensions .cache/torch/kernels .cache/triton
"""
OF_TOOLS = tuple(_OF_TOOLS.split())
WRITTEN_BY_TOOLS = (*OF_TOOLS, ".cache", ".keras")
# Native libraries of the system, and what libraries and Python's own `tempfile` make below a folder for temporary files.
_NOBODYS = re.compile(
    r"/opt/.*\.so[\d.]*$|(/private)?(/tmp|/var/tmp|/var/folders/\w+/\w+/T)/"
    r"(\.|tmp[a-z0-9][a-z0-9_]{7}\b|(pymp|torch|torchinductor|costgpu|ray|matplotlib|numba|jax|wandb)[-_]|cuda)"
)
_COMPILED = re.compile(r"__pycache__/([^/]+?)\.cpython-[^/]*\.pyc$")


class KnownFolders:
    """What decides whose a path is; all are absolute and have no links in them."""

    def __init__(self, *, workdir: str, home: str, own: Iterable[str] = (), prefixes: Iterable[str] = ()) -> None:
        """`own` are folders of costgpu's; `prefixes` those of the interpreters."""
        self.workdir, self._home = f"{workdir.rstrip('/')}/", f"{home.rstrip('/')}/"
        libraries = [f"{prefix.rstrip('/')}/{part}" for prefix in prefixes for part in OF_PREFIX]
        around = [f"{folder}/" for folder in (*own, *libraries, *SYSTEM)]
        # What the working folder itself lies in is not left out: /usr/local/app
        self._left_out = tuple(folder for folder in around if not self.workdir.startswith(folder))
        self._of_tools = {
            written: tuple(f"{self._home}{name}/" for name in names)
            for written, names in ((False, OF_TOOLS), (True, WRITTEN_BY_TOOLS))
        }

    def inside(self, path: str) -> str | None:
        """Return the path relative to the working folder; None if it lies elsewhere."""
        return path[len(self.workdir) :] if path.startswith(self.workdir) else None

    def is_told(self, path: str, *, written: bool = False) -> bool:
        """Return whether the user has to know that this file was read, or `written`."""
        within = self.inside(path)
        if f"{path}/".startswith(self._left_out) or SKIPPED_FOLDERS.intersection((within or path).split("/")):
            return False
        if within is not None:
            return True
        if path.startswith(self._home):
            setting = path.startswith(f"{self._home}.") and path.count("/") == self._home.count("/")
            return not setting and not f"{path}/".startswith(self._of_tools[written])
        return not _NOBODYS.match(path)


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
                inside.setdefault(posixpath.dirname(path) or ".", []).append(path)
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
