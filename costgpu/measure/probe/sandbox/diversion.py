"""The changes that a script makes in its `View` of the file system; none is made in the real one."""

import errno
import json
import os
import shutil
import stat
import threading

from .view import SHARED_MEMORY, View, failure, raw, status

MAX_COPY = 2 << 30  # bytes; a larger file opened for change is refused rather than copied


class HarmError(PermissionError):
    """A write that can be neither allowed nor diverted."""


class Diversion(View):
    """Leads every change into the scratch folder."""

    def append(self, path, entry):
        fd = raw.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, (json.dumps(entry) + "\n").encode())
        finally:
            os.close(fd)

    def hide(self, real):
        if not self.hidden(real):
            self.append(self.removed_path, real)
            self.note("removed", real)
        raw_folder(self.root)
        self.folders.clear()

    def write_path(self, path, keep, always=False, create=True):
        """Return what to open for writing instead of `path`; `keep` when the old content must be there first."""
        real = self.resolve(path)
        if self.is_free(real):
            return self.unchanged(path, real)
        upper, below = self.upper(real), self.lower(real)
        if status(upper) is not None:
            return upper
        if below is None:
            if not create:
                return upper
            return self.new(real, path)
        if not stat.S_ISREG(below.st_mode) or not raw.access(real, os.W_OK):
            return self.unchanged(path, real)
        self.make_parents(real, path)
        if keep:
            self.copy(real, below)
        self.note("diverted", real, upper)
        return upper

    def new(self, real, path):
        """Return where to make what the view does not have yet."""
        if status(self.place(real)) is not None:
            raise failure(errno.EEXIST, path)
        if self.is_free(real):
            return real
        self.make_parents(real, path)
        self.folders.clear()
        if not real.startswith(SHARED_MEMORY):
            self.note("diverted", real, self.upper(real))
        return self.upper(real)

    def make_parents(self, real, path):
        parent = os.path.dirname(real)
        place = self.place(parent)
        found = status(place)
        if found is None or not stat.S_ISDIR(found.st_mode):
            raise self.missing(real, path)
        if not raw.access(place, os.W_OK):
            raise failure(errno.EACCES, path)
        raw_folder(self.upper(parent))

    def copy(self, real, below):
        if below.st_size > MAX_COPY:
            raise HarmError("costgpu: the script changes {}; it is too large to copy".format(real))
        part = os.path.join(self.scratch, "part-{}-{}".format(os.getpid(), threading.get_ident()))
        fd = raw.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(below.st_mode) | stat.S_IWUSR)
        with raw.io_open(real, "rb") as source, raw.io_open(fd, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        raw.rename(part, self.upper(real))

    def lift(self, real, path):
        """Brings all of a file or folder into the upper layer."""
        below = self.lower(real)
        above = status(self.upper(real))
        if below is None or (above is not None and not stat.S_ISDIR(above.st_mode)):
            return
        self.make_parents(real, path)
        if stat.S_ISDIR(below.st_mode):
            raw_folder(self.upper(real))
            for name in list(self.names(real)):
                self.lift(os.path.join(real, name), path)
        elif stat.S_ISLNK(below.st_mode):
            raw.symlink(raw.readlink(real), self.upper(real))
        elif stat.S_ISREG(below.st_mode):
            self.copy(real, below)

    def names(self, real):
        """Return what a folder of the view holds, by name: where it really is."""
        found, upper = {}, self.upper(real)
        if self.is_free(real) or self.lower(real) is not None:
            found = {name: os.path.join(real, name) for name in raw.listdir(real)}
        if not self.is_free(real):
            for name in [name for name, path in found.items() if self.hidden(path)]:
                del found[name]
            if status(upper) is not None:
                found.update({name: self.place(os.path.join(real, name)) for name in raw.listdir(upper)})
            elif not found and self.lower(real) is None:
                raise self.missing(real, real)
        return found

    def missing(self, real, *paths):
        """Return the error for a path that is not there: perhaps something on the way is no folder."""
        while real != os.sep:
            real = os.path.dirname(real)
            found = status(self.place(real))
            if found is not None:
                return failure(errno.ENOENT if stat.S_ISDIR(found.st_mode) else errno.ENOTDIR, *paths)
        return failure(errno.ENOENT, *paths)

    def remove(self, path, folder=False):
        real = self.resolve(path, follow=False)
        place = self.place(real)
        found = status(place)
        if found is None:
            raise self.missing(real, path)
        if stat.S_ISDIR(found.st_mode) != folder:
            raise failure(errno.ENOTDIR if folder else errno.EISDIR, path)
        if self.is_free(real):
            return (raw.rmdir if folder else raw.remove)(real)
        if folder and self.names(real):
            raise failure(errno.ENOTEMPTY, path)
        if place == real and not raw.access(self.place(os.path.dirname(real)), os.W_OK):
            raise failure(errno.EACCES, path)
        below = self.lower(real)
        if status(self.upper(real)) is not None:
            (raw.rmdir if folder else raw.remove)(self.upper(real))
        if below is not None:
            self.hide(real)
        self.folders.clear()
        return None

    def rename(self, src, dst):
        source, target = self.resolve(src, follow=False), self.resolve(dst, follow=False)
        if self.is_free(source) and self.is_free(target):
            return raw.replace(source, target)
        old, new = status(self.place(source)), status(self.place(target))
        around = status(self.place(os.path.dirname(target)))
        if around is None or not stat.S_ISDIR(around.st_mode):
            raise self.missing(target, src, dst)
        if old is None:
            raise self.missing(source, src, dst)
        if source == target:
            return None
        is_folder = stat.S_ISDIR(old.st_mode)
        if target.startswith(source + os.sep):
            raise failure(errno.EINVAL, src, dst)
        if source.startswith(target + os.sep):
            raise failure(errno.ENOTEMPTY, src, dst)
        if new is not None:
            if stat.S_ISDIR(new.st_mode) != is_folder:
                raise failure(errno.ENOTDIR if is_folder else errno.EISDIR, src, dst)
            if is_folder and self.names(target):
                raise failure(errno.ENOTEMPTY, src, dst)
        content, place = source, target
        if not self.is_free(target):
            self.make_parents(target, dst)
            place = self.upper(target)
            if new is not None and self.lower(target) is not None:
                self.hide(target)
            self.note("diverted", target, place)
        if not self.is_free(source):
            self.lift(source, src)
            content = self.upper(source)
        if is_folder and status(place) is not None:
            raw.rmdir(place)
        try:
            raw.replace(content, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if is_folder:
                shutil.copytree(content, place, symlinks=True)
                shutil.rmtree(content)
            else:
                shutil.copyfile(content, place, follow_symlinks=False)
                raw.remove(content)
        if not self.is_free(source) and self.lower(source) is not None:
            self.hide(source)
        self.folders.clear()
        return None


def raw_folder(path):
    """Make a folder of the upper layer, and those above it."""
    try:
        raw.mkdir(path)
    except FileNotFoundError:
        raw_folder(os.path.dirname(path))
        raw.mkdir(path)
    except FileExistsError:
        pass
