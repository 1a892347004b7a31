"""`costgpu speedups`: what it prints, and what its options mean."""

import json

import pytest
import typer
from typer.testing import CliRunner

from costgpu.cli.prices import select, speedups
from costgpu.errors import UsageError
from costgpu.pricing.speedups import speedups as table

ALONE = typer.Typer()
ALONE.command()(speedups)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(ALONE, list(arguments))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def test_without_a_kind_it_is_the_summary() -> None:
    text = printed()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["KIND", "LINES", "RATIOS", "MEDIAN", "CORES", "GPUS"]
    assert any(line.split()[:2] == ["gradient-boosted-trees", "75"] for line in lines)
    assert text.index("random-forest ") < text.index("Claims:") < text.index("1440x  gan")


def test_a_kind_is_listed_line_by_line() -> None:
    text = printed("resnet50")
    assert max(map(len, text.splitlines())) <= 80
    assert "resnet50: 7 measured" in text
    assert "65x  GTX 1080 Ti against 2 x Xeon E5-2630 v3, 16 cores" in text
    assert "13x  resnet50: 7 h against 32 min" in text
    assert "small-cnn" not in text
    assert "\x1b" not in text


def test_a_gpu_has_its_variants_with_it() -> None:
    document = json.loads(printed("--gpus", "h100", "--json"))
    assert {row["gpu"] for row in document["speedups"]} == {"H100-PCIE-80GB"}
    assert {row.gpu for row in select(table(), "gradient-boosted-trees", "v100")} == {"V100", "V100-PCIE-16GB"}
    assert {row.gpu for row in select(table(), None, "nvidia-tesla-k80")} == {"K80"}


def test_the_document_is_the_only_output_and_has_every_row() -> None:
    document = json.loads(printed("--json"))
    assert document == json.loads(printed("-o", "json"))
    assert document["schema"] == "costgpu.speedups"
    assert len(document["speedups"]) == len(table())
    assert [row["kind"] for row in json.loads(printed("mlp", "--json"))["speedups"]] == ["mlp"] * 5


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("resnet",), "no kind of work named 'resnet'", "resnet50"),
        (("--gpus", "H1000"), "no accelerator named 'H1000'", "H100"),
        (("svm", "--gpus", "K80"), "no line of svm on K80", "none with a named GPU"),
        (("--gpus", "MI210"), "no line of any kind on MI210", "K80"),
        (("--output", "yaml"), "'yaml' is not a format", "text or json"),
    ],
)
def test_what_is_not_there_is_a_clear_error(arguments: tuple[str, ...], message: str, hint: str) -> None:
    result = CliRunner().invoke(ALONE, list(arguments))
    assert isinstance(result.exception, UsageError)
    assert message in result.exception.message
    assert hint in result.exception.hint
    assert result.stdout == ""
