"""`costgpu estimate` beside scripts: kinds of work, programs that print, a GPU of one's own, advice, the page."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_estimate import SCRIPTS, costgpu

BARS = """\
import sys, time
for epoch in range(1, 4):
    print(f"Epoch {epoch}/90", flush=True)
    for step in range(1, 41):
        print(f"step {step}/40 loss 0.1", flush=True)
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a ledger of its own is."""
    return tmp_path_factory.mktemp("besides")


@pytest.fixture(autouse=True)
def own_ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGPU_LEDGER_URL", f"sqlite:///{folder / 'ledger.sqlite'}")


class TestPrior:
    def test_a_kind_of_work_is_never_called_measured(self) -> None:
        result = costgpu("estimate", "--like", "resnet50", "--epochs", "90")
        assert result.returncode == 0, result.stderr
        assert max(map(len, result.stdout.splitlines())) <= 80
        words = " ".join(result.stdout.split())
        assert "in 90 epochs" in words
        assert "Not measured: 25.6M parameters" in words
        assert "Nothing was measured" in words
        assert "none was seen" not in words  # of checkpoints: there was nothing to see them in
        assert "Measured on" not in words

    def test_a_language_model(self) -> None:
        document = json.loads(costgpu("estimate", "--json", "--params", "124M", "--tokens", "1B").stdout)
        assert document["best_gpu"]["provenance"] == "modelled"
        low, high = document["best_gpu"]["run_seconds"]["low"], document["best_gpu"]["run_seconds"]["high"]
        assert high > 3 * low
        assert any("6 N D" in note for note in document["verdict"]["notes"])

    def test_advice_saves_money_and_is_ranked(self) -> None:
        document = json.loads(costgpu("estimate", "--json", "--like", "resnet50", "--infra", "aws/eu-west-1").stdout)
        savings = [one["saving_usd"] for one in document["advice"]]
        assert len(savings) >= 2
        assert savings == sorted(savings, reverse=True)
        assert 0 < min(savings) <= max(savings) < document["recommended"]["cost_usd"]["value"]

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
        result = costgpu("estimate", *words)
        assert result.returncode == 2, result.stdout + result.stderr
        assert says in result.stderr
        assert "Measuring" not in result.stderr


class TestProgram:
    def test_its_lines_are_its_progress(self, tmp_path: Path) -> None:
        (tmp_path / "train").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{BARS}'\n".replace('f"', 'f"'))
        (tmp_path / "train").chmod(0o755)
        result = costgpu(
            "estimate", "--json", "--measure-for", "1s", "--like", "small-cnn", "--", "./train", cwd=tmp_path
        )
        assert result.returncode == 0, result.stderr
        assert "what it writes is really written" in result.stderr
        document = json.loads(result.stdout)
        phase = document["workload"]["phases"][0]
        assert (phase["gpu"], phase["kind"]) == ("table", "small-cnn")
        assert phase["step"]["median_seconds"] >= 0.02
        assert document["workload"]["framework"]["python"] == ""

    def test_nothing_that_tells_progress(self, tmp_path: Path) -> None:
        words = ("estimate", "--start-limit", "2s", "--measure-for", "1s", "--", "sh", "-c", "echo hello; sleep 30")
        result = costgpu(*words, cwd=tmp_path)
        assert result.returncode == 33, result.stderr
        assert "hint:" in result.stderr

    def test_no_such_program(self) -> None:
        assert costgpu("estimate", "--", "no-such-program-at-all", "train").returncode == 21


@pytest.fixture(scope="module")
def saved(folder: Path) -> Path:
    target = folder / "profile.json"
    words = ["estimate", "--python", sys.executable, "--steps", "30", "--save", str(target)]
    result = costgpu(*words, str(SCRIPTS / "loader.py"), "--epochs", "20000000", cwd=folder)
    assert result.returncode == 0, result.stderr
    return target


@pytest.mark.torch
class TestBesides:
    def test_a_gpu_of_ones_own(self, saved: Path) -> None:
        words = ("estimate", "--own", "rtx 3090", "--own-price", "699", "--power-price", "0.30", "--energy", str(saved))
        result = costgpu(*words)
        assert result.returncode == 0, result.stderr
        assert max(map(len, result.stdout.splitlines())) <= 80
        assert "RTX 3090" in result.stdout
        assert "kWh" in result.stdout
        document = json.loads(costgpu(*words[:-1], "--json", str(saved)).stdout)
        assert document["own"] is not None
        assert document["energy_kwh"][0]["kwh"] > 0
        plain = json.loads(costgpu("estimate", "--json", str(saved)).stdout)
        assert plain["own"] is None
        assert "energy_kwh" not in plain

    def test_the_page_and_the_chart(self, saved: Path, tmp_path: Path) -> None:
        page = tmp_path / "where.html"
        result = costgpu("estimate", "--chart", "--report", str(page), str(saved))
        assert result.returncode == 0, result.stderr
        assert str(page) in result.stderr
        text = page.read_text()
        assert text.startswith("<!doctype html>")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert max(map(len, result.stdout.splitlines())) <= 80
        again = costgpu("estimate", "--report", str(page), str(saved))
        assert again.returncode == 2
        assert "--force overwrites it" in again.stderr
        assert costgpu("estimate", "--force", "--report", str(page), str(saved)).returncode == 0
