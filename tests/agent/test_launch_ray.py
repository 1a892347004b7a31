"""A job's Ray cluster on machines of this computer: the agent's part of it, with a `ray start` that only sleeps."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costgpu.models.job import EndReason, JobStatus, Launcher
from costgpu.portable.processes import read
from tests.agent.harness import Machine, rendezvous
from tests.until import until

pytestmark = pytest.mark.slow

FAKE_RAY = Path(__file__).parents[1] / "scripts" / "fake_ray"
TOKEN = "5ec2e7"
ENDS = """
import os, sys
print(os.environ["RAY_ADDRESS"], os.environ["RAY_AUTH_TOKEN"])
print("a remark", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
WAITS = """
import signal, sys, threading
def save(*_):
    open("checkpoint", "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
while True:
    threading.Event().wait(0.05)
"""
NewMachine = Callable[..., Machine]


def begin(machine: Machine, node: int, port: int, script: str, *arguments: str, nodes: int = 2, **changes: Any) -> None:
    """Starts the part of one machine; `fake` is the folder of its Ray."""
    secrets = {"PYTHONPATH": str(changes.pop("fake", FAKE_RAY))}
    where = rendezvous(node, port, nodes=nodes, launcher=Launcher.RAY, token=TOKEN)
    machine.run(script, *arguments, rendezvous=where, secrets=secrets, **changes)


def both(new_machine: NewMachine, port: int, script: str, *arguments: str, **changes: Any) -> tuple[Machine, Machine]:
    first, second = new_machine(), new_machine()
    begin(first, 0, port, script, *arguments, **changes)
    begin(second, 1, port, script, *arguments, **changes)
    return first, second


def begun(*machines: Machine) -> None:
    for machine in machines:
        until((machine.home / "started.json").exists)
    until(lambda: b"begun" in (machines[0].home / "stdout.log").read_bytes())


def raylets(machine: Machine) -> list[int]:
    return [pid for pid in machine.ours() if read(pid, "comm") == b"raylet\n"]


def over(machine: Machine, reason: EndReason, exit_code: int, *words: str) -> JobStatus:
    """How the job has ended there; nothing of it, and of Ray, is left."""
    status = machine.follow()
    assert (status.reason, status.exit_code) == (reason, exit_code), (status, machine.stderr)
    for each in words:
        assert each in status.detail + machine.stderr.decode(), (status, machine.stderr)
    assert not raylets(machine)
    return status


def test_the_script_runs_once_and_its_end_is_the_end_of_all(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, ENDS.replace("sys.exit", "import time; time.sleep(3); sys.exit"), "3")
    over(first, EndReason.JOB_FAILED, 3, "Ray runs on 2 machines; the script is its driver.", "a remark")
    over(second, EndReason.SUCCEEDED, 0, "The job on node 0 is over.")
    assert first.stdout.decode().split() == [f"127.0.0.1:{port}", TOKEN]
    assert second.stdout == b""
    head, node = (machine.read("started.json") for machine in (first, second))
    assert f"--head --port {port} --include-dashboard false" in " ".join(head["argv"])
    assert f"--address 127.0.0.1:{port} --node-ip-address 127.0.0.1" in " ".join(node["argv"])
    for started in (head, node):
        assert started["environment"]["RAY_AUTH_MODE"] == "token"
        assert started["environment"]["RAY_AUTH_TOKEN"] == TOKEN
        assert started["environment"]["RAY_USAGE_STATS_ENABLED"] == "0"
        assert not Path(started["argv"][started["argv"].index("--temp-dir") + 1]).exists()


def test_one_machine_is_a_cluster_too(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    begin(machine, 0, port, ENDS, "0", nodes=1)
    status = over(machine, EndReason.SUCCEEDED, 0, "Ray runs on one machine")
    assert "left" not in status.detail


def test_a_driver_that_comes_too_early_is_tried_again(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    (machine.source / "refused_drivers").write_text("once\ntwice\n")
    begin(machine, 0, port, ENDS, "0", nodes=1)
    over(machine, EndReason.SUCCEEDED, 0, "Ray runs on one machine")
    assert (machine.home / "work" / "refused_drivers").read_text() == ""


def test_a_request_to_end_reaches_the_script(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS, grace_seconds=20.0)
    begun(first, second)
    second.host.cancel()  # its script may need this node to save its work
    first.host.cancel()
    over(first, EndReason.CANCELLED, 0)
    over(second, EndReason.CANCELLED, 0)
    assert (first.home / "work" / "checkpoint").read_text() == "saved"


def test_the_head_is_lost(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS)
    begun(first, second)
    os.kill(raylets(first)[0], signal.SIGKILL)
    over(first, EndReason.JOB_FAILED, 1, "Ray's head on node 0 has ended unexpectedly.")
    over(second, EndReason.SUCCEEDED, 0, "The job on node 0 is over.")
    assert (first.home / "work" / "checkpoint").read_text() == "saved"


def test_a_node_that_does_not_start(new_machine: NewMachine, port: int) -> None:
    first, second = new_machine(), new_machine()
    (second.source / "refuse").touch()
    begin(first, 0, port, WAITS)
    begin(second, 1, port, WAITS)
    over(second, EndReason.JOB_FAILED, 1, "The Ray of node 1 has ended. It said last:\nno room for a Ray node")
    first.host.cancel()
    first.follow()


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the interpreter below this one may have Ray")
def test_ray_is_not_installed(new_machine: NewMachine, port: int, tmp_path: Path) -> None:
    machine = new_machine()
    begin(machine, 0, port, ENDS, "0", nodes=1, fake=tmp_path, python=f"{sys.base_prefix}/bin/python3")
    over(machine, EndReason.JOB_FAILED, 1, "Ray is not installed for", "pip install")


def test_a_ray_whose_ports_ask_for_no_token_is_not_started(new_machine: NewMachine, port: int, tmp_path: Path) -> None:
    (tmp_path / "ray-2.51.9.dist-info").mkdir()
    (tmp_path / "ray-2.51.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.51.9\n")
    machine = new_machine()
    begin(machine, 0, port, ENDS, "0", nodes=1, fake=tmp_path)
    over(machine, EndReason.JOB_FAILED, 1, "Ray 2.51.9 is older than 2.52")
    assert not (machine.home / "started.json").exists()
