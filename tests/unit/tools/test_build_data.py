"""The program that makes the shipped data files: on the shipped facts, with a GPU added, and on facts that are wrong."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest

from costgpu.errors import ConfigError
from costgpu.models.offer import PurchaseOption
from costgpu.pricing import hardware, interruptions, snapshot
from tools import build_data, hardware_tables, offers_table

SMALL_FACTS = Path(__file__).parent / "facts"
SNAPSHOT = f"offers-{offers_table.COLLECTED}.csv"
GPU_ROW = "Titan X9,TITAN-X9-48GB,NVIDIA,2026,Ada,48,1000,50,,100,200,200,,128,8.9,350,96,PCIe,made up,,\n"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A few facts, all of them right."""
    shutil.copytree(SMALL_FACTS, tmp_path / "facts")
    return tmp_path / "facts"


def build(facts: Path) -> Path:
    out = facts.parent / "data"
    out.mkdir(exist_ok=True)
    build_data.build(facts, out)
    return out


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_shipped_data_is_made_from_the_shipped_facts(tmp_path: Path) -> None:
    shutil.copytree(build_data.DATA, tmp_path / "data")
    for name in (*build_data.build(build_data.FACTS, tmp_path / "data"), build_data.MANIFEST):
        assert (tmp_path / "data" / name).read_bytes() == (build_data.DATA / name).read_bytes(), name


def test_a_row_of_gpu_specs_adds_an_accelerator(tmp_path: Path) -> None:
    shutil.copytree(build_data.FACTS, tmp_path / "facts")
    with (tmp_path / "facts" / hardware_tables.GPU_SPECS).open("a", encoding="utf-8") as stream:
        stream.write(GPU_ROW)
    out = build(tmp_path / "facts")
    assert hardware.accelerators(out)["Titan X9"].memory_gib == 48


def test_offers(facts: Path) -> None:
    assert lines(build(facts) / SNAPSHOT) == lines(SMALL_FACTS.parent / "expected_offers.csv")


def test_a_price_at_which_nothing_is_sold_makes_no_offer(facts: Path) -> None:
    line = "gcp,us-central1,a3-highgpu-1g,x86_64,26,234,H100,1,80,11.06,6.02,a list,2026-07-16\n"
    for table, row in (
        ("gcp_prices.csv", line),
        ("cpu_families.csv", "gcp,a3,Xeon,,Sapphire Rapids,2023,2.0,3.0,2,no,avx512,yes,64,,,,,,documentation\n"),
        ("gpu_specs.csv", "H100,H100,NVIDIA,2022,Hopper,80,3350,67,,494,989,989,,132,9.0,700,50,SXM5,,,\n"),
    ):
        with (facts / table).open("a", encoding="utf-8") as stream:
            stream.write(row)
    with (facts / "interconnects.csv").open("a", encoding="utf-8") as stream:
        stream.write("gcp,a3-highgpu-1g,H100,1,26.0,,one GPU,,,25,tcp,no,0,,1.5,,,made up\n")
    made = [one for one in snapshot.read_offers(build(facts) / SNAPSHOT) if one.instance_type == "a3-highgpu-1g"]
    assert [one.purchase_option for one in made] == [PurchaseOption.SPOT]
    (kept,) = snapshot.read_offers(facts.parent / "data" / snapshot.NOT_SOLD_FILE)
    assert (kept.instance_type, kept.purchase_option) == ("a3-highgpu-1g", PurchaseOption.ON_DEMAND)


def test_accelerators(facts: Path) -> None:
    rows = lines(build(facts) / "accelerators.csv")
    source = "vendors' published peak figures,2026-09-17"
    assert (
        f"A100,A100-SXM4-40GB,NVIDIA,Ampere,2020,40,1555,19.5,,156,312,312,108,8.0,400,40,39.5,{source},https://github.com/TianheWu/CoSeR/issues/10"
        in rows
    )
    assert f"MI100,MI100,AMD,CDNA1,2020,32,1229,23.1,46.1,,185,92.3,120,,300,,,{source}," in rows


def test_cpus_and_measurements_are_kept_apart(facts: Path) -> None:
    out = build(facts)
    cpus, measured = lines(out / "cpus.csv"), lines(out / "cpu_measurements.csv")
    known = "processor vendors' and providers' documentation,2026-09-17"
    assert f"aws,c7i,Intel Xeon 8488C,Sapphire Rapids,2,3.2,64,yes,no,{known}" in cpus
    assert any(row.startswith("gcp,g4,") and ",Zen 5 (Turin),2,,64,yes,no,provider's announced" in row for row in cpus)
    assert not any("1124.93" in row or "433.0" in row for row in cpus)
    assert 'aws,c7i,433.0,192,1124.93,15.3,"Spare Cores, sc-data-dumps and sc-inspector-data",2026-08-22' in measured
    assert not any(row.startswith("gcp,g4,") for row in measured)


def test_interconnects(facts: Path) -> None:
    links = hardware.interconnects(build(facts))
    pair, slice_ = links["gcp", "n1-standard-4+T4:2"], links["aws", "g6f.large"]
    assert (pair.link, pair.link_gbps, pair.network, pair.network_gbps) == ("pcie3-host", 4.5, "tcp", 0.62)
    assert (pair.basis, pair.placement, pair.efa_interfaces) == ("extrapolated", True, 0)
    assert (slice_.link, slice_.link_gbps, slice_.network_gbit, slice_.network_gbps) == ("none", None, None, None)


def test_interruptions(facts: Path) -> None:
    """A share of 5 to 10 %, of machines that ran for an unknown time: a month, a day, an hour."""
    rates = interruptions.interruption_rates(build(facts))
    known, unknown = rates["aws", "us-east-1", "g6f.large"], rates["any", "any", "gpu"]
    assert (known.percent_a_month, known.basis, unknown.percent_a_month) == ("5-10", "published", "")
    assert known.low_per_hour == pytest.approx(-math.log(0.95) / 730, rel=0.01)
    assert known.per_hour == pytest.approx(-math.log(0.925) / 24, rel=0.01)
    assert known.high_per_hour == pytest.approx(-math.log(0.90), rel=0.01)
    taken_back = 100 / 410
    assert unknown.per_hour == pytest.approx(math.sqrt(-math.log(0.8) / 24 * taken_back), rel=0.01)
    assert unknown.high_per_hour == 0.5, "of the zones with 100 hours"
    assert rates["gcp", "any", "cpu"].high_per_hour == pytest.approx(-math.log(0.85) / 24, rel=0.01)


def test_every_offer_with_a_gpu_has_its_links() -> None:
    offers = snapshot.read_offers(snapshot.newest())
    types = {(offer.provider, offer.instance_type) for offer in offers if offer.accelerator is not None}
    assert types == set(hardware.interconnects())


def test_older_offers_stay_in_the_manifest(facts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(facts)
    monkeypatch.setattr(offers_table, "COLLECTED", "2027-01-01")
    out = build(facts)
    assert {SNAPSHOT, "offers-2027-01-01.csv"} <= set(json.loads((out / build_data.MANIFEST).read_text())["files"])


def test_the_command_line(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["build_data", "--facts", str(facts), "--out", str(tmp_path)])
    build_data.main()
    written = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    tables = [
        "not_sold.csv",
        "accelerators.csv",
        "cpus.csv",
        "cpu_measurements.csv",
        "interconnects.csv",
        "interruptions.csv",
    ]
    assert written == [SNAPSHOT, *tables]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("aws_prices.csv", ",0.08925,", ",0,", "line 2, column usd_per_hour: 0 is not above 0"),
        ("aws_prices.csv", ",0.08925,", ",-1,", "column usd_per_hour: -1"),
        ("aws_prices.csv", ",0.08925,", ",free,", "'free' is not a number"),
        ("aws_prices.csv", ",0.08925,", ",,", "there is no price"),
        ("aws_prices.csv", ",0.0713,", ",nan,", "column usd_per_hour_spot: nan"),
        ("aws_prices.csv", "c7i.large,x86_64,2,", "c7i.large,x86_64,0,", "column vcpus: 0 is below 1"),
        ("aws_prices.csv", "c7i.large,x86_64", "c7i.large,mips", "'mips' is not one of x86_64, arm64"),
        ("aws_prices.csv", "2026-01-19", "in January", "is not a date"),
        ("aws_prices.csv", "karpenter-2026-01", "", "column source: is empty"),
        ("aws_prices.csv", ",2,4,,,,", ",2,4,,1,,", "accelerators without a name"),
        ("aws_prices.csv", "RTXPRO6000", "RTX9", "'RTX9' is not a name in gpu_specs.csv"),
        ("aws_prices.csv", "RTXPRO6000,1,96", "RTXPRO6000,1,80", "is not 96 GiB"),
        ("aws_prices.csv", "aws,eu-west-1", "aws,us-east-1", "two prices"),
        ("aws_prices.csv", "c7i.large", "c9i.large", "no CPU is known for the family 'c9i'"),
        ("aws_prices.csv", "usd_per_hour_spot,", "usd_per_hour_spot,carbon,", "the unknown carbon"),
        ("gcp_prices.csv", "a (host) + b (GPU),2026-07-16", "a", "12 cells instead of 13"),
        ("gpu_specs.csv", "L4,L4,NVIDIA,2023,Ada,24", "L4,L4,NVIDIA,2023,Ada,", "column memory_gib: is empty"),
        ("gpu_specs.csv", "MI100,MI100", "L4,MI100", "'L4' is listed twice"),
        ("gpu_specs.csv", "MI100,MI100", "MI100,L4", "column board: 'L4' is listed twice"),
        ("gpu_specs.csv", ",40,1555,19.5", ",40,1555,?", "column fp32_tflops: '?' is not a number"),
        ("gpu_specs.csv", ",39.5,https", ",40.5,https", "column usable_gib: 40.5 is not above 0 to 40"),
        ("gpu_specs.csv", ",39.5,https", ",,https", "column usable_from: a figure needs its source"),
        ("cpu_families.csv", ",avx512+amx,yes,", ",avx512+amx,perhaps,", "column bf16_in_hardware: 'perhaps'"),
        ("cpu_families.csv", "aws,g7e,", "aws,g6f,", "'g6f' is listed twice"),
        ("interruptions.csv", ",5-10,", ",5 %,", "'5 %' is not one of <5, 5-10"),
        ("interruptions.csv", "g6f.large", "c9i.large", "there is no spot offer of 'c9i.large' in us-east-1"),
        ("interruption_traces.csv", ",300,30,", ",0,30,", "column hours: 0 is not above 0"),
        ("interruption_traces.csv", ",300,30,", ",300,-1,", "column interruptions: -1 is below 0"),
        ("interconnects.csv", "g6f.large", "g9f.large", "there is no offer of 'g9f.large' with an accelerator"),
        ("interconnects.csv", ",4.5,10,", ",,10,", "column link_gb_s: is for a link between two GPUs"),
        ("interconnects.csv", ",4.5,10,", ",0,10,", "column link_gb_s: 0 is not above 0"),
        ("interconnects.csv", "tcp,no,0", "tcp,perhaps,0", "'tcp perhaps' is not a known network"),
        ("interconnects.csv", "fitted on", "guessed on", "says neither fitted, extrapolated nor assumed"),
        ("cpu_families.csv", ",generation", ",hearsay", "'hearsay' is not one of documentation, generation"),
    ],
)
def test_a_fact_that_cannot_be_right_is_an_error(facts: Path, file: str, old: str, new: str, message: str) -> None:
    edit(facts / file, old, new)
    with pytest.raises(ConfigError) as caught:
        build(facts)
    assert file in caught.value.message
    assert message in caught.value.message


def test_missing_or_empty_price_lists_are_an_error(facts: Path) -> None:
    for name in offers_table.PRICE_LISTS:
        (facts / name).write_text(offers_table.PRICE_HEADER + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="There are no prices"):
        build(facts)
    (facts / "aws_prices.csv").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        build(facts)


@pytest.mark.parametrize(
    ("source", "on_demand", "spot"),
    [
        ("a list", "a list", "a list"),
        ("derived-linear", "derived-linear", "derived-linear"),
        ("list + host uplift 5.59%", "derived: list + host uplift 5.59%", "derived: list + host uplift 5.59%"),
        ("one; spot other@1", "one", "other@1"),
        ("one; spot estimated", "one", "derived: one; spot estimated"),
        ("derived: x; spot estimated", "derived: x", "derived: x; spot estimated"),
    ],
)
def test_the_source_of_each_price(source: str, on_demand: str, spot: str) -> None:
    assert offers_table.price_source(source, PurchaseOption.ON_DEMAND) == on_demand
    assert offers_table.price_source(source, PurchaseOption.SPOT) == spot
