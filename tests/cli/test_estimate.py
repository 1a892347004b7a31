"""`costgpu estimate` as a user runs it: a script, a saved profile, options and mistakes."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from tests.cli.here import Result, told

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def costgpu(*words: str, cwd: Path | None = None) -> Result:
    """Runs the command line in this process."""
    with contextlib.chdir(cwd or Path.cwd()):
        code, out, err = told(*words)
    return Result(words, code, out, err)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of a short measurement."""
    folder = tmp_path_factory.mktemp("profile")
    target = folder / "profile.json"
    words = ["estimate", "--python", sys.executable, "--measure-for", "1s", "--save", str(target)]
    result = costgpu(*words, str(SCRIPTS / "loader.py"), "--epochs", "200000", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Profile written" in result.stderr
    assert "output.log" in result.stdout
    return target


@pytest.mark.torch
class TestSavedProfile:
    def test_predicts_again_without_running(self, saved: Path) -> None:
        result = costgpu("estimate", str(saved))
        assert result.returncode == 0, result.stderr
        assert "4,000,000 steps in 200,000 epochs" in result.stdout.replace("\n", " ")
        assert "Measuring" not in result.stderr
        assert max(map(len, result.stdout.splitlines())) <= 80

    def test_json_is_one_versioned_document(self, saved: Path) -> None:
        result = costgpu("estimate", "--json", str(saved))
        document = json.loads(result.stdout)
        assert (document["format"], document["version"]) == ("costgpu.verdict", 1)
        assert document["verdict"]["unit"] == "the whole job"
        assert document["best_cpu"]["offer"]["price_age_days"] > 0
        assert document["here"]["cost_usd"]["value"] == 0
        assert result.stderr == ""

    def test_epochs_and_steps_override(self, saved: Path) -> None:
        short = json.loads(costgpu("estimate", "--json", "--epochs", "100", str(saved)).stdout)
        long = json.loads(costgpu("estimate", "--json", "--total-steps", "20000000", str(saved)).stdout)
        assert short["here"]["run_seconds"]["value"] < long["here"]["run_seconds"]["value"]
        both = costgpu("estimate", "--epochs", "1", "--total-steps", "1", str(saved))
        assert both.returncode == 2

    def test_an_override_holds_for_a_script_that_ran_to_its_end(self, saved: Path, tmp_path: Path) -> None:
        ended = json.loads(saved.read_text())
        ended["ended"], ended["wall_seconds"] = True, 3.0
        ended["setup_seconds"] = 40.0  # as of a file that somebody has edited: no reason to crash
        profile = tmp_path / "ended.json"
        profile.write_text(json.dumps(ended))
        same = json.loads(costgpu("estimate", "--json", str(profile)).stdout)
        longer = json.loads(costgpu("estimate", "--json", "--total-steps", "1000000000", str(profile)).stdout)
        assert same["here"]["run_seconds"]["value"] == 3.0
        assert longer["here"]["run_seconds"]["value"] > 10000

    def test_other_places_spot_and_gpus(self, saved: Path) -> None:
        words = ["estimate", "--json", "--infra", "gcp/us-central1", "--gpus", "L4:1", "--spot", str(saved)]
        document = json.loads(costgpu(*words).stdout)
        offer = document["best_gpu"]["offer"]
        assert (offer["provider"], offer["region"], offer["purchase_option"]) == ("gcp", "us-central1", "spot")
        assert offer["accelerator"]["name"] == "L4"

    def test_no_gpu_wanted(self, saved: Path) -> None:
        document = json.loads(costgpu("estimate", "--json", "--gpus", "none", str(saved)).stdout)
        assert document["best_gpu"] is None

    def test_limits_that_nothing_meets(self, saved: Path) -> None:
        document = json.loads(costgpu("estimate", "--json", "--deadline", "1s", str(saved)).stdout)
        assert document["verdict"]["choice"] == "nowhere"
        free = json.loads(costgpu("estimate", "--json", "--max-cost", "0.0001", str(saved)).stdout)
        assert free["verdict"]["choice"] == "here"

    def test_explain_shows_terms_and_sources(self, saved: Path) -> None:
        out = costgpu("estimate", "--explain", str(saved)).stdout
        for words in (
            "How each number came about",
            "memory bandwidth",
            "break-even",
            "price:",
            "loops around the step",
        ):
            assert words in out

    @pytest.mark.parametrize("objective", ["cheapest", "fastest", "balanced"])
    def test_objectives(self, saved: Path, objective: str) -> None:
        assert costgpu("estimate", "--objective", objective, "--deadline", "10d", str(saved)).returncode == 0

    def test_a_damaged_profile(self, saved: Path, tmp_path: Path) -> None:
        broken = tmp_path / "broken.json"
        broken.write_text(saved.read_text()[:500])
        result = costgpu("estimate", str(broken))
        assert result.returncode == 5
        assert "hint:" in result.stderr
        assert result.stdout == ""


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
        (["estimate", "--max-cost", "5 EUR", "x.py"], 2, "US dollars"),
        (["estimate", "--python", "/no/such/python", str(SCRIPTS / "loader.py")], 23, "no interpreter"),
        (["estimate", "--workdir", "/no/such", str(SCRIPTS / "loader.py")], 2, "no folder"),
        (["estimate", "no_such.json"], 5, "Cannot read"),
        (["estimate", "--no-such-option"], 2, "No such option"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    result = costgpu(*words, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert text in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_file_that_is_no_saved_profile_is_never_written_over(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text((SCRIPTS / "loader.py").read_text())
    before = script.read_bytes()
    (tmp_path / "other.json").write_text("{}")
    for name in ("train.py", "other.json", ".", "missing/profile.json"):
        result = costgpu("estimate", "--python", sys.executable, "--save", name, "train.py", cwd=tmp_path)
        assert result.returncode == 2, result.stderr
        assert "hint: " in result.stderr
        assert "Measuring" not in result.stderr
    assert script.read_bytes() == before
    assert (tmp_path / "other.json").read_text() == "{}"


@pytest.mark.torch
def test_a_saved_profile_is_replaced_and_nothing_beside_it(saved: Path, tmp_path: Path) -> None:
    target, part = tmp_path / "profile.json", tmp_path / "profile.json.part"
    target.write_bytes(saved.read_bytes())
    part.write_text("mine")
    words = ["estimate", "--python", sys.executable, "--measure-for", "1s", "--save", str(target)]
    result = costgpu(*words, str(SCRIPTS / "loader.py"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert target.read_bytes() != saved.read_bytes()
    assert part.read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} == {"profile.json", "profile.json.part"}
