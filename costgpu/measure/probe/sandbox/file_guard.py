"""Diverts what Python code of the script changes in the file system into the scratch folder.

For the levels of isolation at which the script runs among the user's own files: so that most scripts run as they would,
and see what they wrote. It is a convenience at one of them, where the system refuses what gets past it, and the only
thing there is at the other. It puts nothing back: nothing that it knows of changes.
"""

import os
import pathlib
import stat
import sys
from functools import partial

from .diversion import Diversion, HarmError
from .native_calls import NATIVE
from .view import Naming, raw, status

__all__ = ["FileGuard", "HarmError"]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TEMPORARY_FILE = getattr(os, "O_TMPFILE", 0)
READ_MODES = frozenset(("r", "rb", "rt", "br", "tr"))


class Entry:
    """What ``os.scandir`` tells of a file that the script made."""

    def __init__(self, folder, name, real):
        encode = os.fsencode if isinstance(folder, bytes) else str
        self.name, self.real = encode(name), real
        self.path = os.path.join(folder, self.name) if not isinstance(folder, int) else self.name

    def stat(self, *, follow_symlinks=True):
        return os.stat(self.real, follow_symlinks=follow_symlinks)

    def kind(self, follow):
        try:
            return stat.S_IFMT(self.stat(follow_symlinks=follow).st_mode)
        except FileNotFoundError:
            return 0

    def is_dir(self, *, follow_symlinks=True):
        return self.kind(follow_symlinks) == stat.S_IFDIR

    def is_file(self, *, follow_symlinks=True):
        return self.kind(follow_symlinks) == stat.S_IFREG

    def is_symlink(self):
        return self.kind(False) == stat.S_IFLNK

    def is_junction(self):
        return False

    def inode(self):
        return self.stat(follow_symlinks=False).st_ino

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return "<DirEntry {!r}>".format(self.name)


class Entries:
    """The iterator that ``os.scandir`` returns."""

    def __init__(self, entries):
        self.entries = iter(entries)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.entries)

    def close(self):
        self.entries = iter(())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FileGuard(Diversion):
    """Puts the view of `Diversion` in the place of the functions with which Python code reads and changes files."""

    def open(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        given = file
        if isinstance(file, (str, bytes, os.PathLike)) and opener is None:
            path = os.fspath(file)
            if mode not in READ_MODES:
                if "x" in mode:
                    file = self.new(self.resolve(path, follow=False), given)
                elif set(mode) & set("wa+"):
                    file = self.write_path(path, keep="w" not in mode, create="r" not in mode)
            else:
                file = self.read_path(path)
            if file is path:
                file = given
        if file is given:
            return raw.io_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        with Naming(given):
            return raw.io_open(file, mode, buffering, encoding, errors, newline, closefd, opener)

    def os_open(self, path, flags, mode=0o777, *, dir_fd=None):
        given, full = path, self.at(path, dir_fd)
        if not flags & WRITES or (TEMPORARY_FILE and flags & TEMPORARY_FILE == TEMPORARY_FILE):
            found = self.read_path(full)
            if flags & WRITES and not self.is_free(self.resolve(full)):
                real = os.path.join(self.resolve(full), "temporary")
                self.make_parents(real, given)
                found = os.path.dirname(self.upper(real))
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            found = self.new(self.resolve(full, follow=False), given)
        else:
            only_makes = not flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC)
            if only_makes and status(self.place(self.resolve(full))) is not None:
                found = self.read_path(full)
            else:
                found = self.write_path(full, keep=not flags & os.O_TRUNC, create=bool(flags & os.O_CREAT))
                if flags & os.O_TRUNC and found is not full and self.lower(self.resolve(full)) is not None:
                    flags |= os.O_CREAT
        if found is full:
            return raw.open(given, flags, mode, dir_fd=dir_fd)
        with Naming(given):
            return raw.open(found, flags, mode)

    def open_code(self, path):
        return raw.open_code(self.read_path(path))

    def reading(self, name, follow=True):
        call = getattr(raw, name)

        def guarded(path, *args, **kwargs):
            if isinstance(path, int) or not self.active():
                return call(path, *args, **kwargs)
            full = self.at(path, kwargs.get("dir_fd"))
            found = self.read_path(full, follow and kwargs.get("follow_symlinks", True))
            if found is full:
                return call(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            with Naming(path):
                return call(found, *args, **kwargs)

        return guarded

    def changing(self, name):
        """For modes, owners, times and attributes: of what was there, they only seem to change."""
        call = getattr(raw, name)

        def guarded(path, *args, **kwargs):
            follow = kwargs.get("follow_symlinks", True) and name[0] != "l"
            full = self.at(path, kwargs.get("dir_fd"))
            if isinstance(path, int) and not full.startswith(os.sep):  # a pipe
                return call(path, *args, **kwargs)
            real = self.resolve(full, follow)
            place = self.place(real)
            if not self.is_free(real) and place == real and status(real) is not None:
                return None
            if self.is_free(real) or isinstance(path, int):
                return call(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            with Naming(path):
                return call(place, *args, **kwargs)

        return guarded

    def making(self, name):
        call = getattr(raw, name)

        def guarded(path, *args, **kwargs):
            place = self.new(self.resolve(self.at(path, kwargs.pop("dir_fd", None)), follow=False), path)
            return call(place, *args, **kwargs)

        return guarded

    def removing(self, folder):
        def guarded(path, *, dir_fd=None):
            return self.remove(self.at(path, dir_fd), folder)

        return guarded

    def renaming(self, src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        return self.rename(self.at(src, src_dir_fd), self.at(dst, dst_dir_fd))

    def linking(self, src, dst, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=True):
        real = self.resolve(self.at(src, src_dir_fd), follow=False)
        target = self.resolve(self.at(dst, dst_dir_fd), follow=False)
        if status(self.place(real)) is None:
            raise self.missing(real, src, dst)
        place = self.new(target, dst)
        if place != target:
            self.lift(real, src)
        with Naming(src):
            return raw.link(self.place(real), place, follow_symlinks=follow_symlinks)

    def symlinking(self, src, dst, target_is_directory=False, *, dir_fd=None):
        place = self.new(self.resolve(self.at(dst, dir_fd), follow=False), dst)
        return raw.symlink(src, place)

    def truncating(self, path, length):
        if isinstance(path, int):
            return raw.truncate(path, length)
        with Naming(path):
            return raw.truncate(self.write_path(path, keep=True, create=False), length)

    def may(self, path, *args, **kwargs):
        try:
            return self.reading("access")(path, *args, **kwargs)
        except OSError:
            return False

    def entries(self, path):
        """Return what the view has in a folder; None if it is as it was."""
        if not self.active():
            return None
        real = self.resolve(self.at("." if path is None else path))
        if self.is_free(real):
            return None
        with Naming(path):
            changed = self.place(real) != real or status(self.upper(real)) is not None or self.removed or self.linked
            return self.names(real) if changed else None

    def listing(self, path=None):
        found = self.entries(path)
        if found is None:
            return raw.listdir(path)
        return [os.fsencode(name) for name in found] if isinstance(path, bytes) else list(found)

    def scanning(self, path=None):
        found = self.entries(path)
        if found is None:
            return raw.scandir(path)
        real = self.resolve(self.at("." if path is None else path))
        folder = "." if path is None else path if isinstance(path, int) else os.fspath(path)
        old, whole = {}, self.lower(real) is not None
        if whole and not (isinstance(folder, int) or self.linked):
            with raw.scandir(folder) as entries:
                old = {os.fsdecode(entry.name): entry for entry in entries if not entry.is_symlink()}
        as_before = {name for name, place in found.items() if place == os.path.join(real, name)}
        return Entries(
            old[name] if name in old and name in as_before else Entry(folder, name, os.path.join(real, name))
            for name in found
        )

    def moving_to(self, path):
        if isinstance(path, int):
            return raw.chdir(path)
        with Naming(path):
            return raw.chdir(self.read_path(path))

    def install(self):
        guarded = {
            "open": self.os_open,
            "unlink": self.removing(False),
            "remove": self.removing(False),
            "rmdir": self.removing(True),
            "rename": self.renaming,
            "replace": self.renaming,
            "link": self.linking,
            "symlink": self.symlinking,
            "truncate": self.truncating,
            "listdir": self.listing,
            "scandir": self.scanning,
            "chdir": self.moving_to,
            "getcwd": self.working_folder,
            "getcwdb": lambda: os.fsencode(self.working_folder()),
        }
        guarded["access"] = self.may
        asking = "stat statvfs pathconf getxattr listxattr".split()
        guarded.update({name: self.reading(name) for name in asking if hasattr(os, name)})
        guarded.update({name: self.reading(name, follow=False) for name in ("lstat", "readlink")})
        guarded.update({name: self.making(name) for name in ("mkdir", "mkfifo", "mknod") if hasattr(os, name)})
        metadata = "chmod fchmod lchmod chown fchown lchown utime setxattr removexattr chflags lchflags".split()
        guarded.update({name: self.changing(name) for name in metadata if hasattr(os, name)})
        instead = {id(getattr(os, name)): plain(function) for name, function in guarded.items()}
        instead.update({id(raw.io_open): plain(self.open), id(raw.open_code): plain(self.open_code)})
        for module, name, function in NATIVE:
            native = getattr(module, name, None)
            if native is not None:
                instead[id(native)] = partial(function, self, native)
        for group in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            group.update([instead[id(function)] for function in group if id(function) in instead])
        here = __name__.partition(".")[0]
        for name, module in list(sys.modules.items()):  # some bind these functions when they are imported
            if name.partition(".")[0] != here or not here:
                replace_bound(module, instead)
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.8 to 3.10
        for name, bound in list(vars(accessor).items()) if accessor else ():
            if id(bound) in instead:
                setattr(accessor, name, staticmethod(instead[id(bound)]))
        sys.dont_write_bytecode = True


def plain(function):
    """Return a function as such: bound methods would become methods of the classes that hold them."""

    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def replace_bound(module, instead):
    try:
        names = [name for name, value in vars(module).items() if id(value) in instead]
    except (TypeError, RuntimeError):
        return
    for name in names:
        setattr(module, name, instead[id(vars(module)[name])])
