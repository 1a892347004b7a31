"""`costgpu ledger`: what runs have cost, by whatever; as files for other programs; and how good the estimates were."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli.billed import billed
from costgpu.cli.report import report
from costgpu.errors import UsageError
from costgpu.workflows.spending.periods import period

if TYPE_CHECKING:
    from collections.abc import Iterator

    from costgpu.ledger import Ledger
    from costgpu.ledger.queries.history import ClosedRun, Selection
    from costgpu.ledger.queries.totals import By

SINCE = Annotated[
    str | None, typer.Option(metavar="WHEN", help="From then on: 2026-11, 2026-11-01, or 30d for 30 days ago.")
]
UNTIL = Annotated[str | None, typer.Option(metavar="WHEN", help="Before then.")]
PROVIDER = Annotated[str | None, typer.Option(help="Only there: aws, gcp, local.")]
PERSON = Annotated[str | None, typer.Option(help="Only what alice, or alice@host, has launched.")]
NAME = Annotated[str | None, typer.Option("-n", "--name", help="Only jobs of this name.")]
TAG = Annotated[list[str] | None, typer.Option(help="Only runs with key=value. Repeatable.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ROWS = 20
FORMATS = ("csv", "json", "focus", "focus-metadata")

ledger = typer.Typer(
    name="ledger",
    help="What runs have cost: the newest ones, or totals. Periods are those of UTC, as on bills.",
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


ledger.command()(billed)
ledger.command()(report)


@ledger.callback()
def history(
    context: typer.Context,
    by: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Totals by job, month, day, provider, person, instance, reason, tag:KEY."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="So many runs; 0 for all.")] = ROWS,
    since: SINCE = None,
    until: UNTIL = None,
    provider: PROVIDER = None,
    person: PERSON = None,
    name: NAME = None,
    tag: TAG = None,
    json: JSON = False,
) -> None:
    """What runs have cost: the newest ones, or totals. Periods are those of UTC, as on bills.

    Amounts are metered: price times time, as it was when the run closed.
    """
    if context.invoked_subcommand is not None:
        if any((by, limit != ROWS, since, until, provider, person, name, tag, json)):
            command = context.invoked_subcommand
            raise UsageError(
                f"Options of costgpu ledger {command} stand behind it.",
                hint=f"costgpu ledger {command} --since 2026-11",
            )
        return
    from costgpu.ledger.queries.history import closed_runs
    from costgpu.ledger.queries.totals import totals
    from costgpu.render.text.ledger import history_json, history_text, totals_json, totals_text
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        now = parts.clock.now()
        low, high = period(since, until, now)
        chosen = selection(provider, person, name, tag)
        if by is not None:
            group, key = _group(by)
            found = totals(parts.ledger, chosen, group, tag=key, since=low, until=high)
            if json:
                typer.echo(totals_json(found, by, low, high, now))
            else:
                typer.echo(totals_text(found, by, low, high))
            return
        rows = tuple(closed_runs(parts.ledger, chosen, since=low, until=high, newest_first=True, limit=limit or None))
        if json:
            typer.echo(history_json(rows, now))
            return
        typer.echo(
            history_text(
                rows,
                selected=bool(chosen.provider or chosen.owner or chosen.name or chosen.tags or low or high),
                limit=limit,
            )
        )
        _tell_open(parts.ledger)


@ledger.command()
def export(
    form: Annotated[str, typer.Option("--format", help="csv, json, focus or focus-metadata.")] = "csv",
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Else stdout.")] = "-",
    since: SINCE = None,
    until: UNTIL = None,
    provider: PROVIDER = None,
    person: PERSON = None,
    name: NAME = None,
    tag: TAG = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write closed runs for other programs, oldest first.

    focus is FOCUS 1.2 as CSV: one row a run and billing month, which sum up to its cost.
    In CSV a text that a spreadsheet would take for a formula gets an apostrophe.
    """
    from costgpu.workflows.context import app_context
    from costgpu.workflows.write_file import check_target, write_file

    if form not in FORMATS:
        raise UsageError(f"There is no format {form!r}.", hint=f"Choose {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    if output != "-":
        check_target(Path(output), force=force)
    with app_context() as parts:
        now = parts.clock.now()
        low, high = period(since, until, now)
        chunks = _exported(parts.ledger, form, selection(provider, person, name, tag), (low, high, now))
        if output == "-":
            for chunk in chunks:
                sys.stdout.write(chunk)
            return
        write_file(Path(output), chunks, force=force)
    typer.echo(f"Written: {output}", err=True)


@ledger.command()
def accuracy(
    limit: Annotated[int, typer.Option(min=0, help="Show so many runs; 0 for all.")] = ROWS,
    since: SINCE = None,
    until: UNTIL = None,
    provider: PROVIDER = None,
    person: PERSON = None,
    name: NAME = None,
    tag: TAG = None,
    json: JSON = False,
) -> None:
    """Hold estimates against what happened: run by run, and how often the interval held.

    Runs that succeeded and had an estimate count. Times are from the create call to the end.
    """
    from costgpu.ledger.queries.accuracy import accuracy as summary
    from costgpu.ledger.queries.accuracy import comparisons
    from costgpu.render.text.ledger import accuracy_json, accuracy_text
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        now = parts.clock.now()
        low, high = period(since, until, now)
        found = comparisons(parts.ledger, selection(provider, person, name, tag), since=low, until=high)
        if json:
            typer.echo(accuracy_json(summary(found), found, now))
        else:
            typer.echo(accuracy_text(summary(found), found[::-1][: limit or None]))


def selection(provider: str | None, person: str | None, name: str | None, tag: list[str] | None) -> Selection:
    """Which runs are meant. Raises `UsageError`."""
    from costgpu.ledger.queries.history import Selection

    tags = {}
    for word in tag or []:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise UsageError(f"--tag {word!r} is not key=value.", hint="Such as --tag team=vision.")
        tags[key] = value
    return Selection(provider=(provider or "").lower(), owner=person or "", name=name or "", tags=tags)


def _group(text: str) -> tuple[By, str]:
    from costgpu.ledger.queries.totals import By

    word, _, key = text.partition(":")
    if word == By.TAG and not key:
        raise UsageError("--by tag needs the tag's key.", hint="Such as --by tag:team.")
    if word not in list(By) or (key and word != By.TAG):
        raise UsageError(
            f"--by {text!r}: there are no such totals.",
            hint="Choose job, month, day, provider, person, instance, reason or tag:KEY.",
        )
    return By(word), key


def _exported(
    book: Ledger, form: str, chosen: Selection, times: tuple[datetime | None, datetime | None, datetime]
) -> Iterator[str]:
    import json as documents

    from costgpu.ledger.queries.export import as_csv, as_json
    from costgpu.ledger.queries.focus import as_focus, metadata
    from costgpu.ledger.queries.history import closed_runs
    from costgpu.providers import registry

    low, high, now = times
    if form == "focus-metadata":
        return iter([documents.dumps(metadata(now), indent=2) + "\n"])
    runs: Iterator[ClosedRun] = closed_runs(book, chosen, since=low, until=high)
    if form == "csv":
        return as_csv(runs)
    if form == "json":
        return as_json(runs, now)
    names = {spec.name: (spec.publisher, spec.service) for spec in registry.specs()}
    return as_focus(runs, names, since=low, until=high)


def _tell_open(book: Ledger) -> None:
    count = len(book.open_runs())
    if count:
        runs = "1 run is" if count == 1 else f"{count} runs are"
        typer.echo(f"{runs} not closed yet: costgpu jobs", err=True)
