"""Closed runs for other programs: CSV, JSON, and FOCUS. Texts stream; nothing is kept in memory.

Spreadsheets take a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break for a formula, and a job's
name or tag may be anything. Such texts get an apostrophe before them in the two CSV formats, as spreadsheets themselves
write a text; numbers and times are left alone, and JSON is exact.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from costgpu.ledger.costs.closed_runs import ClosedRun

JSON_SCHEMA, JSON_VERSION = "costgpu.ledger", 1
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

COLUMNS = tuple(field.name for field in fields(ClosedRun))


def as_csv(runs: Iterable[ClosedRun]) -> Iterator[str]:
    """Return a header, then a line a run; tags as JSON, what is not known as an empty cell."""
    return lines([COLUMNS], ([getattr(run, column) for column in COLUMNS] for run in runs))


def as_json(runs: Iterable[ClosedRun], at: datetime) -> Iterator[str]:
    """One versioned document; amounts are texts, so that no reader rounds them."""
    head = json.dumps({"schema": JSON_SCHEMA, "version": JSON_VERSION, "at": at.isoformat()}, indent=2)
    yield head.removesuffix("\n}") + ',\n  "runs": ['
    comma = ""
    for run in runs:
        yield f"{comma}\n    {json.dumps(document(run))}"
        comma = ","
    yield "\n  ]\n}\n"


def document(run: ClosedRun) -> dict[str, Any]:
    """One run as JSON values; None where nothing is known."""
    return {column: _json(getattr(run, column)) for column in COLUMNS}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, Mapping):
        return dict(value)
    return None if value == "" else value


def lines(heads: Iterable[Iterable[str]], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """CSV (RFC 4180, but with one line feed at the end of a line), some lines at a time."""
    buffer = io.StringIO()
    plain = csv.writer(buffer, lineterminator="\n")
    quoted = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for head in heads:
        plain.writerow(head)
    for row in rows:
        cells = [_cell(value) for value in row]
        writer = quoted if any("\r" in cell for cell in cells) else plain  # csv does not see that it ends a line, too
        writer.writerow(cells)
        if buffer.tell() > 1 << 16:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return plain_decimal(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True) if value else ""
    return repr(value)


def plain_decimal(value: Decimal) -> str:
    """Digits without an exponent and without zeros at the end: ``1.5``, ``0``."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
