"""Our marked block in the user's crontab, by the system's own `crontab` command.

What is outside of the block is not parsed, and stays as it is, byte for byte. Nothing in the block acts on other lines:
variables stand in our commands, not in lines of their own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costgpu.config.paths import data_folder
from costgpu.errors import ConfigError, UsageError
from costgpu.files import FileKind, write_whole
from costgpu.units import format_duration, parse_duration

BEGIN = b"# costgpu begin: made by `costgpu budget cron`, taken out by `costgpu budget cron --remove`\n"
END = b"# costgpu end\n"
_BLOCK = re.compile(rb"^# costgpu begin\b[^\n]*\n.*?^# costgpu end[ \t\r]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)
_NONE_YET = re.compile(rb"no crontab for |can't open '[^']*': No such file")  # vixie cron, cronie and macOS; busybox
_ESCAPED = re.compile(rb"\\[rb]")  # how Debian's `crontab -l` shows a carriage return and a backspace
_SECONDS = 20.0
_COPY = FileKind(most_bytes=1 << 20, name="the copy of the crontab", write_hint="The crontab was not changed.")

STEPS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440)  # minutes that cron can express
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
        minutes = parse_duration(text, "--every") / 60
        if minutes in STEPS:
            return cls(int(minutes))
        near = [*[step for step in STEPS if step < minutes][-1:], *[step for step in STEPS if step > minutes][:1]]
        raise UsageError(
            f"--every {text}: cron cannot do that. It counts the minutes of an hour and the hours of a day.",
            hint=f"The nearest that it can do is {' or '.join(map(_short, near))}.",
        )

    @property
    def cron(self) -> str:
        """Return the five fields."""
        if self.minutes < 60:
            return f"*/{self.minutes} * * * *" if self.minutes > 1 else "* * * * *"
        if self.minutes < 1440:
            return f"0 */{self.minutes // 60} * * *" if self.minutes > 60 else "0 * * * *"
        return f"0 {DAILY_HOUR} * * *"

    @property
    def words(self) -> str:
        """``every 15 min``."""
        if self.minutes == 1:
            return "every minute"
        return f"every {format_duration(self.minutes * 60)}" if self.minutes < 1440 else f"every day at {DAILY_HOUR}:00"


def line(schedule: Schedule, argv: Sequence[str], variables: Mapping[str, str]) -> bytes:
    """Return the line that runs a command with variables that cron does not set, without its line end.

    Raises:
        ConfigError: A word cannot stand in a crontab, or the line is too long.
    """
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *argv]
    text = schedule.cron.encode() + b" " + b" ".join(_word(word) for word in words)
    if len(text) > LONGEST_LINE:
        raise ConfigError(
            f"The crontab line would be {len(text)} bytes long, and cron takes {LONGEST_LINE}.",
            hint="Unset COSTGPU_* and XDG_* variables here and put the settings into the user's config.toml.",
        )
    return text


def install(table: bytes, lines: Sequence[bytes]) -> bytes:
    """Return the crontab with our block of these lines, in the place of an older one or at the end.

    Raises:
        ConfigError: The marks of our block in it do not belong together.
    """
    block = BEGIN + b"".join(text + b"\n" for text in lines) + END
    if found := _block(table):
        return table[: found.start()] + block + table[found.end() :]
    return table + (b"\n" if table and not table.endswith(b"\n") else b"") + block


def remove(table: bytes) -> bytes:
    """Return the crontab without our block.

    Raises:
        ConfigError: As for `install`.
    """
    found = _block(table)
    return table[: found.start()] + table[found.end() :] if found else table


def read() -> bytes:
    """Return the user's crontab; empty if there is none.

    Raises:
        ConfigError: It cannot be read.
    """
    done = _crontab("-l")
    if done.returncode and not done.stdout and _NONE_YET.search(done.stderr):
        return b""
    if done.returncode:
        raise ConfigError(f"The crontab cannot be read: {_said(done)}.", hint="Nothing was changed.")
    if not _ESCAPED.search(done.stdout):
        return done.stdout
    itself = _crontab("-e").stdout  # which gives the file to `cat`, as it is
    if done.stdout in (itself, itself.replace(b"\r", b"\\r").replace(b"\b", b"\\b")):
        return itself
    raise ConfigError(
        r"`crontab -l` shows \r or \b, which may stand for one character each, so the crontab cannot be written back.",
        hint="Nothing was changed. Take them out with `crontab -e`, or put the lines in yourself.",
    )


def write(old: bytes, new: bytes, name: str) -> Path | None:
    """Replace the user's crontab, and return the path of a copy of the old one; None if that was empty.

    Raises:
        ConfigError: The copy cannot be written, or the system refuses the new one; the crontab is as it was.
    """
    copy = data_folder() / "crontabs" / name if old else None
    if copy is not None:
        try:
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            write_whole(copy, [old], _COPY, mode=0o600)
        except OSError as error:
            raise _COPY.unwritable(copy, str(error.strerror)) from error
    done = _crontab("-", new) if new else _crontab("-r")
    if done.returncode:
        raise ConfigError(f"The new crontab was refused: {_said(done)}.", hint="It is as it was.")
    return copy


def _block(table: bytes) -> re.Match[bytes] | None:
    found = _BLOCK.search(table)
    marks = re.findall(rb"^# costgpu (?:begin\b|end[ \t\r]*$)", table, re.MULTILINE)
    if len(marks) != (2 if found else 0):
        raise ConfigError(
            "The crontab has lines `# costgpu begin` and `# costgpu end` that do not belong together; it was left as it is.",
            hint="Take them and what is between them out with `crontab -e`, and try again.",
        )
    return found


def _crontab(argument: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("crontab")
    if program is None:
        raise ConfigError(
            "There is no `crontab` command here.",
            hint="Install cron (Debian: apt-get install cron), or let another timer run what `costgpu budget cron` prints.",
        )
    environment = {name: value for name, value in os.environ.items() if name != "CRONTAB_NOHEADER"}
    try:
        return subprocess.run(
            [program, argument],
            input=text,
            capture_output=True,
            timeout=_SECONDS,
            env={**environment, "LC_ALL": "C", "EDITOR": "cat", "VISUAL": "cat"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"`crontab {argument}` did not end within {_SECONDS:.0f} s.") from None
    except OSError as error:
        raise ConfigError(f"`crontab` cannot be started: {os.strerror(error.errno or 0)}.") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    words = " ".join(done.stderr.decode(errors="replace").split()).rstrip(".")
    return words[:300] or f"`crontab` ended with exit code {done.returncode}"


def _word(word: str) -> bytes:
    r"""Return a word as cron hands it to sh, and sh to the program.

    Crons agree that ``\%`` is a percent sign, and differ in what ``\\`` is: so a backslash is always followed by a
    quote, which all of them leave alone.
    """
    if "\n" in word or "\r" in word:
        raise ConfigError("A path or variable here has a line break in it, and a crontab cannot hold that.")
    return os.fsencode(shlex.quote(word)).replace(b"\\", b"\\''").replace(b"%", b"\\%")


def _short(minutes: int) -> str:
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h" if minutes < 1440 else "1d"
