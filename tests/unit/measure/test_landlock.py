"""What goes to the kernel: the filter, interpreted here for every system call on both processors, and the rights."""

import errno
import os
import struct
from pathlib import Path

import pytest

from costgpu.measure.isolation import landlock
from costgpu.measure.isolation.landlock import ALLOW, CALLS, ERRNO, KILL, seccomp_program

ABIS = range(1, 8)
HIGHEST = 600  # system calls have numbers below it
NUMBERS = {"x86_64": 0, "aarch64": 1}
CHMOD, OPENAT, IOCTL, KILLING = (90, 53), (257, 56), (16, 29), (62, 129)


def answer(machine: str, abi: int, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter returns: classic BPF over a struct seccomp_data, as the kernel's documentation tells it."""
    audit = landlock.AUDIT_ARCHITECTURES[machine] if audit is None else audit
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, audit, 0, *words)
    program, at, register = seccomp_program(machine, abi), 0, 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            register = int(struct.unpack_from("<I", data, constant)[0])
        elif code == 0x15:  # BPF_JMP | BPF_JEQ | BPF_K
            at += if_true if register == constant else if_false
        elif code == 0x35:  # BPF_JMP | BPF_JGE | BPF_K
            at += if_true if register >= constant else if_false
        elif code == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            register &= constant
        elif code == 0x74:  # BPF_ALU | BPF_RSH | BPF_K
            register >>= constant
        else:
            assert code == 0x06  # BPF_RET | BPF_K
            return constant


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("machine", NUMBERS)
def test_every_call_is_answered_as_the_table_says(machine: str, abi: int) -> None:
    expected = {numbers[NUMBERS[machine]]: ERRNO | number for _, number, *numbers in CALLS}
    expected[(71, 187)[NUMBERS[machine]]] = ERRNO | 0  # msgctl(0, IPC_RMID)
    if abi < 3:
        expected[(76, 45)[NUMBERS[machine]]] = ERRNO | errno.EACCES
        expected[437] = ERRNO | errno.ENOSYS
    for number in range(HIGHEST):
        assert answer(machine, abi, number) == expected.get(number, ALLOW), number


@pytest.mark.parametrize("machine", NUMBERS)
def test_programs_of_other_architectures_are_ended(machine: str) -> None:
    """Their calls have other numbers: 15 is chmod() of a 32-bit program."""
    for other in (0x40000003, 0x40000028, *(set(landlock.AUDIT_ARCHITECTURES.values()))):
        if other != landlock.AUDIT_ARCHITECTURES[machine]:
            assert answer(machine, 7, 15, audit=other) == KILL


def test_short_pointers_are_no_way_around() -> None:
    for number in (90, 91, 268, 0, 59):
        assert answer("x86_64", 7, number | 0x40000000) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(
    ("request_number", "expected"),
    [
        (0x40086602, ERRNO | errno.ENOTTY),  # FS_IOC_SETFLAGS
        (0x401C5820, ERRNO | errno.ENOTTY),  # FS_IOC_FSSETXATTR
        (0x40806685, ERRNO | errno.ENOTTY),  # FS_IOC_ENABLE_VERITY
        (0x5000940F, ERRNO | errno.ENOTTY),  # BTRFS_IOC_SNAP_DESTROY
        (0x40049409, ERRNO | errno.ENOTTY),  # FICLONE: what copies falls back
        (0x40087602, ERRNO | errno.ENOTTY),  # FS_IOC_SETVERSION
        (0x5412, ERRNO | errno.ENOTTY),  # TIOCSTI
        (0x1_0000_5412, ERRNO | errno.ENOTTY),  # the kernel looks at the lower half, too
        (0x5401, ALLOW),  # TCGETS
        (0x5413, ALLOW),  # TIOCGWINSZ
        (0xC020462A, ALLOW),  # of NVIDIA's driver
        (0x30000001, ALLOW),  # UVM_INITIALIZE
        (0xC04064AA, ALLOW),  # DRM
        (0xC0384B01, ALLOW),  # KFD
    ],
)
def test_requests_to_file_systems_are_not_known(machine: str, request_number: int, expected: int) -> None:
    assert answer(machine, 7, IOCTL[NUMBERS[machine]], 3, request_number) == expected


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize("abi", ABIS)
def test_old_kernels_do_not_cut_what_is_opened_for_reading(machine: str, abi: int) -> None:
    def opened(flags: int) -> int:
        return answer(machine, abi, OPENAT[NUMBERS[machine]], 0xFFFFFF9C, 0, flags)

    refused = ERRNO | errno.EACCES if abi < 3 else ALLOW
    assert opened(os.O_RDONLY | os.O_TRUNC) == opened(os.O_TRUNC | os.O_CLOEXEC | os.O_CREAT) == refused
    assert {opened(flags) for flags in (os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC)} == {ALLOW}
    if machine == "x86_64":
        assert answer(machine, abi, 2, 0, os.O_TRUNC) == refused


@pytest.mark.parametrize("machine", NUMBERS)
def test_queues_stay_as_they_are(machine: str) -> None:
    msgctl, mq_unlink, mq_open = ((71, 241, 240), (187, 181, 180))[NUMBERS[machine]]
    assert [answer(machine, 7, msgctl, 5, command) for command in (0, 1, 2)] == [ERRNO | 0, ERRNO | 0, ALLOW]
    assert (answer(machine, 7, mq_unlink, 5), answer(machine, 7, mq_open, 5)) == (ERRNO | 0, ALLOW)


@pytest.mark.parametrize("machine", NUMBERS)
def test_old_kernels_do_not_signal_everybody(machine: str) -> None:
    number = KILLING[NUMBERS[machine]]
    assert answer(machine, 5, number, 0xFFFFFFFF, 9) == ERRNO | errno.EPERM
    assert answer(machine, 5, number, 0xFFFFFFFF_FFFFFFFF, 9) == ERRNO | errno.EPERM
    assert answer(machine, 5, number, 1234, 9) == answer(machine, 6, number, 0xFFFFFFFF, 9) == ALLOW


@pytest.mark.parametrize("abi", ABIS)
def test_rights(abi: int) -> None:
    handled, folder = landlock.handled_rights(abi), landlock.folder_rights(abi)
    assert not handled & 0b1101  # nothing is kept from reading, or executing
    assert handled & ~folder == (1 << 6) | (1 << 11)  # device nodes
    assert handled >> {1: 13, 2: 14}.get(abi, 15) == 0  # the kernel refuses bits that it does not know


@pytest.mark.parametrize(
    ("names", "free"),
    [
        ([], True),
        (["sem.mp-1x", "psm_9f2", "torch_12_34_5", "nccl-AbC", "PostgreSQL.123"], True),
        (["__KMP_REGISTERED_LIB_123_0", ".org.mozilla.ipc.12.3"], True),
        (["imagenet.tar"], False),
        (["psm_9f2", "data"], False),
    ],
)
def test_shared_memory_with_data_in_it_is_not_writable(names: list[str], free: bool, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    assert landlock.shared_memory_is_free(str(tmp_path)) is free
    assert not landlock.shared_memory_is_free(str(tmp_path / "nowhere"))
    for path in tmp_path.iterdir():
        path.write_text("")
    assert landlock.shared_memory_is_free(str(tmp_path))  # there is nothing to lose


def test_the_specification() -> None:
    assert landlock.specification(["/a", "/b c"]) == {"writable": ["/a", "/b c"], "parent": os.getpid()}
