"""Short commands of the machine's own, whose failure is an answer."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def run_quietly(argv: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes] | None:
    """Return how a command without input ended, and what it wrote to stdout; None if it cannot run, or takes longer."""
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
