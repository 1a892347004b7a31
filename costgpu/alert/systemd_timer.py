"""A systemd timer and service of the user that do what the crontab lines do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.alert.crontab_lines import Schedule, Task
from costgpu.errors import BudgetCrossed, BudgetExceeded, OrphansFound

FOLDER = "~/.config/systemd/user"
NAME = "costgpu-budget"
DESCRIPTION = "costgpu checks its budgets"
LONGEST_SECONDS = 1800  # for all commands together, so that one that hangs does not hold up the next check
# People were told, so systemd does not list the unit as failed.
SUCCESS_CODES = (BudgetCrossed.exit_code, BudgetExceeded.exit_code, OrphansFound.exit_code)


def service(tasks: Sequence[Task]) -> str:
    """Return the text of the service: runs the commands one after the other, also when one has failed."""
    variables = {name: value for task in tasks for name, value in task.variables.items()}
    environment = [f"Environment={_quoted(_text(name + b'=' + value))}" for name, value in variables.items()]
    *first, last = tasks
    commands = [*(_command(task, goes_on=True) for task in first), _command(last)]
    lines = "\n".join([*environment, *(f"ExecStart={command}" for command in commands)])
    return f"""\
[Unit]
Description={DESCRIPTION}

[Service]
Type=oneshot
TimeoutStartSec={LONGEST_SECONDS}
SuccessExitStatus={" ".join(map(str, SUCCESS_CODES))}
{lines}
"""


def timer(schedule: Schedule) -> str:
    """Return the text of the timer; what was due while the machine was off runs at the next start."""
    return f"""\
[Unit]
Description={DESCRIPTION}

[Timer]
OnCalendar={schedule.systemd}
AccuracySec=20s
Persistent=true

[Install]
WantedBy=timers.target
"""


def _command(task: Task, *, goes_on: bool = False) -> str:
    program, *arguments = map(_text, task.argv)
    if set(program) & set("\"'\\") or not program.isprintable():  # systemd refuses them in the name of a program
        program, arguments = "/bin/sh", ["-c", 'exec "$0" "$@"', program, *arguments]
    words = [program, *(word.replace("$", "$$") for word in arguments)]  # in the first one systemd expands nothing
    return ("-" if goes_on else "") + " ".join(map(_quoted, words))


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    """In double quotes where that is needed; bytes that are no UTF-8 as escapes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in escaped)
    return f'"{escaped}"' if escaped != text or any(c in " \t'\";" for c in text) or not text else text
