"""Keeps the user's files as they were while the script runs."""

import builtins
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import sys
import threading


class HarmError(PermissionError):
    """A write that can be neither allowed nor diverted."""


class FileGuard:
    """Keeps what was on disk before the run as it was.

    A write to a file that existed goes to a copy in the scratch folder, and later reads of that path see the copy;
    torch saves always go there. New files are allowed where the script wants them. Deleting or renaming over what
    existed is only pretended. What slips past (another module's early-bound function) is seen by an audit hook,
    which copies the file away first; the parent puts it back. The journal in the scratch folder has a JSON line
    for each, so that it survives any end of this process.
    """

    MAX_NAMED = 64 << 20  # bytes; of files named on a command line that the script starts
    MAX_COPY = 2 << 30  # bytes; a larger file opened for change is refused rather than copied

    def __init__(self, scratch):
        self.scratch = os.path.realpath(scratch)
        self.journal_path = os.path.join(self.scratch, "journal.jsonl")
        self.diverted = {}  # real path -> path in scratch
        self.created = set()
        self.gone = set()  # existed, "deleted" by the script
        self.gone_trees = set()  # the same of whole folders
        self.remade = set()  # folders of these that the script made again
        self.busy = threading.local()
        self.real_open, self.real_os_open, self.real_stat = io.open, os.open, os.stat

    def note(self, kind, path, other=""):
        line = json.dumps({"kind": kind, "path": path, "other": other}) + "\n"
        fd = self.real_os_open(self.journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def real(self, path):
        return os.path.realpath(os.path.abspath(os.fsdecode(os.fspath(path))))

    def spot(self, real):
        name = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
        return os.path.join(self.scratch, "files", name, os.path.basename(real))

    def ours(self, real):
        """Whether this run made `real` or a folder that it is in."""
        while real not in self.created and real != self.scratch:
            parent = os.path.dirname(real)
            if parent == real:
                return False
            real = parent
        return True

    def foreign(self, real):
        """Whether `real` is a file that was there before this run."""
        if self.ours(real) or real.startswith(("/dev/", "/proc/")):
            return False
        try:
            return stat.S_ISREG(self.real_stat(real).st_mode)
        except (OSError, ValueError):
            return False

    def read_path(self, path):
        if not self.diverted:
            return path
        try:
            return self.diverted.get(self.real(path), path)
        except (TypeError, ValueError):
            return path

    def at(self, path, dir_fd):
        """`path` relative to an open folder, as an ordinary path; None where the system does not tell."""
        if dir_fd is None or os.path.isabs(os.fsdecode(os.fspath(path))):
            return path
        try:
            return os.path.join(os.readlink("/proc/self/fd/{}".format(dir_fd)), os.fsdecode(os.fspath(path)))
        except OSError:
            return None

    def was_removed(self, real):
        """Whether the script believes that `real` is gone."""
        return real in self.gone or any(real.startswith(tree + os.sep) for tree in self.gone_trees)

    def write_path(self, path, keep, always=False):
        """Where a write to `path` may go; `keep` when the old content must be there first."""
        real = self.real(path)
        if real in self.diverted:
            return self.diverted[real]
        exists = self.foreign(real)
        if not exists and not always:
            if not os.path.lexists(real):
                self.created.add(real)
                self.note("created", real)
            return path
        target = self.spot(real)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if exists and keep and not self.was_removed(real) and not os.path.exists(target):
            if self.real_stat(real).st_size > self.MAX_COPY:
                raise HarmError("costgpu: the script opens {} for change; it is too large to copy".format(real))
            self.copy(real, target)
        self.diverted[real] = target
        self.note("diverted", real, target)
        return target

    def copy(self, source, target):
        self.busy.on = True
        try:
            with self.real_open(source, "rb") as src, self.real_open(target, "wb") as dst:
                shutil.copyfileobj(src, dst, 1 << 20)
        finally:
            self.busy.on = False

    def backup(self, path):
        """Second net: copy a file away just before something that could not be diverted changes it."""
        real = self.real(path)
        if getattr(self.busy, "on", False) or not self.foreign(real):
            return
        target = os.path.join(self.scratch, "backup", os.path.basename(os.path.dirname(self.spot(real))))
        if os.path.exists(target):
            return
        if self.real_stat(real).st_size > self.MAX_COPY:
            raise HarmError("costgpu: the script changes {}; it is too large to copy first".format(real))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self.copy(real, target + ".part")
        shutil.copystat(real, target + ".part")
        self.raw_rename(target + ".part", target)
        self.note("backup", real, target)

    def remove(self, path, real_call):
        real = self.real_parent(path)
        if real in self.diverted and real not in self.created:
            self.diverted.pop(real)
            self.gone.add(real)
        elif os.path.lexists(real) and not self.ours(real):
            self.gone.add(real)
            self.note("kept", real)
        else:
            real_call()
            self.created.discard(real)

    def real_parent(self, path):
        """Like `real`, but a link itself, not what it points to."""
        full = os.path.abspath(os.fsdecode(os.fspath(path)))
        return os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))

    def rename(self, source, target, real_call):
        src, dst = self.real_parent(source), self.real_parent(target)
        if os.path.isdir(dst) and not os.path.islink(dst) and os.path.isdir(src) and self.ours(src):
            return real_call(source, target)
        content = self.diverted.get(src, src)
        ours = self.ours(src) or src in self.diverted
        if os.path.lexists(dst) and not self.ours(dst):
            place = self.write_path(dst, keep=False, always=True)
            self.copy(content, place)
            return self.remove(source, lambda: self.raw_remove(source))
        if not ours and os.path.exists(src) and not src.startswith(self.scratch + os.sep):
            if os.path.isdir(src):
                return self.copy_tree(src, dst)
            self.created.add(dst)
            self.note("created", dst)
            self.copy(content, dst)
            self.gone.add(src)
            return self.note("kept", src)
        if src in self.diverted:
            self.diverted[dst] = self.diverted.pop(src)
            return self.note("diverted", dst, self.diverted[dst])
        if os.path.isdir(src):
            inside = src + os.sep
            for known in [name for name in self.created if name.startswith(inside)]:
                self.created.add(dst + os.sep + known[len(inside) :])
        self.created.discard(src)
        self.created.add(dst)
        self.note("created", dst)
        return real_call(source, target)

    def backup_named(self, text):
        """Copies away the files that a command line names: another program's writes cannot be diverted."""
        for word in re.split(r"""[\s'"=<>;|&(),\[\]]+""", text)[1:]:
            try:
                if word and os.path.isfile(word) and self.real_stat(word).st_size < self.MAX_NAMED:
                    self.backup(word)
            except (OSError, ValueError):
                continue

    def copy_tree(self, source, target):
        """Instead of renaming a folder that was there before."""
        files = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
        if sum(os.lstat(name).st_size for name in files) > self.MAX_COPY:
            raise HarmError("costgpu: the script renames the folder {}, which is too large to copy".format(source))
        self.busy.on = True
        try:
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        finally:
            self.busy.on = False
        for folder, _, names in os.walk(target):
            self.created.update([folder] + [os.path.join(folder, name) for name in names])
        self.gone_trees.add(source)
        self.gone.add(source)
        self.note("kept", source)

    def untouchable(self, path):
        """Whether `path`, not following a link, was there before this run."""
        if isinstance(path, int):
            return False
        real = self.real_parent(path)
        return os.path.lexists(real) and not self.ours(real)

    def install(self):
        names = "open remove rename replace link chmod utime truncate mkdir rmdir symlink".split()
        raw = {name: getattr(os, name) for name in names}
        self.raw_rename, self.raw_remove = raw["rename"], raw["remove"]
        real_open, real_rmtree, real_stat = self.real_open, shutil.rmtree, self.real_stat

        def guarded_open(file, mode="r", *args, **kwargs):
            if isinstance(file, (str, bytes, os.PathLike)):
                if "x" in mode and os.path.lexists(file) and self.real(file) not in self.gone:
                    return real_open(file, mode, *args, **kwargs)
                if set(mode) & set("wax+"):
                    target = self.write_path(file, keep="a" in mode or "r" in mode)
                    mode = mode.replace("x", "w") if target is not file else mode
                    file = target
                else:
                    file = self.read_path(file)
            return real_open(file, mode, *args, **kwargs)

        def guarded_os_open(path, flags, mode=0o777, **kwargs):
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            full = self.at(path, kwargs.get("dir_fd"))
            if full is not None and not writes:
                found = self.read_path(full)
                path = found if found is not full else path
            elif full is not None and not (flags & os.O_EXCL and os.path.lexists(full)):
                found = self.write_path(full, keep=not flags & os.O_TRUNC)
                if found is not full:
                    path, flags, kwargs = found, flags | os.O_CREAT, {}
            return raw["open"](path, flags, mode, **kwargs)

        def guarded_remove(path, **kwargs):
            full = self.at(path, kwargs.get("dir_fd"))
            if full is None:
                return raw["remove"](path, **kwargs)
            return self.remove(full, lambda: raw["remove"](path, **kwargs))

        def guarded_rename(source, target, **kwargs):
            source, target = self.at(source, kwargs.get("src_dir_fd")), self.at(target, kwargs.get("dst_dir_fd"))
            if source is None or target is None:
                raise HarmError("costgpu: a rename inside an open folder cannot be followed on this system")
            return self.rename(source, target, lambda a, b: raw["replace"](a, b))

        def guarded_link(source, target, **kwargs):
            if self.untouchable(target) and self.was_removed(self.real_parent(target)):
                return self.copy(self.read_path(source), self.write_path(target, keep=False, always=True))
            self.created.add(self.real_parent(target))
            return raw["link"](self.read_path(source), target, **kwargs)

        def keeping(name):
            def guarded(path, *args, **kwargs):
                if self.untouchable(path):
                    return self.note("kept", self.real_parent(path))
                return raw[name](path, *args, **kwargs)

            return guarded

        def guarded_truncate(path, length):
            if isinstance(path, int):
                return raw["truncate"](path, length)
            return raw["truncate"](self.write_path(path, keep=True), length)

        def guarded_mkdir(path, *args, **kwargs):
            if kwargs.get("dir_fd") is None:
                real = self.real_parent(path)
                if os.path.isdir(real) and real not in self.remade and self.was_removed(real):
                    self.remade.add(real)
                    return self.gone.discard(real)
                if not os.path.lexists(real):
                    self.created.add(real)
            return raw["mkdir"](path, *args, **kwargs)

        def guarded_symlink(source, target, *args, **kwargs):
            real = self.real_parent(target)
            if real in self.gone and os.path.lexists(real):
                return self.note("kept", real)
            self.created.add(real)
            return raw["symlink"](source, target, *args, **kwargs)

        def guarded_rmdir(path, **kwargs):
            if kwargs.get("dir_fd") is None and not self.ours(self.real_parent(path)):
                return self.remove(path, lambda: raw["rmdir"](path))
            return raw["rmdir"](path, **kwargs)

        def guarded_rmtree(path, *args, **kwargs):
            real = self.real_parent(path)
            if self.ours(real) or not os.path.lexists(real):
                return real_rmtree(path, *args, **kwargs)
            for known in [name for name in self.diverted if name.startswith(real + os.sep)]:
                self.gone.add(known)
                self.diverted.pop(known)
            self.gone.add(real)
            self.gone_trees.add(real)
            self.remade = {name for name in self.remade if name != real and not name.startswith(real + os.sep)}
            return self.note("kept", real)

        def guarded_stat(path, *args, **kwargs):
            if self.diverted and kwargs.get("dir_fd") is None and isinstance(path, (str, bytes, os.PathLike)):
                path = self.read_path(path)
            return real_stat(path, *args, **kwargs)

        guarded = {
            "open": guarded_os_open,
            "remove": guarded_remove,
            "unlink": guarded_remove,
            "stat": guarded_stat,
            "rename": guarded_rename,
            "replace": guarded_rename,
            "link": guarded_link,
            "symlink": guarded_symlink,
            "truncate": guarded_truncate,
            "mkdir": guarded_mkdir,
            "rmdir": guarded_rmdir,
            "chmod": keeping("chmod"),
            "utime": keeping("utime"),
        }
        instead = {id(getattr(os, name)): function for name, function in guarded.items()}
        instead[id(real_open)] = guarded_open
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.8 to 3.10 bind these functions early
        for name, bound in list(vars(accessor).items()) if accessor else ():
            if id(bound) in instead:
                setattr(accessor, name, staticmethod(instead[id(bound)]))
        for name, function in guarded.items():
            setattr(os, name, function)
        builtins.open = io.open = guarded_open
        shutil.rmtree = guarded_rmtree
        sys.addaudithook(self.audit)

    def audit(self, event, args):
        if event == "open":
            path, mode, flags = args
            if not isinstance(path, (str, bytes)):
                return
            if isinstance(mode, str):
                writes = bool(set(mode) & set("wax+"))
            else:
                writes = bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC))
            if writes and not getattr(self.busy, "on", False):
                self.backup(path)
        elif event in ("os.remove", "os.truncate", "sqlite3.connect") and not isinstance(args[0], int):
            path = self.at(args[0], args[1] if event == "os.remove" and args[1] != -1 else None)
            if path is not None:
                self.backup(path)
        elif event == "os.rename" and isinstance(args[1], (str, bytes)) and not getattr(self.busy, "on", False):
            self.backup(args[1])
            self.backup(args[0])
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            command = args[1] if event == "subprocess.Popen" else args[0]
            parts = [os.fsdecode(p) for p in (command if isinstance(command, (list, tuple)) else [command])]
            text = " ".join(parts)
            if not text.startswith(("uname", "ldconfig", "/sbin/ldconfig", "lscpu")):
                self.note("program", text[:200])
                self.backup_named(text)
