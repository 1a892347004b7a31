"""Mutated settings, profiles, variables' files, price caches and price documents, given to what reads them."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from costgpu.errors import CostGpuError
from tests.fuzz.user_input import mutated_text, mutated_value, word

SETTINGS = """\
# Settings of a person
ledger_url = "sqlite:////tmp/none/ledger.sqlite"
bucket = "s3://results/runs"
caller_address = "203.0.113.7"
sync_limit_mib = 250.5
max_lease_hours = 24
default_infra = "aws/us-east-1"
owner = "alice"
alert_urls = ["json://127.0.0.1/a", 'json://127.0.0.1/b']
"""
PROJECT = '[project]\nname = "x"\n[tool.costgpu]\nsync_limit_mib = 100\ndefault_infra = "local"\n'
VARIABLES = "# a comment\nexport A=1\nB='two words'\nC=\"x\"\nD=\n\nPATH=/usr/bin\n"


def settings(source: random.Random, folder: Path) -> None:
    """Settings of the user or of a project."""
    from costgpu.config import load_settings
    from costgpu.config.paths import config_file
    from costgpu.config.settings_files import check_variables, ledger_url

    name, text = source.choice(
        [("user", SETTINGS), ("costgpu.toml", PROJECT.replace("tool.costgpu", "x")), ("pyproject.toml", PROJECT)]
    )
    path = config_file() if name == "user" else folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = text.splitlines(keepends=True)
    if source.random() < 0.4 and name == "user":
        at = source.randrange(1, len(lines))
        key = lines[at].partition("=")[0]
        value = source.choice(
            ["[]", "{}", "true", "1e999", "nan", "-inf", "9" * 6000, "1979-05-27", json.dumps(word(source)), "0", "-1"]
        )
        lines[at] = f"{key}= {value}\n"
        raw = "".join(lines).encode("utf-8", "surrogateescape" if source.random() < 0.5 else "replace")
    else:
        raw = mutated_text(text, source)
    path.write_bytes(raw)
    try:
        load_settings(folder)
        ledger_url()
        check_variables({f"COSTGPU_{word(source)}": ""})
    finally:
        path.unlink()


def environment_file(source: random.Random, folder: Path) -> None:
    """A file of variables, and variables."""
    from costgpu.workflows.environment import job_environment

    (folder / "job.env").write_bytes(mutated_text(VARIABLES, source))
    job_environment([word(source)] if source.random() < 0.5 else [], str(folder / "job.env"))
    job_environment([], word(source))


@cache
def _profiles() -> tuple[str, ...]:
    from costgpu.measure.profile_file import to_document
    from tests.unit.estimator import builders, inferring

    made = (builders.profile(), inferring.profile(inferring.scoring(64, 100_000)))
    return tuple(json.dumps(to_document(each)) for each in made)


def profile(source: random.Random, folder: Path) -> None:
    """A saved profile, and the estimate of what can be read of it."""
    from tests.fuzz.user_input import outcome

    text, path = source.choice(_profiles()), folder / "profile.json"
    if source.random() < 0.3:
        path.write_bytes(mutated_text(text, source))
    else:
        document = json.loads(text)
        for _ in range(source.choice([1, 1, 2])):
            document = mutated_value(document, source)
        path.write_text(json.dumps(document))
    from costgpu.measure.profile_file import load_profile

    load_profile(path)
    if source.random() < 0.25:
        outcome(["estimate", *source.choice([(), ("--json",), ("--explain",), ("--rate", "5/s")]), str(path)])


def price_cache(source: random.Random, folder: Path) -> None:
    """Refreshed prices, with the right checksum: what is in them is wrong, not the disk."""
    from costgpu.pricing import price_store, snapshot

    shipped = snapshot.newest()
    place = folder / "prices"
    place.mkdir(exist_ok=True)
    path = place / "offers-gcp.csv"
    lines = _lines()
    body_lines = [lines[0], *source.sample(lines[1:], 20)]
    for _ in range(source.choice([0, 1, 2])):
        at = source.randrange(len(body_lines))
        cells = body_lines[at].rstrip("\n").split(",")
        cells[source.randrange(len(cells))] = source.choice(
            ["", "-1", "nan", "inf", "1e999", "aws", "c7g", "x" * 300, '"', "\x1b[31m", word(source)]
        )
        body_lines[at] = ",".join(cells) + "\n"
    body = "".join(body_lines).encode("utf-8", "replace")
    if source.random() < 0.2:
        body = mutated_text(body.decode("utf-8", "replace"), source)
    head: Any = {
        "provider": "gcp",
        "snapshot": shipped.name,
        "crc32": zlib.crc32(body),
        "regions": {"us-central1": datetime.now(UTC).isoformat()},
    }
    if source.random() < 0.3:
        head = mutated_value(head, source)
    first = f"{price_store.MARK}{json.dumps(head)}\n".encode()
    path.write_bytes((mutated_text(first.decode(), source) if source.random() < 0.1 else first) + body)
    (place / "failed-gcp.json").write_text(
        json.dumps(mutated_value({"at": "2026-11-01T00:00:00+00:00", "why": "x"}, source))
    )
    said: list[str] = []
    with mock.patch.object(price_store, "cache_folder", return_value=place):
        found = price_store.offers(warn=said.append)
        price_store.stored_prices("gcp")
        price_store.last_failure("gcp")
    assert found, "the shipped prices are always there"
    assert all(0 < offer.price_usd_per_hour < 10**6 for offer in found)


@cache
def _lines() -> list[str]:
    from costgpu.pricing import snapshot

    lines = [line for line in snapshot.newest().read_text().splitlines(keepends=True) if not line.startswith("#")]
    return [lines[0], *(line for line in lines[1:] if line.startswith("gcp,"))]


def bill(source: random.Random, folder: Path) -> None:
    """A kept answer about bills."""
    from collections.abc import Sequence
    from decimal import Decimal

    from costgpu.clock import SystemClock
    from costgpu.models.bill import BilledRow
    from costgpu.providers.bill_cache import CachedBilling

    class Kept(CachedBilling):
        name, source, usd_per_request, no_tag_note = "aws", "test", Decimal(0), ""

        def account(self) -> str:
            return "1"

        def ask(self, start: datetime, end: datetime) -> tuple[Sequence[BilledRow], int]:
            raise AssertionError("nobody is asked")

    start, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    document: Any = {
        "account": "1",
        "start": start.isoformat(),
        "end": end.isoformat(),
        "asked_at": datetime.now(UTC).isoformat(),
        "note": "",
        "provider": "aws",
        "source": "test",
        "requests": 1,
        "rows": [{"run_id": "r", "start": start.isoformat(), "end": end.isoformat(), "amount_usd": "1.5"}],
    }
    document = mutated_value(document, source)
    (folder / "aws-1-20261101-20261102.json").write_bytes(
        mutated_text(json.dumps(document), source) if source.random() < 0.2 else json.dumps(document).encode()
    )
    found = Kept(SystemClock(), folder).kept(start, end)
    if found is not None:
        assert all(row.amount_usd.is_finite() for row in found.rows)


@cache
def _documents() -> tuple[list[Any], list[Any], list[Any], tuple[Any, ...], tuple[Any, ...]]:
    from costgpu.pricing import snapshot
    from tests.emulators.price_documents import aws_products, aws_spot_rows, google_skus

    shipped = snapshot.read_offers(snapshot.newest())
    aws = tuple(offer for offer in shipped if offer.provider == "aws" and offer.region == "us-east-1")
    gcp = tuple(offer for offer in shipped if offer.provider == "gcp" and offer.region == "us-central1")[:40]
    return aws_products(aws), aws_spot_rows(aws), google_skus(), aws, gcp


def price_documents(source: random.Random, folder: Path) -> None:
    """Entries of the providers' price lists."""
    from costgpu.providers.aws import prices
    from costgpu.providers.gcp import sku_prices

    products, spots, skus, aws, gcp = _documents()
    if source.random() < 0.5:
        some = [copy.deepcopy(each) for each in source.sample(products, 5)]
        rows = [dict(each) for each in source.sample(spots, 5)]
        for each in (some, rows):
            at = source.randrange(len(each))
            each[at] = mutated_value(each[at], source)
        some += source.sample(some, 1)
        found = prices.price_update(some, rows, aws, "us-east-1", today=date(2026, 11, 21))
    else:
        some = [copy.deepcopy(each) for each in source.sample(skus, 30)]
        at = source.randrange(len(some))
        some[at] = mutated_value(some[at], source)
        found = sku_prices.price_update(some, gcp, ["us-central1"], today=date(2026, 11, 21))
    for offer in found.offers:
        assert offer.price_usd_per_hour.is_finite()
        assert 0 < offer.price_usd_per_hour <= 10**5


def quantities(source: random.Random, folder: Path) -> None:
    """Texts for numbers, and what is shown of them."""
    from costgpu import units
    from costgpu.ledger.records import budget_rules
    from costgpu.workflows.spending.periods import when

    text = word(source)
    parsers: tuple[Callable[[str], Any], ...] = (
        lambda said: units.format_duration(units.parse_duration(said)),
        lambda said: units.format_usd(units.parse_usd(said)),
        lambda said: units.format_count(units.parse_count(said, what="--tokens")),
        lambda said: units.parse_range(said, what="--cpus"),
        lambda said: units.format_frequency(units.parse_rate(said), "item"),
        units.parse_accelerator,
        budget_rules.parse_amount,
        budget_rules.parse_thresholds,
        budget_rules.parse_name,
        lambda said: when("--since", said, datetime(2026, 11, 21, tzinfo=UTC)),
    )
    for parse in parsers:
        with contextlib.suppress(CostGpuError):
            parse(text)


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "settings": settings,
    "environment_file": environment_file,
    "profile": profile,
    "price_cache": price_cache,
    "bill": bill,
    "price_documents": price_documents,
    "quantities": quantities,
}
