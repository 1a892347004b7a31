"""The benchmark table: its loader names every mistake, its rows are what they must be, and it prints at 80 columns."""

import csv
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import ConfigError, UsageError
from costgpu.models.offer import Grade
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.references import REFERENCE_COLUMNS, read_references, reference, references
from costgpu.pricing.speedups import SPEEDUP_COLUMNS, kinds, read_speedups, speedups
from costgpu.pricing.validated_csv import read_rows
from costgpu.render.text.layout import WIDTH
from costgpu.render.text.speedups import speedups_table

HERE = Path(__file__).parent
MEASURED, CLAIM = csv.DictReader((HERE / "speedup_rows.csv").read_text().splitlines())


def table(tmp_path: Path, *rows: dict[str, str], columns: tuple[str, ...] = SPEEDUP_COLUMNS) -> Path:
    path = tmp_path / "speedups.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_measured_row_and_a_claim(tmp_path: Path) -> None:
    measured, claim = read_speedups(table(tmp_path, MEASURED, CLAIM))
    assert measured.ratio == measured.ratio_low == measured.ratio_high == 3.0
    assert (measured.grade, measured.units, measured.weight) == (Grade.MEASURED, 100, 0.5)
    assert (measured.gpu_tflops, measured.gpu_gbps) == (4.1, 240)  # of the hardware table
    assert claim.grade is Grade.CLAIM
    assert (claim.ratio_low, claim.ratio_high) == (10, 100)
    assert claim.ratio == pytest.approx(math.sqrt(1000))
    assert claim.gpu_tflops is None


def test_comments_and_empty_lines_are_no_rows_and_lines_are_counted_with_them(tmp_path: Path) -> None:
    path = table(tmp_path, MEASURED)
    text = path.read_text().splitlines()
    path.write_text("\n".join(["# written by hand", text[0], "", "# more", text[1], text[1].replace("K80", "K8000")]))
    with pytest.raises(
        ConfigError, match=r"speedups\.csv, line 6, column gpu: 'K8000' is not in the hardware table; near"
    ):
        read_speedups(path)


@pytest.mark.parametrize(
    ("changes", "column", "why"),
    [
        ({"kind": "LSTM net"}, "kind", "small letters"),
        ({"kind": ""}, "kind", "is empty"),
        ({"detail": ""}, "detail", "is empty"),
        ({"framework": ""}, "framework", "is empty"),
        ({"cpu": ""}, "cpu", "is empty"),
        ({"cpu_cores": ""}, "cpu_cores", "is empty"),
        ({"cpu_cores": "8.5"}, "cpu_cores", "is not a whole number"),
        ({"cpu_cores": "0"}, "cpu_cores", "is below 1"),
        ({"cpu_core_gflops": ""}, "cpu_core_gflops", "is empty"),
        ({"cpu_core_gflops": "nan"}, "cpu_core_gflops", "is not above 0"),
        ({"gpu": "GTX 9999"}, "gpu", "is not in the hardware table"),
        ({"cpu_seconds": "-3"}, "cpu_seconds", "is not above 0"),
        ({"cpu_seconds": "fast"}, "cpu_seconds", "is not a number"),
        ({"cpu_seconds": ""}, "cpu_seconds", "the other machine's seconds are given"),
        ({"gpu_seconds": "0"}, "gpu_seconds", "is not above 0"),
        ({"gpu_seconds": "inf"}, "gpu_seconds", "is not above 0"),
        ({"ratio_low": "3"}, "ratio_low", "beside the seconds"),
        ({"cpu_seconds": "", "gpu_seconds": "", "ratio_low": "3", "ratio_high": "3"}, "cpu_seconds", "is empty"),
        ({"unit": ""}, "units", "together or not at all"),
        ({"units": ""}, "units", "together or not at all"),
        ({"grade": "rumour"}, "grade", "is not one of measured, claim"),
        ({"weight": ""}, "weight", "is empty"),
        ({"weight": "1.5"}, "weight", "is not from 0 to 1"),
        ({"plausible": "maybe"}, "plausible", "is not one of yes, no"),
        ({"plausible": "no", "weight": "0"}, "plausible", "cannot be implausible"),
        ({"source": ""}, "source", "is empty"),
        ({"measured": "last year"}, "measured", "is not a year, month or day"),
        ({"as_of": "21.11.2026"}, "as_of", "is not a date"),
        ({"as_of": ""}, "as_of", "is empty"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_column(
    tmp_path: Path, changes: dict[str, str], column: str, why: str
) -> None:
    path = table(tmp_path, MEASURED, MEASURED | changes)
    with pytest.raises(ConfigError) as caught:
        read_speedups(path)
    assert caught.value.message.startswith(f"{path}, line 3, column {column}: ")
    assert why in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "column", "why"),
    [
        ({"ratio_low": ""}, "ratio_low", "there are no seconds"),
        ({"ratio_high": ""}, "ratio_high", "there are no seconds"),
        ({"ratio_low": "200"}, "ratio_high", "is below ratio_low"),
        ({"plausible": "no"}, "weight", "has weight 0"),
    ],
)
def test_mistakes_in_claims(tmp_path: Path, changes: dict[str, str], column: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"line 2, column {column}: .*{why}"):
        read_speedups(table(tmp_path, CLAIM | changes))


def test_a_table_with_other_columns_or_cells(tmp_path: Path) -> None:
    path = table(tmp_path, MEASURED)
    good = path.read_text()
    for text, message in (
        (good.replace("kind,detail", "kind,details"), "line 1: the header lacks detail and has the unknown details"),
        (good.replace("kind,detail", "detail,kind"), "the header has another order"),
        (good.rstrip("\n") + ",more\n", "line 2: 21 cells instead of 20"),
        (good[: good.rindex(",")], "line 2: 19 cells instead of 20"),
        ("", "is empty"),
        (good + '"open', "line 3"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_speedups(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_speedups(tmp_path / "none.csv")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_speedups(path)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=25))
def test_whatever_stands_in_a_line_is_a_row_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    path = tmp_path_factory.mktemp("any") / "speedups.csv"
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as stream:
        csv.writer(stream).writerow(SPEEDUP_COLUMNS)
        csv.writer(stream).writerow(cells)
    message = str(path)
    try:
        read_speedups(path)
    except ConfigError as error:
        message = error.message
    assert str(path) in message


# -- what ships


def test_every_shipped_row_says_where_and_when() -> None:
    today = datetime.now(UTC).date()
    assert len(speedups()) > 100
    for row in speedups():
        assert len(row.source) > 8
        assert row.as_of <= today
        assert row.measured[:10] <= today.isoformat()
        assert 0 < row.ratio_low <= row.ratio_high


def test_measured_rows_can_be_scaled_and_no_source_tells_one_thing_twice() -> None:
    seen = set()
    for row in speedups():
        if row.grade is Grade.MEASURED:
            assert row.gpu in accelerators()
            assert row.cpu_cores
            assert 10 < (row.cpu_core_gflops or 0) < 300
        key = (row.kind, row.detail, row.framework, row.cpu, row.gpu)
        assert key not in seen, key
        seen.add(key)


def test_the_claims_that_everybody_quotes_are_there_as_claims() -> None:
    claims = {(row.kind, round(row.ratio, 1)): row for row in speedups() if row.grade is Grade.CLAIM}
    assert claims["resnet50", 13.1].cpu_seconds == 7 * 3600
    wild = claims["gan", 1440.0]
    assert not wild.plausible
    assert wild.weight == 0
    assert {(row.ratio_low, row.ratio_high) for row in speedups() if row.kind == "any"} >= {(10, 100), (10, 15)}


def test_what_was_measured_reaches_from_k80_to_h100_and_over_the_kinds() -> None:
    measured = [row for row in speedups() if row.grade is Grade.MEASURED]
    assert {"K80", "P100", "V100", "A100", "H100-PCIE-80GB"} <= {row.gpu for row in measured}
    nets = {"mlp", "small-cnn", "resnet50", "gan", "lstm", "stacked-lstm", "transformer"}
    assert nets | {"gradient-boosted-trees", "random-forest"} <= {row.kind for row in measured}


def test_the_reference_workloads() -> None:
    resnet = reference("ResNet-50")
    assert resnet is references()["resnet50"]
    assert resnet.parameters == 25_557_032  # He et al. 2015, v1.5, 1,000 classes
    assert resnet.flops_per_sample == pytest.approx(3 * 2 * 4.09e9, rel=0.03)  # 4.09 G multiply-adds forward
    assert reference("bert_base").flops_per_sample == pytest.approx(6 * 86e6 * 384, rel=0.15)
    assert {one.kind for one in references().values()} <= set(kinds(speedups()))
    with pytest.raises(UsageError, match="'resnet5000'") as caught:
        reference("resnet5000")
    assert "resnet50" in caught.value.hint


def test_a_reference_that_is_there_twice_or_lacks_a_figure(tmp_path: Path) -> None:
    (row,) = csv.DictReader((HERE / "reference_row.csv").read_text().splitlines())
    assert read_references(table(tmp_path, row, columns=REFERENCE_COLUMNS))["net"].samples_per_epoch is None
    with pytest.raises(ConfigError, match="line 3, column name: 'net' is there twice"):
        read_references(table(tmp_path, row, row, columns=REFERENCE_COLUMNS))
    for column, value in (
        ("flops_per_sample", ""),
        ("optimizer", "Lion"),
        ("convolutions", "1.1"),
        ("batch_size", "0"),
    ):
        with pytest.raises(ConfigError, match=f"line 2, column {column}: "):
            read_references(table(tmp_path, row | {column: value}, columns=REFERENCE_COLUMNS))


def test_rows_stand_at_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"two\nlines",2\n3, 4 \n')
    assert [(row.line, row.cells["b"]) for row in read_rows(path, ("a", "b"))] == [(3, "2"), (4, "4")]


# -- what it looks like


def test_the_lines_of_every_kind_are_80_wide_and_have_their_source() -> None:
    for kind in kinds(speedups()):
        rows = [row for row in speedups() if row.kind == kind]
        text = speedups_table(rows)
        assert max(map(len, text.splitlines())) <= WIDTH, kind
        for source in {row.source for row in rows}:
            assert source.split()[0].removeprefix("https://") in text


def test_measured_lines_stand_by_ratio_and_say_all() -> None:
    text = speedups_table([row for row in speedups() if row.kind == "stacked-lstm"])
    assert "stacked-lstm: 1 measured line" in text
    assert "3.3x  K80 against AWS c4.8xlarge (Xeon E5-2666 v3), 18 cores" in text
    assert "[1] github.com/mkroutikov/tf-lstm-char-cnn/issues/3" in text
    trees = speedups_table([row for row in speedups() if row.kind == "gradient-boosted-trees"])
    ratios = [float(line.split("x")[0]) for line in trees.splitlines() if " against " in line and "x  " in line[:14]]
    assert ratios == sorted(ratios, reverse=True)
    assert len(ratios) == 75
