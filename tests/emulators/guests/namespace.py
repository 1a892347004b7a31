"""A testbed: own network, mounts and processes for an emulated cloud with its guests, and for the clients beside it.

    python -m tests.emulators.guests.namespace -- COMMAND...          runs a command in a new testbed
    python -m tests.emulators.guests.namespace --cloud -- COMMAND...  ... with two clouds, named in its environment
    python -m tests.emulators.guests.namespace --join PID -- COMMAND  a second terminal: into that process's testbed

Nothing in it reaches the network, and all of it ends with the command, or with this process, even by SIGKILL.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.emulators.guests import cgroups, network, packages, rootfs

STATE = Path("/run/testbed")
CLOUD = STATE / "cloud.json"  # environment of clients
CALLER = {"COSTGPU_CALLER_ADDRESS": f"{network.GATEWAY}/32"}  # no service here tells a client its address


def inside() -> bool:
    return (STATE / "rootfs").exists()


def command_line(command: list[str]) -> list[str]:
    """What to execute for `command` to run in a new testbed that ends with its parent. Builds the root file system.

    Raises:
        RuntimeError: Guests cannot run here; with the reason.
    """
    reason = packages.obstacle()
    if reason:
        raise RuntimeError(reason)
    root = rootfs.ensure()
    cgroups.sweep()
    enter = [sys.executable, "-m", "tests.emulators.guests.namespace", "--enter", str(root), "--", *command]
    return ["setpriv", "--pdeathsig", "KILL", *packages.UNSHARE, *enter]


def _enter(root: str, command: list[str]) -> int:
    """The first process of a testbed: prepares it, runs the command and buries everybody's orphans."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "testbed", "/run"], check=True)
    STATE.mkdir()
    (STATE / "rootfs").symlink_to(root)
    network.prepare()
    child = subprocess.Popen(command, close_fds=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, too
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _with_cloud(command: list[str]) -> int:
    from tests.emulators.compute_engine.client import RunningComputeEngine
    from tests.emulators.ec2.client import RunningEc2

    clouds: list[RunningEc2 | RunningComputeEngine] = []
    try:
        clouds.append(RunningEc2.launch(machines="nspawn", host=network.GATEWAY))
        clouds.append(RunningComputeEngine.launch(machines="nspawn", host="0.0.0.0"))
        CLOUD.write_text(
            json.dumps({name: value for each in clouds for name, value in each.environment().items()} | CALLER)
        )
        return _beside(command)
    finally:
        for each in clouds:
            each.close()


def _beside(command: list[str]) -> int:
    cloud = json.loads(CLOUD.read_text()) if CLOUD.exists() else {}
    return subprocess.run(command, env={**os.environ, **cloud}, check=False).returncode


def _join(pid: int, command: list[str]) -> list[str]:
    first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
    enter = [f"--target={first}", "--net", "--mount", "--pid", f"--wdns={Path.cwd()}"]
    return ["nsenter", *enter, "--", sys.executable, "-m", "tests.emulators.guests.namespace", "--", *command]


def main() -> int:
    parser = argparse.ArgumentParser(description="A cloud with real guests, in namespaces of its own.")
    parser.add_argument(
        "--cloud", action="store_true", help="start an emulated AWS account and Google project for the command"
    )
    parser.add_argument("--join", type=int, metavar="PID", help="enter the testbed of a process instead")
    parser.add_argument("--enter", metavar="ROOTFS", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    if chosen.enter:
        return _enter(chosen.enter, chosen.command)
    if inside():
        return _with_cloud(chosen.command) if chosen.cloud else _beside(chosen.command)
    if chosen.join:
        line = _join(chosen.join, chosen.command)
    else:
        inner = [sys.executable, "-m", "tests.emulators.guests.namespace", *(["--cloud"] if chosen.cloud else []), "--"]
        try:
            line = command_line([*inner, *chosen.command])
        except RuntimeError as error:
            print(f"testbed: {error}", file=sys.stderr)
            return 1
        print(f"testbed: other terminals join with --join {os.getpid()}", file=sys.stderr, flush=True)
    return os.execvp(line[0], line)


if __name__ == "__main__":
    sys.exit(main())
