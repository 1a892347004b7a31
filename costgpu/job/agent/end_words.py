"""How a job ended, in words: by a signal, and what it left running. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"])
NOT_FOUND = 127
MOST_SIGNAL = 31  # those that a shell turns into an exit code have these numbers
NAMED_PROCESSES = 3
_SCRIPT = re.compile(r"[^-=:@?][^=:@?]*\.(py|sh|pl|rb|js|jl|R|r)")  # of an address with a password, none
_SHOWN = 120  # characters of a command line
_LEAST_ANYWHERE = 4  # characters of a value that is taken out of the middle of words, too


def exit_words(code: int, argv: Sequence[str], *, by_signal: bool) -> str:
    """Return what an exit code does not say by itself; empty if that is nothing.

    Args:
        code: 128 + n if signal n ended the command.
        argv: The command.
        by_signal: Whether a signal has ended it. A program may exit with any code by itself.
    """
    if by_signal:
        return "The job was ended by signal %d." % (code - 128)
    program = "".join(argv[:1]).rpartition("/")[2]
    if code == NOT_FOUND and not program.startswith("python"):
        return "Exit code 127, as when a command is not found."
    if program not in SHELLS:
        return ""
    number = code - 128
    if not 1 <= number <= MOST_SIGNAL:
        return ""
    try:
        name = " (%s)" % signal.Signals(number).name
    except ValueError:
        name = ""
    return "Exit code %d, as after signal %d%s." % (code, number, name)


def leftover_words(commands: Sequence[str], secrets: Iterable[str]) -> str:
    """Return what is said of processes that were still running; empty without any.

    Args:
        commands: Their command lines. Only program and script are told: anything else may be a secret.
        secrets: Values that must not be told.
    """
    if not commands:
        return ""
    hidden = re.compile("|".join(map(_form, sorted(filter(None, secrets), key=len, reverse=True))) or r"(?!)")
    shown = []
    for command in dict.fromkeys(map(_without_arguments, commands)):
        text = " ".join(hidden.sub("***", command).split()).encode("utf-8", "replace").decode()
        shown.append(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
    more = len(shown) - NAMED_PROCESSES
    named = "; ".join(filter(None, shown[:NAMED_PROCESSES])) + ("; ..." if more > 0 else "")
    count = (
        "1 process that it had started was"
        if len(commands) == 1
        else ("%d processes that it had started were" % len(commands))
    )
    return "%s still running and %s ended: %s" % (count, "was" if len(commands) == 1 else "were", named)


def _without_arguments(command: str) -> str:
    """Return the program of a command line, and the script or module if its first argument says that."""
    words = command.split()
    if words[1:2] == ["-m"]:
        return " ".join(words[:3])
    return " ".join(words[: 2 if _SCRIPT.fullmatch("".join(words[1:2])) else 1])


def _form(value: str) -> str:
    """Return a pattern for a value: a short one is a word of its own, and not every such letter."""
    form = re.escape(value)
    return form if len(value) >= _LEAST_ANYWHERE else r"(?<!\w)%s(?!\w)" % form
