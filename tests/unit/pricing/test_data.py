"""What must be true of the shipped prices and hardware figures, whoever wrote them."""

import csv
from collections import defaultdict
from datetime import UTC, datetime
from functools import cache
from statistics import median

import pytest

from costgpu.errors import ConfigError
from costgpu.models.offer import USABLE_SHARE, Offer, PurchaseOption
from costgpu.pricing import hardware, snapshot

OWN_PRICE_LIST_ENTRY = {
    "a3-megagpu-8g": "the shape of a3-highgpu-8g with a faster network",
    "g4-standard-6": "a slice",
    "g4-standard-12": "a slice",
    "g4-standard-24": "a slice",
}
"""Types whose price is not that of their family's other sizes in proportion, with the reason."""

PROPORTION_TOLERANCE = 0.0025  # c7g.medium is listed to four decimals, 0.2 % off
MEMORY_TOLERANCE = 0.01  # price lists say 268 GiB for the B300, its data sheet 270


@cache
def shipped() -> list[Offer]:
    return snapshot.read_offers(snapshot.newest())


def test_every_row_has_its_source_and_a_day_that_has_been() -> None:
    today = datetime.now(UTC).date().isoformat()
    for path in snapshot.DATA.glob("*.csv"):
        for source, as_of in snapshot.read_table(path, ("source", "as_of")):
            assert source
            assert "2019-01-01" <= as_of <= today


def test_both_providers_and_both_options_are_there() -> None:
    assert {(o.provider, o.purchase_option) for o in shipped()} == {
        (provider, option) for provider in ("aws", "gcp") for option in PurchaseOption
    }


def test_spot_costs_at_most_what_on_demand_costs() -> None:
    on_demand = {
        (o.provider, o.region, o.instance_type): o.price_usd_per_hour
        for o in shipped()
        if o.purchase_option is PurchaseOption.ON_DEMAND
    }
    for offer in shipped():
        price = on_demand.get((offer.provider, offer.region, offer.instance_type))
        assert price is None or offer.price_usd_per_hour <= price


def test_nothing_is_offered_that_is_not_sold_that_way() -> None:
    """Google's page on accelerator-optimized machines, and dstackai/gpuhunt#176: 27 prices on demand nobody can rent at."""
    not_on_demand = {"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", "a3-ultragpu-8g", "a4-highgpu-8g"}
    options = defaultdict(set)
    for offer in shipped():
        options[offer.instance_type].add(offer.purchase_option)
    assert all(options[name] == {PurchaseOption.SPOT} for name in not_on_demand)
    assert options["a3-highgpu-8g"] == options["a3-megagpu-8g"] == set(PurchaseOption)


def test_each_row_has_the_day_of_its_own_price() -> None:
    """On demand and spot are known from different days, and of a sum the oldest part counts."""
    days = {(o.region, o.instance_type, o.purchase_option.value): o.price_as_of.isoformat() for o in shipped()}
    assert days["us-east-1", "g5.xlarge", "on_demand"] == "2026-07-20"
    assert days["us-east-1", "g5.xlarge", "spot"] == "2026-07-09"
    assert days["us-central1", "g2-standard-4", "spot"] == "2026-07-30"
    assert days["us-central1", "n1-standard-4+T4:1", "on_demand"] == "2026-07-09"
    assert days["us-central1", "a3-megagpu-8g", "on_demand"] == "2026-09-17"


def test_sizes_of_one_shape_cost_in_proportion() -> None:
    """Same region and family, same memory and accelerators per vCPU: same price per vCPU."""
    prices = defaultdict(list)
    for offer in shipped():
        if offer.purchase_option is PurchaseOption.SPOT or offer.instance_type in OWN_PRICE_LIST_ENTRY:
            continue
        accelerator = offer.accelerator
        shape = (
            offer.provider,
            offer.region,
            offer.family,
            round(offer.memory_gib / offer.vcpus, 4),
            accelerator and (accelerator.name, round(accelerator.count / offer.vcpus, 5)),
        )
        prices[shape].append(float(offer.price_usd_per_hour) / offer.vcpus)
    compared = [group for group in prices.values() if len(group) > 1]
    assert len(compared) > 300
    assert all(max(group) <= min(group) * (1 + PROPORTION_TOLERANCE) for group in compared)


def test_an_attached_accelerator_costs_the_same_on_every_host() -> None:
    """Google N1: the price of the host plus number x the price of the accelerator."""
    prices: defaultdict[tuple[str, ...], dict[str, dict[float, float]]] = defaultdict(dict)
    for offer in shipped():
        if "+" in offer.instance_type and offer.accelerator is not None:
            host = offer.instance_type.partition("+")[0]
            key = offer.region, offer.purchase_option, offer.accelerator.name
            prices[key].setdefault(host, {})[offer.accelerator.count] = float(offer.price_usd_per_hour)
    each = {
        key: [
            (by_count[most] - by_count[least]) / (most - least)
            for by_count in hosts.values()
            for least, most in [(min(by_count), max(by_count))]
        ]
        for key, hosts in prices.items()
    }
    assert len(each) >= 40
    assert all(max(group) - min(group) < 1e-5 for group in each.values())


def test_every_family_has_a_cpu_of_the_offer_s_architecture() -> None:
    for offer in shipped():
        arm = hardware.cpu(offer.provider, offer.family).model.startswith(("Neoverse", "Cortex"))
        assert offer.architecture == ("arm64" if arm else "x86_64")


def test_a_computed_price_says_so() -> None:
    sources = {offer.price_source for offer in shipped()}
    marks = ("estimated", "uplift", "ratio", "linear", "same Americas")
    assert {s for s in sources if "derived" not in s and any(mark in s for mark in marks)} == set()
    assert {s for s in sources if "derived" in s}


def test_the_accelerators_that_users_type() -> None:
    names = "K80 M60 P4 P100 V100 V100-32GB T4 T4G A10G L4 L40S A100 A100-80GB H100 H200 B200 B300 V520"
    assert {*names.split(), "RTX-PRO-4500", "RTX-PRO-6000"} == {o.accelerator.name for o in shipped() if o.accelerator}
    boards = {name: spec.model for name, spec in hardware.accelerators().items()}
    assert boards["P100"] == "P100-PCIE-16GB"
    assert boards["V100-32GB"] == "V100-SXM2-32GB"
    assert boards["H100"] == "H100-SXM5-80GB"
    assert boards["V520"] == "Radeon Pro V520"
    assert boards["RTX 4090"] == "RTX 4090"


def test_accelerator_figures_are_physical() -> None:
    for spec in hardware.accelerators().values():
        assert 2010 <= spec.year <= datetime.now(UTC).year
        assert 1 < spec.fp32_tflops < 1000
        assert 2 <= spec.memory_gib <= 512
        assert 50 <= spec.memory_bandwidth_gbps <= 20_000
        assert spec.tf32_tensor_tflops is None or spec.tf32_tensor_tflops >= spec.fp32_tflops
        assert spec.fp16_tensor_tflops is None or spec.fp16_tensor_tflops > spec.fp32_tflops
        assert (spec.compute_capability is not None) == (spec.vendor == "NVIDIA")
        if spec.compute_capability and spec.compute_capability < (8, 0):
            assert spec.tf32_tensor_tflops is None
            assert spec.bf16_tensor_tflops is None
    assert hardware.accelerators()["MI100"].fp32_matrix_tflops == 46.1
    assert hardware.accelerators()["A100"].compute_capability == (8, 0)


def test_cpu_figures_are_physical() -> None:
    for (provider, family), spec in hardware.cpus().items():
        assert (spec.provider, spec.family) == (provider, family)
        assert spec.vcpus_per_core in {1, 2}
        assert spec.all_core_ghz is None or 1 < spec.all_core_ghz < 6
        assert spec.fp32_flops_per_cycle in {None, 8, 16, 32, 64}
        assert (spec.read_gbps is None) == (spec.read_vcpus is None)
    burstable = {key for key, spec in hardware.cpus().items() if spec.burstable}
    assert burstable == {("aws", f) for f in ("t2", "t3", "t3a", "t4g")} | {("gcp", f) for f in ("e2", "f1", "g1")}
    c7i = hardware.cpu("aws", "c7i")
    assert (c7i.read_gbps, c7i.read_vcpus, c7i.matrix_mult_per_vcpu, c7i.bzip2_mbps) == (433.0, 192, 1124.93, 15.3)
    assert hardware.cpu("aws", "p5en").bf16_in_hardware
    assert hardware.cpu("gcp", "g4").fp32_flops_per_cycle == 64


def test_what_was_measured_by_others_carries_its_licence() -> None:
    head = (snapshot.DATA / hardware.CPU_MEASUREMENTS_FILE).read_text(encoding="utf-8").splitlines()[:4]
    notice = (snapshot.DATA / "LICENSE-CC-BY-SA-4.0.txt").read_text(encoding="utf-8")
    readme = (snapshot.DATA / "README.md").read_text(encoding="utf-8")
    url = "https://creativecommons.org/licenses/by-sa/4.0/legalcode"
    assert all(line.startswith("# ") for line in head)
    assert url in "".join(head)
    assert url in notice
    assert all("Spare Cores" in text for text in ("".join(head), notice, readme))
    measured = {"read_gbps", "read_vcpus", "matrix_mult_per_vcpu", "bzip2_mbps"}
    with (snapshot.DATA / hardware.CPUS_FILE).open(encoding="utf-8", newline="") as stream:
        assert measured.isdisjoint(next(csv.reader(stream)))


SPELLINGS = {
    "A100": "a100,A100-40GB",
    "A100-80GB": "A100-SXM4-80GB,nvidia-a100-80gb",
    "T4": "nvidia-tesla-t4",
    "V100": "Tesla V100,v100_16gb",
    "H100": "h100-80gb",
    "RTX-PRO-6000": "rtx pro 6000",
    "RTX 4090": "rtx4090",
}


@pytest.mark.parametrize(
    ("spelling", "name"), [(each, name) for name in SPELLINGS for each in SPELLINGS[name].split(",")]
)
def test_spellings_of_an_accelerator(spelling: str, name: str) -> None:
    assert hardware.accelerator(spelling).name == name


def test_programs_get_less_than_a_board_has() -> None:
    known = [spec for spec in hardware.accelerators().values() if spec.usable_gib is not None]
    assert {"T4", "L4", "A10G", "L40S", "A100", "A100-80GB", "H100", "H200", "B200"} <= {spec.name for spec in known}
    assert all(0.9 * spec.memory_gib < spec.room_gib < spec.memory_gib for spec in hardware.accelerators().values())
    assert median(spec.room_gib / spec.memory_gib for spec in known) == pytest.approx(USABLE_SHARE, abs=0.001)


def test_no_two_accelerators_share_a_spelling() -> None:
    names = hardware.accelerators()
    assert len({hardware.accelerator_key(name) for name in names}) == len(names)
    assert all(hardware.accelerator(name).name == name for name in names)


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'c7'.*'aws'|'c7'") as caught:
        hardware.cpu("aws", "c7")
    assert "c7i" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        hardware.cpu("azure", "c7")
    assert "aws, gcp" in caught.value.hint
