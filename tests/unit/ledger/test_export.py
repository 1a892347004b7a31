"""Files for other programs: what they hold, and that FOCUS is what its specification says."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.ledger import Ledger
from costgpu.ledger.costs import focus
from costgpu.ledger.costs.charges import RunFilter, spent
from costgpu.ledger.costs.closed_runs import ClosedRun, closed_runs
from costgpu.ledger.costs.export import COLUMNS, as_csv, as_json
from costgpu.ledger.costs.periods import Calendar, Every
from costgpu.providers import registry
from tests.properties import examples
from tests.unit.ledger.closed import Closed, plant

EXAMPLES = count()
MONTHS = Calendar(Every.MONTHLY, "UTC", None, None)
AT = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)


SHARED = Ledger.open("sqlite://")  # making one takes longer than all that is asked of it


def runs_of(*planted: Closed) -> list[ClosedRun]:
    plant(SHARED, planted)
    return list(closed_runs(SHARED, RunFilter(), newest_first=True, limit=len(planted)))[::-1]


def rows_in(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


# The columns of FOCUS 1.2 that are written, from the specification's own pages: data type, whether null is allowed for
# a charge of usage, and the values that are allowed.
SPECIFIED = {
    row["column"]: row
    for row in csv.DictReader((Path(__file__).parent / "data" / "focus-1.2.csv").read_text().splitlines())
}
NAMES = {spec.name: (spec.publisher, spec.service) for spec in registry.specs()}
FORMS = {
    "Decimal": re.compile(r"-?\d+(\.\d+)?"),  # no exponent, no plus, no separators
    "Date/Time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "String": re.compile(r".+", re.DOTALL),
    "JSON": re.compile(r"\{.+\}", re.DOTALL),
}


def conforms(row: dict[str, str]) -> None:
    """To the table, and to what the specification says about columns together."""
    for name, column in SPECIFIED.items():
        value = row[name]
        if value == "":
            assert column["null"] == "yes", name
            continue
        assert FORMS[column["type"]].fullmatch(value), (name, value)
        assert not column["allowed"] or value in column["allowed"].split("|"), (name, value)
        if column["type"] == "JSON":
            assert isinstance(json.loads(value), dict)
    assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    assert row["BillingPeriodStart"].endswith("-01T00:00:00Z")
    assert Decimal(row["ListUnitPrice"]) >= 0
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        assert Decimal(row[price]) * Decimal(row["PricingQuantity"]) == pytest.approx(
            Decimal(row[cost]), abs=Decimal("1e-9")
        )
    assert (row["ResourceId"] == "") == (row["ResourceType"] == "")
    assert (row["RegionId"] == "") == (row["RegionName"] == "")


def test_the_columns_are_those_of_the_specification_in_its_order() -> None:
    ours = [name for name in focus.COLUMNS if name.startswith("x_")]
    theirs = [name for name in focus.COLUMNS if not name.startswith("x_")]
    assert set(theirs) == set(SPECIFIED)
    assert theirs == sorted(theirs)
    assert list(focus.COLUMNS) == theirs + ours
    assert {name: focus.data_type(name)["DataType"] for name in theirs} == {
        name: SPECIFIED[name]["type"] for name in theirs
    }
    assert all(re.fullmatch(r"[A-Z][A-Za-z]{1,49}", name) for name in theirs)


def test_a_run_over_the_end_of_a_month() -> None:
    (run,) = runs_of(Closed(started=AT, seconds=7200.0, cost=Decimal("1.00000001"), tags={"team": "nlp"}))
    first, second = rows_in("".join(focus.as_focus([run], NAMES)))
    for row in (first, second):
        conforms(row)
    assert (first["ChargePeriodStart"], first["ChargePeriodEnd"]) == ("2026-10-31T22:30:00Z", "2026-11-01T00:00:00Z")
    assert (second["ChargePeriodStart"], second["ChargePeriodEnd"]) == ("2026-11-01T00:00:00Z", "2026-11-01T00:30:00Z")
    assert (first["BillingPeriodStart"], second["BillingPeriodStart"]) == (
        "2026-10-01T00:00:00Z",
        "2026-11-01T00:00:00Z",
    )
    assert Decimal(first["BilledCost"]) + Decimal(second["BilledCost"]) == Decimal("1.00000001")
    assert (first["PricingQuantity"], second["PricingQuantity"]) == ("1.5", "0.5")
    shown = {
        "ProviderName": "Amazon Web Services",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "SkuId": "aws:g5.xlarge",
        "PricingCategory": "Standard",
        "ResourceId": f"i-{run.run_id}",
        "ResourceName": "train",
        "RegionId": "us-east-1",
        "Tags": '{"team": "nlp"}',
        "x_RunId": run.run_id,
        "x_FocusVersion": "1.2",
        "ChargeCategory": "Usage",
        "SkuPriceDetails": '{"GpuCount": 1.0, "InstanceType": "g5.xlarge", "x_GpuModel": "A10G"}',
    }
    assert {name: first[name] for name in shown} == shown


PLANTED = st.builds(
    Closed,
    started=st.timedeltas(timedelta(), timedelta(days=70)).map(lambda after: AT - timedelta(days=30) + after),
    seconds=st.one_of(st.just(0.0), st.floats(0.001, 5e6)),
    cost=st.decimals(0, 5000, places=9),
    provider=st.sampled_from(["aws", "gcp", "local", "fake"]),
    region=st.sampled_from(["us-east-1", ""]),
    spot=st.booleans(),
    gpu=st.sampled_from(["", "A10G"]),
    account=st.sampled_from(["", "1234"]),
    name=st.text(min_size=1, max_size=8),
    tags=st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=2),
)


@examples(60)
@given(PLANTED)
def test_every_row_conforms_and_rows_add_up_to_what_was_recorded(planted: Closed) -> None:
    (run,) = runs_of(planted)
    assert all(set(row) == set(focus.COLUMNS) for row in focus.rows_of(run, NAMES, MONTHS)), "each value has its column"
    rows = rows_in("".join(focus.as_focus([run], NAMES)))
    for row in rows:
        conforms(row)
    for column in ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"):
        assert sum(Decimal(row[column]) for row in rows) == run.metered_cost_usd == planted.cost
    months = [row["BillingPeriodStart"] for row in rows]
    assert months == sorted(set(months))
    for earlier, later in pairwise(rows):
        assert earlier["ChargePeriodEnd"] == later["ChargePeriodStart"]


@examples(30)
@given(st.lists(PLANTED, max_size=4), st.timedeltas(timedelta(), timedelta(days=60)), st.integers(1, 10**7))
def test_a_part_of_the_time_is_what_was_spent_in_it(planted: list[Closed], after: timedelta, length: int) -> None:
    low = (AT - timedelta(days=30) + after).replace(microsecond=0)
    high = low + timedelta(seconds=length)
    mine = {"example": str(next(EXAMPLES))}
    plant(SHARED, [replace(run, tags=mine) for run in planted])
    runs = closed_runs(SHARED, RunFilter(tags=mine), since=low, until=high)
    rows = rows_in("".join(focus.as_focus(runs, NAMES, since=low, until=high)))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == spent(SHARED, RunFilter(tags=mine), low, high)
    for row in rows:
        conforms(row)
        assert f"{low:%Y-%m-%dT%H:%M:%SZ}" <= row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        assert row["ChargePeriodEnd"] <= f"{high:%Y-%m-%dT%H:%M:%SZ}"


def test_a_run_without_a_machine_has_no_charge() -> None:
    runs = runs_of(Closed(started=AT, seconds=0.0, cost=Decimal(0), reason="no_capacity", instance=False))
    assert rows_in("".join(focus.as_focus(runs, NAMES))) == []
    assert len(rows_in("".join(as_csv(runs)))) == 1


def test_the_metadata_names_the_version_and_every_column() -> None:
    (schema,) = focus.metadata(AT)["Schema"]
    assert schema["FocusVersion"] == "1.2"
    assert [column["ColumnName"] for column in schema["ColumnDefinition"]] == list(focus.COLUMNS)


@pytest.mark.parametrize("word", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_no_cell_is_a_formula(word: str) -> None:
    (run,) = runs_of(Closed(started=AT, name=word, owner=word, tags={word: word}))
    for text in ("".join(as_csv([run])), "".join(focus.as_focus([run], NAMES))):
        (row,) = rows_in(text)
        assert any(value == f"'{word}" for value in row.values())
        for value in row.values():
            assert not value.startswith(("=", "+", "@", "\t", "\r", "\n"))
            assert not value.startswith("-") or FORMS["Decimal"].fullmatch(value)
    assert json.loads("".join(as_json([run], AT)))["runs"][0]["name"] == word


def test_what_is_not_known_is_empty_and_negative_numbers_stay_numbers() -> None:
    (run,) = runs_of(Closed(started=AT, cost=Decimal("-0.5"), gpu="", region=""))
    (row,) = rows_in("".join(as_csv([run])))
    assert (row["accelerator"], row["job_seconds"], row["metered_cost_usd"], row["tags"]) == ("", "", "-0.5", "")
    document = json.loads("".join(as_json([run], AT)))["runs"][0]
    assert (document["accelerator"], document["job_seconds"], document["metered_cost_usd"]) == (None, None, "-0.5")
    assert list(document) == list(COLUMNS) == NAMES_OF_VERSION_1.split()


@given(
    st.lists(
        st.tuples(
            st.text(),
            st.text(),
            st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=0, max_value=10**9),
        ),
        max_size=4,
    )
)
def test_texts_come_back_from_csv(facts: list[tuple[str, str, Decimal]]) -> None:
    (example,) = EXAMPLE
    runs = [replace(example, name=name, tags={"k": tag}, metered_cost_usd=cost) for name, tag, cost in facts]
    rows = rows_in("".join(as_csv(runs)))
    for run, row in zip(runs, rows, strict=True):
        assert row["name"] in (run.name, f"'{run.name}")
        assert json.loads(row["tags"]) == {"k": run.tags["k"]}
        assert Decimal(row["metered_cost_usd"]) == run.metered_cost_usd


EXAMPLE = runs_of(Closed(started=AT))
# Other programs read these names: one more goes to the end, and none goes away.
NAMES_OF_VERSION_1 = """
run_id name owner tags created_at closed_at reason ended_by provider account region zone instance_type instance_id
purchase_option accelerator accelerator_count started_at ended_at metered_seconds metered_cost_usd job_seconds
estimated_seconds estimated_seconds_low estimated_seconds_high
estimated_cost_usd estimated_cost_usd_low estimated_cost_usd_high
"""


def test_json_of_nothing_and_of_many() -> None:
    head = {"schema": "costgpu.ledger", "version": 1, "at": AT.isoformat()}
    assert json.loads("".join(as_json([], AT))) == {**head, "runs": []}
    assert len(json.loads("".join(as_json(EXAMPLE * 3, AT)))["runs"]) == 3


def test_it_streams() -> None:
    def endless() -> Any:
        while True:
            yield EXAMPLE[0]

    for chunks in (as_csv(endless()), as_json(endless(), AT), focus.as_focus(endless(), NAMES)):
        assert next(chunks)
        assert next(chunks)
