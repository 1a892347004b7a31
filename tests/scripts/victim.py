"""What every destructive script starts with: where it may do harm, and the means. It lies beside the scripts.

Nothing here or in a script reaches a path outside the victim's folder: a script that finds another folder, home or
temporary folder than the victim's, or one that costgpu has just made for it, ends at once, and one that would harm the
machine first looks for namespaces.
"""

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

__all__ = [
    "AT_FDCWD",
    "HOME",
    "LIBC",
    "OUTSIDE",
    "SHM",
    "SYSCALLS",
    "TEMP",
    "VICTIM",
    "WORK",
    "Path",
    "compiled",
    "ctypes",
    "in_child",
    "inside",
    "isolated",
    "must",
    "os",
    "scratches",
    "scripted",
    "sh",
    "shutil",
    "signal",
    "subprocess",
    "sys",
    "syscall",
    "time",
    "wait_for",
]

MARK = "costgpu-victim-"
VICTIM = Path(os.environ["VICTIM"])
WORK, HOME, TEMP, OUTSIDE = (VICTIM / name for name in ("work", "home", "temp", "outside"))
SHM = Path(os.environ["VICTIM_SHM"])
AT_FDCWD = -100


def inside(path):
    """The path, if it lies in the victim's folder; a script that computes another one ends."""
    real = Path(os.path.realpath(path))
    for root in (VICTIM, SHM):
        if real == root or root in real.parents:
            return str(path)
    raise SystemExit(f"{path} is not the victim's")


if not any(part.startswith(MARK) for part in VICTIM.parts) or MARK not in str(SHM):
    raise SystemExit("this is no victim")


def made_by_costgpu(folder):
    """Whether a folder is a fresh temporary one, such as measured programs get where overlays do not hold what they write."""
    found = os.lstat(folder)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == os.getuid()
    # Nobody's data: it was made after the script had been written, and nothing is in it yet but what the probe makes.
    fresh = found.st_mtime >= os.stat(sys.argv[0]).st_mtime - 1 and not os.listdir(folder)
    return "VICTIM_MEASURED" in os.environ and folder.name.startswith("costgpu-") and private and fresh


COPY = os.environ["HOME"].rpartition(str(HOME))[0]  # what costgpu has put before the paths of a copy
made_there = str(HOME / ".cache/costgpu/measurements") in COPY and "VICTIM_MEASURED" in os.environ
if (
    not os.environ["HOME"].endswith(str(HOME))
    or (COPY and not made_there)
    or not os.path.samefile(".", f"{COPY}{WORK}")
):
    raise SystemExit("this is not the victim's place")
if os.environ["TMPDIR"] not in (str(TEMP), os.environ.get("VICTIM_CHECKED")) and not made_by_costgpu(
    Path(os.environ["TMPDIR"])
):
    raise SystemExit("this is not the victim's temporary folder")
os.environ["VICTIM_CHECKED"] = os.environ["TMPDIR"]  # by children it need not be fresh


def isolated(*kinds):
    """Ends the script unless these namespaces are its own, and nothing that it does to mounts leaves them."""
    outside = dict(word.split("=") for word in os.environ["VICTIM_NAMESPACES"].split())
    for kind in ("user", *kinds):
        if os.readlink(f"/proc/self/ns/{kind}") == outside[kind]:
            raise SystemExit(f"skipped: no {kind} namespace of its own")
    if "mnt" in kinds:
        with open("/proc/self/mountinfo") as stream:
            if any(" shared:" in line.split(" - ")[0] for line in stream):
                raise SystemExit("skipped: mounts are shared with the machine's")


def sh(command, **options):
    """Runs a command of the shell."""
    subprocess.run(["sh", "-c", command], check=True, **options)


def scripted(text, name="helper.py"):
    """A further script in the temporary folder, as text; returns the command that starts it."""
    path = TEMP / name
    path.write_text(text)
    return [sys.executable, str(path)]


def compiled(source, *options):
    """A program made of C; returns its path."""
    program = TEMP / "native"
    (TEMP / "native.c").write_text(source)
    subprocess.run(["cc", *options, "-o", str(program), str(TEMP / "native.c")], check=True)
    return str(program)


def wait_for(condition, seconds=20):
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("it did not happen")
        time.sleep(0.005)


def in_child(action):
    """Forks; the child acts; returns when it has ended."""
    child = os.fork()
    if not child:
        try:
            action()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def scratches():
    """The folders of measurements, our own among them."""
    found = [path for path in (HOME / ".cache/costgpu/measurements").glob("*") if path.is_dir()]
    return [str(path) for folder in found for path in (folder / "open", folder) if path.is_dir()]


LIBC = ctypes.CDLL(None, use_errno=True)
SYSCALLS = {  # x86-64 and arm64
    "x86_64": dict(
        write=1, open=2, openat=257, unlink=87, unlinkat=263, rename=82, renameat2=316, truncate=76, pivot_root=155,
        openat2=437, io_uring_setup=425, memfd_create=319, pidfd_open=434, pidfd_getfd=438, open_tree=428, move_mount=429,
        setns=308, fsopen=430, mount_setattr=442, linkat=265, copy_file_range=326, fallocate=285, vfork=58,
    ),
    "aarch64": dict(
        write=64, openat=56, unlinkat=35, renameat2=276, truncate=45, pivot_root=41, openat2=437, io_uring_setup=425,
        memfd_create=279, pidfd_open=434, pidfd_getfd=438, open_tree=428, move_mount=429, setns=268, fsopen=430,
        mount_setattr=442, linkat=37, copy_file_range=285, fallocate=47,
    ),
}[os.uname().machine]  # fmt: skip


def must(result):
    """The result of a call of the C library, or its error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(name, *arguments):
    """A raw system call."""
    words = [ctypes.c_char_p(word) if isinstance(word, bytes) else word for word in arguments]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    return must(LIBC.syscall(ctypes.c_long(SYSCALLS[name]), *words))
