"""`import costgpu` in notebooks and programs: values in, frozen values out, nothing printed."""

import dataclasses
import html
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import costgpu
from costgpu.clock import ManualClock
from costgpu.errors import BudgetExceeded
from costgpu.measure.profile_file import save_profile
from costgpu.models.job import EndReason, Launcher
from costgpu.models.run import RunState
from costgpu.pricing import hardware
from costgpu.providers import registry
from tests.cli.here import told
from tests.fake_cloud import SPEC, FakeCloud, JobScript
from tests.unit.estimator.test_profiles import phase, profile

FOLDER = Path(__file__).parent
ON_FAKE: dict[str, Any] = {"infra": "fake", "instance_type": "f1.gpu", "estimate": False}
JOB = JobScript(seconds=60, stdout=[(1.0, b"step 1\n")], outputs={"model.pt": b"weights"}, checkpoint={"part.pt": b"1"})
HEAVY = ("typing", "pydantic", "sqlalchemy", "typer", "rich", "boto3", "google", "psutil", "asyncssh", "jinja2")


@pytest.fixture(autouse=True)
def nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    save_profile(profile(phase(5000, 500)), path)
    return path


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """A cloud with one machine type; the current folder has a script `train.py`."""
    found = FakeCloud(ManualClock(), script=JOB)
    spec = dataclasses.replace(
        SPEC,
        adapter=lambda _config: found.provider(),
        has_credentials=lambda: True,
        offers_file=FOLDER / "fake_offers.csv",
        cpus_file=FOLDER / "fake_cpus.csv",
    )
    monkeypatch.setitem(registry._registered, SPEC.name, spec)
    hardware.cpus.cache_clear()
    monkeypatch.setattr("costgpu.clock.SystemClock", lambda: found.clock)
    monkeypatch.setattr("costgpu.job.machine.connect.connect", found.connect)
    monkeypatch.setenv("COSTGPU_CALLER_ADDRESS", "192.0.2.1/32")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('step 1')\n")
    monkeypatch.chdir(project)
    yield found
    hardware.cpus.cache_clear()
    assert not [instance for instance in found.provider().list_owned(None).instances if instance.state.alive]


def in_a_process(code: str) -> str:
    result = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return result.stdout.strip()


def test_the_import_costs_next_to_nothing() -> None:
    root = Path(costgpu.__file__).parent.parent
    code = (
        f"import sys; sys.path.append({str(root)!r}); import costgpu; print([m for m in sys.modules if m in {HEAVY!r}"
    )
    assert in_a_process(f"{code} or m.startswith('costgpu.')])") == "['costgpu.version']"


def test_every_name_is_there_and_no_other() -> None:
    for name in costgpu.__all__:
        assert getattr(costgpu, name).__module__.startswith("costgpu")
        assert name in dir(costgpu)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = costgpu.nonsense


class TestEstimate:
    def test_it_answers_what_the_command_line_answers(self, saved: Path) -> None:
        options: dict[str, Any] = {"infra": "aws/us-east-1", "spot": True, "deadline": 3600, "max_cost": 50}
        verdict = costgpu.estimate(saved, **options)
        words = ("--infra", "aws/us-east-1", "--spot", "--deadline", "1h", "--max-cost", "50", "--json", str(saved))
        document = json.loads(told("estimate", *words)[1])
        assert document["verdict"]["choice"] == verdict.choice
        assert document["verdict"]["sentence"] == verdict.sentence
        assert verdict.recommended is not None
        assert verdict.recommended.candidate.offer is not None
        assert document["recommended"]["offer"]["instance_type"] == verdict.recommended.candidate.offer.instance_type
        assert len(document["table"]) == len(verdict.table) > 1
        assert [one["action"] for one in document["advice"]] == [one.action for one in verdict.advice]
        value = costgpu.estimate(profile(phase(5000, 500)), **options)
        assert (value.sentence, value.profile) == (verdict.sentence, profile(phase(5000, 500)))

    def test_a_verdict_is_frozen_and_shows_itself(self, saved: Path) -> None:
        verdict = costgpu.estimate(saved, infra="aws", objective="fastest", rows=3)
        assert isinstance(verdict, costgpu.Verdict)
        with pytest.raises(dataclasses.FrozenInstanceError):
            verdict.sentence = "another"  # type: ignore[misc]
        text = " ".join(str(verdict).split())
        assert verdict.sentence in text
        assert "Cost against time, for the whole job, boot included:" in text
        frame = verdict._repr_html_()
        assert frame.startswith("<iframe srcdoc=")
        assert frame.count("<") == 2
        page = html.unescape(frame)
        assert "<!doctype html>" in page
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")

    def test_work_that_is_not_measured(self) -> None:
        verdict = costgpu.estimate(params="124M", tokens=1e9, infra="aws/us-east-1")
        assert verdict.best_gpu is not None
        assert any("6 N D" in note for note in verdict.profile.notes)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({}, costgpu.UsageError),
            ({"script": "nope.py"}, costgpu.ScriptError),
            ({"script": "nope.json"}, costgpu.ProfileError),
            ({"like": "resnet50", "objective": "best"}, costgpu.UsageError),
            ({"like": "resnet50", "deadline": "soon"}, costgpu.UsageError),
            ({"like": "resnet50", "gpus": "A10O"}, costgpu.UsageError),
            ({"like": "resnet50", "max_cost": -1}, costgpu.UsageError),
        ],
    )
    def test_wrong_arguments_are_errors_of_the_one_tree(
        self, arguments: dict[str, Any], error: type[costgpu.CostGpuError]
    ) -> None:
        with pytest.raises(error):
            costgpu.estimate(**arguments)

    def test_remarks_go_to_the_log(self, saved: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "costgpu"):
            costgpu.estimate(saved, infra="aws", save=None)
            assert caplog.messages == []
            folder = Path.home() / "data" / "costgpu"
            folder.mkdir(parents=True)
            (folder / "ledger.sqlite").write_bytes(b"dear diary " * 1000)
            costgpu.estimate(dataclasses.replace(profile(phase(5000, 500)), workload="w" * 32), infra="aws")
        (message,) = caplog.messages
        assert message.startswith("Earlier runs are not known: The ledger")


def test_a_remark_without_a_handler_is_not_printed() -> None:
    code = "from costgpu.workflows.reporter import LogReporter; LogReporter().note('careful', 'hint')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_offers_are_those_of_the_command_line() -> None:
    found = costgpu.offers(gpus="A100", infra=("aws", "gcp/us-central1"), cpus="8+", spot=False, max_price=30)
    words = ("--gpus", "A100", "--infra", "aws", "--infra", "gcp/us-central1", "--cpus", "8+", "--on-demand", "--json")
    document = json.loads(told("offers", *words, "--max-price", "30", "--top", "0")[1])
    assert [offer.instance_type for offer in found] == [row["instance_type"] for row in document["offers"]]
    assert all(isinstance(offer, costgpu.Offer) for offer in found)
    with pytest.raises(costgpu.PriceNotFound):
        costgpu.offers(max_price="0.0001")


class TestRun:
    def test_to_its_end_without_being_asked(self, cloud: FakeCloud) -> None:
        view = costgpu.run(
            "train.py", args=["--lr", 0.1], **ON_FAKE, max_cost=2, env={"TOKEN": "x=1"}, tags={"team": "nlp"}
        )
        assert (view.state, view.reason) == (RunState.CLOSED, EndReason.SUCCEEDED)
        assert view.spec.argv == ("train.py", "--lr", "0.1")
        assert (view.spec.tags, view.spec.env_names) == ({"team": "nlp"}, ("TOKEN",))
        assert view.receipt is not None
        assert view.receipt.metered_cost_usd <= 2
        assert Path("model.pt").read_bytes() == b"weights"
        assert costgpu.runs() == [view]
        assert costgpu.runs(closed=False) == []

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_on_a_ray_cluster(self, cloud: FakeCloud, nodes: int) -> None:
        """Whose machines install Ray, know its token, and are not measured for."""
        view = costgpu.run("train.py", infra="fake", gpus="L4", max_cost=2, launcher="ray", nodes=nodes)
        assert view.reason is EndReason.SUCCEEDED
        assert "ray[default,data,train,tune]" in view.spec.setup
        runs = costgpu.runs()
        assert len(runs) == nodes
        guests = [cloud.instance(run.instance.instance_id).guest for run in runs if run.instance is not None]
        told = [guest.job.order.rendezvous for guest in guests if guest is not None and guest.job is not None]
        assert {(one.launcher, one.nodes) for one in told if one is not None} == {(Launcher.RAY, nodes)}
        (token,) = {one.token for one in told if one is not None}
        assert len(token) == 32

    def test_until_the_job_has_started(self, cloud: FakeCloud) -> None:
        view = costgpu.run("train.py", infra="fake", gpus="L4", max_duration="10m", estimate=False, wait=False)
        assert (view.state, view.detached) == (RunState.RUNNING, True)
        assert [one.run_id for one in costgpu.runs(closed=False)] == [view.run_id]
        assert told("cancel", view.run_id, "--now")[0] == 0
        (closed,) = costgpu.runs()
        assert closed.reason is EndReason.CANCELLED

    def test_back_to_a_run_that_goes_on(self, cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
        run_id = costgpu.run("train.py", **ON_FAKE, max_cost=2, wait=False).run_id
        assert [one.run_id for one in costgpu.jobs()] == [run_id]
        cloud.clock.sleep(5)
        assert costgpu.logs(run_id).stdout == "step 1\n"
        cloud.clock.sleep(60)
        remark = " ".join(costgpu.fetch(run_id, "elsewhere"))
        assert str(Path("elsewhere").absolute()) in remark
        assert Path("elsewhere/model.pt").read_bytes() == b"weights"
        assert costgpu.logs("train", follow=True).stdout == "step 1\n"
        assert capsys.readouterr() == ("step 1\n", "")  # what was asked for
        view = costgpu.attach(run_id)
        assert (view.state, view.reason) == (RunState.CLOSED, EndReason.SUCCEEDED)
        assert Path("model.pt").read_bytes() == b"weights"
        assert (costgpu.jobs(), costgpu.jobs(closed=True)) == ([], [view])
        assert costgpu.logs(run_id) == costgpu.Logs(run_id, stdout="step 1\n", stderr="")
        assert costgpu.cancel(run_id) == view
        with pytest.raises(costgpu.RunError, match="is closed"):
            costgpu.attach(run_id)

    def test_cancel(self, cloud: FakeCloud) -> None:
        run_id = costgpu.run("train.py", **ON_FAKE, max_cost=2, wait=False).run_id
        view = costgpu.cancel(run_id, now=True)
        assert view is not None
        assert (view.state, view.reason) == (RunState.CLOSED, EndReason.CANCELLED)
        for function in (costgpu.logs, costgpu.attach, costgpu.fetch, costgpu.cancel):
            with pytest.raises(costgpu.RunError, match="nonsense"):
                function("nonsense")

    def test_a_machine_that_only_its_tag_is_known_of(self, cloud: FakeCloud) -> None:
        run_id = costgpu.run("train.py", **ON_FAKE, max_cost=2, wait=False).run_id
        (Path.home() / "data" / "costgpu" / "ledger.sqlite").unlink()
        assert costgpu.cancel(run_id) is None
        assert not [one for one in cloud.provider().list_owned(None).instances if one.state.alive]

    def test_a_cap_that_does_not_even_boot_the_machine(self, cloud: FakeCloud) -> None:
        with pytest.raises(costgpu.CostGpuError, match="used up"):
            costgpu.run("train.py", **ON_FAKE, max_cost=0.0001)
        with pytest.raises(costgpu.UsageError):  # without a cap and without an estimate nothing limits the cost
            costgpu.run("train.py", **ON_FAKE)
        assert not cloud.provider().list_owned(None).instances

    def test_a_budget_refuses_it(self, cloud: FakeCloud) -> None:
        assert told("budget", "set", "all", "--total", "0.01", "--enforce-spent")[0] == 0
        costgpu.run("train.py", **ON_FAKE, max_cost=2)
        with pytest.raises(BudgetExceeded):
            costgpu.run("train.py", **ON_FAKE, max_cost=2)
        assert len(costgpu.runs()) == 1

    def test_a_job_that_is_ended_by_its_limit(self, cloud: FakeCloud) -> None:
        with pytest.raises(costgpu.RunError, match="--max-duration"):
            costgpu.run("train.py", **ON_FAKE, max_duration=20, max_cost=2)
        assert Path("part.pt").read_bytes() == b"1"

    def test_which_script(self) -> None:
        with pytest.raises(costgpu.UsageError, match="Which script"):
            costgpu.run()
