"""What a command of the agent has answered."""

from __future__ import annotations

import json
from typing import Any

from costgpu.errors import MachineUnusable
from costgpu.runner.agent.main import REPLY
from costgpu.runner.machine.host import Completed

_SIGNALLED = 128  # and above: what a shell makes of a command that a signal ended


def was_ended(completed: Completed) -> bool:
    """Whether a signal ended it, as when its machine is switched off."""
    return completed.returncode < 0 or completed.returncode >= _SIGNALLED


def unusable(what: str, completed: Completed) -> MachineUnusable:
    """The error for a command that failed, with its last line on stderr."""
    words = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    return MachineUnusable(f"The machine cannot be used: {what}" + (f" ({words[-1][:300]})." if words else "."))


def parse_reply(completed: Completed) -> dict[str, Any] | None:
    """The JSON object that the agent has printed; None if it has not."""
    for line in reversed(completed.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(REPLY):
            try:
                value = json.loads(line.removeprefix(REPLY))
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None
