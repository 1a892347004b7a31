"""`costgpu estimate` of trainings on several GPUs and machines, as a user sees them."""

import json
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.profile_file import save_profile
from costgpu.models.parallelism import Scheme
from tests.cli.here import Result, told
from tests.unit.estimator.builders import profile
from tests.unit.estimator.test_several_gpus import script, training

MODEL = ("--params", "7B", "--tokens", "1B", "--infra", "aws/us-east-1")


def costgpu(*words: str) -> Result:
    """Runs `costgpu estimate` in this process."""
    return told("estimate", *words)


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(costgpu("--json", *words).check(0).out)
    return found


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A profile of a script that trains under DDP."""
    target = tmp_path / "ddp.json"
    save_profile(script(), target)
    return target


def test_a_language_model_uses_all_gpus_of_a_machine() -> None:
    """One B200 of eight, for 17 hours and $1,985, was once the answer."""
    found = document(*MODEL, "--deadline", "1d")["recommended"]
    assert (found["nodes"], found["gpus"]) == (1, 8)
    assert found["wall_seconds"]["value"] < 6 * 3600
    assert found["cost_usd"]["value"] < 400
    scaling = found["scaling"]
    assert scaling["scheme"] in ("fsdp", "hsdp", "ddp")
    assert 0.2 < scaling["mfu"] < 0.6
    assert 0 < scaling["communication_share"] < 0.5


def test_the_accelerators_and_machines_that_were_asked_for() -> None:
    one = costgpu(*MODEL, "--gpus", "H100:8", "--explain").check(0, out=["8xH100", "8 GPUs under FSDP", "MFU"])
    two = costgpu(*MODEL, "--gpus", "A100:8", "--nodes", "2").check(0, out=["2x ", "16xA100", "16 GPUs in 2 machines"])
    assert "(16x A100)" in " ".join(two.out.split())
    for result in (one, two):
        assert max(map(len, result.out.splitlines())) <= 80
    chosen = document(*MODEL, "--gpus", "A100:8", "--nodes", "2-8", "--objective", "fastest")
    assert chosen["recommended"]["nodes"] == 8
    assert {row["nodes"] for row in chosen["table"]} <= {1, 2, 4, 8}


def test_a_deadline_that_one_machine_does_not_meet() -> None:
    found = document(*MODEL, "--deadline", "1h")
    assert found["recommended"]["nodes"] > 1
    assert found["recommended"]["wall_seconds"]["value"] <= 3600
    gpus = [row["gpus"] for row in found["by_gpus"]]
    assert gpus == sorted(gpus)


def test_what_fits_no_machine_is_spread_over_several() -> None:
    assert document("--params", "70B", "--tokens", "100M", "--gpus", "A100", *MODEL[4:])["recommended"]["nodes"] > 1


def test_a_script_that_was_measured(saved: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = costgpu("--gpus", "A100", "--objective", "fastest", "--explain", "--report", str(page), str(saved))
    result.check(0, out=["16 GPUs under DDP: ", "By the number of GPUs:", "efficiency", "communication between GPUs"])
    assert max(map(len, result.out.splitlines())) <= 80
    assert "16 GPUs under DDP" in page.read_text()
    assert "the script uses one of" not in result.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes", "0"), "--nodes is at most 64"),
        (("--nodes", "65"), "--nodes is at most 64"),
        (("--nodes", "many"), "is not a number or range for --nodes"),
        (("--nodes", "1.5"), "whole numbers"),
        (("--nodes", "8-2"), "ends before it starts"),
    ],
)
def test_what_is_no_number_of_machines(words: tuple[str, ...], says: str) -> None:
    costgpu(*MODEL, *words).check(2, out="", err=[says])


def test_one_process_cannot_use_several_machines(tmp_path: Path) -> None:
    target = tmp_path / "alone.json"
    save_profile(profile(training()), target)
    costgpu("--nodes", "2", str(target)).check(2, out="", err=["this script has one", "hint: "])


def test_what_is_not_predicted_says_so(tmp_path: Path) -> None:
    target = tmp_path / "tensor.json"
    save_profile(script(Scheme.TENSOR), target)
    result = costgpu("--gpus", "H100:8", str(target)).check(0)
    assert "tensor parallelism, whose time on 8 GPUs is not predicted: measure it" in " ".join(result.out.split())
