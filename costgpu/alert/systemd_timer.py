"""The same as cron's lines for systemd: a timer and a service of the user. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.alert.crontab_lines import Schedule, Task
from costgpu.errors import BudgetCrossed, BudgetExceeded, OrphansFound

FOLDER = "~/.config/systemd/user"
NAME = "costgpu-budget"
LONGEST_SECONDS = 1800  # for all commands together: a place that hangs is not to hold up the next check for ever
# People were told; the unit is not to be listed as a failed one.
TOLD = (BudgetCrossed.exit_code, BudgetExceeded.exit_code, OrphansFound.exit_code)


def service(tasks: Sequence[Task]) -> str:
    """The text of the service: runs the commands one after the other, also when one has failed.

    Args:
        tasks: They share their variables.
    """
    variables = {name: value for task in tasks for name, value in task.variables.items()}
    lines = [
        "[Unit]",
        "Description=costgpu looks after its budgets",
        "",
        "[Service]",
        "Type=oneshot",
        f"TimeoutStartSec={LONGEST_SECONDS}",
        f"SuccessExitStatus={' '.join(map(str, TOLD))}",
        *(f"Environment={_quoted(_text(name + b'=' + value))}" for name, value in variables.items()),
    ]
    *first, last = tasks
    lines += [f"ExecStart={_command(task, goes_on=True)}" for task in first]
    lines.append(f"ExecStart={_command(last)}")
    return "\n".join(lines) + "\n"


def timer(schedule: Schedule) -> str:
    """The text of the timer: also runs what was due while the machine was off."""
    return "\n".join(
        [
            "[Unit]",
            "Description=costgpu looks after its budgets",
            "",
            "[Timer]",
            f"OnCalendar={schedule.systemd}",
            "AccuracySec=20s",
            "Persistent=true",
            "",
            "[Install]",
            "WantedBy=timers.target",
            "",
        ]
    )


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
