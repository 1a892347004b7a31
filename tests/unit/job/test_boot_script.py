"""The boot script as text: values checked, quoting safe, valid shell."""

import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from costgpu.job.machine.boot_script import boot_script

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxGh5c1Xw0l run"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE=\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
WHEN = datetime(2026, 11, 21, 12, 0, 0, 900_000, tzinfo=UTC)


def _script(**changes: object) -> str:
    values: dict[str, object] = {
        "deadline": WHEN,
        "lifetime_seconds": 3600.2,
        "user_public_key": PUBLIC,
        "host_private_key": PRIVATE,
        "host_public_key": PUBLIC,
    }
    return boot_script(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", [name for name in ("dash", "bash", "busybox") if shutil.which(name)])
def test_every_shell_can_read_it(shell: str) -> None:
    argv = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
    subprocess.run(argv, input=_script().encode(), check=True)


def test_the_deadline_is_rounded_down_and_times_are_whole() -> None:
    text = _script()
    assert f"\ndeadline={int(WHEN.timestamp())}\n" in text
    assert "\nlifetime=3601\n" in text
    assert "\nunclaimed=900\n" in text
    assert text.startswith("#!/bin/sh\n")


def test_it_fits_into_user_data_and_is_the_same_every_time() -> None:
    assert len(_script().encode()) < 16 * 1024 - 500  # EC2's limit is 16 KB before base64 (2026-11)
    assert _script() == _script()


@pytest.mark.parametrize(
    "changes",
    [
        {"deadline": WHEN.replace(tzinfo=None)},
        {"lifetime_seconds": 0.0},
        {"lifetime_seconds": float("inf")},
        {"unclaimed_seconds": -1.0},
    ],
)
def test_a_time_that_would_arm_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be aware|not a positive time"):
        _script(**changes)


def test_on_this_machine_there_are_no_keys() -> None:
    text = _script(user_public_key="", host_private_key="", host_public_key="")
    assert "\nhost_private_key=''\n" in text
