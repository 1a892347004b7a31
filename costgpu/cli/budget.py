"""`costgpu budget`: say how much may be spent, see how much is, and be told in time, also without asking: by cron."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_error, print_note, say
from costgpu.errors import AlertFailed, ConfigError, CostGpuError, UsageError
from costgpu.workflows.context import AppContext

if TYPE_CHECKING:
    from costgpu.ledger.costs.periods import Every

BudgetName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the budget, e.g. team-nlp.")]

budget = typer.Typer(
    name="budget",
    help="Set, show and check budgets.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@budget.command("set")
def set_(
    name: BudgetName,
    daily: Annotated[str | None, typer.Option(metavar="USD", help="Daily limit in USD.")] = None,
    weekly: Annotated[str | None, typer.Option(metavar="USD", help="Weekly limit in USD, from Monday on.")] = None,
    monthly: Annotated[str | None, typer.Option(metavar="USD", help="Monthly limit in USD.")] = None,
    total: Annotated[str | None, typer.Option(metavar="USD", help="Limit in USD for all time.")] = None,
    alert: Annotated[
        str, typer.Option(metavar="PERCENT,...", help="Alert thresholds in percent; 100 is always included.")
    ] = "50,80,100",
    tag: opt.Tag = None,
    provider: opt.Provider = None,
    person: opt.Person = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone in which days begin, e.g. Europe/Berlin; default: the local one.")
    ] = None,
    enforce: Annotated[bool, typer.Option("--enforce", help="Refuse runs that could exceed it.")] = False,
    enforce_spent: Annotated[
        bool, typer.Option("--enforce-spent", help="Refuse new runs only once it is spent.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing budget.")] = False,
) -> None:
    """Set a budget for a day, a week, a month or all time.

    It counts everything, or what --tag, --provider and --person select. Amounts are US dollars.
    """
    from costgpu.ledger.records.budget_rules import Budget, parse_name, parse_thresholds
    from costgpu.ledger.records.budget_store import set_budget
    from costgpu.providers import registry
    from costgpu.render.text.budget import definition
    from costgpu.render.text.layout import wrap
    from costgpu.workflows.tags import parse_tags

    if enforce and enforce_spent:
        raise UsageError("--enforce and --enforce-spent exclude each other.", hint="--enforce is the stricter one.")
    if person is not None and not person.strip():
        raise UsageError("--person is empty.", hint="Write the user as costgpu jobs and reap name it: alice.")
    known = (provider or "").strip().lower()
    if provider is not None and registry.find(known) is None:
        raise UsageError(f"There is no provider {provider!r}.", hint=f"costgpu knows {', '.join(registry.names())}.")
    every, amount = _amount(daily, weekly, monthly, total)
    wanted = Budget(
        name=parse_name(name),
        amount_usd=amount,
        every=every,
        time_zone=_zone(time_zone),
        thresholds=parse_thresholds(alert),
        provider=known,
        owner=(person or "").strip(),
        tags=parse_tags(tag or []),
        enforce=enforce or enforce_spent,
        enforce_spent=enforce_spent,
    )
    with AppContext(TerminalReporter(), strict=True) as context:
        written = set_budget(context.ledger, wanted, context.clock.now(), replace=replace)
    what = "Set" if written else "It is so already"
    say(wrap(f"{what}: {definition(wanted)}. Time zone: {wanted.time_zone}.", rest="  "))


@budget.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of a budget; default: all.")] = None,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
) -> None:
    """Show budgets: spent, committed, left, forecast, alerts.

    Committed is what open runs may still cost under their caps. All is from the ledger;
    costgpu budget check --verbose asks the providers, too.
    """
    from costgpu.render.text.budget import budgets_json, show_text
    from costgpu.workflows.spending.budget_check import note_problems, standings

    opt.show_amounts(currency, rate, as_json=json)
    with AppContext(TerminalReporter()) as context:
        found, problems = standings(context, name)
        now = context.clock.now()
        say(budgets_json("costgpu.budgets", found, problems, now) if json else show_text(found, problems))
        note_problems(context, problems)
    if problems:
        raise typer.Exit(problems[0].exit_code)


@budget.command()
def remove(name: BudgetName) -> None:
    """Remove a budget. What was spent stays in the ledger."""
    from costgpu.ledger.records.budget_store import remove_budget

    with AppContext(TerminalReporter(), strict=True) as context:
        remove_budget(context.ledger, name, context.clock.now())
    say(f"The budget {name} is removed.")


@budget.command()
def check(
    enforce: Annotated[bool, typer.Option("--enforce", help="End what runs beyond a budget.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no provider; use the ledger alone.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show every budget, also without news.")] = False,
    billed: Annotated[
        bool, typer.Option("--billed", help="Show what providers have billed this month; AWS charges $0.01.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Alert people when a budget is being used up; for cron.

    Silent when there is nothing new. Each threshold is reported once a period: it is printed,
    and sent to alert_urls. The exit code says how things stand: 0 well, 80 a threshold is
    crossed, 81 a budget is exceeded, 82 an alert could not be delivered, 46 a provider could
    not be asked.
    """
    from costgpu.render.document import picked
    from costgpu.render.text.budget import budgets_json
    from costgpu.render.text.layout import wrap
    from costgpu.workflows.spending.budget_check import BudgetCheck

    if billed and (offline or json):
        raise UsageError(
            f"--billed and {'--offline' if offline else '--json'} exclude each other.",
            hint="costgpu ledger billed --json prints the providers' figures; --stored shows those of the last time.",
        )

    def tell(text: str) -> None:
        if not json:
            say(wrap(text, rest="  "))
            sys.stdout.flush()

    with AppContext(TerminalReporter()) as context:
        show_all = (verbose or sys.stdout.isatty()) and not json
        found = BudgetCheck(context, tell, offline=offline, verbose=show_all).carry_out(enforce=enforce)
        if json:
            more = picked(found, "exit_code", "not_asked", "undelivered", "enforced")
            now = context.clock.now()
            say(budgets_json("costgpu.budget-check", found.standings, found.problems, now, **more))
        if billed:
            from costgpu.cli.ledger import billed_lines

            now = context.clock.now()
            try:
                say("\n".join(billed_lines(context, now.replace(day=1), now)))
            except CostGpuError as error:  # how the budgets stand is known, and the exit code says it
                print_error(error)
    raise typer.Exit(found.exit_code)


@budget.command()
def test_alert() -> None:
    """Send a test message to every alert address.

    Addresses (alert_urls in the user's config.toml, or COSTGPU_ALERT_URLS) are secrets:
    they are never shown. Exit code 82 if a message could not be delivered.
    """
    import platform

    from costgpu.alert.notify import EXAMPLES, deliver, ordinal
    from costgpu.config import config_file, load_settings

    urls = [url.get_secret_value() for url in load_settings(Path.cwd()).alert_urls]
    if not urls:
        raise ConfigError(
            "No alert addresses are configured.",
            hint=f'Write alert_urls = ["..."] into {config_file()} and chmod 600 it, '
            f"or set COSTGPU_ALERT_URLS, separated by spaces.\n{EXAMPLES}",
        )
    done = deliver(
        urls,
        "costgpu: test of budget alerts",
        f"This is a test from {platform.node()}. Nothing is wrong: budget alerts will come to you like this.",
    )
    for position, delivery in enumerate(done, 1):
        what = "delivered" if delivery.ok else "NOT delivered"
        detail = f": {delivery.detail}" if delivery.detail else ""
        say(f"{ordinal(position)} address, {delivery.service}: {what}{detail}")
    failed = sum(not delivery.ok for delivery in done)
    if failed:
        raise AlertFailed(
            f"{failed} of {len(done)} test messages could not be delivered.",
            hint="Positions count the addresses in the order in which they are configured.",
        )


@budget.command()
def cron(
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Interval: 5m, 15m, 1h, 1d, ...")] = "15m",
    reap: Annotated[bool, typer.Option("--reap", help="Also run reap --yes: end what has outlived its lease.")] = False,
    queue: Annotated[bool, typer.Option("--queue", help="Also run queue --start: start runs that wait.")] = False,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Run budget check --enforce: end what runs beyond a budget.")
    ] = False,
    install: Annotated[bool, typer.Option("--install", help="Put the lines into your crontab.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the lines out of your crontab.")] = False,
) -> None:
    """Check budgets by cron, or show how to.

    Without --install the crontab lines are shown. Your crontab's other
    lines stay as they are, byte for byte, and a copy of it is kept.
    Installing again replaces the lines.
    """
    from costgpu.workflows import cron as workflow

    if install and remove:
        raise UsageError("--install and --remove contradict each other.")
    if remove:
        change = workflow.remove()
        if change.changed:
            say(f"Taken out of your crontab. A copy of what it was: {change.copy}")
        else:
            say("Your crontab has no lines of costgpu.")
        return
    plan = workflow.plan_cron(every, reap=reap, enforce=enforce, queue=queue)
    if not install:
        say("# crontab (costgpu budget cron --install does it):")
        for text in plan.lines:
            typer.echo(text)
        _print_notes(plan.notes)
        return
    change = workflow.install(plan)
    if change.changed:
        kept = f" A copy of what it was: {change.copy}" if change.copy else ""
        say(f"Installed in your crontab: {plan.schedule.words}.{kept}")
    else:
        say(f"Your crontab has these lines already: {plan.schedule.words}.")
    for line in plan.lines:
        typer.echo(b"  " + line)
    _print_notes(change.notes)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}", err=True)


def _amount(daily: str | None, weekly: str | None, monthly: str | None, total: str | None) -> tuple[Every, Decimal]:
    from costgpu.ledger.costs.periods import Every
    from costgpu.ledger.records.budget_rules import parse_amount

    amounts = {Every.DAILY: daily, Every.WEEKLY: weekly, Every.MONTHLY: monthly, Every.TOTAL: total}
    given = [(every, text) for every, text in amounts.items() if text is not None]
    if len(given) != 1:
        raise UsageError(
            "A budget has one period, not several." if given else "A budget needs an amount for one period.",
            hint="One of --daily 10, --weekly 50, --monthly 200, --total 1000; make several budgets for several.",
        )
    ((every, text),) = given
    return every, parse_amount(text)


def _zone(name: str | None) -> str:
    """Return the time zone that was asked for, else the local one."""
    import warnings

    from costgpu.ledger.records.budget_rules import parse_zone

    if name is not None:
        return parse_zone(name)
    import tzlocal

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse_zone(str(tzlocal.get_localzone_name() or "UTC"))
    except (UsageError, LookupError, OSError, ValueError):
        print_note("the local time zone has no name; days begin at midnight UTC (--time-zone).")
        return "UTC"
