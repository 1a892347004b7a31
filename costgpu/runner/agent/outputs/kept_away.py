"""What never comes home from outside the working folder: the system's own places, caches, temporary files, secrets."""

from __future__ import annotations

import os
import re
import time
from fnmatch import fnmatchcase

from ..clock import boot_id, uptime
from ..state_files import OWN_NAMES, Home
from .secret_names import is_secret

_CLOCK_SECONDS = 0.05  # the kernel stamps files by a clock that ticks every few milliseconds

# Folders of the system, below the root of the file system. Everything else is looked into.
_SYSTEM_FOLDERS = """
    bin boot dev etc lib lib32 lib64 libx32 lost+found nix proc run sbin snap sys usr
    var/backups var/cache var/crash var/lib var/lock var/log var/mail var/run var/snap var/spool
    opt/amazon opt/aws opt/containerd opt/google opt/microsoft opt/nvidia
    usr/local/bin usr/local/etc usr/local/games usr/local/include usr/local/lib usr/local/lib64 usr/local/libexec
    usr/local/man usr/local/sbin usr/local/share usr/local/src
"""
SYSTEM = frozenset(_SYSTEM_FOLDERS.split())
WITHIN_SYSTEM = ("dev/shm", "usr/local")  # jobs do write there
SHARED = frozenset(("tmp", "var/tmp", "dev/shm"))  # every program leaves something in there

ON_THIS_COMPUTER = "outside, on this computer"
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_CACHES = """
    .cache .cargo .conda .config .dotnet .ipython .java .jupyter .local .matplotlib .npm .nv .rustup .triton
    .vscode-server dist-packages lost+found
"""
_FILES = """
    .Xauthority .bash_history .bash_logout .bash_profile .bashrc .lesshst .profile .python_history
    .sudo_as_admin_successful .viminfo .wget-hsts _remote_module_non_scriptable.py
"""
# What libraries leave in `SHARED`, by names that they alone give. A tmp* of Python's tempfile may be a person's: it comes.
_TEMPORARY = """
    .*-unix .X*-lock .org.chromium.* __KMP_* cc??????.[cos] cuda.shm.* hsperfdata_* matplotlib-???????? nccl-* nvidia-mps
    pip-*-???????? psm_???????? pymp-???????? ray sem.* snap-private-tmp snap.* ssh-* systemd-private-* tmux-*
    torch_[0-9]* torchelastic_* torchinductor_*
"""
_COPY = re.compile(r"[0-9a-f]{64}|incoming\.[0-9-]+")  # of a checkpoint: a job may well have such a folder, too
# File systems that outlive the machine, and those that hold no files.
_OTHER_FILE_SYSTEMS = """
    afs* beegfs* ceph* cifs* fuse* gluster* lustre* nfs* smb*
    autofs binfmt* bpf cgroup* configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs proc pstore
    rpc* securityfs squashfs sysfs tracefs
"""


def job_began(home: Home) -> float | None:
    """Return when the job itself began, Unix time; None if it never did.

    The earlier of what was noted then and what the clock says now of that moment: it may have been set meanwhile.
    """
    progress = home.read("progress.json") or {}
    epoch, at = progress.get("job_started_epoch"), progress.get("job_started_uptime")
    if not isinstance(epoch, (int, float)):
        return None
    if isinstance(at, (int, float)) and progress.get("boot_id") == boot_id():
        epoch = min(epoch, time.time() - (uptime() - at))
    return float(epoch) - _CLOCK_SECONDS


def why_not_behind_link(home: Home, full: str) -> str:
    """Say why what a link leads to outside the working folder does not come home; empty if it does."""
    if _is_below(home.work, full):
        return "a folder around the working folder"
    if not home.remote:
        return "" if _is_below(full, home.path) else ON_THIS_COMPUTER
    below = os.path.relpath(full, home.root).split(os.sep)
    start = 2 if "/".join(below[:2]) in WITHIN_SYSTEM else 0
    if any("/".join(below[:depth]) in SYSTEM for depth in range(start + 1, len(below) + 1)):
        return "a place of the system"
    if any(is_secret(name, is_folder=True) for name in below) or is_secret(below[-1], is_folder=False):
        return "secret by its name"
    if os.path.isdir(full) and (
        not set(below).isdisjoint(_CACHES.split())
        or any(os.path.exists(os.path.join(full, each)) for each in ENVIRONMENT_MARKS)
    ):
        return "a cache or an environment"
    return ""


def stays(entry: os.DirEntry[str]) -> bool:
    """Return True for a cache or a secret, wherever it is."""
    is_folder = entry.is_dir(follow_symlinks=False)
    if is_secret(entry.name, is_folder=is_folder) or entry.name in (_CACHES if is_folder else _FILES).split():
        return True
    return is_folder and os.path.exists(os.path.join(entry.path, "CACHEDIR.TAG"))


def stays_outside(home: Home, path: str, entry: os.DirEntry[str], other_file_systems: frozenset[str]) -> bool:
    """Return True for what is not looked for outside the working folder; `path` is relative to the root."""
    folder, _, name = path.rpartition("/")
    if path in SYSTEM or entry.path in (home.work, *other_file_systems) or stays(entry):
        return True
    if os.path.dirname(entry.path) == home.path:
        return is_own_name(name)
    if os.path.dirname(entry.path) == home.file("checkpoints"):
        return _COPY.fullmatch(name) is not None
    if folder not in SHARED:
        return folder == "usr/local" and name.startswith("cuda")
    mine = os.getuid() in (0, entry.stat(follow_symlinks=False).st_uid)
    return not mine or any(fnmatchcase(name, each) for each in _TEMPORARY.split())


def is_own_name(name: str) -> bool:
    """Return True for a name that costgpu gives to a file of its own in the home, or that is made from one."""
    name = name.lstrip(".")
    return any(name == own or name.startswith(own + ".") for own in OWN_NAMES) or (
        name.startswith("agent-") and ".pyz" in name
    )


def other_file_systems() -> frozenset[str]:
    """Return where file systems are mounted that are not looked into."""
    found = set()
    try:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as stream:
            for line in stream:
                _, where, kind = line.split(" ")[:3]
                if any(fnmatchcase(kind, each) for each in _OTHER_FILE_SYSTEMS.split()):
                    found.add(where.replace("\\040", " "))
    except (OSError, ValueError):
        pass
    return frozenset(found)


def _is_below(path: str, folder: str) -> bool:
    """Return True for the folder itself and what is in it."""
    return os.path.commonpath([path, folder]) == folder
