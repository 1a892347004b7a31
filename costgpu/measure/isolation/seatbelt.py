"""The profile with which macOS lets a program write nothing outside the folders that it is given. Pure.

``sandbox-exec`` is deprecated and undocumented, and still what Bazel, Nix, Chromium and others use. A profile is a list
of rules in the Sandbox Profile Language, of which the last one that matches decides. It is inherited by every child.
``file-write*`` holds all changes of a file: content, names, mode, owner, flags, times and extended attributes.

Not exercised on a Mac: the tests look at the text only. Where the profile is not accepted, `CHECK` fails or the program
does not start, and the level is not given.

Sources: sandbox-exec(1); the profiles in /System/Library/Sandbox/Profiles (macOS 15; read 2026-11).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
CHECK = [SANDBOX_EXEC, "-p", "(version 1)(allow default)", "/usr/bin/true"]  # succeeds where this works at all
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/dtracehelper")


def profile(writable: Sequence[str]) -> str:
    """Return the rules for a program that may write beneath these folders only.

    Args:
        writable: Absolute paths; links in them are followed here (``/var`` and ``/tmp`` are links), as rules see real paths.
    """
    folders = [f"(subpath {quoted(os.path.realpath(path))})" for path in writable]  # of a file, itself
    devices = [f"(literal {quoted(path)})" for path in DEVICES]
    terminals = '(regex #"^/dev/(ttys[0-9]+|fd/[0-9]+)$")'
    data = [*folders, *devices, terminals]
    return "\n".join(
        [
            "(version 1)",
            "(allow default)",
            "(deny file-write*)",
            f"(allow file-write* {' '.join(folders)})",
            f"(allow file-write-data {' '.join(data)})",
            "(deny file-write-setugid)",
            "(deny signal)",
            "(allow signal (target same-sandbox))",
            "",
        ]
    )


def quoted(path: str) -> str:
    """Return a path as a string of the profile's language.

    Raises:
        ValueError: It holds a character that no string there can.
    """
    if any(ord(letter) < 32 for letter in path):
        raise ValueError(f"no profile can name the folder {path!r}")
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def start_command(writable: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command line that starts a command under the profile."""
    return [SANDBOX_EXEC, "-p", profile(writable), *command]
