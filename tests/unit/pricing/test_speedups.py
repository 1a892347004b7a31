"""The benchmark table: its rows are what they must be, and it prints at 80 columns."""

import re
from datetime import UTC, datetime

import pytest

from costgpu.errors import UsageError
from costgpu.models.offer import Grade
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.speedups import kinds, reference, references, speedups
from costgpu.render.estimate.speedups import speedup_section
from costgpu.render.text.layout import WIDTH
from costgpu.render.text.sections import section_text

# -- what ships


def test_every_shipped_row_says_where_and_when() -> None:
    today = datetime.now(UTC).date()
    assert len(speedups()) > 100
    for row in speedups():
        assert len(row.source) > 8
        assert row.as_of <= today
        assert row.measured[:10] <= today.isoformat()
        assert 0 < row.ratio_low <= row.ratio_high
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.kind)
        assert re.fullmatch(r"((19|20)\d\d(-\d\d(-\d\d)?)?)?", row.measured)
        assert (row.cpu_seconds is None) == (row.gpu_seconds is None)
        assert (row.units is None) == (not row.unit)
        assert 0 <= row.weight <= row.plausible


def test_measured_rows_can_be_scaled_and_no_source_tells_one_thing_twice() -> None:
    seen = set()
    for row in speedups():
        if row.grade is Grade.MEASURED:
            assert row.gpu in accelerators()
            assert row.cpu_cores
            assert row.cpu_seconds
            assert row.plausible
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


def test_references_are_what_they_must_be() -> None:
    for one in references().values():
        assert one.optimizer in ("SGD", "Adam")
        assert 0 <= one.convolutions <= 1


# -- what it looks like


def told(kind: str) -> str:
    return section_text(speedup_section(kind, [row for row in speedups() if row.kind == kind]))


def test_the_lines_of_every_kind_are_80_wide_and_have_their_source() -> None:
    for kind in kinds(speedups()):
        text = told(kind)
        assert max(map(len, text.splitlines())) <= WIDTH, kind
        for source in {row.source for row in speedups() if row.kind == kind}:
            assert source.split()[0].removeprefix("https://") in text


def test_measured_lines_stand_by_ratio_and_say_all() -> None:
    ratios = [float(found) for found in re.findall(r"(?m)^- ([0-9.]+)x ", told("gradient-boosted-trees"))]
    assert ratios == sorted(ratios, reverse=True)
    assert len(ratios) == 75
