"""Coming back to a run from other terminals: jobs, logs, attach, cancel, fetch, all as processes on this machine."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from costgpu.cli.jobs import cancel_question
from costgpu.errors import AuthError
from costgpu.job.state.states import replay
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EventKind, RunState
from tests.cli.here import LOCAL, STEPS, Here, record, told, until
from tests.job.examples import START, facts_of, intent, option

SHORT = """\
import time
print("begun", flush=True)
time.sleep(1.5)
open("model.pt", "w").write("weights")
print("done", flush=True)
raise SystemExit(4)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


@pytest.fixture(autouse=True)
def scripts(here: Here) -> None:
    here.write("train.py", STEPS)
    here.write("short.py", SHORT)


def reads(child: subprocess.Popen[bytes], words: bytes) -> None:
    """Reads a child's stdout until it shows this."""
    assert child.stdout is not None
    seen = b""
    while words not in seen:
        line = child.stdout.readline()
        assert line, (child.stderr.read() if child.stderr else b"", seen)
        seen += line


@pytest.mark.slow
def test_a_run_from_many_terminals(here: Here) -> None:
    run_id = here.detached("train.py")
    machine = here.last().instance
    assert machine is not None

    listed = here.costgpu("jobs").check(
        0, out=[f"{run_id} train", "running"], err=f"{run_id} goes on without a client: costgpu attach {run_id}"
    )
    assert max(map(len, listed.out.splitlines())) <= 80
    here.wrote(b"step 1\n")
    document = json.loads(here.told("jobs", "--json").out)
    assert (document["schema"], document["version"], document["runs"][0]["run_id"]) == ("costgpu.jobs", 1, run_id)

    for name in (run_id[:5], "train", machine.instance_id):
        shown = here.told("logs", name).check(0)
        assert shown.out.startswith("step 0\nstep 1\n")
        assert shown.err == "on stderr\n"

    fetched = here.told("fetch", run_id, "--to", "elsewhere").check(0)
    assert (here.project / "elsewhere" / "first.pt").read_text() == "1"
    assert not (here.project / "first.pt").exists()
    assert f"costgpu cancel {run_id} ends it now" in fetched.err

    follower = here.start("logs", "-f", run_id)
    reads(follower, b"step 10\n")
    first = here.start("attach", run_id)
    reads(first, b"step ")
    second = here.start("attach", run_id)
    reads(second, b"step ")
    follower.send_signal(signal.SIGINT)
    assert follower.wait(20) == 0

    here.costgpu("cancel", run_id).check(0, err="ended by the terminal that drives it")
    said = first.communicate(timeout=60)[1].decode()
    assert first.returncode == 64, said
    assert "Receipt" in said
    told_second = second.communicate(timeout=60)[1].decode()
    assert second.returncode == 9, told_second
    assert "this one only watches" in told_second
    assert (here.project / "checkpoint").read_text() == "kept"
    here.quiet()
    assert here.last().reason is EndReason.CANCELLED

    here.told("cancel", run_id).check(0, out="", err="closed already")
    here.told("attach", run_id).check(50, err=f"hint: costgpu logs {run_id}")
    assert "step 0" in here.told("logs", run_id).out
    assert "home already" in here.told("fetch", run_id).err
    assert here.told("jobs").out.startswith("No runs.")
    assert "cancelled" in here.told("jobs", "--all").out


@pytest.mark.slow
def test_a_client_that_was_killed_is_followed_by_another(here: Here) -> None:
    client = here.start(*LOCAL, "short.py")
    reads(client, b"begun\n")
    client.kill()
    client.wait(10)
    assert here.last().state is RunState.RUNNING
    assert not here.last().detached
    listed = here.told("jobs")
    assert "costgpu attach" in listed.err
    attached = here.told("attach", "short").check(4)
    assert attached.out.endswith("done\n")
    assert (here.project / "model.pt").read_text() == "weights"
    here.quiet()
    assert here.last().state is RunState.CLOSED


@pytest.mark.slow
def test_who_only_watches_learns_the_exit_code_although_the_machine_is_ended_first(here: Here) -> None:
    run_id = here.detached("train.py")
    first = here.start("attach", run_id)
    reads(first, b"step ")
    second = here.start("attach", run_id)
    reads(second, b"step ")
    (reader,) = (child for child in psutil.Process(second.pid).children() if "follow" in child.cmdline())
    reader.suspend()  # on the machine: what it passes on comes too late
    assert here.costgpu("cancel", run_id).code == 0
    assert first.wait(60) == 64
    told = second.communicate(timeout=60)[1].decode()
    assert second.returncode == 9, told
    assert f"all of its output: costgpu logs {run_id}" in told
    here.quiet()


@pytest.mark.slow
def test_a_detached_job_that_is_over_waits_with_its_outputs(here: Here) -> None:
    launched = json.loads(here.run("-d", "--json", "short.py").out)
    assert (launched["schema"], launched["run"]["state"]) == ("costgpu.run", "running")
    run_id = launched["run"]["run_id"]
    machine = here.data / "machines" / launched["run"]["instance"]["instance_id"]
    until((machine / "exit.json").exists)
    listed = here.told("jobs")
    assert f"{run_id} is over; its outputs wait: costgpu attach {run_id}" in listed.err
    fetched = here.told("fetch", run_id)
    assert (here.project / "model.pt").read_text() == "weights"
    assert "The machine" in fetched.err or "Its machine stays until" in fetched.err
    here.told("cancel", run_id).check(0, err=["Receipt", "failed, exit code 4"])
    here.quiet()


class TestDamagedLedger:
    @pytest.mark.slow
    def test_tags_do_instead(self, here: Here) -> None:
        run_id = here.detached("train.py")
        here.wrote(b"step 1\n")
        for path in here.data.glob("ledger.sqlite*"):
            path.unlink()
        (here.data / "ledger.sqlite").write_bytes(b"not a database at all" * 1000)
        here.told("jobs").check(0, out=run_id, err=["damaged", "Asking the providers instead", "hint:"])
        assert "step 0" in here.told("logs", run_id).out
        here.told("attach", run_id).check(51, err="known only by the tag")
        here.told("cancel", run_id).check(0, out="is terminated; local confirms")
        here.quiet()
        assert (here.data / "ledger.sqlite").read_bytes().startswith(b"not a database")

    def test_a_new_run_is_refused_before_anything_is_made(self, here: Here) -> None:
        here.data.mkdir(parents=True)
        (here.data / "ledger.sqlite").write_bytes(b"not a database at all" * 1000)
        here.told(*LOCAL, "short.py").check(72, err="hint:")
        assert not list((here.data / "machines").glob("local-*"))


class TestMistakes:
    @pytest.fixture(autouse=True)
    def two_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        record("abcd", name="resnet")
        record("abef", name="resnet")

    @pytest.mark.parametrize("command", ["logs", "attach", "cancel", "fetch"])
    @pytest.mark.parametrize(
        ("text", "words"),
        [("nope", "no run 'nope'"), ("ab", "could be 2 runs: abef, abcd"), ("resnet", "2 runs"), ("", "Which run?")],
    )
    def test_no_run_or_several(self, command: str, text: str, words: str) -> None:
        told(command, text).check(51, out="", err=[words, "hint: "])

    @pytest.mark.parametrize(
        ("command", "code", "words"),
        [("logs", 50, "left no logs here|no machine"), ("fetch", 50, "machine of run abcd is gone|no machine")],
    )
    def test_a_run_without_a_machine(self, command: str, code: int, words: str) -> None:
        err = told(command, "abcd").check(code, out="").err
        assert any(word in err for word in words.split("|")), err

    @pytest.mark.parametrize("command", ["logs", "fetch"])
    def test_a_machine_of_another_account_is_not_called_gone(self, command: str) -> None:
        machine = {"provider": "local", "region": "here", "instance_id": "local-away"}
        tried = {**facts_of(EventKind.ATTEMPTED), "account": "another-computer"}
        there = [to_json(option(provider="local"))]
        record("away", (EventKind.ATTEMPTED, tried), (EventKind.CREATED, machine), options=there)
        result = told(command, "away").check(AuthError.exit_code, out="")
        assert "Run away belongs to local account another-computer" in result.err
        assert "gone" not in result.err

    def test_the_list_needs_no_machine_to_answer(self) -> None:
        told("jobs", "--by-tag").check(0, out=["abcd", "abef"], err="")

    def test_a_run_that_makes_no_sense_does_not_hide_the_others(self) -> None:
        record("abgh", (EventKind.COLLECTED, {}))
        told("jobs").check(0, out="abef", err="not listed: Run abgh")


def test_the_question_before_the_end_names_owner_and_machine() -> None:
    ref = InstanceRef(provider="gcp", region="us-central1", instance_id="us-central1-a/costgpu-abc")
    machine = Instance(
        ref=ref,
        zone=None,
        instance_type="g2-standard-4",
        state=InstanceState.RUNNING,
        launched_at=START,
        endpoint=None,
        run_id="abc",
        name="train",
        owner="bob@lab",
    )
    words = "End run abc (train) of bob@lab on us-central1-a/costgpu-abc and lose what is on its machine?"
    assert cancel_question(machine, now=False) == words
    view = replace(replay([intent("abcd")]), instance=ref)
    assert cancel_question(view, now=False) == "End run abcd (train) of me@here on us-central1-a/costgpu-abc?"
