"""How the keeper and the power-off button are started: by the same package that starts them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from costgpu import version

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from costgpu.providers.local.keeper import main; main()"
_ROOT = Path(version.__file__).absolute().parents[1]


def command(verb: str, home: Path) -> list[str]:
    """Return the program; -P and -E keep the current folder and the user's variables out of its imports."""
    return [sys.executable, "-P", "-E", "-c", _PROGRAM, str(_ROOT), verb, str(home)]


def button(home: Path) -> str:
    """Return the power-off button, as a shell script; where this Python is gone, the keeper does it, if it still lives."""
    end = shlex.quote(str(home / "end.json"))
    return f"""#!/bin/sh
# Powers this local instance off: everything that runs in it is ended. The argument is the reason, for the record.
reason=${{1:-power-off}}
{shlex.join(command("end", home))} "$reason" && exit 0
[ -e {end} ] || printf '{{"by": "instance", "reason": "%s", "at": %s}}' "$reason" "$(date +%s)" >{end}
exit 1
"""
