"""Starts a program that can write nothing outside the folders it is given: Landlock, and a seccomp filter beside it.

The fallback where namespaces are forbidden. It needs no privilege (root or nobody, also under Docker's default seccomp
profile), is inherited by every child, and cannot be taken off. Two mechanisms, as neither sees all:

- **Landlock** (Linux 5.13) sees paths. Every right to write is handled; all of them are granted beneath the writable
  folders, opening for writing alone on character devices, and nothing elsewhere. It also keeps the program from
  mounting, from tracing or writing into processes outside, and (Linux 6.12) from sending signals to them.
- **seccomp** answers for what Landlock does not mediate: mode, owner, times, attributes and flags of files, which are
  set through any readable descriptor. It cannot see paths, so that one answer serves the writable folders too. Mode,
  owner and times *pretend to succeed*: ``cp -p``, ``tar``, ``git`` and ``shutil.copy`` set them all the time and fail
  for good where they may not, while hardly a program looks at them afterwards. The price: a program that the script
  links and then marks as executable is not. Extended attributes and flags answer "not supported", as many file
  systems do, and io_uring "no such call": it would set attributes past the filter.

A keeper stays beside the program, outside the rules: it ends with the program, and ends all that is left of it when costgpu
ends, killed or not.

Runs by itself: ``python -I -S landlock.py SPEC.json PROGRAM [ARGUMENT...]``, with costgpu's own interpreter. SPEC is what
`specification` gives and ``report``: the file descriptor to which ``ready``, or the stage that failed and why, is written.
Imports the standard library only.

Sources: linux/landlock.h, linux/seccomp.h, linux/audit.h, asm/unistd_64.h, asm-generic/unistd.h (Linux 6.18).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import signal
import stat
import struct
import sys
from collections.abc import Sequence

UNSUPPORTED = 122  # exit status: the rules cannot be set here; nothing was started
NOT_STARTED = 127  # exit status: there is no such program
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the one folder that shm_open() and sem_open() know
# What is shared memory by its name: of Python, torch, NCCL, CUDA, OpenMP, MPI, databases, browsers, desktops.
SHARED_MEMORY_NAMES = re.compile(
    r"sem\.|psm_|wnsm_|pym-|pymp-|mp-|torch_|nccl-|cuda\.|__KMP_REGISTERED_LIB_|sm_segment|vader_segment|plasma"
    r"|PostgreSQL\.|lttng-ust-|pulse-shm-|u\d+-Shm|WK2SharedMemory|\.(?:com\.google\.Chrome|org\.chromium|org\.mozilla\.ipc)"
)
DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "nvidia*",
    "dri",
    "kfd",
    "accel",
    "infiniband",
)

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on every architecture
RULE_PATH_BENEATH, VERSION_ONLY, SCOPE_SIGNAL = 1, 1, 1 << 1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
FILTER_MODE = 2
WRITE_FILE, TRUNCATE, REFER = 1 << 1, 1 << 14, 1 << 13
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(4, 13)
)
FIRST_ABI = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK
FIRST_ABI |= MAKE_SYM
# What root could reach the disks with, past every path: immutable flags, handles, modules, raw I/O, mounts and swap,
# reboot, the clock, device nodes, BPF.
CAPABILITIES = (9, 2, 16, 17, 21, 22, 25, 27, 39)

LOAD, EQUAL, AT_LEAST, AND, SHIFT_RIGHT, RETURN = 0x20, 0x15, 0x35, 0x54, 0x74, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
PRETEND = 0
X32_BIT = 0x40000000  # x86_64 programs with short pointers: other numbers for the same calls
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# What each call answers, and its number on (x86_64, aarch64); None where the architecture does not have it.
CALLS: tuple[tuple[str, int, int | None, int | None], ...] = (
    ("chmod", PRETEND, 90, None),
    ("fchmod", PRETEND, 91, 52),
    ("fchmodat", PRETEND, 268, 53),
    ("fchmodat2", PRETEND, 452, 452),
    ("chown", PRETEND, 92, None),
    ("fchown", PRETEND, 93, 55),
    ("lchown", PRETEND, 94, None),
    ("fchownat", PRETEND, 260, 54),
    ("utime", PRETEND, 132, None),
    ("utimes", PRETEND, 235, None),
    ("futimesat", PRETEND, 261, None),
    ("utimensat", PRETEND, 280, 88),
    ("setxattr", errno.EOPNOTSUPP, 188, 5),
    ("lsetxattr", errno.EOPNOTSUPP, 189, 6),
    ("fsetxattr", errno.EOPNOTSUPP, 190, 7),
    ("removexattr", errno.EOPNOTSUPP, 197, 14),
    ("lremovexattr", errno.EOPNOTSUPP, 198, 15),
    ("fremovexattr", errno.EOPNOTSUPP, 199, 16),
    ("setxattrat", errno.EOPNOTSUPP, 463, 463),
    ("removexattrat", errno.EOPNOTSUPP, 466, 466),
    ("file_setattr", errno.EOPNOTSUPP, 469, 469),
    ("open_by_handle_at", errno.EPERM, 304, 265),
    ("io_uring_setup", errno.ENOSYS, 425, 425),
    ("mq_unlink", PRETEND, 241, 181),  # queues are no files of Landlock's, and those that were there are the user's
)
IOCTL = (16, 29)
# Types of requests that file systems alone answer: btrfs and labels, flags of ext4 and others, XFS, F2FS.
FILE_SYSTEM_IOCTLS = (0x94, ord("f"), ord("X"), 0xF5)
# FS_IOC_SETVERSION, FAT_IOCTL_SET_ATTRIBUTES; TIOCSTI and TIOCLINUX type into the user's terminal.
SINGLE_IOCTLS = (0x40087602, 0x40047211, 0x5412, 0x541C)
# Before Linux 6.2 Landlock does not see a file cut short by its path, or by opening it for reading alone.
CUT_BY_PATH, OPENAT2 = (76, 45), (437, 437)
OPENING = ((2, None, 1), (257, 56, 2))  # open, openat: numbers, and which argument the flags are
READ_ONLY_CUT, ACCESS_MODE = os.O_TRUNC, os.O_TRUNC | os.O_ACCMODE
QUEUE_CONTROL, IPC_RMID, IPC_SET = (71, 187), 0, 1  # msgctl
KILLING = (62, 129)

Instruction = tuple[int, int, int, int]  # of classic BPF: code, jump if true, jump if false, constant


def supported() -> int:
    """Return the Landlock ABI of the running kernel; 0 where there is none, or no filter is known for this processor."""
    if not sys.platform.startswith("linux") or os.uname().machine not in AUDIT_ARCHITECTURES:
        return 0
    try:
        return max(0, _system_call(CREATE_RULESET, None, 0, VERSION_ONLY))
    except OSError:
        return 0


def specification(writable: Sequence[str | os.PathLike[str]]) -> dict[str, object]:
    """Return what goes into SPEC.json, beside ``report``, for a program that this process starts.

    Args:
        writable: Existing folders, absolute, beneath which the program can write; or files.
    """
    return {"writable": [os.fspath(path) for path in writable], "parent": os.getpid()}


def environment(temporary: str) -> dict[str, str]:
    """Variables that lead what writes in native code to a writable folder, and save writes that would be refused.

    Args:
        temporary: A writable folder with a short path, as that of a socket in it is at most 107 bytes long.
    """
    return {"TMPDIR": temporary, "TMP": temporary, "TEMP": temporary, "PYTHONDONTWRITEBYTECODE": "1"}


def handled_rights(abi: int) -> int:
    """Every right to write that a Landlock ABI knows; requests to devices (ABI 5) are not writes to files."""
    return FIRST_ABI | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)


def folder_rights(abi: int) -> int:
    """Return the rights beneath a writable folder: all but making device nodes, which are other names of the disks."""
    return handled_rights(abi) & ~(MAKE_CHAR | MAKE_BLOCK)


def seccomp_program(machine: str, abi: int) -> list[Instruction]:
    """Return the filter for a processor (``x86_64``, ``aarch64``) and a Landlock ABI."""
    which = list(AUDIT_ARCHITECTURES).index(machine)

    def refuse(number: int) -> list[Instruction]:
        return [(RETURN, 0, 0, ERRNO | number)]

    def when(number: int | None, then: list[Instruction]) -> list[Instruction]:
        return [] if number is None else [(EQUAL, 0, len(then), number), *then]

    def argument(index: int) -> Instruction:
        return (LOAD, 0, 0, 16 + 8 * index)  # the lower half, on these little-endian processors

    allow: Instruction = (RETURN, 0, 0, ALLOW)
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL),  # a program of another architecture has other numbers
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        program += [(AT_LEAST, 0, 1, X32_BIT), *refuse(errno.ENOSYS)]
    for _, answer, *numbers in CALLS:
        program += when(numbers[which], refuse(answer))
    requests = [argument(1)]
    for request in SINGLE_IOCTLS:
        requests += when(request, refuse(errno.ENOTTY))
    requests += [(SHIFT_RIGHT, 0, 0, 8), (AND, 0, 0, 0xFF)]
    for kind in FILE_SYSTEM_IOCTLS:
        requests += when(kind, refuse(errno.ENOTTY))
    program += when(IOCTL[which], [*requests, allow])
    control = [argument(1), *when(IPC_RMID, refuse(PRETEND)), *when(IPC_SET, refuse(PRETEND)), allow]
    program += when(QUEUE_CONTROL[which], control)
    if abi < 3:
        program += when(CUT_BY_PATH[which], refuse(errno.EACCES))
        program += when(OPENAT2[which], refuse(errno.ENOSYS))
        for *calls, flags in OPENING:
            cut: list[Instruction] = [
                argument(flags),
                (AND, 0, 0, ACCESS_MODE),
                *when(READ_ONLY_CUT, refuse(errno.EACCES)),
            ]
            program += when(calls[which], [*cut, allow])
    if abi < 6:
        everyone: list[Instruction] = [argument(0), *when(0xFFFFFFFF, refuse(errno.EPERM)), allow]
        program += when(KILLING[which], everyone)
    return [*program, allow]


def _system_call(number: int, *arguments: object) -> int:
    """Return a system call by its number.

    Raises:
        OSError: It failed.
    """
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_library().syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _control(option: int, argument: object, second: object = 0) -> None:
    """One prctl().

    Raises:
        OSError: It failed.
    """
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (argument, second, 0, 0)]
    if _library().prctl(ctypes.c_int(option), *words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _forbid_writing(abi: int, writable: Sequence[str]) -> None:
    handled, scoped = handled_rights(abi), SCOPE_SIGNAL if abi >= 6 else 0
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("=QQQ", handled, 0, scoped)[:size]
    rules = _system_call(CREATE_RULESET, attributes, size, 0)

    def allow(path: str, rights: int) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # what is not there, or cannot be reached, stays forbidden
        _system_call(ADD_RULE, rules, RULE_PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
        os.close(place)

    for path in writable:
        allow(path, folder_rights(abi) if os.path.isdir(path) else WRITE_FILE | (handled & TRUNCATE))
    if shared_memory_is_free():
        allow(SHARED_MEMORY, WRITE_FILE | MAKE_REG | REMOVE_FILE | (handled & TRUNCATE))
    for pattern in DEVICES:
        for path in glob.glob(f"/dev/{pattern}"):
            if stat.S_ISCHR(os.stat(path).st_mode) or os.path.isdir(path):
                allow(path, WRITE_FILE)
    _system_call(RESTRICT_SELF, rules, 0)
    os.close(rules)


def shared_memory_is_free(folder: str = SHARED_MEMORY) -> bool:
    """Return True if the folder of shared memory holds nothing that is somebody's data and that we may change."""
    try:
        with os.scandir(folder) as entries:
            return not any(_may_be_data(entry) for entry in entries)
    except OSError:
        return False


def _may_be_data(entry: os.DirEntry[str]) -> bool:
    found = entry.stat(follow_symlinks=False)
    if SHARED_MEMORY_NAMES.match(entry.name) or (stat.S_ISREG(found.st_mode) and not found.st_size):
        return False
    return os.getuid() in (0, found.st_uid) or os.access(entry.path, os.W_OK)


def _drop_capabilities() -> None:
    for capability in CAPABILITIES:
        try:
            _control(PR_CAPBSET_DROP, capability)
        except OSError:  # not root: there is none to drop
            return


def _install_filter(program: Sequence[Instruction]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    _control(PR_SET_SECCOMP, FILTER_MODE, ctypes.create_string_buffer(header))


def _check_parent(parent: int) -> None:
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, "what started this program is gone")


def _keep(child: int, parent: int, report: int) -> None:
    """Wait for the program and end as it does; end all that it has started when `parent` ends. Does not return.

    It is outside the rules, so that the program cannot stop it (Linux 6.12), and daemons become its children.
    """

    def end_all(*_: object) -> None:
        with contextlib.suppress(OSError):  # none is left
            while True:
                with open(f"/proc/self/task/{os.getpid()}/children") as children:
                    for pid in children.read().split():
                        os.kill(int(pid), signal.SIGKILL)
                os.waitpid(-1, 0)
        os._exit(UNSUPPORTED)

    os.close(report)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, end_all)
    _control(PR_SET_PDEATHSIG, int(signal.SIGUSR1))
    if os.getppid() != parent:
        end_all()
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _control(PR_SET_DUMPABLE, 0)  # the core is the program's own
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else UNSUPPORTED)


def main(argv: Sequence[str]) -> int:
    """Put the rules on this process and become the program; return an exit status only if it cannot."""
    spec_path, *command = argv
    with open(spec_path, encoding="utf-8") as stream:
        spec = json.load(stream)
    report = spec["report"]
    try:
        abi = supported()
        if not abi:
            raise OSError(errno.ENOSYS, "there is none in this kernel")
        _control(PR_SET_CHILD_SUBREAPER, 1)
        _check_parent(spec["parent"])
        keeper, child = os.getpid(), os.fork()
        if child:
            _keep(child, spec["parent"], report)
        _control(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        _check_parent(keeper)
        os.setsid()
        _control(PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        _forbid_writing(abi, spec["writable"])
        _install_filter(seccomp_program(os.uname().machine, abi))
    except OSError as error:
        os.write(report, f"landlock: {error}".encode())
        return UNSUPPORTED
    os.write(report, b"ready")
    os.closerange(3, 1 << 20)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"costgpu: cannot start {command[0]}: {error.strerror}\n")
    return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
