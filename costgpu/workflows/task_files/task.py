"""What a task file says, in the words of `costgpu run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task.

    Attributes:
        folder: To send and run in; None if the file names none.
        run: Shell text of the job.
        run_key: Key under which that stands.
        setup: Shell text before it; None if there is none.
        env: ``KEY=VALUE``, or ``KEY`` for one that this shell must have.
        fields: Of `RunRequest`, as far as the file says them.
        links: Path on the machine -> path in the folder that it is to lead to.
    """

    folder: Path | None
    run: str
    run_key: str
    setup: str | None = None
    env: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
