"""The script that makes the data files, on a few facts of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from costgpu.errors import ConfigError
from costgpu.models.offer import PurchaseOption
from costgpu.pricing import snapshot
from costgpu.pricing.sources import facts, gpu_names, hardware_facts

MEMORY = {"L4": 24, "T4": 16, "RTX-PRO-6000-Blackwell-Server": 96, "A100-SXM4-40GB": 40}

AWS = """\
aws,us-east-1,c7i.large,x86_64,2,4,,,,0.08925,,karpenter-2026-01,2026-01-19
aws,us-east-1,g6f.large,x86_64,2,8,L4,0.125,24,0.202,0.0713,skypilot-catalog-v9,2026-07-09
aws,eu-west-1,g6f.large,x86_64,2,8,L4,0.125,24,0.2222,,derived-linear,2026-07-09
aws,us-east-1,g7e.2xlarge,x86_64,8,64,RTXPRO6000,1,96,3.36312,3.36312,skypilot-catalog-v9,2026-07-09
"""
GCP = """\
gcp,us-central1,n1-standard-4+T4:2,x86_64,4,15,T4,2,16,0.889999,0.44683,a (host) + b (GPU),2026-07-16
gcp,us-central1,g4-standard-24,x86_64,24,90,RTX-PRO-6000-1/2,1,48,2.5,1.0,a SKU; spot estimated,2026-09-17
gcp,us-central1,n1-standard-4,x86_64,4,15,,0,0,0.189999,0.06383,a list; a remark; spot another list,2026-07-16
"""
FAMILIES = """\
aws,c7i,Intel Xeon 8488C,,Sapphire Rapids,2023,2.4,3.2,2,avx512+amx,yes,64,307,433.0,192,1124.93,,,
aws,g6f,AMD EPYC 7R13,,Zen 3 (Milan),2021,2.65,3.6,2,avx2,no,32,205,40.0,16,932.68,1484.24,,
aws,g7e,Intel Xeon 8559C,,Emerald Rapids,2024,2.4,,2,avx512+amx,yes,64,358,455.0,192,1546.62,1108.7,,
aws,p5,AMD EPYC 7R13,,Zen 3 (Milan),2023,2.65,3.6,2,avx2,,32,205,,,,,,
gcp,c4d,AMD EPYC 9B45,,Zen 5 (Turin),2025,2.7,,2,avx512,yes,64,576,531.0,192,1862.68,,,
gcp,n1,Intel Xeon,,Haswell,2014,2.0,2.7,2,avx2,no,32,,252.0,160,597.13,728.98,1.31,16.12
"""

OFFERS = """\
provider,region,zone,instance_type,family,purchase_option,price_usd_per_hour,vcpus,memory_gib,architecture,\
accelerator,accelerator_count,accelerator_memory_gib,source,as_of
aws,eu-west-1,,g6f.large,g6f,on_demand,0.2222,2,8,x86_64,L4,0.125,3,derived-linear,2026-07-09
aws,us-east-1,,c7i.large,c7i,on_demand,0.08925,2,4,x86_64,,,,karpenter-2026-01,2026-01-19
aws,us-east-1,,g6f.large,g6f,on_demand,0.202,2,8,x86_64,L4,0.125,3,skypilot-catalog-v9,2026-07-09
aws,us-east-1,,g6f.large,g6f,spot,0.0713,2,8,x86_64,L4,0.125,3,skypilot-catalog-v9,2026-07-09
aws,us-east-1,,g7e.2xlarge,g7e,on_demand,3.36312,8,64,x86_64,RTX-PRO-6000,1,96,skypilot-catalog-v9,2026-07-09
aws,us-east-1,,g7e.2xlarge,g7e,spot,3.36312,8,64,x86_64,RTX-PRO-6000,1,96,skypilot-catalog-v9,2026-07-09
gcp,us-central1,,g4-standard-24,g4,on_demand,2.5,24,90,x86_64,RTX-PRO-6000,0.5,48,a SKU,2026-09-17
gcp,us-central1,,g4-standard-24,g4,spot,1.0,24,90,x86_64,RTX-PRO-6000,0.5,48,\
derived: a SKU; spot estimated,2026-09-17
gcp,us-central1,,n1-standard-4,n1,on_demand,0.189999,4,15,x86_64,,,,a list; a remark,2026-07-16
gcp,us-central1,,n1-standard-4,n1,spot,0.06383,4,15,x86_64,,,,another list,2026-07-16
gcp,us-central1,,n1-standard-4+T4:2,n1,on_demand,0.889999,4,15,x86_64,T4,2,16,a (host) + b (GPU),2026-07-16
gcp,us-central1,,n1-standard-4+T4:2,n1,spot,0.44683,4,15,x86_64,T4,2,16,a (host) + b (GPU),2026-07-16
"""


def board(name: str) -> str:
    notes = "fp32 matrix 46.1 TFLOPS" if name == "MI100" else ""
    capability = "gfx908" if name == "MI100" else "8.0"
    head = f"{name},NVIDIA,2020,Ampere,{MEMORY.get(name, 32)}"
    return f"{head},1555,19.5,156,312,,624,108,{capability},400,SXM4,{notes}\n"


BOARDS = "".join(map(board, [*gpu_names.BOARDS.values(), "MI100"])) + (
    "Gaudi-HL-205,Intel,2019,Gaudi,32,1000,,,,,,8,,350,OAM,\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of facts that are right."""
    (tmp_path / "aws_prices.csv").write_text(f"{facts.PRICE_COLUMNS}\n{AWS}", encoding="utf-8")
    (tmp_path / "gcp_prices.csv").write_text(f"{facts.PRICE_COLUMNS}\n{GCP}", encoding="utf-8")
    for name, header, rows in (
        (hardware_facts.GPU_SPECS, hardware_facts.GPU_SPEC_COLUMNS, BOARDS),
        (hardware_facts.CPU_FAMILIES, hardware_facts.CPU_FAMILY_COLUMNS, FAMILIES),
    ):
        (tmp_path / name).write_text(f"{header}\n{rows}", encoding="utf-8")
    (tmp_path / "out").mkdir()
    return tmp_path


def build(folder: Path) -> dict[str, bytes]:
    facts.build(folder, folder / "out")
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_offers(folder: Path) -> None:
    assert build(folder)["offers-2026-09-17.csv"].decode() == OFFERS


def test_accelerators(folder: Path) -> None:
    rows = build(folder)["accelerators.csv"].decode().splitlines()
    assert len(rows) == 1 + len(gpu_names.BOARDS) + 1  # the heading, the named ones, MI100; no Gaudi
    source = "vendors' published peak figures,2026-09-17"
    assert f"A100,A100-SXM4-40GB,NVIDIA,Ampere,2020,40,1555,19.5,,156,312,,108,8.0,400,{source}" in rows
    assert f"MI100,MI100,NVIDIA,Ampere,2020,32,1555,19.5,46.1,156,312,,108,,400,{source}" in rows


def test_cpus_and_measurements_are_kept_apart(folder: Path) -> None:
    built = build(folder)
    cpus, measured = (built[name].decode().splitlines() for name in ("cpus.csv", "cpu_measurements.csv"))
    known = "processor vendors' and providers' documentation,2026-09-17"
    assert f"aws,c7i,Intel Xeon 8488C,Sapphire Rapids,2,3.2,64,yes,no,{known}" in cpus
    assert f"aws,p5,AMD EPYC 7R13,Zen 3 (Milan),2,3.6,32,no,no,{known}" in cpus  # bf16: as g6f, of the same kind
    assert any(row.startswith("gcp,g4,") and ",Zen 5 (Turin),2,,64,yes,no," in row for row in cpus)
    assert not any("1124.93" in row or "433.0" in row for row in cpus)
    assert 'aws,c7i,433.0,192,1124.93,"Spare Cores, sc-data-dumps",2026-01-31' in measured
    assert not any(row.startswith(("aws,p5,", "gcp,g4,")) for row in measured)


def test_the_same_facts_give_the_same_bytes(folder: Path) -> None:
    first = build(folder)
    assert build(folder) == first
    for path in (folder / "out").iterdir():
        path.unlink()
    assert build(folder) == first
    snapshot.verify(folder / "out")


def test_older_offers_stay_in_the_manifest(folder: Path) -> None:
    build(folder)
    for name in ("aws_prices.csv", "gcp_prices.csv"):
        edit(folder / name, ",2026-", ",2027-")
    build(folder)
    snapshot.verify(folder / "out")
    assert {"offers-2026-09-17.csv", "offers-2027-09-17.csv"} <= set(snapshot.read_manifest(folder / "out"))


def test_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    monkeypatch.setattr(sys, "argv", ["facts", "--facts", str(folder), "--out", str(out)])
    facts.main()
    written = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert written == ["offers-2026-09-17.csv", "accelerators.csv", "cpus.csv", "cpu_measurements.csv"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("aws_prices.csv", ",0.08925,", ",0,", "usd_per_hour is '0'"),
        ("aws_prices.csv", ",0.08925,", ",-1,", "usd_per_hour is '-1'"),
        ("aws_prices.csv", ",0.08925,", ",free,", "usd_per_hour is 'free'"),
        ("aws_prices.csv", ",0.08925,", ",,", "there is no price"),
        ("aws_prices.csv", ",0.0713,", ",nan,", "usd_per_hour_spot is 'nan'"),
        ("aws_prices.csv", "c7i.large,x86_64,2,", "c7i.large,x86_64,0,", "vcpus is '0'"),
        ("aws_prices.csv", "c7i.large,x86_64", "c7i.large,mips", "unknown provider, architecture"),
        ("aws_prices.csv", "2026-01-19", "in January", "not a date"),
        ("aws_prices.csv", "karpenter-2026-01", "", "no source"),
        ("aws_prices.csv", ",2,4,,,,", ",2,4,,1,,", "1 accelerators without a name"),
        ("aws_prices.csv", "RTXPRO6000", "RTX9", "'RTX9' is not in sources/boards.py"),
        ("aws_prices.csv", "RTXPRO6000,1,96", "RTXPRO6000,1,80", "is not 96 GiB"),
        ("aws_prices.csv", "aws,eu-west-1", "aws,us-east-1", "two prices"),
        ("aws_prices.csv", "c7i.large", "c9i.large", "no CPU is known for the family 'c9i'"),
        (
            "aws_prices.csv",
            "usd_per_hour_spot,",
            "usd_per_hour_spot,carbon,",
            "columns are not those expected",
        ),
        ("gcp_prices.csv", "a (host) + b (GPU),2026-07-16", "a", "does not have 13 cells"),
        ("gpu_specs.csv", "L4,NVIDIA,2020,Ampere,24", "L9,NVIDIA,2020,Ampere,24", "lacks the board L4"),
        ("gpu_specs.csv", "L4,NVIDIA,2020,Ampere,24", "L4,NVIDIA,2020,Ampere,", "L4 has no memory_gib"),
        ("gpu_specs.csv", "MI100,", "L4,", "lists a board twice"),
        (
            "gpu_specs.csv",
            "A100-SXM4-40GB,NVIDIA,2020,Ampere,40,1555,19.5",
            "A100-SXM4-40GB,NVIDIA,2020,Ampere,40,1555,?",
            "fp32_tflops of A100",
        ),
        (
            "cpu_families.csv",
            ",avx512+amx,yes,64,307",
            ",avx512+amx,perhaps,64,307",
            "bf16_in_hardware is 'perhaps'",
        ),
        ("cpu_families.csv", "aws,p5,", "aws,g6f,", "lists a family twice"),
        ("cpu_families.csv", "gcp,c4d,", "gcp,g4,", "has ('gcp', 'g4') by now"),
        ("cpu_families.csv", ",avx2,no,32,205,40.0", ",avx2,,32,205,40.0", "is not one value"),
    ],
)
def test_a_fact_that_cannot_be_right_is_an_error(folder: Path, file: str, old: str, new: str, message: str) -> None:
    edit(folder / file, old, new)
    with pytest.raises(ConfigError) as caught:
        facts.build(folder, folder / "out")
    assert message in caught.value.message


def test_missing_or_empty_facts_are_an_error(folder: Path) -> None:
    for name in ("aws_prices.csv", "gcp_prices.csv"):
        (folder / name).write_text(f"{facts.PRICE_COLUMNS}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="There are no prices"):
        facts.build(folder, folder / "out")
    (folder / "aws_prices.csv").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        facts.build(folder, folder / "out")


@pytest.mark.parametrize(
    ("source", "on_demand", "spot"),
    [
        ("a list", "a list", "a list"),
        ("derived-linear", "derived-linear", "derived-linear"),
        (
            "list + host uplift 5.59%",
            "derived: list + host uplift 5.59%",
            "derived: list + host uplift 5.59%",
        ),
        ("one; spot other@1", "one", "other@1"),
        ("one; spot estimated", "one", "derived: one; spot estimated"),
        ("derived: x; spot estimated", "derived: x", "derived: x; spot estimated"),
    ],
)
def test_the_source_of_each_price(source: str, on_demand: str, spot: str) -> None:
    assert facts.source_of(source, PurchaseOption.ON_DEMAND) == on_demand
    assert facts.source_of(source, PurchaseOption.SPOT) == spot
