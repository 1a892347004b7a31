"""`costgpu estimate` as a user runs it: a script, a saved profile, a kind of work, a program, options and mistakes."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.profile_file import save_profile
from tests.cli.here import Here, Result, told
from tests.unit.estimator import inferring

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def costgpu(*words: str, cwd: Path | None = None) -> Result:
    """Runs the command line in this process; text for people fits a narrow terminal."""
    with contextlib.chdir(cwd or Path.cwd()):
        result = told(*words)
    assert "--json" in words or max(map(len, result.out.splitlines()), default=0) <= 80
    return result


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(costgpu("estimate", "--json", *words).check(0).out)
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of a short measurement, in the place of another one, and nothing beside it changed."""
    place = Here.make(tmp_path_factory.mktemp("profile"))
    target, part = place.project / "profile.json", place.project / "profile.json.part"
    save_profile(inferring.profile(inferring.scoring(64, 100_000)), target)
    part.write_text("mine")
    before = set(place.project.iterdir())
    words = ["estimate", "--python", sys.executable, "--measure-for", "1s", "--save", str(target)]
    place.told(*words, str(SCRIPTS / "loader.py"), "--epochs", "200000").check(
        0, out="output.log", err="Profile written"
    )
    assert part.read_text() == "mine"
    assert set(place.project.iterdir()) == before
    return target


@pytest.mark.torch
class TestSavedProfile:
    def test_predicts_again_without_running(self, saved: Path) -> None:
        result = costgpu("estimate", str(saved)).check(0)
        assert "4,000,000 steps in 200,000 epochs" in result.out.replace("\n", " ")
        assert "Measuring" not in result.err

    def test_json_is_one_versioned_document(self, saved: Path) -> None:
        result = costgpu("estimate", "--json", str(saved)).check(0, err="")
        found = json.loads(result.out)
        assert (found["format"], found["version"]) == ("costgpu.verdict", 1)
        assert found["verdict"]["unit"] == "the whole job"
        assert found["best_cpu"]["offer"]["price_age_days"] > 0
        assert found["here"]["cost_usd"]["value"] == 0
        assert found["own"] is None
        assert "energy_kwh" not in found

    def test_epochs_and_steps_override(self, saved: Path) -> None:
        short = document("--epochs", "100", str(saved))
        long = document("--total-steps", "20000000", str(saved))
        assert short["here"]["run_seconds"]["value"] < long["here"]["run_seconds"]["value"]

    def test_an_override_holds_for_a_script_that_ran_to_its_end(self, saved: Path, tmp_path: Path) -> None:
        ended = json.loads(saved.read_text())
        ended["ended"], ended["wall_seconds"] = True, 3.0
        ended["setup_seconds"] = 40.0  # as of a file that somebody has edited: no reason to crash
        profile = tmp_path / "ended.json"
        profile.write_text(json.dumps(ended))
        assert document(str(profile))["here"]["run_seconds"]["value"] == 3.0
        assert document("--total-steps", "1e9", str(profile))["here"]["run_seconds"]["value"] > 10000

    def test_other_places_spot_and_gpus(self, saved: Path) -> None:
        found = document("--infra", "gcp/us-central1", "--gpus", "L4:1", "--spot", str(saved))
        offer = found["best_gpu"]["offer"]
        assert (offer["provider"], offer["region"], offer["purchase_option"]) == ("gcp", "us-central1", "spot")
        assert offer["accelerator"]["name"] == "L4"
        interruptions = found["best_gpu"]["interruptions"]
        assert interruptions["rate"]["basis"] == "assumed"
        assert interruptions["restart_seconds"] > 90
        assert "interruptions" not in found["here"]

    def test_interruptions_in_words_and_on_the_page(self, saved: Path, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        words = ["estimate", "--infra", "aws/us-east-1", "--gpus", "A10G:1", "--spot", "--total-steps", "1e9"]
        words.append("--explain")
        text = " ".join(costgpu(*words, "--report", str(page), str(saved)).out.split())
        assert "Interruptions are in the figures of spot machines" in text
        assert "AWS Spot Instance Advisor" in text
        assert "Interruptions are in the figures of spot machines" in page.read_text()
        on_demand = costgpu(*[word for word in words if word != "--spot"], str(saved)).out
        assert "Interruptions are in the figures of spot machines" not in on_demand

    def test_no_gpu_wanted(self, saved: Path) -> None:
        assert document("--gpus", "none", str(saved))["best_gpu"] is None

    @pytest.mark.parametrize(("words", "choice"), [("--deadline 1s", "nowhere"), ("--max-cost 0.0001", "here")])
    def test_limits_that_nothing_meets(self, saved: Path, words: str, choice: str) -> None:
        assert document(*words.split(), str(saved))["verdict"]["choice"] == choice

    def test_explain_shows_terms_and_sources(self, saved: Path) -> None:
        said = [
            "How each number came about",
            "starts and ends of kernels",
            "break-even",
            "price:",
            "How long the script runs",
        ]
        costgpu("estimate", "--explain", "--objective", "balanced", "--deadline", "10d", str(saved)).check(0, out=said)

    def test_a_damaged_profile(self, saved: Path, tmp_path: Path) -> None:
        broken = tmp_path / "broken.json"
        broken.write_text(saved.read_text()[:500])
        costgpu("estimate", str(broken)).check(5, out="", err="hint:")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["estimate"], 2, "Which script?"),
        (["estimate", "no_such_file.py"], 21, "no script"),
        (["estimate", "."], 22, "is a folder"),
        (["estimate", "--objective", "best", "x.py"], 2, "objective"),
        (["estimate", "--measure-for", "soon", str(SCRIPTS / "loader.py")], 2, "time span"),
        (["estimate", "--gpus", "A10O", "x.py"], 2, "A100"),
        (["estimate", "--infra", "aws/us-esat-1", "x.py"], 2, "us-east-1"),
        (["estimate", "-t", "g5.xlrge", "x.py"], 4, "Did you mean g5.xlarge"),
        (["estimate", "-t", "g6.xlarge", "-t", "g5.xlarge", "--gpus", "L4", "x.py"], 4, "Without --gpus L4: "),
        (["estimate", "--max-cost", "5 EUR", "x.py"], 2, "US dollars"),
        (["estimate", "--python", "/no/such/python", str(SCRIPTS / "loader.py")], 23, "no interpreter"),
        (["estimate", "--workdir", "/no/such", str(SCRIPTS / "loader.py")], 2, "no folder"),
        (["estimate", "no_such.json"], 5, "Cannot read"),
        (["estimate", "--no-such-option"], 2, "No such option"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    result = costgpu(*words, cwd=tmp_path).check(code, out="", err=text)
    assert "Traceback" not in result.err


def test_a_file_that_is_no_saved_profile_is_never_written_over(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text((SCRIPTS / "loader.py").read_text())
    before = script.read_bytes()
    (tmp_path / "other.json").write_text("{}")
    for name in ("train.py", "other.json", ".", "missing/profile.json"):
        result = costgpu("estimate", "--python", sys.executable, "--save", name, "train.py", cwd=tmp_path).check(
            2, err="hint: "
        )
        assert "Measuring" not in result.err
    assert script.read_bytes() == before
    assert (tmp_path / "other.json").read_text() == "{}"


@pytest.fixture
def scoring(tmp_path: Path) -> Path:
    """A profile of a script that scores images, 64 at a time."""
    target = tmp_path / "score.json"
    save_profile(inferring.profile(inferring.scoring(64, 100_000)), target)
    return target


class TestInference:
    def test_machine_types_that_were_asked_for(self, scoring: Path, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        words = ["estimate", "-t", "g4dn.xlarge", "--instance-type", "C7I.2xlarge", "--infra", "aws"]
        said = ["> was asked for with -t.", "images/s", "Once it runs, boot and set-up apart:"]
        result = costgpu(*words, "--report", str(page), str(scoring)).check(0, out=said)
        rows = [line.split()[1:3] for line in result.out.splitlines() if line[:1] in ("*", ">")]
        assert {"g4dn.xlarge", "c7i.2xlarge"} <= {name for _, name in rows}
        assert "(asked for)" in page.read_text()
        found = document(*words[1:], str(scoring))
        types = [one["offer"]["instance_type"] for one in found["asked"]]
        assert sorted(types) == ["c7i.2xlarge", "g4dn.xlarge"]
        assert set(types) < {one["offer"]["instance_type"] for one in found["table"]}
        assert {one["infeasible"] for one in found["asked"]} == {None}
        assert (found["inference"][0]["inference"]["item"], found["service"]) == ("image", None)

    def test_a_service_on_a_machine_type_that_was_asked_for(self, scoring: Path) -> None:
        words = ["estimate", "--rate", "5/s", "-t", "g5.2xlarge", "--infra", "aws"]
        costgpu(*words, str(scoring)).check(0, out=["> aws g5.2xlarge 1xA10G", "> was asked for with -t."])
        [plan] = document(*words[1:], str(scoring))["service"]["asked"]
        assert plan["where"].startswith("aws g5.2xlarge (A10G)")

    def test_a_service_at_a_steady_rate(self, scoring: Path, tmp_path: Path) -> None:
        page = tmp_path / "service.html"
        words = ["estimate", "--rate", "300/min", "--report", str(page), str(scoring)]
        costgpu(*words).check(0, out=["Serve 5 images/s on a CPU: ", "a month", " days old. * is the rec"])
        assert "For 5 images/s, boot and set-up apart" in page.read_text()
        found = document("--rate", "5/s", str(scoring))
        assert found["service"]["rate_per_second"] == 5.0
        assert found["service"]["best_cpu"]["price_as_of"]
        assert found["verdict"]["sentence"] == found["service"]["sentence"]
        assert found["verdict"]["unit"] == "1,000 images"
        assert found["advice"] == []

    @pytest.mark.torch
    def test_training_is_not_served(self, saved: Path) -> None:
        costgpu("estimate", "--rate", "5/s", str(saved)).check(2, out="", err="this one trains")

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--rate", "5"), "is not a rate"),
            (("--rate", ""), "--rate is empty"),
            (("--rate", "0/s"), "is no rate of a service"),
            (("--rate", "5/s", "--epochs", "3"), "--epochs is for a job"),
            (("--rate", "5/s", "--deadline", "2h"), "--deadline is for a job"),
            (("--rate", "5/s", "--max-cost", "5"), "--max-cost is for a job"),
        ],
    )
    def test_what_is_no_rate_is_refused(self, scoring: Path, words: tuple[str, ...], says: str) -> None:
        costgpu("estimate", *words, str(scoring)).check(2, out="", err=[says, "hint: "])

    def test_what_cannot_be_served(self) -> None:
        costgpu("estimate", "--like", "resnet50", "--rate", "5/s").check(2, err="needs one to measure")


BARS = """\
import sys, time
for epoch in range(1, 4):
    print(f"Epoch {epoch}/90", flush=True)
    for step in range(1, 41):
        print(f"step {step}/40 loss 0.1", flush=True)
        time.sleep(0.02)
"""


class TestPrior:
    def test_a_kind_of_work_is_never_called_measured(self) -> None:
        words = " ".join(costgpu("estimate", "--like", "resnet50", "--epochs", "90").check(0).out.split())
        assert "in 90 epochs" in words
        assert "Not measured: 25.6M parameters" in words
        assert "nothing was measured: CPU figures x" in words
        assert "none was seen" not in words  # of checkpoints: there was nothing to see them in
        assert "Measured on" not in words

    def test_a_language_model(self) -> None:
        found = document("--params", "124M", "--tokens", "1B")
        assert found["best_gpu"]["provenance"] == "modelled"
        assert found["best_gpu"]["run_seconds"]["high"] > 3 * found["best_gpu"]["run_seconds"]["low"]
        assert any("6 N D" in note for note in found["verdict"]["notes"])

    def test_a_machine_type_that_is_too_small_says_why(self) -> None:
        found = document("--params", "7B", "--tokens", "1B", "-t", "g4dn.xlarge", "--infra", "aws/us-east-1")
        [one] = found["asked"]
        assert (
            "needs 119.2 GiB of accelerator memory, has 14.6 GiB; it would fit under FSDP on 32 of them"
            in one["infeasible"]
        )
        assert any(one["infeasible"] in note for note in found["verdict"]["notes"])

    def test_advice_saves_money_and_is_ranked(self) -> None:
        found = document("--like", "resnet50", "--infra", "aws/eu-west-1")
        savings = [one["saving_usd"] for one in found["advice"]]
        assert len(savings) >= 2
        assert savings == sorted(savings, reverse=True)
        assert 0 < min(savings) <= max(savings) < found["recommended"]["cost_usd"]["value"]

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--like", "resnet5"), "resnet50"),
            (("--params", "7B"), "--params and --tokens go together"),
            (("--params", "7B", "--tokens", "1B", "train.py"), "a model that is not measured"),
            (("--like", "resnet50", "train.py"), "a script can be"),
            (("--like", "resnet50", "--params", "7B", "--tokens", "1B"), "exclude each other"),
            (("--like", "resnet50", "--save", "p.json"), "--save keeps what was measured"),
            (("--step-pattern", "x", "train.py"), "by what they print"),
            (("--step-pattern", "(", "--", "sh", "x"), "--step-pattern"),
            (("--like", "nonsense", "--", "sh", "x"), "no kind of work"),
            (("--own-price", "699", "train.py"), "a GPU of your own"),
            (("--own", "RTX 9999", "train.py"), "RTX"),
            (("--force", "train.py"), "--force is for --report"),
            (("--report", "/nowhere/x.html", "train.py"), "no folder"),
            (("--epochs", "3", "--total-steps", "5", "train.py"), "exclude each other"),
        ],
    )
    def test_what_contradicts_itself_is_refused_before_anything_runs(self, words: tuple[str, ...], says: str) -> None:
        result = costgpu("estimate", *words).check(2, err=says)
        assert "Measuring" not in result.err


class TestProgram:
    def test_its_lines_are_its_progress(self, tmp_path: Path) -> None:
        (tmp_path / "train").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{BARS}'\n".replace('f"', 'f"'))
        (tmp_path / "train").chmod(0o755)
        line = "estimate --json --measure-for 1s --like small-cnn --save profile.json -- ./train"
        result = costgpu(*line.split(), cwd=tmp_path).check(0, err="by what it prints")
        assert "really written" not in result.err  # it runs in the same world as a measured script
        workload = json.loads(result.out)["workload"]
        phase = workload["phases"][0]
        assert (phase["gpu"], phase["kind"]) == ("table", "small-cnn")
        assert phase["step"]["median_seconds"] > 0
        assert workload["framework"]["python"] == ""
        explained = costgpu("estimate", "--explain", "profile.json", cwd=tmp_path).check(0)
        assert "small-cnn: " in explained.out
        assert "small-cnn: " not in costgpu("estimate", "profile.json", cwd=tmp_path).check(0).out

    def test_nothing_that_tells_progress(self, tmp_path: Path) -> None:
        words = ("estimate", "--start-limit", "2s", "--measure-for", "1s", "--", "sh", "-c", "echo hello; sleep 30")
        costgpu(*words, cwd=tmp_path).check(33, err="hint:")

    def test_no_such_program(self) -> None:
        assert costgpu("estimate", "--", "no-such-program-at-all", "train").code == 21


@pytest.mark.torch
class TestBesides:
    def test_a_gpu_of_ones_own(self, saved: Path) -> None:
        words = ["estimate", "--own", "rtx 3090", "--own-price", "699", "--power-price", "0.30", "--energy", str(saved)]
        words[1:1] = ["--epochs", "20000000"]
        costgpu(*words).check(0, out=["RTX 3090", "kWh"])
        found = document(*words[1:])
        assert found["own"] is not None
        assert found["energy_kwh"][0]["kwh"] > 0

    def test_the_page(self, saved: Path, tmp_path: Path) -> None:
        page = tmp_path / "where.html"
        costgpu("estimate", "--report", str(page), str(saved)).check(0, err=str(page))
        text = page.read_text()
        assert text.startswith("<!doctype html>")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        costgpu("estimate", "--report", str(page), str(saved)).check(2, err="--force overwrites it")
        assert costgpu("estimate", "--force", "--report", str(page), str(saved)).code == 0
