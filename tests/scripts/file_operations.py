"""Does random things to files, and prints what it sees: really, or with the guard of the user's files in between.

``python file_operations.py PROBE-FOLDER guarded|real|fresh FIRST-SEED SEEDS``, in an empty folder. Runs on Python 3.8.
"""

import glob
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

NAMES = "a b d d/x d/y d/s d/s/deep e l l/x new new/q new/q/r dangling d/../b e/./z ../a".split()


def show(value):
    return value.decode() if isinstance(value, bytes) else value


def make(folder):
    """What is there at the start."""
    for name in ("d/s", "e"):
        os.makedirs(os.path.join(folder, name))
    for name in ("a", "b", "d/x", "d/s/deep"):
        with open(os.path.join(folder, name), "w") as stream:
            stream.write("before " + name)
    os.symlink("d", os.path.join(folder, "l"))
    os.symlink("nowhere", os.path.join(folder, "dangling"))
    os.symlink("../a", os.path.join(folder, "d/y"))


def tree(folder="."):
    found = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(folders + names):
            path = os.path.join(parent, name)
            content = open(path).read() if os.path.isfile(path) else ""
            link = os.readlink(path) if os.path.islink(path) else ""
            found.append([path, os.path.isdir(path), os.path.lexists(path), link, content])
    return found


def fd_open(path, flags):
    fd = os.open(path, flags, 0o644)
    try:
        return os.write(fd, b"by fd") if flags & (os.O_WRONLY | os.O_RDWR) else show(os.read(fd, 100))
    finally:
        os.close(fd)


def at_folder(path, other):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        name = os.path.basename(other) or "x"
        before = sorted(os.listdir(fd))
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd))
        size = os.stat(name, dir_fd=fd).st_size
        os.unlink(name, dir_fd=fd)
        return [before, size, sorted(os.listdir(fd))]
    finally:
        os.close(fd)


def read(path, mode):
    with open(path, mode) as stream:
        return show(stream.read())


def write(path, mode):
    with open(path, mode) as stream:
        if "+" in mode:
            stream.read()
        return [stream.write("by " + mode), stream.tell()]


def scan(path):
    with os.scandir(path) as entries:
        return sorted(
            [
                show(one.name),
                show(one.path),
                one.is_dir(),
                one.is_file(),
                one.is_symlink(),
                one.is_dir(follow_symlinks=False),
            ]
            for one in entries
        )


def inside(path):
    here = os.getcwd()
    os.chdir(path)
    try:
        with open("x", "a") as stream:
            stream.write("inside")
        return [os.path.relpath(os.getcwd(), here), sorted(os.listdir()), os.path.exists("../a")]
    finally:
        os.chdir(here)


def atomic(path):
    fd, name = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
    os.write(fd, b"atomic")
    os.close(fd)
    try:
        os.replace(name, path)
    except OSError:
        os.remove(name)
        raise


def is_inside(path, other):
    return (os.path.realpath(other) + "/").startswith(os.path.realpath(path) + "/")


def questions(path):
    return [getattr(os.path, name)(path) for name in ("exists", "lexists", "isfile", "isdir", "islink")]


OPERATIONS = {
    "write": lambda r, p, q: write(p, r.choice(["w", "a", "x", "r+", "w+", "a+"])),
    "read": lambda r, p, q: read(p, r.choice(["r", "rb"])),
    "open": lambda r, p, q: fd_open(
        p,
        r.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
        | r.choice([0, 0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_APPEND]),
    ),
    "mkdir": lambda r, p, q: os.mkdir(p),
    "makedirs": lambda r, p, q: os.makedirs(p, exist_ok=r.random() < 0.5),
    "rmdir": lambda r, p, q: os.rmdir(p),
    "remove": lambda r, p, q: os.remove(p),
    "rename": lambda r, p, q: os.rename(p, q),
    "replace": lambda r, p, q: os.replace(p, q),
    "move": lambda r, p, q: str(shutil.move(p, q)),
    "link": lambda r, p, q: os.link(p, q),
    "symlink": lambda r, p, q: os.symlink(p, q),
    "readlink": lambda r, p, q: os.readlink(p),
    "truncate": lambda r, p, q: os.truncate(p, 3),
    "listdir": lambda r, p, q: sorted(map(show, os.listdir(r.choice([p, p.encode()])))),
    "scandir": lambda r, p, q: scan(p),
    "questions": lambda r, p, q: questions(p),
    "size": lambda r, p, q: os.stat(p).st_size if os.path.isfile(p) else None,
    "access": lambda r, p, q: os.access(p, os.R_OK),
    "rmtree": lambda r, p, q: shutil.rmtree(p),
    "copytree": lambda r, p, q: None if is_inside(p, q) else shutil.copytree(p, q, symlinks=True),
    "copy": lambda r, p, q: os.path.basename(shutil.copyfile(p, q)),
    "glob": lambda r, p, q: sorted(glob.glob("**/*", recursive=True)),
    "touch": lambda r, p, q: pathlib.Path(p).touch(),
    "iterdir": lambda r, p, q: sorted(str(one) for one in pathlib.Path(p).iterdir()),
    "realpath": lambda r, p, q: os.path.relpath(os.path.realpath(p)),
    "inside": lambda r, p, q: inside(p),
    "atomic": lambda r, p, q: atomic(p),
    "at_folder": lambda r, p, q: at_folder(p, q),
}


def play(seed):
    chance = random.Random(seed)
    seen = []
    for _ in range(20):
        name, first, second = chance.choice(sorted(OPERATIONS)), chance.choice(NAMES), chance.choice(NAMES)
        try:
            result = OPERATIONS[name](chance, first, second)
        except shutil.Error as error:
            result = ["shutil.Error", str(error)]
        except OSError as error:
            named = error.filename
            result = [type(error).__name__, error.errno]
            if isinstance(named, (str, bytes)) and "/files/" in show(named):
                result.append("names " + show(named))
        seen.append([name, first, second, result])
    seen.append(tree())
    return seen


def main():
    probe, how, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    top = os.getcwd()
    for seed in range(first, first + count):
        make(os.path.join(top, str(seed), "work"))
        os.makedirs(os.path.join(top, "scratch", str(seed)))
    if how == "fresh":
        return
    if how == "guarded":
        sys.path.insert(0, probe)
        from sandbox.file_guard import FileGuard

    for seed in range(first, first + count):
        os.chdir(top)
        if how == "guarded":
            scratch = os.path.join(top, "scratch", str(seed))
            if seed == first:
                guard = FileGuard(scratch)
                guard.install()
            else:
                guard.__init__(scratch)
        os.chdir(os.path.join(top, str(seed), "work"))
        sys.stdout.write(json.dumps([seed, play(seed)]) + "\n")


if __name__ == "__main__":
    main()
