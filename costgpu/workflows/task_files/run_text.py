"""The shell text of a task file as a command: one Python script that can be measured, or a text for bash."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from uuid import uuid4

from costgpu.errors import UsageError
from costgpu.measure.launcher import find_launch

_NEEDS_A_SHELL = re.compile(r"[$`|&;<>(){}*?~!\n#\[\]]")
_PLAIN = re.compile(r"[\w .,=/@:+'\"-]+")
_THEIRS = re.compile(r"\b(?:SKYPILOT|DSTACK)_[A-Z0-9_]+|~/sky_workdir|(?<![\w./-])/workflow\b|\$\{\{.*?\}\}")
_HEAD_ADDRESS = re.compile(
    r"""(?:\$\(|`)\s*echo\s+"?\$\{?(?:SKYPILOT_NODE_IPS|DSTACK_NODES_IPS)\}?"?\s*\|\s*head\s+(?:-n\s*1|-1)\s*[)`]"""
)
OF_A_JOB = "SKYPILOT_TASK_ID"  # the same on all machines, and when the job goes on after an interruption
MOST_FILES, MOST_BYTES = 500, 1 << 20  # programs that are read for the variables that they name
GPUS = '"$(nvidia-smi -L 2>/dev/null | wc -l)"'
VARIABLES: Mapping[str, tuple[str, str]] = {
    "SKYPILOT_NUM_NODES": ("1", "$WORLD_SIZE"),
    "SKYPILOT_NODE_RANK": ("0", "$RANK"),
    "SKYPILOT_NUM_GPUS_PER_NODE": (GPUS, GPUS),
    "SKYPILOT_NODE_IPS": ("127.0.0.1", ""),
    "DSTACK_NODES_NUM": ("1", "$WORLD_SIZE"),
    "DSTACK_NODE_RANK": ("0", "$RANK"),
    "DSTACK_GPUS_PER_NODE": (GPUS, GPUS),
    "DSTACK_MASTER_NODE_IP": ("127.0.0.1", "$MASTER_ADDR"),
    "DSTACK_NODES_IPS": ("127.0.0.1", ""),
    "DSTACK_GPUS_NUM": (GPUS, ""),
}
"""Variable -> its value on one machine, and on each of several; empty where there is none."""


@dataclass(frozen=True, slots=True)
class TaskCommand:
    """What a job runs.

    Attributes:
        words: For `costgpu run`.
        is_script: Whether it is one Python script, which can be measured.
        launched: Whether a launcher, such as torchrun, starts it.
    """

    words: tuple[str, ...]
    is_script: bool = False
    launched: bool = False


def command_of(
    text: str, folder: Path, nodes: int, given: Collection[str], wrong: Callable[[str, str], UsageError]
) -> TaskCommand:
    """Return the command that a text means when it is run in a folder, on so many machines.

    Args:
        given: Variables that the job has.
        wrong: Makes the error of the key that the text stands under, from why and a hint.
    """
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = [line.strip() for line in joined.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise wrong("is empty", "Say what to run: run: python train.py")
    script = _script(lines[0], folder) if len(lines) == 1 else None
    named: dict[str, None] = {}  # variables of theirs in programs of the folder
    files = (each for pattern in ("*.py", "*.sh", "*/*.py", "*/*.sh") for each in folder.glob(pattern))
    for path in islice(files, MOST_FILES):
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            named |= dict.fromkeys(_THEIRS.findall(file.read(MOST_BYTES)))
    read = [name for name in named if name not in given and (name in VARIABLES or name == OF_A_JOB)]
    if script is not None and not read:
        return script
    if script is not None and script.launched and nodes > 1:  # costgpu starts the launcher, with no shell around it
        raise _unknown(read[0], wrong)
    text = _HEAD_ADDRESS.sub("127.0.0.1" if nodes == 1 else "$MASTER_ADDR", text)
    exports = []
    for name in dict.fromkeys(name for name in (*_THEIRS.findall(text), *read) if name not in given):
        value = uuid4().hex[:12] if name == OF_A_JOB else VARIABLES.get(name, ("", ""))[nodes > 1]
        if not value:
            raise _unknown(name, wrong)
        exports.append(f"export {name}={value}\n")
    return TaskCommand(("bash", "-c", "".join(exports) + text))


def _script(line: str, folder: Path) -> TaskCommand | None:
    """Return the Python script that a line starts by itself; None if it needs a shell, or the script is not there."""
    if _NEEDS_A_SHELL.search(line):
        return None
    try:
        words = shlex.split(line)
        launch = find_launch(words)
    except (ValueError, UsageError):
        return None
    if launch is None or launch.prefixes.deciding or launch.prefixes.left_out:
        return None
    if launch.script is not None:
        path = folder / launch.script
        if not path.is_file():  # something on the machine makes it
            return None
        words[words.index(launch.script)] = str(path)
    return TaskCommand(tuple(words), is_script=True, launched=launch.launcher != "python")


def _unknown(name: str, wrong: Callable[[str, str], UsageError]) -> UsageError:
    hint = (
        "Write a path that is relative to the folder that is sent." if "/" in name else "Use the job's own variables."
    )
    if "NODE" in name or "MPI" in name:
        hint = "costgpu run --nodes 2 train.py starts torchrun on each machine; RANK and MASTER_ADDR are set."
    return wrong(f"names {name}, which is not set here", hint)


def setup_of(text: str, given: Collection[str], wrong: Callable[[str, str], UsageError]) -> str:
    """Return a set-up as a command for sh, with bash where it may need that."""
    for name in _THEIRS.findall(text):
        if name not in given:
            raise _unknown(name, wrong)
    text = text.strip()
    return text if _PLAIN.fullmatch(text) else shlex.join(["bash", "-c", text])
