"""What people do with costgpu on AWS, with the real command line against the emulated cloud and its real hosts."""

import json
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import WAITS, Journeys, Person, bucket, hurry, leftovers, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control

pytestmark = pytest.mark.emulator
journeys = Journeys()

OUT, ERR = bytes(range(256)) * 64, b"\xff trouble \x00\r" * 64
SPEAKS = f"""
import os, sys
sys.stdout.buffer.write({OUT!r}); sys.stdout.flush()
sys.stderr.buffer.write({ERR!r}); sys.stderr.flush()
os.makedirs("out/deep", exist_ok=True)
open("out/model.bin", "wb").write(bytes(range(256)) * 4096)
open("out/deep/\u00fc.txt", "w", encoding="utf-8").write("\u00fc")
open("data.csv", "a").write("more")
"""
TRAINS = """
try:
    import torch
except ImportError:  # on the machine, which can download nothing
    torch = None
if torch is not None:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(400):
        optimizer.zero_grad()
        model(torch.randn(256, 64)).square().mean().backward()
        optimizer.step()
open("model.bin", "w").write("weights")
"""
NEEDS_MORE = """
import sys
from urllib.request import Request, urlopen
url = "http://169.254.169.254/latest/"
token = urlopen(Request(url + "api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})).read()
asked = Request(url + "meta-data/instance-type", headers={"X-aws-ec2-metadata-token": token.decode()})
if urlopen(asked).read() == b"t3.micro":
    raise MemoryError
sys.exit(3)
"""


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    yield from begin(guest_cloud_process)


@journeys
def a_whole_run(person: Person) -> None:
    person.write(SPEAKS)
    person.write("a,b\n", "data.csv")
    person.write("SECRET=1\n", ".env")
    client = person.ran()
    assert client.out == OUT
    assert ERR in client.err
    assert OUT[:64] not in client.err
    assert (person.work / "out/model.bin").read_bytes() == bytes(range(256)) * 4096
    assert (person.work / "out/deep/\u00fc.txt").read_text("utf-8") == "\u00fc"
    assert person.holds("data.csv", "a,b\nmore")
    for words in ("At most", "Receipt", "ended by this client", "confirmed terminated at", "+ watchdog: user data"):
        assert client.says(words) or client.says(words.lower()), f"{words}\n{client}"
    person.ended()
    assert person.receipt()["ended_by"] == "client"
    assert person.do("logs", person.run_id()).out == OUT
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    assert [(row["state"], row["reason"], row["outputs_home"]) for row in listed] == [("closed", "succeeded", True)]
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""
    rules = [row["params"] for row in person.requests() if row["action"] == "AuthorizeSecurityGroupIngress"]
    assert [rule["IpPermissions.1.IpRanges.1.CidrIp"] for rule in rules] == ["198.18.0.1/32"]


@journeys
def an_estimate_becomes_a_run(person: Person) -> None:
    person.write(TRAINS)
    saved = person.folder / "profile.json"
    measured = ("--python", sys.executable, "--measure-for", "1s", "--steps", "20", "--save", str(saved))
    estimated = person.do("estimate", *measured, "--json", "--infra", "aws/us-east-1", "train.py")
    assert json.loads(estimated.out)["format"] == "costgpu.verdict"
    words = ("run", "--infra", "aws/us-east-1", "--profile", str(saved), "--setup", "", "-y", "-n", person.name)
    plan = json.loads(person.do(*words, "--dry-run", "--json", "train.py").out)["plan"]
    chosen = plan["options"][0]
    assert plan["prediction"]["wall_seconds"]["value"] > 0
    assert chosen["lease"]["limited_by"] == "3x the estimate"
    assert person.instances() == []
    person.do(*words, "train.py")
    assert [each["type"] for each in person.instances()] == [chosen["offer"]["instance_type"]]
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def out_of_memory_and_a_document(person: Person) -> None:
    """It begins again on a larger machine, and fails there for another reason."""
    person.write(NEEDS_MORE)
    client = person.ran("--on-oom", "next-size", "--json", cap="0.50", code=3)
    small, large = (each["type"] for each in person.instances())
    assert small == "t3.micro" != large
    assert client.says("from its beginning, on a larger machine"), str(client)
    document = json.loads(client.out)
    assert (document["receipt"]["confirmed_state"], document["receipt"]["reason"]) == ("terminated", "job_failed")
    assert document["run"]["status"]["exit_code"] == 3
    assert person.facts("finished", person.run_ids()[0])["out_of_memory"] == "memory"
    person.ended(instances=2)


@journeys
def detach_watch_attach(person: Person) -> None:
    person.write(WAITS)
    client = person.ran("-d")
    run_id = person.run_id()
    assert client.says(f"costgpu attach {run_id}")
    listed = person.do("jobs")
    assert run_id.encode() in listed.out
    assert listed.says("goes on without a client")
    watching = person.start("logs", "-f", run_id)
    watching.until(lambda: b"begun" in watching.out, what="it shows the output")
    first = person.start("attach", run_id)
    first.until(lambda: b"begun" in first.out, what="it shows the output")
    second = person.start("attach", run_id)
    second.until(lambda: b"begun" in second.out, what="it shows the output")
    assert second.says("driven from another terminal")
    first.process.send_signal(signal.SIGSTOP)  # it ends the machine when the others have seen the end
    person.go()
    for each in (watching, second):
        assert each.wait() == 0, str(each)
    first.go_on()
    assert first.wait() == 0, str(first)
    assert {each.out for each in (watching, first, second)} == {b"begun\ndone\n"}
    assert first.says("Receipt")
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def fetch_and_cancel(person: Person) -> None:
    person.write(WAITS)
    person.ran("-d")
    until(lambda: b"begun" in person.do("logs", person.name).out)
    person.do("fetch", person.name)
    assert person.holds("partial", "half")
    assert person.instances()[0]["state"] == "running"
    cancelled = person.do("cancel", "-y", person.name)
    assert cancelled.says("Receipt")
    assert person.holds("checkpoint", "saved")
    assert person.receipt()["reason"] == "cancelled"
    assert person.do("cancel", "-y", person.name).says("closed already")
    person.ended()


@journeys
def the_ledger_is_lost(person: Person) -> None:
    person.write(WAITS)
    person.ran("-d")
    run_id, machine = person.run_id(), person.instances()[0]["id"]
    for each in person.data.glob("ledger.sqlite*"):
        each.unlink()
    assert b"No runs" in person.do("jobs").out
    assert run_id.encode() in person.do("jobs", "--by-tag").out
    until(lambda: person.do("logs", run_id).out == b"begun\n")
    person.do("fetch", run_id, "--to", str(person.folder / "fetched"))
    assert (person.folder / "fetched/partial").read_text() == "half"
    refused = person.do("attach", run_id, code=51)
    assert refused.says("known only by the tag")
    done = person.do("cancel", "-y", machine)
    assert b"is terminated; aws confirms" in done.out
    assert person.states() == ["terminated"]
    assert not [each for each in leftovers(person.cloud) if run_id in each]


@journeys
def only_the_bucket_is_left(person: Person) -> None:
    s3 = bucket(person, "costgpu-journeys")
    person.write(WAITS)
    person.ran("-d", "--bucket", "s3://costgpu-journeys/team", script="train.py 3")
    guest = person.guest()
    hurry(guest)
    person.go()
    person.until_state("terminated", 40)
    keys = {each["Key"].rpartition("/")[2] for each in s3.list_objects_v2(Bucket="costgpu-journeys")["Contents"]}
    assert keys == {"outputs.tar.gz", "logs.tar.gz"}
    person.do("fetch", person.name, "--to", str(person.folder / "fetched"))
    assert (person.folder / "fetched/model.bin").read_text() == "weights"
    attached = person.do("attach", person.name, code=3)
    assert person.holds("model.bin", "weights")
    assert attached.says("ended by the agent on the machine")
    assert person.receipt()["reason"] == "job_failed"
    assert person.do("logs", person.name).out == b"begun\ndone\n"
    person.ended()


@journeys
def secrets_stay_secret(person: Person) -> None:
    secrets = ("s3cret-of-the-shell", "s3cret-of-the-option", "s3cret-of-the-file")
    person.extra["TOKEN"] = secrets[0]
    (person.folder / "more.env").write_text(f"FROM_FILE={secrets[2]}\n")
    check = f"import os; assert (os.environ['TOKEN'], os.environ['OTHER'], os.environ['FROM_FILE']) == {secrets}\n"
    person.write(check.replace("s3cret", "s' 's3cret").replace("s' 's3cret", "s3' 'cret") + WAITS)
    options = ("-e", "TOKEN", "-e", f"OTHER={secrets[1]}", "--env-file", str(person.folder / "more.env"))
    client = person.launch(*options)
    client.until(lambda: b"begun" in client.out, what="the job runs")
    guest = person.guest()
    arguments = guest.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    disk = guest.run("grep", "-rlF", "s3cret-of", "/opt", "/etc", "/var", "/root", "/tmp", "/run", check=False).stdout
    person.go()
    assert client.wait() == 0, str(client)
    assert disk == ""
    ledger = b"".join(path.read_bytes() for path in person.data.rglob("*") if path.is_file())
    seen = {
        "process arguments": arguments,
        "instances, tags, user data": decoded(person),
        "API": json.dumps(person.requests()),
        "ledger and keys": ledger.decode("latin-1"),
        "terminal": (client.out + client.err).decode("latin-1"),
        "console": guest_control.consoles().get(guest.instance_id, ""),
    }
    assert {where: text.count("s3cret-of") for where, text in seen.items()} == dict.fromkeys(seen, 0)
    assert "train.py" in arguments
    assert "costgpu-run" in seen["API"]
    person.ended()


def decoded(person: Person) -> str:
    import base64
    import gzip

    text = ""
    for each in person.instances():
        data = base64.b64decode(each["user_data"])
        text += json.dumps(each) + (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    assert "cloud-boothook" in text
    return text


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)
