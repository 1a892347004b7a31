"""The border to the agent: its answer is found, and its errors raised. What it tells of a job is in `files.agent_report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from costgpu import border
from costgpu.errors import HostUnreachable, MachineUnusable, SyncRefused
from costgpu.files import parse_json
from costgpu.job.agent.main import REPLY
from costgpu.job.machine.host import Completed

_HINT = "The machine, or the job on it, has changed the agent. The machine ends itself at the end of its lease."
_SIGNALLED = 128  # and above: what a shell makes of a command that a signal ended
_NOT_FOUND = 127
_SILENT = frozenset({"ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError", "TimeoutError"})

T = TypeVar("T")
Reply = Mapping[str, Any]


class AgentError(NamedTuple):
    """The agent could not do it."""

    text: str
    kind: str  # the class of its exception; empty if unknown


def was_ended(completed: Completed) -> bool:
    """Return whether a signal ended it, as when its machine is switched off."""
    return completed.returncode < 0 or completed.returncode >= _SIGNALLED


def unusable(what: str, completed: Completed) -> MachineUnusable:
    """Return the error for a command that failed, with its last line on stderr."""
    words = completed.stderr[-4096:].decode("utf-8", "replace").strip().splitlines()
    return MachineUnusable(f"The machine cannot be used: {what}" + (f" ({words[-1][:300]})." if words else "."))


def bad_reply(request: str, error: Exception) -> MachineUnusable:
    """Return the error for an answer that is not what an agent says."""
    return MachineUnusable(f"What the agent on the machine says ({request}) cannot be used: {error}.", hint=_HINT)


def parse_reply(completed: Completed, request: str) -> Reply | AgentError | None:
    """Return what the agent has answered; None if it has not.

    Raises:
        MachineUnusable: It has, and that is no answer.
    """
    mark = REPLY.encode()
    at = completed.stdout.rfind(b"\n" + mark) + 1
    if not completed.stdout.startswith(mark, at):
        return None
    line = completed.stdout[at + len(mark) :].partition(b"\n")[0]
    try:
        reply = border.read(dict[str, Any], parse_json(line), ValueError)
        return AgentError(value(reply, "error", str), str(reply.get("kind", ""))) if "error" in reply else reply
    except ValueError as error:
        raise bad_reply(request, error) from error


def checked_reply(completed: Completed, request: str) -> Reply:
    """Return the agent's answer.

    Raises:
        HostUnreachable: There is none because the machine has ended the command, or the agent is silent.
        MachineUnusable: The agent is not there, or has failed, or answers what is no answer.
        SyncRefused: The files changed while they were sent.
    """
    reply = parse_reply(completed, request)
    if reply is None:
        if completed.returncode == _NOT_FOUND or b"No such file" in completed.stderr:
            raise unusable("the agent is not on the machine", completed)
        if was_ended(completed) or completed.returncode == 0:
            raise HostUnreachable("The machine ended the command without an answer.")
        raise unusable("the agent failed", completed)
    if not isinstance(reply, AgentError):
        return reply
    if reply.kind == "DamagedArchive":
        raise SyncRefused(
            f"The working folder could not be sent: {reply.text.partition(': ')[2]}",
            hint="Run it again when nothing changes the folder.",
        )
    if reply.kind in _SILENT:
        raise HostUnreachable(f"The agent on the machine does not answer: {reply.text}")
    raise MachineUnusable(f"The agent on the machine failed: {reply.text}")


def value(reply: Reply, name: str, kind: type[T]) -> T:
    """Return one value of an answer.

    Raises:
        ValueError: It is not of that type, or missing.
    """
    return border.read(kind, reply.get(name), lambda problem: ValueError(f"{name}: {problem}"))
