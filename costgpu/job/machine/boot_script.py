"""The script that a machine runs first at every boot: deadline watchdog, then sshd with the one-run keys.

The shell is in ``boot_script.sh``; here its values are checked and put in front of it. Imports `defaults`.
"""

from __future__ import annotations

import math
import shlex
from datetime import datetime
from pathlib import Path

from costgpu.models.defaults import SSH_PORT

UNCLAIMED_SECONDS = 900.0
_BODY = Path(__file__).with_name("boot_script.sh")


def boot_script(
    *,
    deadline: datetime,
    lifetime_seconds: float,
    unclaimed_seconds: float = UNCLAIMED_SECONDS,
    user_public_key: str,
    host_private_key: str,
    host_public_key: str,
) -> str:
    """One POSIX shell script, to be run as root at every boot; it is idempotent.

    It works in ``$COSTGPU_HOME`` (``/opt/costgpu`` if that is not set) and arms the watchdog before anything else.

    Args:
        deadline: When the machine is powered off at the latest; aware.
        lifetime_seconds: Monotonic seconds that it may live in all, over reboots.
        unclaimed_seconds: It is powered off if no agent came within this time.
        user_public_key: ``ssh-ed25519 AAAA...``, the only key that is let in; empty where there is no sshd.
        host_private_key: OpenSSH form: what the machine identifies itself with; empty like that.
        host_public_key: Its public half; empty like that.

    Raises:
        ValueError: A time is not positive.
    """
    if deadline.tzinfo is None:
        raise ValueError("the deadline must be aware")
    for seconds in (lifetime_seconds, unclaimed_seconds):
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"{seconds} is not a positive time")
    keys = tuple(key.strip() for key in (user_public_key, host_private_key, host_public_key))
    names = ("user_public_key", "host_private_key", "host_public_key")
    values = [
        f"deadline={math.floor(deadline.timestamp())}",
        f"lifetime={math.ceil(lifetime_seconds)}",
        f"unclaimed={math.ceil(unclaimed_seconds)}",
        f"ssh_port={SSH_PORT}",
        *(f"{name}={shlex.quote(key)}" for name, key in zip(names, keys, strict=True)),
    ]
    return "\n".join(["#!/bin/sh", *values, _BODY.read_text(encoding="utf-8")])
