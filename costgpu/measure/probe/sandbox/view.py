"""A view of the file system in which the script's changes are made, and the real one, in which they are not.

What the script writes lies at ``files/<absolute path>`` in the scratch folder (*upper*); what it removed is listed in
``removed.jsonl``, and everything at and below such a path (*hidden*) is not seen any more. All processes of a
measurement share both. A path of the view is absolute and has no links in it, save perhaps its last part.
"""

import errno
import io
import json
import os
import re
import stat
import types

from .files import Files

NAMES = (
    "open stat lstat statvfs pathconf getxattr listxattr access listdir scandir readlink chdir getcwd "
    "remove unlink rmdir rename replace link symlink mkdir mkfifo mknod truncate chmod fchmod lchmod "
    "chown fchown lchown utime setxattr removexattr chflags lchflags"
).split()
raw = types.SimpleNamespace(**{name: getattr(os, name) for name in NAMES if hasattr(os, name)})
raw.io_open, raw.open_code = io.open, io.open_code
OWN_TEMPORARY = "costgpu-"  # how the name of a temporary folder of a measurement's own begins
STANDARD = re.compile("/dev/std(in|out|err)|(/dev/fd|/proc/self/fd)/[012]")  # what they lead to is not diverted
SHARED_MEMORY = "/dev/shm/"  # what others keep there is theirs, too
MAX_LINKS = 40
MAX_FOLDERS = 10000  # that are remembered


def failure(number, *paths):
    """Return the error that the system would give."""
    names = [paths[0], None, paths[1]] if len(paths) > 1 else paths
    return OSError(number, os.strerror(number), *names)


def status(path):
    """Of a real path, not following a link; None where there is nothing."""
    try:
        return raw.lstat(path)
    except (OSError, ValueError):
        return None


class View(Files):
    """The view. The scratch folder, a temporary folder of the measurement's own, and devices are really written."""

    def __init__(self, scratch):
        super().__init__(scratch)
        self.real_open, self.real_os_open, self.raw_rename = raw.io_open, raw.open, raw.replace
        self.root = os.path.join(self.scratch, "files")
        self.removed_path = os.path.join(self.scratch, "removed.jsonl")
        own = [self.scratch, "/dev", "/proc", "/sys"]
        temporary = os.environ.get("TMPDIR", "")
        if os.path.basename(temporary).startswith(OWN_TEMPORARY):
            own.append(os.path.realpath(temporary))
        self.free = tuple(path + os.sep for path in own)
        self.removed, self.removed_size = set(), 0
        self.folders = {}  # as asked for -> of the view
        self.on = False
        self.linked = False  # whether the view has links that the script made
        self.displaced = False  # whether the working folder is one that the script made

    def active(self):
        """Return whether any process of the measurement has changed anything."""
        if not self.on:
            try:
                raw.stat(self.root)
                self.on = True
            except OSError:
                return False
        return True

    def is_free(self, real):
        inside = real + os.sep
        return inside.startswith(self.free) and not inside.startswith(SHARED_MEMORY)

    def upper(self, real):
        return self.root + real

    def working_folder(self):
        here = raw.getcwd()
        self.displaced = here.startswith(self.root + os.sep)
        return here[len(self.root) :] if self.displaced else here

    def at(self, path, dir_fd=None):
        """Return a path relative to an open folder, or an open file itself, as an ordinary path."""
        if isinstance(path, int):
            path, dir_fd = "", path
        if dir_fd is None or dir_fd == -1 or (path and os.path.isabs(os.fsdecode(path))):
            return path
        try:
            folder = raw.readlink("/proc/self/fd/{}".format(dir_fd))
        except OSError:  # macOS
            import fcntl

            folder = os.fsdecode(fcntl.fcntl(dir_fd, 50, bytes(1024)).rstrip(b"\0"))  # F_GETPATH
        if folder.startswith(self.root + os.sep):
            folder = folder[len(self.root) :]
        return os.path.join(folder, os.fsdecode(path)) if path else folder

    # Where a path leads to

    def resolve(self, path, follow=True):
        """Return the path of the view that `path` means."""
        return self.walk(os.fsdecode(path), follow, 0)[0]

    def walk(self, path, follow, links):
        """Return the same, and how many links there were on the way, besides `links` before."""
        full = path if path.startswith(os.sep) else self.working_folder() + os.sep + path
        if STANDARD.fullmatch(full):
            return full, links
        bare = full.rstrip(os.sep)
        head, _, tail = bare.rpartition(os.sep)
        if tail in ("", ".", ".."):
            return self.folder(bare, links)
        parent, links = self.folder(head, links)
        real = parent.rstrip(os.sep) + os.sep + tail
        if follow or bare != full:
            target = self.link(real)
            if target is not None:
                if links >= MAX_LINKS:
                    raise failure(errno.ELOOP, path)
                return self.walk(os.path.join(parent, target), True, links + 1)
        return real, links

    def folder(self, path, links):
        known = self.folders.get(path)
        if known is None:
            head, _, tail = path.rstrip(os.sep).rpartition(os.sep)
            if tail in ("", "."):
                found, total = self.folder(head, links) if head else (os.sep, links)
            elif tail == "..":
                inner, total = self.folder(head, links)
                there = status(self.place(inner))
                exists = there is not None and stat.S_ISDIR(there.st_mode)
                found = os.path.dirname(inner) if exists else inner + "/.."
            else:
                found, total = self.walk(path, True, links)
            known = found, total - links
            if len(self.folders) > MAX_FOLDERS:
                self.folders.clear()
            self.folders[path] = known
        found, count = known
        if links + count > MAX_LINKS:
            raise failure(errno.ELOOP, path)
        return found, links + count

    def link(self, real):
        try:
            target = raw.readlink(self.upper(real))
            self.linked = True
            return target
        except OSError as error:
            if error.errno == errno.EINVAL:  # it is there, and is none
                return None
        try:
            return None if self.hidden(real) else raw.readlink(real)
        except OSError:
            return None

    def hidden(self, real):
        """Return whether the script removed what really is there, or a folder around it."""
        try:
            size = raw.stat(self.removed_path).st_size
        except OSError:
            return False
        if size > self.removed_size:
            with raw.io_open(self.removed_path, "rb") as stream:
                stream.seek(self.removed_size)
                lines = stream.read().splitlines(True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self.removed.update(map(json.loads, whole))
            self.removed_size += sum(map(len, whole))
        while real:
            if real in self.removed:
                return True
            real = real[: real.rfind(os.sep)]
        return False

    def lower(self, real):
        """Return the status of what was really there, if the script has not removed it."""
        found = status(real)
        return found if found is not None and not self.hidden(real) else None

    def place(self, real):
        """Return where the content of a path of the view really is; may not exist."""
        if self.is_free(real):
            return real
        try:
            above = raw.lstat(self.upper(real))
        except NotADirectoryError:
            return self.upper(real)
        except (OSError, ValueError):
            return self.upper(real) if self.hidden(real) else real
        if stat.S_ISDIR(above.st_mode):
            below = self.lower(real)
            if below is not None and stat.S_ISDIR(below.st_mode):
                return real
        return self.upper(real)

    def read_path(self, path, follow=True):
        """Return what to read instead of `path`; `path` itself where nothing has changed."""
        if not self.active():
            return path
        try:
            if self.is_untouched(path, follow):
                return path
            real = self.resolve(path, follow)
        except (TypeError, ValueError):  # the system says what is wrong with it
            return path
        except OSError as error:
            error.filename = path
            raise
        place = self.place(real)
        return self.unchanged(path, real) if place == real else place

    def is_untouched(self, path, follow):
        """Whether nothing at all was changed in the folder of `path`, found with few system calls: for data loading."""
        full = os.fsdecode(path)
        if not full.startswith(os.sep):
            full = self.working_folder() + os.sep + full
        head, _, tail = full.rpartition(os.sep)
        parent = self.folders.get(head, ("",))[0]
        changed = raw.access(self.removed_path, os.F_OK) or raw.access(self.root + parent, os.F_OK)
        if changed or self.linked or self.displaced or tail in ("", ".", ".."):
            return False
        try:
            return not follow or not raw.readlink(parent + os.sep + tail)
        except OSError:  # no link, or not there
            return True

    def unchanged(self, path, real):
        """Return how to tell the system of a path of the view that really is there."""
        translated = self.linked or (self.displaced and not os.path.isabs(path))
        return real if translated else path


class Naming:
    """An error names the path that the script gave, not where it was diverted to."""

    def __init__(self, given):
        self.given = given

    def __enter__(self):
        return None

    def __exit__(self, kind, error, trace):
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = self.given
