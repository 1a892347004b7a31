from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.errors import LedgerDamaged
from costgpu.ledger import from_json, to_json
from costgpu.models.instance import CreateRequest, Identity, InstanceRef, Safeguard
from costgpu.models.job import FileEntry, JobSpec, JobStatus
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.run import Lease, Receipt

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    # Not at the very ends: there, the year may be another one by UTC.
    datetime: st.datetimes(datetime(1970, 1, 3), datetime(2199, 12, 29), timezones=st.just(UTC) | ZONES),  # noqa: DTZ001
    Decimal: st.decimals(-(10**18), 10**18),
    float: st.floats(-1e18, 1e18),
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=20) | st.binary(max_size=5).map(lambda raw: raw.decode(errors="surrogateescape")),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that equals itself."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in LEAVES:
        return LEAVES[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return st.builds(hint, **{name: values(part) for name, part in get_type_hints(hint).items()})
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=4).map(tuple)
    if origin is Mapping:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=4)
    if origin is UnionType:
        return st.one_of(*map(values, arguments))
    return st.from_type(hint)


@pytest.mark.parametrize(
    "cls",
    [JobSpec, Lease, Safeguard, Receipt, Offer, JobStatus, InstanceRef, Identity, FileEntry],
    ids=lambda cls: cls.__name__,
)
def test_whatever_a_run_knows_comes_back_as_it_was(cls: type) -> None:
    @settings(deadline=None)
    @given(values(cls))
    def there_and_back(value: Any) -> None:
        stored = json.dumps(to_json(value), allow_nan=False)
        stored.encode("ascii")
        assert from_json(cls, json.loads(stored)) == value

    there_and_back()


@dataclass(frozen=True)
class Newer:
    name: str
    pair: tuple[int, str] = (1, "x")
    inner: Newer | None = None
    days: tuple[date, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, Decimal] = field(default_factory=dict)
    flags: list[bool] = field(default_factory=list)


def test_everything_that_a_field_may_be() -> None:
    value = Newer(
        name="a\udc80\0é",
        pair=(2, "y"),
        inner=Newer("b", days=(date(2026, 2, 28),)),
        facts={"x": [1, {"y": None}]},
        rates={"gpu": Decimal("1.100")},
        flags=[True, False],
    )
    assert from_json(Newer, json.loads(json.dumps(to_json(value)))) == value
    assert str(from_json(Newer, to_json(value)).rates["gpu"]) == "1.100"


def test_keys_of_another_version_are_ignored_and_take_defaults() -> None:
    assert from_json(Newer, {"name": "a", "what_is_this": {"to": "come"}}) == Newer("a")


def test_times_are_kept_as_utc() -> None:
    at = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert to_json(at) == "2026-02-28T23:30:00+00:00"
    assert from_json(datetime, "2026-02-28T23:30:00Z") == at


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_know_are_kept_as_texts(value: float) -> None:
    assert json.loads(json.dumps(to_json(value), allow_nan=False)) == str(value)


@pytest.mark.parametrize(
    ("cls", "data", "words"),
    [
        (Newer, {}, "read: name: Field required"),
        (Newer, [], "read: Input should be a dictionary"),
        (Newer, {"name": 3}, "read: name: Input should be a valid string"),
        (Newer, {"name": "a", "pair": [1]}, "pair.1: Field required"),
        (Newer, {"name": "a", "pair": [True, "x"]}, "pair.0: Input should be a valid integer"),
        (
            Newer,
            {"name": "a", "inner": {"name": "b", "days": ["2026-02-30"]}},
            "inner.days.0: Input should be a valid date",
        ),
        (Newer, {"name": "a", "rates": {"gpu": "much"}}, "rates.gpu: Input should be a valid decimal"),
        (Newer, {"name": "a", "rates": {"gpu": "nan"}}, "rates.gpu: Input should be a finite number"),
        (Newer, {"name": "a", "flags": [1]}, "flags.0: Input should be a valid boolean"),
        (PurchaseOption, "reserved", "Input should be 'on_demand' or 'spot'"),
        (datetime, "yesterday", "Input should be a valid datetime"),
        (datetime, "2026-01-01T00:00:00", "Input should have timezone info"),
        (datetime, "9999-01-01T00:00:00Z", "Input should be less than 2200"),
        (float, "5", "Input should be a valid number"),
        (float, True, "Input should be a valid number"),
        (float, float("nan"), "Input should be "),
        (float, 10**400, "Input should be a valid number"),
        (int, 10**400, "Input should be less than"),
        (bool, None, "Input should be a valid boolean"),
    ],
)
def test_what_does_not_fit_is_named(cls: type, data: Any, words: str) -> None:
    with pytest.raises(LedgerDamaged) as caught:
        from_json(cls, data)
    assert words in caught.value.message
    assert caught.value.hint


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_read_or_refused_and_nothing_else(data: Any) -> None:
    for cls in (Newer, Receipt, Offer):
        try:
            from_json(cls, data)
        except LedgerDamaged:
            continue


@pytest.mark.parametrize("value", [{1: "x"}, {1, 2}, b"bytes", object(), Newer])
def test_what_has_no_json_form_is_not_stored(value: Any) -> None:
    with pytest.raises(TypeError):
        to_json({"value": value} if not isinstance(value, dict) else value)


def test_fields_that_are_not_shown_are_not_stored() -> None:
    secret = [item.name for item in fields(CreateRequest) if not item.repr]
    assert secret == ["boot_script"]
    values = {item.name: "the-host-key" for item in fields(CreateRequest)}
    with pytest.raises(TypeError, match="boot_script") as caught:
        to_json(CreateRequest(**values))  # type: ignore[arg-type]
    assert "the-host-key" not in str(caught.value)


def test_a_ledger_without_runs_does_not_pay_for_pydantic_and_its_name_not_for_sqlalchemy() -> None:
    code = """
import sys
import costgpu.ledger, costgpu.config
assert not {"sqlalchemy", "pydantic"} & set(sys.modules), "by name"
costgpu.config.ledger_url(), costgpu.config.data_path()
assert not {"sqlalchemy", "pydantic"} & set(sys.modules), "by place"
costgpu.ledger.Ledger.open("sqlite://").recent_runs()
assert "sqlalchemy" in sys.modules
assert "pydantic" not in sys.modules, "without a run"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
