"""A job's Ray cluster on machines of this computer: the agent's part of it, with a `ray start` that starts two sleepers."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_socket

from costgpu.models.job import EndReason, JobStatus, Launcher, RayAccess, Rendezvous
from costgpu.runner.agent.observe import idle, machine_stats
from tests.agent.harness import Machine
from tests.until import until

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


@pytest.fixture
def port() -> int:
    """One of the loopback's that nobody uses."""
    pytest_socket.enable_socket()
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def begin(machine: Machine, node: int, port: int, script: str, *arguments: str, nodes: int = 2, **changes: Any) -> None:
    """Starts the part of one machine; `fake=False` leaves it without a Ray."""
    secrets = {"PYTHONPATH": str(FAKE_RAY)} if changes.pop("fake", True) else {}
    rendezvous = Rendezvous(
        nodes=nodes,
        node=node,
        address="127.0.0.1",
        port=port,
        own_address="127.0.0.1",
        launcher=Launcher.RAY,
        launcher_options=(),
        min_nodes=0,
        max_restarts=0,
        ray=RayAccess(dashboard_port=18265, token=TOKEN),
    )
    machine.run(script, *arguments, rendezvous=rendezvous, secrets=secrets, **changes)


def both(new_machine: NewMachine, port: int, script: str, *arguments: str, **changes: Any) -> tuple[Machine, Machine]:
    first, second = new_machine(), new_machine()
    begin(first, 0, port, script, *arguments, **changes)
    begin(second, 1, port, script, *arguments, **changes)
    return first, second


def with_a_slow_one(new_machine: NewMachine, port: int) -> tuple[Machine, Machine]:
    """The head waits for the second as long as that has a file `slow` in its folder."""
    first, second = new_machine(), new_machine()
    (second.source / "slow").touch()
    begin(first, 0, port, ENDS, "0")
    begin(second, 1, port, ENDS, "0")
    until((second.home / "started.json").exists)
    return first, second


def begun(machine: Machine) -> None:
    until(lambda: b"begun" in (machine.home / "stdout.log").read_bytes())


def daemon(machine: Machine, name: str) -> int:
    """The process of a machine's Ray with this name."""
    return next(pid for pid in machine.ours() if machine_stats.name_of(pid) == name)


def over(machine: Machine, reason: EndReason, exit_code: int, *words: str) -> JobStatus:
    """How the job has ended there; nothing of it, and of Ray, is left."""
    status = machine.follow()
    assert (status.reason, status.exit_code) == (reason, exit_code), (status, machine.stderr)
    for each in words:
        assert each in status.detail + machine.stderr.decode(), (status, machine.stderr)
    assert not [pid for pid in machine.ours() if machine_stats.name_of(pid) in ("raylet", "gcs_server")]
    assert not Path(machine.read("ray.json")["folder"]).exists()
    return status


def test_the_script_runs_once_and_its_end_is_the_end_of_all(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, ENDS, "3")
    over(first, EndReason.JOB_FAILED, 3, "Ray runs on 2 machines; the script is its driver.", "a remark")
    over(second, EndReason.SUCCEEDED, 0, "The job on node 0 has ended with exit code 3.")
    address, token = first.stdout.decode().split()
    assert (address.partition(":")[0], token) == ("127.0.0.1", TOKEN)
    assert second.stdout == b""
    head, node = (machine.read("started.json") for machine in (first, second))
    told = " ".join(head["argv"])
    for words in (
        f"--head --node-ip-address 127.0.0.1 --port {address.partition(':')[2]} ",
        "--dashboard-host 127.0.0.1 --dashboard-port 18265 ",
        f"--num-cpus {max(1, len(os.sched_getaffinity(0)) // 2)} ",
    ):
        assert words in f"{told} "
    assert f"--address {address} --node-ip-address 127.0.0.1" in " ".join(node["argv"])
    for environment in (head["environment"], node["environment"]):
        assert environment["RAY_AUTH_MODE"] == "token"
        assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
        assert "RAY_ADDRESS" not in environment


def test_one_machine_is_a_cluster_too(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    begin(machine, 0, port, ENDS, "0", nodes=1)
    over(machine, EndReason.SUCCEEDED, 0, "Ray runs on one machine")


def test_a_request_to_end_reaches_the_script(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS, grace_seconds=20.0)
    begun(first)
    second.host.cancel()
    first.host.cancel()
    over(first, EndReason.CANCELLED, 0)
    over(second, EndReason.CANCELLED, 0)
    assert (first.home / "work" / "checkpoint").read_text() == "saved"


def test_a_script_that_does_not_listen_is_no_failure_of_the_others(new_machine: NewMachine, port: int) -> None:
    deaf = WAITS.replace("signal.signal(signal.SIGTERM, save)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    first, second = both(new_machine, port, deaf, grace_seconds=0.5)
    begun(first)
    first.host.cancel()
    over(first, EndReason.CANCELLED, 137)
    over(second, EndReason.SUCCEEDED, 0, "The job on node 0 was ended.")


def test_the_head_is_lost(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS)
    begun(first)
    os.kill(daemon(first, "gcs_server"), signal.SIGKILL)
    over(first, EndReason.JOB_FAILED, 1, "Ray's head on node 0 has ended unexpectedly (gcs_server).")
    over(second, EndReason.JOB_FAILED, 1, "The connection to node 0 is lost, and Ray's head with it.")
    assert (first.home / "work" / "checkpoint").read_text() == "saved"


def test_the_machine_of_the_head_is_lost(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS)
    begun(first)
    first.destroy()
    over(second, EndReason.JOB_FAILED, 1, "The connection to node 0 is lost, and Ray's head with it.")
    Path(first.read("ray.json")["folder"]).rmdir()  # nobody is left there to do it


def test_another_node_is_lost_and_the_script_goes_on(new_machine: NewMachine, port: int) -> None:
    first, second = both(new_machine, port, WAITS)
    begun(first)
    os.kill(daemon(second, "raylet"), signal.SIGKILL)
    over(second, EndReason.JOB_FAILED, 1, "The Ray node on node 1 has ended unexpectedly (raylet).")
    said = b"Node 1: The Ray node on node 1 has ended"
    until(lambda: b"The connection to node 1 is lost" in (first.home / "stderr.log").read_bytes())
    first.host.cancel()
    over(first, EndReason.CANCELLED, 0)
    assert said in first.stderr


def test_a_node_that_does_not_start(new_machine: NewMachine, port: int) -> None:
    first, second = new_machine(), new_machine()
    (second.source / "refuse").touch()
    begin(first, 0, port, ENDS, "0")
    begin(second, 1, port, ENDS, "0")
    why = "Ray did not start on node 1 (exit code 7). It said last:\nno room for a Ray node"
    over(second, EndReason.NODES_APART, 1, why)
    over(first, EndReason.NODES_APART, 1, f"Node 1 did not join the Ray cluster: {why}")
    assert first.stdout == b""


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the interpreter below this one may have Ray")
def test_ray_is_not_installed(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    begin(machine, 0, port, ENDS, "0", nodes=1, fake=False, python=f"{sys.base_prefix}/bin/python3")
    over(machine, EndReason.SETUP_FAILED, 1, "Ray is not installed for", "pip install")


def test_a_stranger_is_not_told_where_the_head_is(new_machine: NewMachine, port: int) -> None:
    first, second = with_a_slow_one(new_machine, port)
    for hello in (b'{"node": 1, "token": "guessed"}\n', b'{"node": 1}\n', b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), 10) as line:
            line.sendall(hello)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(100) == b""
    (second.home / "work" / "slow").unlink()
    over(first, EndReason.SUCCEEDED, 0)
    over(second, EndReason.SUCCEEDED, 0)


def test_a_cluster_that_comes_to_be_is_not_idle(new_machine: NewMachine, port: int) -> None:
    first, second = with_a_slow_one(new_machine, port)
    activity = first.home / idle.RAY_ACTIVITY
    before = activity.stat().st_size
    until(lambda: activity.stat().st_size > before)
    (second.home / "work" / "slow").unlink()
    over(first, EndReason.SUCCEEDED, 0)
    over(second, EndReason.SUCCEEDED, 0)


def test_the_head_is_asked_to_end_before_all_are_there(new_machine: NewMachine, port: int) -> None:
    """By its idle limit, say, which the other does not have: that does not fail."""
    first, second = with_a_slow_one(new_machine, port)
    first.host.cancel()
    over(first, EndReason.CANCELLED, 143)
    (second.home / "work" / "slow").unlink()
    over(second, EndReason.SUCCEEDED, 0, "The job on node 0 has ended with exit code 143.")


def test_rays_own_processes_are_no_work(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    begin(machine, 0, port, WAITS, nodes=1)
    begun(machine)
    supervisor = machine.read("order.json")["supervisor"]["pid"]
    pids = {machine_stats.name_of(entry.pid): entry.pid for entry in machine_stats.descendants(supervisor)}
    assert {"raylet", "gcs_server"} <= set(pids)
    assert {name for name, pid in pids.items() if idle.is_ray_daemon(pid)} == {"raylet", "gcs_server"}
    machine.host.cancel()
    over(machine, EndReason.CANCELLED, 0)
