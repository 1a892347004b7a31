"""The file format: what is written reads back, and damage is noticed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.errors import ConfigError, PriceNotFound
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.pricing import snapshot
from tests.unit.estimator.builders import offer

if TYPE_CHECKING:
    from pathlib import Path

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1)
quantities = st.sampled_from([0.125, 0.5, 1.0, 30.5, 16.0, 1152.0])
offers = st.builds(
    Offer,
    provider=st.sampled_from(["aws", "gcp"]),
    instance_type=texts,
    family=texts,
    region=texts,
    zone=st.none() | texts,
    purchase_option=st.sampled_from(PurchaseOption),
    price_usd_per_hour=st.decimals(min_value="0.000001", max_value="1000", places=6),
    vcpus=st.integers(1, 1000),
    memory_gib=quantities,
    architecture=st.sampled_from(["x86_64", "arm64"]),
    accelerator=st.none() | st.builds(Accelerator, name=texts, count=quantities, memory_gib=quantities),
    price_source=texts,
    price_as_of=st.dates(date(2000, 1, 1), date(2100, 1, 1)),
)

HEADER = ",".join(snapshot.OFFER_COLUMNS)
ROW = "aws,us-east-1,,g6.xlarge,g6,on_demand,0.8048,4,16,x86_64,L4,1,24,a list,2026-07-09"


@settings(deadline=None)  # the machine may be busy
@given(st.lists(offers, max_size=5))
def test_what_is_written_reads_back(tmp_path_factory: pytest.TempPathFactory, wanted: list[Offer]) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "offers-2026-07-09.csv"
    text = snapshot.offers_text(wanted)
    path.write_bytes(text.encode())
    read = snapshot.read_offers(path)
    assert sorted(read, key=repr) == sorted(wanted, key=repr)
    assert snapshot.offers_text(reversed(read)) == text


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def test_a_row_becomes_an_offer(tmp_path: Path) -> None:
    path = write(tmp_path / "offers-2026-07-09.csv", "# a comment", HEADER, ROW)
    assert snapshot.read_offers(path) == [
        offer(
            "0.8048",
            gpu="L4",
            gpu_memory_gib=24.0,
            instance_type="g6.xlarge",
            family="g6",
            vcpus=4,
            price_source="a list",
            price_as_of=date(2026, 7, 9),
        )
    ]


def test_columns_are_found_by_name_and_new_ones_ignored(tmp_path: Path) -> None:
    plain = snapshot.read_offers(write(tmp_path / "offers-2026-07-09.csv", HEADER, ROW))
    newer = write(tmp_path / "offers-2026-07-10.csv", f"carbon,{HEADER}", f"12,{ROW}")
    assert snapshot.read_offers(newer) == plain


@pytest.mark.parametrize("price", ["", "0", "0.0", "-1", "nan", "inf", "free"])
def test_a_missing_price_is_an_error(tmp_path: Path, price: str) -> None:
    path = write(tmp_path / "offers-2026-07-09.csv", HEADER, ROW.replace("0.8048", price))
    with pytest.raises(PriceNotFound, match=r"g6\.xlarge in aws/us-east-1 \(on_demand\)"):
        snapshot.read_offers(path)


@pytest.mark.parametrize(
    "lines",
    [
        [HEADER, ROW.replace("on_demand", "reserved")],
        [HEADER, ROW.replace("2026-07-09", "July")],
        [HEADER, ROW.replace(",4,16,", ",four,16,")],
        [HEADER, ROW.replace(",L4,1,24,", ",L4,1,,")],
        [HEADER, "aws,us-east-1"],
        [HEADER.replace("vcpus,", ""), ROW],
        [],
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path / "offers-2026-07-09.csv", *lines)
    with pytest.raises(ConfigError, match="offers-2026-07-09") as caught:
        snapshot.read_offers(path)
    assert "Reinstall" in caught.value.hint


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        snapshot.read_offers(tmp_path / "offers-2026-07-09.csv")
    with pytest.raises(ConfigError, match="no price snapshot"):
        snapshot.newest(tmp_path)


def test_the_newest_snapshot_is_the_one_with_the_latest_date(tmp_path: Path) -> None:
    for day in ("2026-07-09", "2026-10-01", "2025-12-31"):
        write(tmp_path / f"offers-{day}.csv", HEADER)
    assert snapshot.newest(tmp_path).name == "offers-2026-10-01.csv"
