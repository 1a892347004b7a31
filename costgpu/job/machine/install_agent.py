"""Packs the agent into one file, puts that on a machine and starts it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from costgpu.errors import HostUnreachable, MachineUnusable
from costgpu.job.machine.agent_reply import AgentError, bad_reply, parse_reply, unusable, value, was_ended
from costgpu.job.machine.host import Completed, Transport
from costgpu.job.timeouts import CALL_SECONDS, INSTALL_SECONDS
from costgpu.portable.bundle import bundle

# Finds a Python 3.8 or newer. $1 is the name to try first. What a shell calls python3 may be a wrapper: its own word
# for itself is used from then on.
_FIND_PYTHON = """
for name in "$1" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    found=$(command -v "$name" 2>/dev/null) || continue
    "$found" -c 'import sys
sys.version_info < (3, 8) and sys.exit(1)
print("costgpu-python", sys.platform, sys.executable)' 2>/dev/null && exit 0
    "$found" -V 2>&1
done
exit 1
"""

# Stores the agent from stdin: verified, whole or not at all. Arguments: home, sha256.
_STORE = """
import hashlib, os, shlex, sys
home, sha256 = sys.argv[1:]
data = sys.stdin.buffer.read()
if hashlib.sha256(data).hexdigest() != sha256:
    sys.exit("the agent arrived damaged")
def put(path, data, mode):
    with open(path + ".new", "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)
os.makedirs(home, exist_ok=True)
name = "agent-%s.pyz" % sha256[:16]
put(os.path.join(home, name), data, 0o644)
text = '#!/bin/sh\\nexec %s -I "${0%%/*}/%s" "$@"\\n' % (shlex.quote(sys.executable), name)
put(os.path.join(home, "agent"), text.encode(), 0o755)
"""


def agent_file() -> bytes:
    """Return a zip archive that Python runs."""
    return bundle("job.agent", "main")


@cache
def agent_sha256() -> str:
    """Return the hexadecimal checksum of that file."""
    return hashlib.sha256(agent_file()).hexdigest()


def install_agent(transport: Transport, python: str) -> None:
    """Put the agent there and start it, if it is not running. Idempotent."""
    wanted = f"agent-{agent_sha256()[:16]}.pyz"
    if _is_running(transport, wanted):
        return
    found = _find_python(transport, python)
    stored = _run(
        transport,
        [found, "-c", _STORE, transport.home, agent_sha256()],
        stdin=agent_file(),
        timeout_seconds=INSTALL_SECONDS,
    )
    if stored.returncode:
        raise unusable("the agent could not be stored", stored)
    if not _is_running(transport, wanted):
        raise MachineUnusable("The agent does not start on the machine.", hint=f"See {transport.home}/agent.log there.")


def _is_running(transport: Transport, wanted: str) -> bool:
    """Return whether this very agent runs now; starts it if it is only stored."""
    script = 'test -f "$1" && exec /bin/sh "$2" install'
    there = _run(
        transport,
        ["/bin/sh", "-c", script, "sh", f"{transport.home}/{wanted}", f"{transport.home}/agent"],
        timeout_seconds=INSTALL_SECONDS,
    )
    reply = parse_reply(there, "install")
    if isinstance(reply, AgentError):
        if there.returncode == 0:
            raise MachineUnusable(f"The agent does not start on the machine: {reply.text}")
        return False
    try:
        return reply is not None and value(reply, "program", str).endswith("/" + wanted)
    except ValueError as error:
        raise bad_reply("install", error) from error


def _run(transport: Transport, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float) -> Completed:
    """Return a command of the installation; one that a signal ended says nothing about the machine's fitness."""
    completed = transport.run(argv, stdin=stdin, timeout_seconds=timeout_seconds)
    if was_ended(completed):
        raise HostUnreachable("The machine ended the command without an answer.")
    return completed


def _find_python(transport: Transport, python: str) -> str:
    answer = _run(transport, ["/bin/sh", "-c", _FIND_PYTHON, "sh", python], timeout_seconds=CALL_SECONDS)
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    for line in lines:
        if line.startswith("costgpu-python "):
            platform, _, path = line.removeprefix("costgpu-python ").partition(" ")
            if platform != "linux":
                raise MachineUnusable(f"The agent needs Linux, and this machine runs {platform[:40]}.")
            if path.startswith("/"):
                return path
    found = ", ".join(line.strip()[:40] for line in lines[:20] if line.startswith("Python ")) or "none at all"
    raise MachineUnusable(
        f"The machine has no Python 3.8 or newer (found: {found}).", hint="Choose an image with Python 3.8 or newer."
    )
