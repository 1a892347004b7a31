"""What `costgpu run` refuses before anything is made or spent, and what it plans."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from costgpu.cli.lazy_group import _after_module
from costgpu.clock import ManualClock
from costgpu.errors import AuthError, UsageError
from costgpu.estimator.reference_profiles import language_model_profile
from costgpu.job.plan import LaunchPlace, Limits
from costgpu.measure.profile_file import save_profile
from costgpu.models.instance import Identity
from costgpu.models.offer import Accelerator
from costgpu.models.run import Plan
from costgpu.render.text.run import plan_text
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.packages import PackageSource, find_packages
from costgpu.workflows.runs.places import Places
from costgpu.workflows.runs.plan import make_plan
from tests.cli.here import LOCAL, told
from tests.fake_cloud import FakeCloud
from tests.fake_cloud.provider import FakeProvider
from tests.job.examples import offer, spec
from tests.unit.estimator.builders import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")

G5 = ("-t", "g5.xlarge")
BAD: list[tuple[tuple[str, ...], int, str, bool]] = [
    ((), 2, "Which script?", True),
    (("nope.py",), 21, "no script nope.py", True),
    (("trian.py",), 21, "Did you mean train.py?", True),
    ((".",), 22, "is a folder", True),
    (("pack",), 22, "-m pack", True),
    (("notes.ipynb",), 22, "nbconvert", True),
    (("bad.env",), 22, "not Python that", True),
    (("-m", "pack"), 21, "__main__.py", True),
    (("--tag", "team", "train.py"), 2, "not key=value", True),
    (("--tag", "costgpu-run=x", "train.py"), 2, "reserved", True),
    (("--tag", "k=" + "v" * 61, "train.py"), 2, "too long", True),
    (("--nproc", "0", "train.py"), 2, "number of processes", True),
    (("--nproc", "all", "train.py"), 2, "--nproc auto", True),
    (("--engine", "ray", "train.py"), 2, "costgpu run --launcher ray", True),
    (("--launcher", "ray", "--nproc", "2", "train.py"), 2, "--nproc cannot be used with --launcher ray", True),
    (("--launcher", "ray", "torchrun", "train.py"), 2, "torchrun cannot be used with --launcher ray", True),
    (("--launcher", "ray", "--nodes", "2", "--outputs-from", "all", "train.py"), 2, "on machine 0", True),
    (("--launcher", "ray", "--idle-duration", "5m", "train.py"), 2, "--idle-duration cannot be used with", True),
    (("-e", "NOT_SET", "train.py"), 2, "no such variable", True),
    (("-e", "1A=2", "train.py"), 2, "'1A' is not the name", True),
    (("--env-file", "nope.env", "train.py"), 2, "No such file", False),
    (("--env-file", "bad.env", "train.py"), 2, "line 1", True),
    (("--lease", "2h", "train.py"), 2, "--no-auto-shutdown", True),
    (("--lease", "9d", "--no-auto-shutdown", "train.py"), 2, "longer than 7.0 days", True),
    (("--lease", "soon", "--no-auto-shutdown", "train.py"), 2, "time span", True),
    (("--max-duration", "-1", "train.py"), 2, "time span", True),
    (("--idle-duration", "x", "train.py"), 2, "time span", True),
    (("--grace", "x", "train.py"), 2, "time span", True),
    (("--max-cost", "5 EUR", "train.py"), 2, "only USD", True),
    (("--max-cost", "0", "train.py"), 2, "only USD", True),
    (("--assume-price", "-1", "train.py"), 2, "only USD", True),
    (("--assume-price", "0.5", "--max-cost", "0.001", "train.py"), 6, "used up", True),
    (("--assume-price", "0.5", "--max-cost", "5", "train.py"), 7, "stdin is not a terminal", True),
    (("--outputs", "../x", "train.py"), 2, "leaves the working folder", True),
    (("--outputs", "/x", "train.py"), 2, "leaves the working folder", True),
    (("--workdir", "/no/such", "train.py"), 2, "no folder", True),
    (("--workdir", "pack", "train.py"), 2, "not in the folder that is sent", True),
    (("--sync-limit", "0.000001", "train.py"), 56, "--sync-limit", True),
    (("--sync-limit", "0", "train.py"), 2, "--sync-limit is", False),
    (("--bucket", "runs", "train.py"), 2, "s3://name/prefix", False),
    (("--bucket", "s3://ada/runs", "train.py"), 41, "s3://ada/runs", True),
    (("--profile", "nope.json", "train.py"), 5, "Cannot read", True),
    (("--python", "/no/such", "train.py"), 23, "no interpreter", True),
    (("-o", "yaml", "train.py"), 2, "text or json", True),
    (("--gpus", "L4", "train.py"), 2, "as it is", True),
    (("--spot", "train.py"), 2, "as it is", True),
    (("--disk", "100", "train.py"), 2, "as it is", True),
    (("--subnet", "subnet-0123456789abcdef0", "train.py"), 2, "as it is", True),
    (("--disk", "5", "train.py"), 2, "--disk", False),
    (("--no-such", "train.py"), 2, "No such option", False),
    (("--recover", "2", "train.py"), 2, "--recover is for spot machines", True),
    (
        ("--checkpoint", "a", "--fallback", "on-demand", "train.py"),
        2,
        "--checkpoint and --fallback are for --recover",
        True,
    ),
    (("--deadline", "6h", "train.py"), 2, "--deadline is for --retry-until-up", True),
    (("--on-oom", "larger", "train.py"), 2, "--on-oom next-size", True),
    (("--on-oom", "next-size", "--no-auto-shutdown", "train.py"), 2, "do not go together", True),
    (("--retry-until-up", "-e", "LR=0.1", "train.py"), 2, "-e LR=... is stored nowhere", True),
    (("--retry-until-up", "--on-oom", "next-size", "train.py"), 2, "cannot be chosen on this", True),
    (("--queue", "--fit", "train.py"), 2, "--fit lowers the cap to what budgets leave now", True),
    (("--queue", "-e", "LR=0.1", "train.py"), 2, "-e LR=... is stored nowhere", True),
]
RECOVER = (*G5, "--spot", "--max-cost", "1", "--recover")
FAR: list[tuple[tuple[str, ...], int, str]] = [
    ((*RECOVER, "0", "train.py"), 2, "1 to 100 times"),
    ((*RECOVER, "2", "--no-auto-shutdown", "train.py"), 2, "do not go together"),
    ((*RECOVER, "2", "--fallback", "spot", "train.py"), 2, "--fallback on-demand"),
    ((*RECOVER, "2", "--resume-args", "--from {latest}", "train.py"), 2, "--checkpoint 'checkpoints/**'"),
    ((*RECOVER, "2", "--resume-args", "'", "train.py"), 2, "cannot be read: No closing quotation"),
    ((*RECOVER, "2", "--checkpoint", "../x", "train.py"), 2, "--checkpoint ../x leaves the working folder"),
    ((*RECOVER, "2", "train.py"), 41, "aws configure"),
    ((*G5, "--max-cost", "0.001", "train.py"), 6, "Allow at least $0.0"),
    (("-t", "g5.xlrge", "--max-cost", "1", "train.py"), 4, "Did you mean g5.xlarge"),
    (("--infra", "gcp", "--max-cost", "1", "train.py"), 2, "Name one"),
    (("-t", "g2-standard-4", "--max-cost", "1", "train.py"), 41, "gcloud auth application-default login"),
    (("--infra", "aws/us-esat-1", "--max-cost", "1", "train.py"), 2, "us-east-1"),
    (("--gpus", "A10O", "--max-cost", "1", "train.py"), 2, "A100"),
    (("--infra", "aws", "train.py"), 2, "Name one"),
    (("train.py",), 2, "Name one"),
    ((*G5, "--infra", "local", "--max-cost", "1", "train.py"), 2, "as it is"),
    ((*G5, "--subnet", "here", "--max-cost", "1", "train.py"), 2, "--subnet is not the id of a subnet"),
    ((*G5, "--launcher", "ray", "--nodes", "2", "train.py"), 2, "Give --max-cost 5 or --max-duration 2h."),
    ((*G5, "--max-cost", "1", "train.py"), 41, "aws configure"),
    ((*G5, "--profile", "large.json", "train.py"), 2, "The job cannot run on g5.xlarge: needs"),
    ((*G5, "--nodes", "2", "--profile", "large.json", "train.py"), 2, "The job cannot run on g5.xlarge: needs"),
    ((*G5, "--max-cost", "1", "bad.env"), 22, "not Python that"),
    ((*G5, "--max-cost", "1", "--dry-run", "train.py"), 41, "--infra local needs no account"),
]


NOMINAL = language_model_profile(8e9, 1e8, machine(), "2026-11-30T00:00:00+00:00", "1")
FINE_TUNE = replace(NOMINAL, phases=[replace(NOMINAL.phases[0], steps_observed=3)], weights_bytes=16_000_000_000)


class TestBadInput:
    @pytest.fixture(autouse=True)
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        (tmp_path / "pack").mkdir()
        for name, text in {"train.py": "print(1)", "notes.ipynb": "{}", "bad.env": "KEY VALUE\n"}.items():
            (tmp_path / name).write_text(text)
        save_profile(FINE_TUNE, tmp_path / "large.json")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
        place = Path(os.environ["XDG_DATA_HOME"]) / "costgpu"
        assert not (place / "ledger.sqlite").exists()
        assert not list(place.glob("machines/local-*"))

    @pytest.mark.parametrize(("words", "code", "text", "hints"), BAD)
    def test_on_this_machine(self, words: tuple[str, ...], code: int, text: str, hints: bool) -> None:
        err = told(*LOCAL, *words).check(code, out="", err=text).err
        assert ("hint: " in err) is hints, err

    @pytest.mark.parametrize(("words", "code", "text"), FAR)
    def test_elsewhere(self, words: tuple[str, ...], code: int, text: str) -> None:
        told("run", "--no-estimate", *words).check(code, out="", err=text)

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("--infra", "local", "--tag", "team"), 2),
            (("--infra", "local", "--nproc", "x"), 2),
            (("--infra", "local", "--outputs", "/x"), 2),
            (("-t", "g5.xlarge", "--max-cost", "1"), 41),
            (("--infra", "aws", "--max-cost", "1"), 41),
        ],
    )
    def test_what_can_be_told_at_once_is_told_before_anything_is_measured(
        self, words: tuple[str, ...], code: int
    ) -> None:
        err = told("run", "--python", sys.executable, *words, "train.py").check(code).err
        assert "Measuring" not in err

    def test_a_type_is_never_this_machine_whatever_the_settings_say(self, tmp_path: Path) -> None:
        (tmp_path / "costgpu.toml").write_text('default_infra = "local"\n')
        told("run", "--no-estimate", *G5, "--max-cost", "1", "train.py").check(41, out="")
        told("run", "--no-estimate", "--python", sys.executable, "--dry-run", "train.py").check(0, out="this machine")


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("-m pack --x", 2),
        ("-d -m pack", 3),
        ("-dm pack --x", 2),
        ("-mpack --x", 1),
        ("--name a -m pack b", 4),
        ("--name=a -m pack", 3),
        ("-n -m pack", None),
        ("-dn -m -m pack", 4),
        ("-e A=1 -m pack -m other", 4),
        ("--infra -m -m pack", 4),
        ("train.py -m pack", None),
        ("-d train.py -m pack", None),
        ("-- -m pack", None),
        ("-d", None),
        ("-", None),
    ],
)
def test_what_follows_a_module_is_its_own(line: str, end: int | None) -> None:
    valued = {"-m", "-n", "-e", "--name", "--infra"}
    assert _after_module(line.split(), valued.__contains__) == end


class Cloud(FakeProvider):
    def __init__(self, name: str, account: str) -> None:
        super().__init__(FakeCloud(ManualClock()))
        self.mine = Identity(provider=name, account=account, principal="ada")

    def identity(self) -> Identity:
        if not self.mine.account:
            raise AuthError("Log in again.")
        return self.mine


def planned(
    folder: Path,
    gpu: Accelerator | None = None,
    packages: PackageSource | None = None,
    /,
    *,
    larger_at: str = "",
    **accounts: str,
) -> Plan:
    clouds = {name: Cloud(name, account) for name, account in accounts.items()}
    tools = SimpleNamespace(
        provider=clouds.__getitem__, clock=ManualClock(), bucket=None, allow_from=lambda _: "192.0.2.1/32"
    )
    context = cast(AppContext, SimpleNamespace(tools=tools, settings=SimpleNamespace(sync_limit_mib=1)))
    limits = Limits(max_cost_usd=Decimal(2), max_duration_seconds=None)
    offers = [replace(offer("us-east-1", provider=name), accelerator=gpu) for name in accounts if name != larger_at]
    larger = [
        LaunchPlace(offer=replace(offer(provider=name), memory_gib=64.0)) for name in accounts if name == larger_at
    ]
    found = Places(ranked=[LaunchPlace(offer=each) for each in offers], verdict="", notes=[], larger=larger)
    return make_plan(context, spec(str(folder)), found, limits, packages=packages)


def test_what_the_setup_reads_travels(tmp_path: Path) -> None:
    files = {"requirements.txt": "./wheels/own-1-py3-none-any.whl", "wheels/own-1-py3-none-any.whl": "", "lib/a.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    plan = planned(tmp_path, None, find_packages(tmp_path, None), aws="123")
    assert plan.packages == "requirements.txt, by uv or pip"
    assert "packages   requirements.txt, by uv or pip\n" in plan_text(plan, ManualClock().now())
    (tmp_path / ".gitignore").write_text("*.whl\n")
    with pytest.raises(UsageError, match=r"reads wheels/own-1-py3-none-any.whl, which does not travel"):
        planned(tmp_path, None, find_packages(tmp_path, None), aws="123")


def test_a_plan_over_two_clouds_names_both_accounts_and_drops_the_one_that_refuses(tmp_path: Path) -> None:
    both = planned(tmp_path, aws="123", gcp="team-a")
    assert (both.identity.account, [who.account for who in both.others], both.notes) == ("123", ["team-a"], ())
    for refusing, accounts in (("aws", {"aws": "", "gcp": "mine"}), ("gcp", {"aws": "mine", "gcp": ""})):
        one = planned(tmp_path, None, **accounts)
        (other,) = accounts.keys() - {refusing}
        assert ([o.offer.provider for o in one.options], one.identity.provider, one.others) == ([other], other, ())
        assert one.notes == (f"Not considered: {refusing} (Log in again.)",)
    with pytest.raises(AuthError):
        planned(tmp_path, aws="", gcp="")


def test_a_larger_machine_is_not_where_a_job_begins(tmp_path: Path) -> None:
    plan = planned(tmp_path, larger_at="gcp", aws="123", gcp="team-a")
    assert [(each.offer.provider, each.size) for each in plan.options] == [("aws", 0), ("gcp", 1)]
    with pytest.raises(AuthError):
        planned(tmp_path, larger_at="gcp", aws="", gcp="team-a")


@pytest.mark.parametrize("gpu", ["P4", "P100", "V100", "T4", "H100", "MI100"])
def test_a_plan_says_which_gpus_the_open_driver_does_not_serve(tmp_path: Path, gpu: str) -> None:
    notes = planned(tmp_path, Accelerator(name=gpu, count=1, memory_gib=16), gcp="team-a").notes
    said = f"NVIDIA's open kernel modules do not serve the {gpu}: if the image has no others, the run ends before"
    assert [said in note for note in notes] == ([True] if gpu in ("P4", "P100", "V100") else [])


def test_a_plan_tells_of_the_download_and_has_a_disk_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GB of weights and one checkpoint of 96: 123.2 GB with the margin, 10 of which the default disk has left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(AppContext, "provider", lambda _, name: Cloud(name, "123"))
    monkeypatch.setattr(AppContext, "_allow_from", lambda *_: "192.0.2.1/32")
    save_profile(FINE_TUNE, tmp_path / "large.json")
    (tmp_path / "train.py").write_text("print(1)")
    words = ("run", "--infra", "aws", "--gpus", "H100:8", "--profile", "large.json", "--setup", "", "--dry-run")
    shown = " ".join(told(*words, "train.py").check(0).out.split())
    assert "disk 210 GiB, with room for 1 checkpoint of 96.0 GB; 16.0 GB of weights are downloaded to it" in shown
    plan = json.loads(told(*words, "--json", "train.py").check(0).out)["plan"]
    assert {option["disk_gib"] for option in plan["options"]} == {210}
    assert plan["prediction"]["parts"]["download"] == 160.0
    assert plan["storage"]["download_bytes"] == 16_000_000_000
    first = plan["options"][0]
    assert float(first["extras_usd_per_hour"]) == pytest.approx(210 * 0.08 / 730 + 0.005, abs=1e-6)
    small = " ".join(told(*words, "--disk", "150", "train.py").check(0).out.split())
    assert "disk 150 GiB, and 1 checkpoint of 96.0 GB may not fit; --disk 210 has room for it all;" in small
