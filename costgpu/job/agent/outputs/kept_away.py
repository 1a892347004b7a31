"""What never comes home from outside the working folder: the system's own places, caches, temporary files, secrets."""

from __future__ import annotations

import os
import re
import time
from fnmatch import fnmatchcase

from ....portable.clock import boot_id, uptime
from .. import launch_ray
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

SECRET = "secret by its name"
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
# What libraries leave in `SHARED`, by the whole form of names that they alone give. What is in doubt comes home.
_TEMPORARY_FOLDER = re.compile(
    r"""\.(X11|ICE|XIM|font|Test)-unix | hsperfdata_\w+ | nvidia-mps | pymp-[a-z0-9_]{8} | snap-private-tmp
    | pip-(build|ephem|install|metadata|modern|req|standalone|uninstall|unpack|wheel)[a-z-]*-[a-z0-9_]{8}
    | systemd-private-[0-9a-f]{32}-.+ | torchelastic_[a-z0-9_]{8} | torchinductor_\w+""",
    re.VERBOSE,
)
_LOCK = re.compile(r"\.X\d+-lock")
_MEMORY = re.compile(  # in /dev/shm
    r"""__KMP_REGISTERED_LIB_\d+(_\d+)? | cuda\.shm(\.[0-9a-f]+)+ | nccl-[A-Za-z0-9]{6}
    | psm_[0-9a-f]{8} | torch_\d+_\d+(_\d+)?""",
    re.VERBOSE,
)
_SEMAPHORE_BYTES = 32  # a file of /dev/shm called sem.* that is larger is none
_CUDA = re.compile(r"cuda(-\d+(\.\d+)*)?")  # in /usr/local
_OWN_FORMS = re.compile(r"\.?(.+?)(\.\d+-\d+)?\.new")  # drafts of costgpu's own files
_AGENT = re.compile(r"agent-[0-9a-f]+\.pyz(\.new)?")
_OWN_FOLDERS = frozenset(("env", "rank-logs", "venv"))
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
    if epoch is None:
        return None
    if at is not None and progress.get("boot_id") == boot_id():
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
        return SECRET
    return ""


def is_secret_entry(entry: os.DirEntry[str], since: float | None, elsewhere: dict[str, str], path: str) -> bool:
    """Return True for a secret; what was made or changed since then is noted under this path."""
    if not is_secret(entry.name, is_folder=entry.is_dir(follow_symlinks=False)):
        return False
    try:
        if since is not None and entry.stat(follow_symlinks=False).st_ctime >= since:
            elsewhere[path] = SECRET
    except OSError:
        pass  # it has gone
    return True


def stays_outside(home: Home, path: str, entry: os.DirEntry[str], other_file_systems: frozenset[str]) -> bool:
    """Return True for what is not looked for outside the working folder; `path` is relative to the root."""
    folder, _, name = path.rpartition("/")
    is_folder = entry.is_dir(follow_symlinks=False)
    if path in SYSTEM or entry.path in (home.work, *other_file_systems):
        return True
    if name in (_CACHES if is_folder else _FILES).split():
        return True
    if is_folder and os.path.exists(os.path.join(entry.path, "CACHEDIR.TAG")):
        return True
    if os.path.dirname(entry.path) == home.path:
        return _is_own(name, is_folder)
    if os.path.dirname(entry.path) == home.file("checkpoints"):
        return _COPY.fullmatch(name) is not None
    if folder == "usr/local":
        return is_folder and _CUDA.fullmatch(name) is not None
    if launch_ray.TEMPORARY.fullmatch(path):
        return True
    return folder in SHARED and _is_temporary(folder, name, entry, is_folder)


def _is_temporary(folder: str, name: str, entry: os.DirEntry[str], is_folder: bool) -> bool:
    """Return True for what a library, or another user, has in one of the `SHARED` folders."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return True  # it has gone
    if os.getuid() not in (0, found.st_uid):
        return True
    if is_folder:
        return _TEMPORARY_FOLDER.fullmatch(name) is not None
    if folder != "dev/shm":
        return _LOCK.fullmatch(name) is not None
    return _MEMORY.fullmatch(name) is not None or (name.startswith("sem.") and found.st_size <= _SEMAPHORE_BYTES)


def _is_own(name: str, is_folder: bool) -> bool:
    """Return True for what costgpu itself has in the home, by its exact name or that of a draft."""
    if is_folder:
        return name in _OWN_FOLDERS
    draft = _OWN_FORMS.fullmatch(name)
    return name in OWN_NAMES or _AGENT.fullmatch(name) is not None or (draft and draft[1]) in OWN_NAMES


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
