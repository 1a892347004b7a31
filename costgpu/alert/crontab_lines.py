"""The crontab lines that check budgets, and the user's crontab with and without them. Pure, on bytes.

A crontab belongs to its user: everything outside of our block stays as it is, byte for byte, and nothing of ours acts
on other lines: variables stand in the command, not in lines of their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costgpu.errors import ConfigError, UsageError
from costgpu.units import format_duration, parse_duration

BEGIN = b"# costgpu begin"
END = b"# costgpu end"
_SAYS = b": made by `costgpu budget cron`, taken out by `costgpu budget cron --remove`"
_UNENDED = b" (the line above had no end)"
_MARKS = re.compile(
    rb"^# costgpu (?:begin(?: \(the line above had no end\))?: made by [^\n]*|end[ \t\r]*)(?:\n|\Z)", re.MULTILINE
)
_SHELL = re.compile(rb"^[ \t]*SHELL[ \t]*=[ \t]*[\"']?([^\"'\s]+)", re.MULTILINE)

MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)  # that divide an hour
HOURS = (1, 2, 3, 4, 6, 8, 12)  # that divide a day
STEPS = (*MINUTES, *(60 * hours for hours in HOURS), 1440)
DAILY_HOUR = 9  # when people read their mail, and a daily budget is no longer empty
LONGEST_LINE = 990  # bytes; cron of 1993, which Debian has, takes 998


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often a command runs: every so many `minutes`, one of `STEPS`."""

    minutes: int

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """From ``15m``, ``1h``, ``1d``.

        Raises:
            UsageError: Cron cannot express it.
        """
        seconds = parse_duration(text, "--every")
        minutes = seconds / 60
        if minutes in STEPS:
            return cls(int(minutes))
        below = [step for step in STEPS if step < minutes]
        above = [step for step in STEPS if step > minutes]
        near = " or ".join(_short(step) for step in (*below[-1:], *above[:1]))
        raise UsageError(
            f"--every {text}: cron cannot do that. It counts the minutes of an hour and the hours of a day.",
            hint=f"The nearest that it can do is {near}.",
        )

    @property
    def cron(self) -> str:
        """Return the five fields."""
        if self.minutes == 1:
            return "* * * * *"
        if self.minutes < 60:
            return f"*/{self.minutes} * * * *"
        if self.minutes == 60:
            return "0 * * * *"
        return f"0 */{self.minutes // 60} * * *" if self.minutes < 1440 else f"0 {DAILY_HOUR} * * *"

    @property
    def systemd(self) -> str:
        """For ``OnCalendar=``."""
        if self.minutes < 60:
            return f"*:0/{self.minutes}"
        return f"0/{self.minutes // 60}:00" if self.minutes < 1440 else f"{DAILY_HOUR:02}:00"

    @property
    def words(self) -> str:
        """``every 15 min``."""
        if self.minutes == 1:
            return "every minute"
        return f"every {format_duration(self.minutes * 60)}" if self.minutes < 1440 else f"every day at {DAILY_HOUR}:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command that cron runs: the full path of a program, its arguments, and variables that cron does not set."""

    argv: Sequence[bytes]
    variables: Mapping[bytes, bytes] = field(default_factory=dict)

    @property
    def command(self) -> list[bytes]:
        """Return the words of the command line."""
        if not self.variables:
            return list(self.argv)
        assignments = [name + b"=" + value for name, value in self.variables.items()]
        if b"=" in self.argv[0]:  # env would take it for another variable
            return [b"env", *assignments, b"sh", b"-c", b'exec "$0" "$@"', *self.argv]
        return [b"env", *assignments, *self.argv]


def line(schedule: Schedule, task: Task) -> bytes:
    """Return the line of a crontab, without its line end.

    Raises:
        ConfigError: A word cannot stand in a crontab, or the line is too long.
    """
    text = schedule.cron.encode() + b" " + b" ".join(_word(word) for word in task.command)
    if len(text) > LONGEST_LINE:
        raise ConfigError(
            f"The crontab line would be {len(text)} bytes long, and cron takes {LONGEST_LINE}.",
            hint="Unset COSTGPU_* and XDG_* variables here and put the settings into the user's config.toml.",
        )
    return text


def install(crontab: bytes, lines: Sequence[bytes]) -> bytes:
    """Return the crontab with our block of these lines, which replaces an older one or is added at the end.

    Raises:
        ConfigError: The marks of our block in it do not belong together.
    """
    found = _block(crontab)
    end, before = found or (len(crontab), crontab)
    unended = bool(before) and not before.endswith(b"\n")
    head = (b"\n" if unended else b"") + BEGIN + (_UNENDED if unended else b"") + _SAYS + b"\n"
    return before + head + b"".join(text + b"\n" for text in lines) + END + b"\n" + crontab[end:]


def remove(crontab: bytes) -> bytes:
    """Return the crontab as it was before `install`.

    Raises:
        ConfigError: As for `install`.
    """
    found = _block(crontab)
    if found is None:
        return crontab
    end, before = found
    return before + crontab[end:]


def foreign_shell(crontab: bytes) -> str:
    """Return the shell that the crontab sets for lines at its end, unless it reads lines as sh does; empty for sh."""
    found = _SHELL.findall(remove(crontab))
    name = found[-1].decode(errors="replace") if found else "sh"
    return "" if name.rpartition("/")[2] in ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox") else name


def _block(crontab: bytes) -> tuple[int, bytes] | None:
    """Return the end of our block, and what stood before it; None without one."""
    marks = list(_MARKS.finditer(crontab))
    if not marks:
        return None
    if len(marks) != 2 or not marks[0].group().startswith(BEGIN) or not marks[1].group().startswith(END):
        raise ConfigError(
            "The crontab has lines `# costgpu begin` and `# costgpu end` that do not belong together; it was left as it is.",
            hint="Take them and what is between them out with `crontab -e`, and try again.",
        )
    before = crontab[: marks[0].start()]
    if marks[0].group().startswith(BEGIN + _UNENDED) and marks[1].end() == len(crontab):
        before = before.removesuffix(b"\n")  # unless somebody has gone on below our block
    return marks[1].end(), before


def _word(word: bytes) -> bytes:
    r"""Return a word as cron hands it to sh, and sh to the program.

    Crons agree that ``\%`` is a percent sign, and differ in what ``\\`` is: so a backslash is always followed by a
    quote, which all of them leave alone.
    """
    if b"\n" in word or b"\0" in word or b"\r" in word:
        raise ConfigError("A path or variable here has a line break in it, and a crontab cannot hold that.")
    quoted = shlex.quote(word.decode("latin-1")).encode("latin-1")
    return quoted.replace(b"\\", b"\\''").replace(b"%", b"\\%")


def _short(minutes: int) -> str:
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h" if minutes < 1440 else "1d"
