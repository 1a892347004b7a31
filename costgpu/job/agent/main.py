"""What the agent's file does when it is run: ``call``, ``receive``, ``follow`` for clients; the rest for itself."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO, cast

from . import launch_ray
from .state_files import Home

REPLY = "costgpu-reply "  # in front of a reply, so that whatever a login prints is not taken for one


class _Log:
    """What an agent that stays has to say of trouble; lost where the disk is full, which is not to end the agent."""

    def write(self, text: str) -> None:
        """Write to standard error."""
        try:
            os.write(2, text.encode("utf-8", "replace"))
        except OSError:
            pass

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


def main() -> None:
    """``agent COMMAND [ARGUMENTS]``; the home is the folder that the program is in."""
    program = os.path.abspath(sys.argv[0])
    home = Home(os.path.dirname(program))
    command, arguments = sys.argv[1], sys.argv[2:]
    if command in ("daemon", "supervise"):
        sys.stderr = cast(TextIO, _Log())
    if command == "follow":
        from .log_stream import stream_logs

        try:
            stream_logs(home, [int(each) for each in arguments])
        except BrokenPipeError:
            os._exit(0)
    elif command == "supervise":
        from .supervisor import supervise

        supervise(home, int(arguments[0]), int(arguments[1]))
    elif command == "meet":
        from .meeting import meet

        sys.exit(meet(home, arguments[0], arguments[1]))
    elif command == launch_ray.NAME:
        sys.exit(launch_ray.launch(home, arguments[0]))
    elif command == "daemon":
        from ...portable.clock import MachineClock
        from .daemon import Daemon

        Daemon(home, program, MachineClock()).run()
    elif command == "serve":
        from .systemd import start_service

        start_service(home, program)
    else:
        print(REPLY + json.dumps(_reply(home, program, command)), flush=True)


def _reply(home: Home, program: str, command: str) -> dict[str, Any]:
    try:
        if command == "install":
            from .systemd import install

            return install(home, program)
        home.record_contact()
        if command == "receive":
            return _receive(home)
        return _call(home, json.load(sys.stdin))
    except Exception as error:
        return {"error": "%s: %s" % (type(error).__name__, error), "kind": type(error).__name__}


def _receive(home: Home) -> dict[str, Any]:
    from .outputs.workdir import apply_manifest, receive

    if home.exists("order.json"):
        return {"files": 0}
    count = receive(home, sys.stdin.buffer)
    apply_manifest(home)
    return {"files": count}


def _call(home: Home, request: dict[str, Any]) -> dict[str, Any]:
    method = request["method"]
    if method == "status":
        from .status import job_status

        return job_status(home)
    if method == "driver":
        from .observe.gpu_driver import driver_trouble

        return {"trouble": driver_trouble(int(request["gpus"]), float(request["seconds"]))}
    if method == "expect":
        from .outputs.workdir import expect_files

        started = home.exists("order.json")
        return {
            "lacking": []
            if started
            else expect_files(home, request["files"], request["links"], request.get("folders", []))
        }
    if method == "checkpoint":
        from ...portable.clock import MachineClock
        from .outputs.checkpoints import take_checkpoint

        order = home.read("order.json")
        if order is None:
            return {"error": "There is no job here.", "kind": "NoJob"}
        if order.get("uploads_checkpoints"):  # the daemon takes them
            from .outputs.checkpoint_upload import uploaded

            return uploaded(home)
        return take_checkpoint(home, order, MachineClock(), bool(request.get("everything")))
    if method == "outputs":
        from .outputs.find_outputs import with_checksums
        from .outputs.outside import find_all

        found = find_all(home, home.read("order.json") or {})
        return {
            "files": with_checksums(home, found),
            "missing": found.missing,
            "unreadable": found.unreadable,
            "elsewhere": dict(sorted(found.elsewhere.items())[:1000]),
            "folders": found.folders[:10000],
            "sources": {each.path: each.full for each in found.outputs if each.outside},
            "trouble": found.trouble,
        }
    if method == "logs":
        from ...portable.files import file_sha256
        from .status import LOGS, job_end

        over = job_end(home) is not None
        there = [name for name in LOGS if home.exists(name)]  # a job can delete its own
        return {
            "files": [[name, home.size(name), file_sha256(home.file(name)) if over else "", 0o644] for name in there]
        }
    if method == "hold":
        home.record_contact(float(request["seconds"]))
        return {}
    from .rpc import call_daemon

    return call_daemon(home, request)
