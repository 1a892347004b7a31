"""`costgpu reap` on this machine: what has outlived its lease or its client is ended, and nothing else."""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from costgpu.clock import ManualClock, SystemClock
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Identity
from costgpu.models.job import EndReason
from costgpu.models.run import EventKind, RunState
from costgpu.portable import clock
from costgpu.providers import registry
from costgpu.workflows.context import AppContext
from tests.cli.here import LOCAL, Here, record, told, until
from tests.fake_cloud import FakeCloud
from tests.fake_cloud.provider import FakeProvider
from tests.job.examples import facts_of, option

STUBBORN = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("step", flush=True)
time.sleep(600)
"""
SHORT = "open('model.pt', 'w').write('weights')\n"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")


@pytest.fixture(autouse=True)
def scripts(here: Here) -> None:
    here.write("train.py", STUBBORN)
    here.write("short.py", SHORT)


def kill_guards(here: Here) -> None:
    """The keeper and the agent are gone, as by a fault; the job goes on."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        ours = str(here.data / "machines") in words
        if ours and any(word in words for word in ("\0keep\0", "costgpu-agent", "\0daemon")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


def _timeless(text: str) -> str:
    """Without how long ago it was."""
    return re.sub(r"\([^)]* over\)", "", " ".join(text.split()))


def test_all_is_well(here: Here) -> None:
    for words in ((), ("--yes",), ("--infra", "local")):
        here.told("reap", *words).check(0, out="", err="")
    assert not here.data.exists() or not list(here.data.glob("machines/*"))
    document = json.loads(here.told("reap", "--json").out)
    assert (document["schema"], document["version"], document["orphans"]) == ("costgpu.reap", 1, [])


@pytest.fixture
def an_hour_later() -> Iterator[Callable[[], object]]:
    """Moves the time of commands in this process on, and the system's own, by which this computer's machines are told."""
    later = datetime.now(UTC) + timedelta(hours=1)
    with contextlib.ExitStack() as moved:

        def move() -> None:
            moved.enter_context(mock.patch.object(SystemClock, "now", return_value=later))
            moved.enter_context(mock.patch.object(clock, "system_time", return_value=later.timestamp()))

        yield move


@pytest.mark.slow
def test_a_machine_past_its_lease_is_listed_and_only_with_yes_ended(
    here: Here, an_hour_later: Callable[[], object]
) -> None:
    here.detached("--no-auto-shutdown", "--lease", "30m", "train.py")
    here.told("reap").check(0, out="")
    kill_guards(here)
    an_hour_later()
    assert json.loads(here.told("reap", "--json").out)["orphans"]
    assert here.living()
    looked = here.told("reap").check(48)
    assert "past its lease" in " ".join(looked.out.split())
    assert looked.out.endswith("Together free.\nNothing was changed. End them with: costgpu reap --yes\n")
    assert looked.err == ("costgpu: 1 machine that no run wants any more: free.\nhint: costgpu reap --yes ends them.\n")
    with mock.patch.dict(here.environment, COSTGPU_OWNER="somebody-else"):
        assert here.told("reap", "--mine").code == 0
    with mock.patch.dict(here.environment, COSTGPU_ALERT_URL="x"):  # wrong settings keep nobody from finding it
        wrong = here.told("reap")
        assert (wrong.code, _timeless(wrong.out)) == (48, _timeless(looked.out))
        assert wrong.err.startswith("costgpu: No setting is called COSTGPU_ALERT_URL. The default settings are used.\n")
    assert here.told("reap", "--mine", "--older-than", "1s").code == 48
    for narrowed in (("--older-than", "2h"), ("--infra", "local", "--older-than", "3d")):
        here.told("reap", "--yes", *narrowed).check(0, out="")
    assert here.living()
    (here.data / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    ended = here.told("reap", "--yes").check(48)
    assert ended.out.startswith("ended: local local-")
    assert "Nothing was changed" not in ended.out
    assert ended.err.count("damaged") == 1
    assert "costgpu: 1 machine that no run wanted any more: free. All ended.\n" in ended.err
    assert "hint" not in ended.err
    here.quiet()
    assert here.told("reap").out == ""


@pytest.mark.slow
def test_yes_brings_home_what_is_finished_and_ends_what_never_began(here: Here) -> None:
    run_id = here.detached("short.py")
    machine = here.last().instance
    assert machine is not None
    here.slow_to_boot()
    with here.terminal(*LOCAL, "train.py") as seat:
        seat.expect("Created")
        os.kill(seat.pid, signal.SIGKILL)
    until((here.data / "machines" / machine.instance_id / "exit.json").exists)
    assert here.told("reap").out == ""  # both are within their leases
    here.told("reap", "--yes").check(0)
    assert (here.project / "model.pt").read_text() == "weights"
    here.quiet()
    views = {view.name: view for view in here.runs()}
    assert views["short"].run_id == run_id
    assert (views["short"].state, views["short"].reason) == (RunState.CLOSED, EndReason.SUCCEEDED)
    assert (views["train"].state, views["train"].reason) == (RunState.CLOSED, EndReason.UNCLAIMED)


@pytest.mark.slow
def test_no_ledger_at_all_is_no_reason_to_let_machines_run(here: Here, an_hour_later: Callable[[], object]) -> None:
    here.detached("--no-auto-shutdown", "--lease", "30m", "train.py")
    kill_guards(here)
    an_hour_later()
    with mock.patch.dict(here.environment, COSTGPU_LEDGER_URL="mysql://h/d"):
        seen = here.told("reap")
        assert (seen.code, "Only the tags on the machines count" in seen.err) == (48, True)
    with mock.patch.dict(here.environment, COSTGPU_LEDGER_URL="postgresql://nobody@127.0.0.1:1/none"):
        ended = here.told("reap", "--yes")
        assert ended.out.startswith("ended: local local-")
        assert (ended.code, "Only the tags on the machines count" in ended.err) == (48, True)
    here.quiet()


@pytest.mark.parametrize("age", ["soon", "-2h", "0s", "9999999 weeks"])
def test_an_age_that_is_none(here: Here, age: str) -> None:
    here.told("reap", f"--older-than={age}").check(2, out="", err="--older-than")


class TestWithoutAnswers:
    @pytest.fixture(autouse=True)
    def no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def test_a_place_that_cannot_be_asked_is_no_good_news(self) -> None:
        _, out, err = told("reap", "--infra", "aws/us-east-1", "--infra", "local").check(46)
        assert out.startswith("not asked: aws")
        assert "local" not in out
        assert "may be billing" in err
        assert "hint: " in err

    def test_a_run_whose_provider_nobody_could_ask(self) -> None:
        attempted, created = facts_of(EventKind.ATTEMPTED), {**facts_of(EventKind.CREATED), "provider": "aws"}
        offered = [to_json(option(provider="aws"))]
        record("abcd", (EventKind.ATTEMPTED, attempted), (EventKind.CREATED, created), options=offered)
        told("reap").check(46, out="not asked: aws: no credentials here, and run abcd may have a machine there")

    @pytest.mark.parametrize("refused", [False, True])
    @pytest.mark.parametrize("older", [False, True])
    def test_a_run_of_another_account_whose_create_call_was_not_answered(
        self, monkeypatch: pytest.MonkeyPatch, refused: bool, older: bool
    ) -> None:
        class Elsewhere(FakeProvider):
            name = "gcp"

            def identity(self) -> Identity:
                return Identity(provider="gcp", account="research-42", principal="ada")

        provider = Elsewhere(FakeCloud(ManualClock()))
        monkeypatch.setattr(AppContext, "providers", lambda self: [provider])
        offered, paid = option(provider="gcp"), Identity(provider="gcp", account="team-a", principal="ada")
        tried = {**facts_of(EventKind.ATTEMPTED), "account": "team-a", "offer": to_json(offered.offer)}
        rows = [(EventKind.ATTEMPTED, facts_of(EventKind.ATTEMPTED) if older else tried)]
        rows += [(EventKind.REFUSED, facts_of(EventKind.REFUSED))] if refused else []
        record("abc", *rows, options=[to_json(offered)], **({"identity": to_json(paid)} if older else {}))
        code, out, err = told("reap")
        words = "gcp project team-a: these credentials are of research-42, and run abc may have a machine there"
        if refused:
            assert (code, out) == (0, ""), err
        else:
            assert code == 46
            assert words in " ".join(out.split())

    def test_a_provider_that_is_none(self) -> None:
        told("reap", "--infra", "mars").check(44, out="", err="costgpu knows")


def test_a_provider_that_cannot_be_loaded_is_not_asked_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load_failures", lambda: {"lab": "The provider lab (lab:SPEC) cannot be loaded."})
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _, out, err = told("reap", "--json").check(46)
    assert json.loads(out)["unreachable"]["lab"] == "The provider lab (lab:SPEC) cannot be loaded."
    assert "lab cannot be asked" in err
