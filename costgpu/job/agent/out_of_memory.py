"""Whether a job has run out of memory: by the kernel's count of what it has ended, and by the job's own last errors.

An exit code alone proves nothing: any SIGKILL makes it 137.
"""

from __future__ import annotations

import os
import re
import signal

from ...portable.files import open_regular
from .observe.machine_stats import gpu_count
from .state_files import Home
from .status import LOGS

GPU, MEMORY = "gpu", "memory"
WORDS = {"": "", GPU: "The job ran out of GPU memory.", MEMORY: "The job ran out of memory."}
_KILLED = 128 + signal.SIGKILL
_TAIL_BYTES = 32768  # of each log: the last errors stand at its end
_RANK = re.compile(r"(?:\[\w+\]:\s?)*")
_ERROR = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)(?::.*)?|terminate called after .*")
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_OF_LAUNCHER = re.compile(r"[\w.]*(?:ChildFailedError|CalledProcessError)\b")  # a rank has told its own error before
_TENSORFLOW = "OOM when allocating"  # also several lines below the error
_ON_GPU = re.compile(
    r"(?:torch|torch\.cuda|cupy\.cuda\.memory)\.OutOfMemoryError|(?:CUDA|HIP|XPU)(?: error:)? out of memory"
    r"|cudaErrorMemoryAllocation|std::bad.alloc: .*CUDA|OOM when allocating .*device:GPU"
)
_ON_HOST = re.compile(
    r"\b_?(?:Array)?MemoryError\b|std::bad.alloc|DefaultCPUAllocator: |Cannot allocate memory"
    r"|ray\.exceptions\.OutOfMemoryError|OOM when allocating .*device:CPU"
)
_ON_EITHER = re.compile(r"RESOURCE_EXHAUSTED: .*(?:Out of memory|allocat)|OOM when allocating")


def kills(root: str = "/") -> int | None:
    """Return how many processes of this control group the kernel has ended for want of memory; None if it does not say.

    Source: Linux, admin-guide/cgroup-v2 (memory.events) and cgroup-v1/memory (memory.oom_control).
    """
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as stream:
            groups = [line.rstrip("\n").split(":", 2) for line in stream]
        for _, controllers, path in groups:
            place = "memory%s/memory.oom_control" if controllers else "%s/memory.events"
            file = os.path.join(root, "sys/fs/cgroup", (place % path).lstrip("/"))
            if controllers in ("", "memory") and os.path.isfile(file):
                with open(file, encoding="ascii") as stream:
                    return int(dict(line.split() for line in stream)["oom_kill"])
    except (OSError, ValueError, KeyError):
        pass
    return None


def what_ran_out(home: Home, code: int, kills_before: int | None) -> str:
    """Return what a job that has failed had too little of, `GPU` or `MEMORY`; empty if nothing proves it.

    Args:
        home: The home with its logs.
        code: Its exit code.
        kills_before: What `kills` was as it began.
    """
    now = kills()
    ended = now is not None and kills_before is not None and now > kills_before
    if ended and (home.remote or code == _KILLED):  # on somebody's own computer another program may have been ended
        return MEMORY
    return next(filter(None, (_told(_tail(home, name)) for name in reversed(LOGS))), "")


def last_errors(text: str) -> list[str]:
    """Return the last error of each rank in a job's output, with those that it came from.

    An error that was caught, and after which the job has failed for another reason, is not among them.
    """
    found: dict[str, str] = {}  # rank -> its last error
    chained = False
    for line in text.splitlines():
        rank = _RANK.match(line).group()  # type: ignore[union-attr]  # it matches nothing, too
        words = line[len(rank) :]
        if words.startswith(_CHAINED):
            chained = True
        elif _ERROR.fullmatch(words) and not _OF_LAUNCHER.match(words):
            found[rank] = (found.get(rank, "") if chained else "") + words + "\n"
            chained = False
        elif words.startswith(_TENSORFLOW) and rank in found:
            found[rank] += words + "\n"
    return list(found.values())


def _told(text: str) -> str:
    for error in last_errors(text):
        if _ON_GPU.search(error):
            return GPU
        if _ON_HOST.search(error):
            return MEMORY
        if _ON_EITHER.search(error):
            return GPU if gpu_count() else MEMORY
    return ""


def _tail(home: Home, name: str) -> str:
    try:
        stream = open_regular(home.file(name))
    except OSError:
        return ""
    with stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
        return stream.read(_TAIL_BYTES).decode("utf-8", "replace")
