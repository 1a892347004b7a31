"""The machines of a job meet before it starts: real processes that find each other at the loopback, and what they say."""

import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costgpu.job.agent import meeting
from costgpu.job.agent.meeting import complaint, unreached
from costgpu.job.machine.agent_client import AgentHost
from costgpu.models.job import EndReason, JobStatus
from costgpu.portable.processes import arguments_of
from tests.agent.harness import Machine, in_thread, rendezvous
from tests.agent.test_agent_pythons import OTHERS
from tests.until import until

pytestmark = pytest.mark.slow

TELLS = """
import os
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK",
         "COSTGPU_NODE_RANK", "COSTGPU_NODES", "GLOO_SOCKET_IFNAME")
print(*(os.environ[name] for name in names))
"""
NewMachine = Callable[..., Machine]


def begin(machine: Machine, node: int, port: int, script: str = TELLS, *, nodes: int = 2, **changes: Any) -> None:
    machine.run(script, rendezvous=rendezvous(node, port, nodes=nodes), **changes)


def ends(*machines: Machine) -> list[JobStatus]:
    """How the job has ended on each of them."""
    return [machine.follow() for machine in machines]


def apart(status: JobStatus, *words: str) -> None:
    """The machines could not work together, for a reason that says this; the job itself was never started."""
    assert status.reason is EndReason.NODES_APART, status
    assert status.job_started_epoch is None
    for each in words:
        assert each in status.detail, status.detail


def waits_for_others(machine: Machine, port: int) -> None:
    """Returns when machine 0 listens."""

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(listens)
    assert '"meeting"' in (machine.home / "progress.json").read_text(), "it counts as idle"


def meets(machine: Machine) -> bool:
    """Whether it looks for the others now."""
    return any(" meet " in arguments_of(pid) for pid in machine.ours())


def test_three_machines_meet_and_each_knows_its_rank(new_machine: NewMachine, port: int) -> None:
    machines = [new_machine() for _ in range(3)]
    for machine, name in zip(machines, OTHERS, strict=False):  # agents of several Pythons
        machine.host = AgentHost(machine.transport, python=name)
    for node in (2, 0, 1):
        begin(machines[node], node, port, nodes=3, setup="true")
    for node, (machine, status) in enumerate(zip(machines, ends(*machines), strict=True)):
        assert (status.reason, status.exit_code) == (EndReason.SUCCEEDED, 0), machine.stderr
        assert machine.stdout.decode().split() == [
            *(str(node), "3", "127.0.0.1", str(port), "0", "1"),
            *(str(node), str(node), "3", "lo"),
        ]
        assert (machine.home / "agent.log").read_text() == ""


def test_a_machine_that_never_comes(new_machine: NewMachine, port: int) -> None:
    first, second = new_machine(meeting_seconds=2), new_machine()
    begin(second, 1, port, nodes=3)
    until(lambda: meets(second))
    begin(first, 0, port, nodes=3)
    for status in ends(first, second):
        apart(status, f"Node 2 did not reach node 0 at 127.0.0.1 port {port} within 2 s", "every TCP port")
    assert first.stdout == b""


def test_machine_0_never_comes(new_machine: NewMachine, port: int) -> None:
    machine = new_machine(meeting_seconds=0.5)
    begin(machine, 1, port)
    apart(machine.follow(), f"Node 1 (127.0.0.1) does not reach node 0 at 127.0.0.1 port {port}", "Connection refused")


def test_the_port_is_taken(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    with socket.create_server(("127.0.0.1", port)):
        begin(machine, 0, port)
        apart(machine.follow(), f"Port {port} of node 0 (127.0.0.1) cannot be used: Address already in use", "29600")
    assert b"cannot be used" in machine.stderr


def test_an_address_that_the_machine_does_not_have(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    machine.run(TELLS, rendezvous=rendezvous(0, port, own_address="192.0.2.1"))
    apart(machine.follow(), "Node 0 has no interface with its private address 192.0.2.1")


def test_a_set_up_that_fails_on_one(new_machine: NewMachine, port: int) -> None:
    first, second = new_machine(meeting_seconds=5), new_machine()
    begin(second, 1, port, setup="exit 7")
    until(lambda: meets(second))
    begin(first, 0, port)
    status, other = ends(first, second)
    assert (other.reason, other.exit_code) == (EndReason.SETUP_FAILED, 7)
    apart(status, "Node 1 had not finished the set-up 5 s after node 0")


def python_with(folder: Path, **packages: str) -> str:
    """An interpreter that has these packages installed."""
    folder.mkdir()
    for name, version in packages.items():
        told = folder / f"{name}-{version}.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def test_library_versions_that_differ(new_machine: NewMachine, tmp_path: Path, port: int) -> None:
    first, second = new_machine(), new_machine()
    begin(first, 0, port, python=python_with(tmp_path / "one", deepspeed="0.17.1"))
    begin(second, 1, port, python=python_with(tmp_path / "other", deepspeed="0.17.2"))
    for status in ends(first, second):
        apart(status, "Node 0 has deepspeed 0.17.1 and node 1 has deepspeed 0.17.2")


def test_a_cancelled_meeting_ends_at_once(new_machine: NewMachine, port: int) -> None:
    machine = new_machine()
    begin(machine, 0, port)
    waits_for_others(machine, port)
    machine.host.cancel()
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.CANCELLED, 128 + signal.SIGTERM)
    assert not meets(machine)


def test_strangers_disturb_nobody(new_machine: NewMachine, port: int) -> None:
    first, second = new_machine(connect_seconds=0.5), new_machine()
    begin(first, 0, port)
    waits_for_others(first, port)
    with contextlib.ExitStack() as stack:
        for said in (b"\xff\0garbage\n", b"[]\n", b'{"node": 7}\n', b'{"node": "x", "stage": "reach"}\n', b"", b"half"):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(said)
        begin(second, 1, port)
        assert [status.reason for status in ends(first, second)] == [EndReason.SUCCEEDED] * 2, first.stderr


FACTS = {"epoch": 100.0, "heard": 100.0, "gpus": 8}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"epoch": 109.0}, ""),
        ({"epoch": 115.0}, "The clock of node 1 is 15 s ahead of that of node 0: set it (NTP)."),
        ({"epoch": 40.0}, "The clock of node 1 is 60 s behind that of node 0: set it (NTP)."),
        ({"gpus": 7}, "Node 1 has 7 GPUs and node 0 has 8."),
    ],
)
def test_clocks_and_gpus_have_to_fit(other: dict[str, float], said: str) -> None:
    assert complaint("reach", {0: FACTS, 1: {**FACTS, **other}}) == said


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"python": "3.12", "torch": "2.13.0"}, ""),
        ({"python": "3.12", "torch": "2.12.0"}, "Node 0 has torch 2.13.0 and node 2 has torch 2.12.0"),
        ({"python": "3.12"}, "Node 0 has torch 2.13.0 and node 2 has no torch"),
        ({"python": "3.11", "torch": "2.13.0"}, "Node 0 has python 3.12 and node 2 has python 3.11"),
    ],
)
def test_versions_have_to_be_equal(other: dict[str, str], said: str) -> None:
    first = {"versions": {"python": "3.12", "torch": "2.13.0"}}
    told = complaint("versions", {0: first, 1: first, 2: {"versions": other}})
    assert told.partition(":")[0] == said


def test_who_does_not_answer_is_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGPU_AGENT_CONNECT_SECONDS", "0.2")
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    with full, socket.create_server(("127.0.0.1", 0)) as open_one, socket.socket() as filler, socket.socket() as more:
        for each in (filler, more):
            each.setblocking(False)
            each.connect_ex(full.getsockname())  # from now on it answers nobody
        places = {
            0: ["127.0.0.1", open_one.getsockname()[1]],
            1: ["127.0.0.1", port],
            2: ["127.0.0.1", full.getsockname()[1]],
            3: ["192.0.2.1", 1],
        }
        began = time.monotonic()
        assert unreached(places, 3) == [1, 2]
        assert time.monotonic() - began < meeting.CONNECT_SECONDS / 2


def test_node_0_hears_who_reaches_whom(port: int, new_machine: NewMachine) -> None:
    """A machine that is let in at node 0, and at no other: it says so itself."""
    first = new_machine(connect_seconds=2)
    begin(first, 0, port)
    waits_for_others(first, port)
    with socket.create_connection(("127.0.0.1", port)) as other:
        hello = {"stage": "reach", "node": 1, "address": "127.0.0.1", "port": 1, "epoch": time.time(), "gpus": 0}
        other.sendall(json.dumps(hello).encode() + b"\n")
        in_thread(lambda: other.sendall(b'{"unreached": [0]}\n'))
        status = first.follow()
        apart(status, "Node 0 (127.0.0.1) does not reach node 1 (127.0.0.1): the machines have to be allowed")
        assert b"does not reach node 1" in other.makefile("rb").read()
