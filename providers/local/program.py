"""How the host program and the power-off button are started: by the same package that starts them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from costgpu import version

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from costgpu.providers.local.machine import main; main()"
_ROOT = Path(version.__file__).absolute().parents[1]


def command(verb: str, home: Path) -> list[str]:
    """Return the host program; -P and -E keep the current folder and the user's variables out of its imports."""
    return [sys.executable, "-P", "-E", "-c", _PROGRAM, str(_ROOT), verb, str(home)]


def button(home: Path) -> str:
    """Return the power-off button, as a shell script; it also works when this Python is gone, if the host still lives."""
    quoted = shlex.quote(str(home))
    return f"""#!/bin/sh
# Powers this local instance off: everything that runs in it is ended. The argument is the reason, for the record.
reason=${{1:-power-off}}
{shlex.join(command("poweroff", home))} "$reason" && exit 0
home={quoted}
pid=$(sed -n 's/.*"pid": \\([0-9]*\\).*/\\1/p' "$home/host.json")
started=$(sed -n 's/.*"started": "\\([0-9]*\\)".*/\\1/p' "$home/host.json")
read -r stat <"/proc/$pid/stat" || exit 1
set -- ${{stat##*) }}
[ "${{20}}" = "$started" ] && kill -TERM "$pid"
"""
