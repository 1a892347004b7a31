"""What jobs on two machines do in any cloud: each function is the journey of a person in it."""

import json

from costgpu.errors import NodesApart
from tests import examples
from tests.emulated.journeys.journey import WAITS, Client, Person, until

TWO = ("--nodes", "2")
BARE = (*TWO, "--launcher", "none")
QUICK_MEETING = "COSTGPU_AGENT_MEETING_SECONDS=12 COSTGPU_AGENT_CONNECT_SECONDS=2"
"""Machines that do not wait for each other as long as machines on two ends of a data centre."""


def whole_run(person: Person, kind: str, cap: str) -> None:
    """DDP under torchrun from the command line to the receipt, and nothing is left."""
    person.write(examples.source_for_gloo("train_ddp.py"))
    small = "train.py --epochs 2 --steps 4 --samples 1024 --width 64"
    client = person.ran(*TWO, kind=kind, cap=cap, script=small)
    assert client.says(f"2x {person.account.infra.partition('/')[0]} {kind}"), str(client)
    assert b"[rank0]:epoch 1: loss" in client.out, str(client)
    assert (person.work / "model.pt").exists()
    for run_id in person.run_ids():
        assert client.says(f"Receipt {run_id}"), str(client)
    assert client.says("together 2 machines"), str(client)
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    assert [(each["state"], each["reason"]) for each in listed] == [("closed", "succeeded")] * 2
    person.ended(instances=2)


def sharded_model(person: Person, kind: str, cap: str) -> None:
    """FSDP under torchrun, and outputs of both machines are wanted."""
    person.write(examples.source_for_gloo("train_fsdp.py"))
    small = "train.py --steps 3 --layers 2 --width 32 --length 16"
    client = person.ran(*TWO, "--outputs-from", "all", kind=kind, cap=cap, script=small)
    assert b"step 0: loss" in client.out, str(client)
    assert (person.work / "rank-0" / "model.pt").exists(), str(client)
    person.ended(instances=2)


def both_begun(person: Person, *options: str, kind: str = "", cap: str = "") -> Client:
    """A job that waits, which has begun on both machines."""
    person.write(WAITS)
    client = person.launch(*BARE, *options, kind=kind, cap=cap)
    client.until(lambda: b"begun" in client.out, 120, "the job runs on machine 0")
    there = ("test", "-e", "/opt/costgpu/work/partial")
    second = person.guest(run_id=person.run_ids()[1])
    client.until(lambda: second.run(*there, check=False).returncode == 0, what="the job runs on machine 1")
    return client


def one_is_lost(person: Person, client: Client) -> None:
    """Machine 1 of a job that runs is gone; what machine 0 has written comes home."""
    assert client.wait(120) != 0, str(client)
    lost = person.machine_of(person.run_ids()[1])["id"]
    for words in ("Machine 1 (", f"{lost})"):
        assert client.says(words), str(client)
    assert client.says("the others are ended, too"), str(client)
    assert person.holds("checkpoint", "saved")
    person.ended(instances=2)


def cancelled_by_tag(person: Person, kind: str = "", cap: str = "") -> None:
    """From a computer whose ledger knows nothing, by what is on the machine."""
    client = both_begun(person, kind=kind, cap=cap)
    client.kill()
    other = Person(person.cloud, person.folder / "other", person.key)
    done = other.do("cancel", "-y", person.run_ids()[1])
    for run_id in person.run_ids():
        assert person.machine_of(run_id)["id"].encode() in done.out, str(done)
    assert person.states() == ["terminated"] * 2
    assert person.left() == []


def apart(person: Person, client: Client, *, node: int = 1) -> None:
    """The machines do not reach each other: it is said which, and what has to be allowed."""
    assert client.wait(120) == NodesApart.exit_code, str(client)
    assert client.says(f"Node {node} "), str(client)
    assert client.says("node 0 at"), str(client)
    assert client.says("have to be allowed to connect to each other on every TCP port"), str(client)
    assert b"done" not in client.out
    until(lambda: person.states() == ["terminated"] * 2, 30, f"the machines of {person.name} are gone")
    person.ended(instances=2)
