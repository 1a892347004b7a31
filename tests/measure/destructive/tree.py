# ruff: noqa: PTH115, PTH118, PTH123, PTH208
"""The tree that must not change: everything that a user's folders hold, and all that can be told of it.

More than 400 lines: what is laid out and what is compared belong together, kind by kind.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import os
import shutil
import socket
import sqlite3
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from costgpu.measure.isolation.layers import remove_layers

MARK = "costgpu-victim-"  # victim.py looks for it, too

GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS
SPARSE_BYTES = 64 << 20
OLD = 1_000_000_000_123_456_789  # ns: 2001
KEPT_BY_US = b"home/.cache/costgpu/measurements"  # what costgpu itself writes
GIT = {
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    **{f"GIT_{who}_DATE": "2020-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEMPLATE_DIR": "",  # no samples of hooks: fewer files to copy
}
Snapshot = dict[bytes, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Victim:
    """A victim's folders."""

    base: Path
    shared: Path  # its files in shared memory

    @property
    def root(self) -> Path:
        return self.base / "victim"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    @property
    def cache(self) -> Path:
        return self.home / ".cache/costgpu"

    @property
    def environment(self) -> dict[str, str]:
        """What a script of the corpus finds its way by."""
        kinds = ("user", "mnt", "pid")
        return {
            "VICTIM": str(self.root),
            "VICTIM_SHM": str(self.shared),
            "VICTIM_NAMESPACES": " ".join(f"{kind}={os.readlink(f'/proc/self/ns/{kind}')}" for kind in kinds),
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            **GIT,
        }

    def restore(self) -> None:
        """Makes the tree again as it was built."""
        remove(self.root)
        remove(self.shared)
        subprocess.run(["cp", "-a", self.base / "template", self.root], check=True)
        subprocess.run(["cp", "-a", self.base / "shared", self.shared], check=True)

    def remove(self) -> None:
        """Leaves nothing."""
        remove(self.shared)
        remove(self.base)

    def snapshot(self) -> Snapshot:
        """All that can be told of every path, but what costgpu itself writes."""
        found: Snapshot = {}
        for prefix, top in ((b"", self.root), (b"shm/", self.shared)):
            _describe(os.fsencode(top), prefix, found)
        with open("/proc/self/mountinfo", "rb") as stream:
            mounts = [line for line in stream.read().splitlines() if os.fsencode(self.base) in line]
        found[b"(mounts)"] = {"mounts": mounts}
        return found


def build(folder: Path) -> Victim:
    """A victim in a folder of its own there, ready to be harmed."""
    base = Path(tempfile.mkdtemp(prefix=MARK, dir=folder)).resolve()
    memory = Path("/dev/shm")
    shared = memory / base.name if memory.is_dir() else base / "memory"
    victim = Victim(base, shared)
    for place in (victim.work, victim.home, victim.temp, victim.root / "outside/data", shared, base / "scripts"):
        place.mkdir(parents=True)
    _home(victim)
    _outside(victim)
    _repository(victim.work)
    _files(victim)
    (shared / "tensor").write_bytes(bytes(4096))
    (shared / "weights").write_bytes(b"weights")
    subprocess.run(["cp", "-a", victim.root, base / "template"], check=True)
    subprocess.run(["cp", "-a", shared, base / "shared"], check=True)
    shutil.copy(Path(__file__).parents[2] / "scripts/victim.py", base / "scripts")
    victim.restore()
    return victim


def remove(folder: Path) -> None:
    """Deletes a tree, whatever modes its folders have, and however deep it is."""
    assert MARK in str(folder)
    remove_layers(folder)


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """What is not as it was, a line for each path."""
    lines = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old is None or new is None:
            lines.append(f"{os.fsdecode(path)!r} {'is new' if old is None else 'is gone'}")
            continue
        changed = [f"{key} {old.get(key)!r} -> {new.get(key)!r}" for key in old | new if old.get(key) != new.get(key)]
        lines.append(f"{os.fsdecode(path)!r}: {'; '.join(changed)}"[:300])
    return lines


def _describe(top: bytes, prefix: bytes, found: Snapshot) -> None:
    pending = [b""]
    while pending:
        name = pending.pop()
        path = os.path.join(top, name) if name else top
        if prefix + name == KEPT_BY_US:
            continue
        try:
            entry = os.lstat(path)
        except OSError:  # a script is at it
            continue
        about: dict[str, object] = {
            "mode": oct(entry.st_mode),
            "owner": (entry.st_uid, entry.st_gid),
            "links": entry.st_nlink,
            "inode": entry.st_ino,
            "size": entry.st_size,
            "blocks": entry.st_blocks,
            "device": entry.st_rdev,
            "mtime": entry.st_mtime_ns,
            "ctime": entry.st_ctime_ns,
        }
        with contextlib.suppress(OSError):
            about["attributes"] = {
                key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
            }
        if stat.S_ISLNK(entry.st_mode):
            about["target"] = os.readlink(path)
        elif stat.S_ISDIR(entry.st_mode):
            about["flags"] = _flags(path)
            try:
                about["names"] = names = sorted(os.listdir(path))
            except OSError:
                continue
            pending += [os.path.join(name, child) if name else child for child in names]
        elif stat.S_ISREG(entry.st_mode):
            about["flags"] = _flags(path)
            about["content"] = _content(path)
        found[prefix + name] = about


def _flags(path: bytes) -> int | None:
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            return int(struct.unpack("l", fcntl.ioctl(handle, GET_FLAGS, bytes(struct.calcsize("l"))))[0])
        finally:
            os.close(handle)
    return None


def _content(path: bytes) -> str:
    """Hash of what is there, holes skipped."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as stream:
            at = 0
            while True:
                try:
                    at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
                except OSError:
                    return digest.hexdigest()
                end = os.lseek(stream.fileno(), at, os.SEEK_HOLE)
                stream.seek(at)
                digest.update(b"%d:" % at + stream.read(end - at))
                at = end
    except OSError:
        return "not readable"


def _write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _home(victim: Victim) -> None:
    _write(
        victim.home,
        {
            ".bashrc": "export PS1='$ '\n",
            ".profile": ". ~/.bashrc\n",
            ".gitconfig": '[user]\n\tname = A\n\temail = a@b.c\n[protocol "file"]\n\tallow = always\n[gc]\n\tauto = 0\n',
            ".netrc": "machine example.org login nobody password none\n",
            ".ssh/id_of_nobody": "not a key\n",
            ".ssh/known_hosts": "example.org none\n",
            ".config/app/settings.ini": "[old]\na = 0\n",
            ".config/app/settings.toml": "a = 0\n",
            ".local/share/app/state.json": "{}\n",
            ".local/bin/tool": "#!/bin/sh\necho tool\n",
            ".cache/huggingface/hub/models--a--b/blobs/abc": b"weights" * 100,
            ".cache/huggingface/token": "not a token\n",
            ".cache/pip/http/1": "cached\n",
            ".cache/torch/hub/checkpoints/resnet.pth": b"weights" * 100,
            ".cache/costgpu/profiles/earlier.json": "{}\n",
            "crontab": "0 0 * * * true\n",
            "documents/thesis.tex": "years of work\n",
        },
    )
    (victim.cache / "measurements").mkdir()
    (victim.home / ".ssh").chmod(0o700)
    (victim.home / ".ssh/id_of_nobody").chmod(0o600)
    (victim.home / ".local/bin/tool").chmod(0o755)
    _write(victim.temp, {"somebody.txt": "of another program\n", "job-1/part.bin": b"part", "lock": ""})
    victim.temp.chmod(0o1777)


def _outside(victim: Victim) -> None:
    _write(
        victim.root / "outside",
        {
            "data/x.bin": b"x" * 5000,
            "data/y.csv": "a,b\n1,2\n",
            "site-packages/pkg/__init__.py": "VALUE = 1\n",
            "site-packages/pkg-1.0.dist-info/METADATA": "Name: pkg\n",
            "secret/plan.txt": "plan\n",
        },
    )


def _git(folder: Path, *words: str, home: Path | None = None) -> None:
    environment = {**os.environ, **GIT, "HOME": str(home or folder.parent / "home")}
    subprocess.run(["git", *words], cwd=folder, check=True, env=environment, capture_output=True)


def _repository(work: Path) -> None:
    if shutil.which("git") is None:
        return
    library = work.parent / "outside/library"
    _write(library, {"library.py": "A = 1\n"})
    _git(library, "init", "-q", "-b", "main", home=work.parent / "home")
    _git(library, "add", ".", home=work.parent / "home")
    _git(library, "commit", "-qm", "Library", home=work.parent / "home")
    _write(
        work,
        {
            ".gitignore": "ignored/\n*.log\n",
            "README.md": "# Readme\n",
            "train.py": "print('train')\n",
            "src/model.py": "LAYERS = 3\n",
            "src/util.py": "def f(): ...\n",
            "config.json": '{"lr": 0.1}\n',
            "removed.txt": "was here\n",
        },
    )
    _git(work, "init", "-q", "-b", "main")
    _git(work, "add", ".")
    _git(work, "commit", "-qm", "First")
    _git(work, "tag", "v1")
    _git(work, "branch", "feature")
    _git(work, "submodule", "--quiet", "add", str(library), "library")
    _write(work, {"src/model.py": "LAYERS = 4\n"})
    _git(work, "commit", "-qam", "Second")
    _write(work, {"src/util.py": "def g(): ...\n"})
    _git(work, "stash", "-q")
    _git(work, "worktree", "add", "-q", str(work.parent / "outside/worktree"), "feature")
    _write(work, {"staged.txt": "staged\n", "src/model.py": "LAYERS = 5\n", "untracked.txt": "untracked\n"})
    _git(work, "add", "staged.txt")
    _git(work, "rm", "-q", "removed.txt")


def _files(victim: Victim) -> None:
    work = victim.work
    _write(
        work,
        {
            **{f"data/train/{number:03}.txt": f"sample {number}\n" for number in range(20)},
            **{f"data/val/{number:03}.txt": f"sample {number}\n" for number in range(10)},
            **{f"checkpoints/epoch_{number}.pt": f"weights of epoch {number}" * 50 for number in (1, 2, 3)},
            "data/deep/a/b/c/d/leaf.txt": "leaf\n",
            "data/large.bin": b"large" * 4096,
            "ignored/data.bin": b"ignored",
            "run.log": "the log of last week\n",
            "runs/exp1/events.out.tfevents.1": b"events",
            "runs/exp2/metrics.csv": "step,loss\n1,2\n",
            "notes.txt": "what was noted before\n" * 3,
            "old.txt": "of the year 2001\n",
            "private.key": "not a key\n",
            "readonly.txt": "read me\n",
            "secret.bin": b"secret",
            "script.sh": "#!/bin/sh\necho hello\n",
            "shared/file.txt": "shared\n",
            "hard_a": "one file, three names\n",
            "tagged.txt": "tagged\n",
            "array.bin": bytes(range(256)) * 64,
            "name with spaces.txt": "spaces\n",
            "new\nline.txt": "newline\n",
            "-rf": "named as an option\n",
            "ünïcode-名前.txt": "unicode\n",
            "notebook.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\n',
            "dataset.jsonl": '{"text": "A"}\n{"text": "B"}\n',
            "change.patch": "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,1 +1,1 @@\n-what was noted before\n+patched\n",
            "Makefile": "all: clean\n\techo made > made.txt\nclean:\n\trm -rf runs checkpoints\n.PHONY: all clean\n",
            "shelf.dat": b"'a'",
            "shelf.dir": "'old', (0, 3)\n",
        },
    )
    (work / "array.npy").write_bytes(_numpy_array())
    with open(os.fsencode(work) + b"/undecodable-\xff.bin", "wb") as stream:
        stream.write(b"undecodable")
    (work / "data/empty").mkdir()
    for name, target in {
        "link_file": "notes.txt",
        "link_rel": "data/train",
        "dangling": "nowhere",
        "link_abs": str(victim.root / "outside/data"),
        "checkpoints/best.pt": "epoch_3.pt",
        "checkpoints/last.pt": str(work / "checkpoints/epoch_3.pt"),
    }.items():
        (work / name).symlink_to(target)
    (work / "hard_b").hardlink_to(work / "hard_a")
    (victim.root / "outside/hard_c").hardlink_to(work / "hard_a")
    _archives(work)
    _databases(work)
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(work / "tagged.txt", "user.comment", b"a comment")
    with (work / "big.sparse").open("wb") as sparse:
        sparse.truncate(SPARSE_BYTES)
        sparse.seek(SPARSE_BYTES // 2)
        sparse.write(b"in the middle")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(work):  # a path for it must be short
        server.bind("sock")
    for name, mode in {
        "private.key": 0o600,
        "readonly.txt": 0o444,
        "script.sh": 0o755,
        "secret.bin": 0,
        "shared": 0o2775,
    }.items():
        (work / name).chmod(mode)
    os.utime(work / "old.txt", ns=(OLD, OLD))
    os.utime(work / "data/train/002.txt", ns=(OLD, OLD))


def _archives(work: Path) -> None:
    with zipfile.ZipFile(work / "archive.zip", "w") as bundle:
        bundle.writestr("notes.txt", "from the archive\n")
        bundle.writestr("data/train/000.txt", "from the archive\n")
    with tarfile.open(work / "archive.tar", "w") as tape:
        tape.add(work / "old.txt", "notes.txt")
        tape.add(work / "old.txt", "data/val/000.txt")
    (work / "packed.gz").write_bytes(gzip.compress(b"packed\n"))


def _databases(work: Path) -> None:
    for name, mode in (("table.db", "delete"), ("live.db", "wal")):
        base = sqlite3.connect(work / name)
        base.execute(f"pragma journal_mode={mode}")
        base.execute("create table old (x)")
        base.execute("insert into old values (1)")
        base.commit()
        if mode == "wal":  # copied as a crash leaves it: with what is not yet in the database
            for suffix in ("", "-wal", "-shm"):
                shutil.copy(work / f"{name}{suffix}", work / f"wal.db{suffix}")
        base.close()
    (work / "live.db").unlink()


def _numpy_array() -> bytes:
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + head.ljust(117).encode() + b"\n" + bytes(32)
