"""What jobs on a Ray cluster of two machines do in any cloud: each function is the journey of a person in it."""

import json
import re

from tests import examples
from tests.emulated.journeys.journey import Client, Person

RAY = ("--launcher", "ray", "--nodes", "2")
DATA = ("--rows", "20000", "--blocks", "8")
TRAIN = ("--epochs", "2", "--steps", "8")
WAITS = """
import signal, sys, threading
import ray
def save(*_):
    open("checkpoint", "w").write(str(ray.get(add.remote(1))))
    sys.exit(0)
@ray.remote
def add(x):
    return x + 1
ray.init()
signal.signal(signal.SIGTERM, save)
there = {each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]}
print(f"begun on {len(there)} machines", flush=True)
while True:
    threading.Event().wait(0.1)
"""
"""A driver that waits for its end, and needs the cluster to save its work."""
OURS = "for each in /proc/[0-9]*/comm; do cat $each; done 2>/dev/null | grep -E 'raylet|gcs_server|^ray::'"


def an_example(person: Person, name: str, *arguments: str, kind: str, cap: str, said: str, made: str) -> None:
    """One of the project's examples from the command line to the receipt, and nothing is left."""
    person.write(examples.source(name))
    client = person.launch(*RAY, kind=kind, cap=cap, script=" ".join(("train.py", *arguments)))
    assert client.wait(240) == 0, str(client)
    assert re.search(said, client.out.decode()), str(client)
    assert client.says("Ray runs on 2 machines; the script is its driver."), str(client)
    assert (person.work / made).stat().st_size > 0
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    assert [(each["state"], each["reason"]) for each in listed] == [("closed", "succeeded")] * 2
    person.ended(instances=2)


def begun(person: Person, *options: str, kind: str, cap: str) -> Client:
    """A job that waits, which has begun on a cluster of both machines."""
    person.write(WAITS)
    client = person.launch(*RAY, *options, kind=kind, cap=cap)
    client.until(lambda: b"begun on 2 machines" in client.out, 180, "the cluster is complete")
    return client


def cancelled(person: Person, client: Client) -> None:
    """The script saves its work with the help of the cluster, and no process of Ray's is left."""
    guests = [person.guest(run_id=run_id) for run_id in person.run_ids()]
    for guest in guests:
        assert "raylet" in guest.run("sh", "-c", OURS).stdout
    person.do("cancel", person.run_ids()[1])
    assert client.wait(120) != 0, str(client)
    assert person.holds("checkpoint", "2")
    person.ended(instances=2)


def head_is_gone(person: Person, client: Client) -> None:
    """Its machine is no more: the other one ends itself, and says so."""
    assert client.wait(120) != 0, str(client)
    lost = person.machine_of(person.run_ids()[0])["id"]
    for words in ("Machine 0 (", f"{lost})", "the others are ended, too"):
        assert client.says(words), str(client)
    person.ended(instances=2)


def head_is_killed(person: Person, client: Client) -> None:
    """Only its process: the script is asked to end, and both machines are ended."""
    first = person.guest(run_id=person.run_ids()[0])
    first.run("pkill", "-9", "-x", "gcs_server")
    assert client.wait(120) == 1, str(client)
    assert client.says("Ray's head on node 0 has ended unexpectedly."), str(client)
    person.ended(instances=2)


def worker_is_gone(person: Person, client: Client) -> None:
    """A job needs all its machines: the script is asked to end, and what machine 0 has written comes home."""
    assert client.wait(120) != 0, str(client)
    lost = person.machine_of(person.run_ids()[1])["id"]
    for words in ("Machine 1 (", f"{lost})", "the others are ended, too"):
        assert client.says(words), str(client)
    person.ended(instances=2)
