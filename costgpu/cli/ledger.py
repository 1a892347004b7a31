"""`costgpu ledger`: what runs have cost, as lists, totals, files and a page; and how good the estimates were."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, confirm, print_note, say
from costgpu.errors import AuthError, NotConfirmed, RunError, UsageError
from costgpu.units import LARGEST_WHOLE
from costgpu.workflows.context import AppContext
from costgpu.workflows.spending.periods import period
from costgpu.workflows.tags import split_tag
from costgpu.workflows.write_file import check_target, write_file

if TYPE_CHECKING:
    from costgpu.ledger.costs.charges import RunFilter
    from costgpu.ledger.costs.totals import By
    from costgpu.workflows.spending.billed import Bills

ROWS = 20
FORMATS = ("csv", "json", "focus", "focus-metadata")
GROUPS = "job, month, day, provider, person, instance, reason"
STDOUT = "-"

ledger = typer.Typer(
    name="ledger",
    rich_markup_mode=None,
    add_completion=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


@ledger.callback()
def history(
    context: typer.Context,
    by: Annotated[
        str | None, typer.Option(metavar="GROUP", help=f"Totals by group instead of runs: {GROUPS}, tag:KEY.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, max=LARGEST_WHOLE, help="Number of runs; 0 for all.")] = ROWS,
    since: opt.Since = None,
    until: opt.Until = None,
    provider: opt.Provider = None,
    person: opt.Person = None,
    name: opt.JobName = None,
    tag: opt.Tag = None,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
) -> None:
    """Show what runs have cost.

    The newest ones, or totals. Periods are in UTC, as on bills. Amounts are metered:
    price times time, as it was when the run closed.
    """
    if context.invoked_subcommand is not None:
        if any((by, limit != ROWS, since, until, provider, person, name, tag, currency, rate, json)):
            command = context.invoked_subcommand
            raise UsageError(
                f"Options of costgpu ledger {command} stand behind it.",
                hint=f"costgpu ledger {command} --since 2026-11",
            )
        return
    opt.show_amounts(currency, rate, as_json=json)
    from costgpu.ledger.costs.closed_runs import closed_runs
    from costgpu.ledger.costs.totals import totals
    from costgpu.render.text.ledger import history_json, history_text, totals_json, totals_text

    with AppContext(TerminalReporter()) as app:
        now = app.clock.now()
        low, high = period(since, until, now)
        chosen = _selection(provider, person, name, tag)
        if by is not None:
            group, key = _group(by)
            found = totals(app.ledger, chosen, group, tag=key, since=low, until=high)
            say(totals_json(found, by, low, high, now) if json else totals_text(found, by, low, high))
            return
        runs = tuple(closed_runs(app.ledger, chosen, since=low, until=high, newest_first=True, limit=limit or None))
        if json:
            say(history_json(runs, now))
            return
        selected = bool(chosen.provider or chosen.owner or chosen.name or chosen.tags or low or high)
        say(history_text(runs, selected=selected, limit=limit))
        if count := len(app.ledger.open_runs()):
            say(f"{'1 run is' if count == 1 else f'{count} runs are'} not closed yet: costgpu jobs", err=True)


@ledger.command()
def job(run: opt.Run, json: opt.Json = False) -> None:
    """Show the receipts of a job, and what interruptions have cost.

    The machines that it had, at once or one after the other; for one that went on after
    interruptions also the time lost, and what the same work would have cost on demand.
    """
    from costgpu.job.find_run import runs_of_job
    from costgpu.render.text.receipt import receipts_json, receipts_text
    from costgpu.workflows.runs.find_run import recorded_run

    with AppContext(TerminalReporter()) as app:
        views = runs_of_job(app.ledger, recorded_run(app, run))
        if not any(view.receipt for view in views):
            raise RunError(f"Run {views[0].run_id} is not closed yet.", hint="costgpu jobs shows how far it is.")
        say(receipts_json(views, app.clock.now()) if json else receipts_text(views))


@ledger.command()
def billed(
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Month; default: the current one, up to today.")
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Pay for the answer without being asked.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask again, even within 6 hours of an answer.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Show stored answers only; ask nobody.")] = False,
    json: opt.Json = False,
) -> None:
    """Compare metered costs with the providers' own figures.

    AWS Cost Explorer charges $0.01 for each request, BigQuery at most as much for a look into
    Google's billing export; an answer is kept for 6 hours.
    The figures are stored in the ledger, where costgpu ledger accuracy uses them.
    """
    from costgpu.render.text.ledger import billed_json, billed_text
    from costgpu.workflows.spending.billed import Bills, ask, billing_providers, compare, parse_month, sort_by_fee

    if stored and fresh:
        raise UsageError("--stored asks nobody, and --fresh asks again: choose one.")
    with AppContext(TerminalReporter()) as app:
        start, end = parse_month(month, app.clock.now())
        bills = Bills()
        if not stored:
            providers = billing_providers(app)
            if not providers:
                raise AuthError(
                    "No provider with credentials here tells what it has billed.",
                    hint="aws configure, or AWS_PROFILE; for Google gcp_billing_table in the settings. --stored shows"
                    " what this ledger was told before.",
                )
            if not yes:
                providers, paid, bills = sort_by_fee(providers, start, end, fresh=fresh)
                words = " and ".join(f"{one.name} charges ${one.usd_per_request} a request" for one in paid)
                words += " for what it has billed."
                if paid:
                    alone = NotConfirmed(words, hint="Add -y to pay that, or --stored to ask nobody.")
                    confirm(f"{words} Ask?", alone=alone, otherwise="Not asked; nothing was spent.")
            ask(providers, start, end, fresh=fresh, bills=bills)
            if not bills.bills:
                _raise_first(bills)
        found = compare(app, bills.bills, start, end)
        say((billed_json if json else billed_text)(found, app.clock.now()))
        _raise_first(bills)


def _raise_first(bills: Bills) -> None:
    """Names who has not told what it has billed; the first one's error ends the command."""
    for number, (name, error) in enumerate(bills.failed):
        why = f": {error.message}" if number else "."  # the first one's words end the command
        print_note(f"{name} has not told what it has billed{why}")
    if bills.failed:
        raise bills.failed[0][1]


def billed_lines(app: AppContext, start: datetime, end: datetime) -> list[str]:
    """Metered and billed amounts for `costgpu budget check`, whose user has agreed to the charge.

    UTC days count whole; a provider that does not answer is one of the lines.
    """
    from datetime import timedelta

    from costgpu.render.text.ledger import billed_text
    from costgpu.workflows.spending.billed import ask, billing_providers, compare, midnight

    low = midnight(start)
    high = midnight(end - timedelta(microseconds=1)) + timedelta(days=1)
    bills = ask(billing_providers(app), low, high)
    failed = [f"not asked: {name}: {error.message}" for name, error in bills.failed]
    if not bills.bills:
        return failed or ["No provider with credentials here tells what it has billed."]
    found = compare(app, bills.bills, low, high)
    return [*billed_text(found, app.clock.now()).splitlines(), *failed]


@ledger.command()
def report(
    html: Annotated[str, typer.Option("--html", metavar="FILE", help="File to write to; - for stdout.")],
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Start of the period: 2026-11, 2026-11-01, or 30d; default: 90 days ago."),
    ] = None,
    until: opt.Until = None,
    force: opt.Force = False,
) -> None:
    """Write a page for a browser: what was spent, and on what.

    By day against budgets, by provider, GPU against CPU, what was wasted, estimate
    against actual, what runs now. Days are those of UTC, but for budgets with a time
    zone of their own. One file that needs nothing else.
    """
    from costgpu.workflows.spending.report import report_page, report_period

    with AppContext(TerminalReporter()) as app:
        low, high = report_period(since, until, app.clock.now())
        if html != STDOUT:
            check_target(Path(html), force=force)
        _write(html, [report_page(app, low, high)], force=force)


@ledger.command()
def export(
    form: Annotated[str, typer.Option("--format", help="Format: csv, json, focus or focus-metadata.")] = "csv",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="File to write to; - for stdout.")
    ] = STDOUT,
    since: opt.Since = None,
    until: opt.Until = None,
    provider: opt.Provider = None,
    person: opt.Person = None,
    name: opt.JobName = None,
    tag: opt.Tag = None,
    force: opt.Force = False,
) -> None:
    """Write closed runs for other programs, oldest first.

    focus is FOCUS 1.2 as CSV: one row a run and billing month, which sum up to its cost.
    In CSV a text that a spreadsheet would take for a formula gets an apostrophe.
    """
    import json as documents

    from costgpu.ledger.costs.closed_runs import closed_runs
    from costgpu.ledger.costs.export import as_csv, as_json
    from costgpu.ledger.costs.focus import as_focus, metadata
    from costgpu.providers import registry

    if form not in FORMATS:
        raise UsageError(f"There is no format {form!r}.", hint=f"Choose {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    if output != STDOUT:
        check_target(Path(output), force=force)
    with AppContext(TerminalReporter()) as app:
        now = app.clock.now()
        low, high = period(since, until, now)
        runs = closed_runs(app.ledger, _selection(provider, person, name, tag), since=low, until=high)
        publishers = {spec.name: (spec.publisher, spec.service) for spec in registry.specs()}
        written: dict[str, Callable[[], Iterable[str]]] = {
            "csv": lambda: as_csv(runs),
            "json": lambda: as_json(runs, now),
            "focus": lambda: as_focus(runs, publishers, since=low, until=high),
            "focus-metadata": lambda: [documents.dumps(metadata(now), indent=2) + "\n"],
        }
        _write(output, written[form](), force=force)


@ledger.command()
def accuracy(
    limit: Annotated[int, typer.Option(min=0, max=LARGEST_WHOLE, help="Number of runs to show; 0 for all.")] = ROWS,
    since: opt.Since = None,
    until: opt.Until = None,
    provider: opt.Provider = None,
    person: opt.Person = None,
    name: opt.JobName = None,
    tag: opt.Tag = None,
    json: opt.Json = False,
) -> None:
    """Compare estimates with what happened.

    Run by run, and how often the interval held. Runs that succeeded and had an estimate
    count. Times are from the create call to the end.
    """
    from costgpu.ledger.records.accuracy import accuracy as summary
    from costgpu.ledger.records.accuracy import comparisons
    from costgpu.render.text.ledger import accuracy_json, accuracy_text

    with AppContext(TerminalReporter()) as app:
        now = app.clock.now()
        low, high = period(since, until, now)
        found = comparisons(app.ledger, _selection(provider, person, name, tag), since=low, until=high)
        if json:
            say(accuracy_json(summary(found), found, now))
        else:
            say(accuracy_text(summary(found), found[::-1][: limit or None]))


def _selection(provider: str | None, person: str | None, name: str | None, tag: list[str] | None) -> RunFilter:
    from costgpu.ledger.costs.charges import RunFilter

    tags = dict(split_tag(word) for word in tag or [])
    return RunFilter(provider=(provider or "").lower(), owner=person or "", name=name or "", tags=tags)


def _group(text: str) -> tuple[By, str]:
    from costgpu.ledger.costs.totals import By

    word, _, key = text.partition(":")
    if word == By.TAG and not key:
        raise UsageError("--by tag needs the tag's key.", hint="Such as --by tag:team.")
    if word not in list(By) or (key and word != By.TAG):
        raise UsageError(f"--by {text!r}: there are no such totals.", hint=f"Choose {GROUPS} or tag:KEY.")
    return By(word), key


def _write(target: str, chunks: Iterable[str], *, force: bool) -> None:
    if target == STDOUT:
        for chunk in chunks:
            sys.stdout.write(chunk)
        return
    write_file(Path(target), chunks, force=force)
    say(f"Written: {target}", err=True)
