"""`costgpu budget`: say how much may be spent, see how much is, and be told in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli.alerts import cron, test_alert
from costgpu.errors import CostGpuError, UsageError

if TYPE_CHECKING:
    from decimal import Decimal

    from costgpu.ledger.records.budget_rules import Every

NAME = Annotated[str, typer.Argument(metavar="NAME", help="Of the budget: team-nlp.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

budget = typer.Typer(
    name="budget",
    help="Budgets: how much may be spent, how much is, and who is told when it gets near.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@budget.command("set")
def set_(
    name: NAME,
    daily: Annotated[str | None, typer.Option(metavar="USD", help="So much a day.")] = None,
    weekly: Annotated[str | None, typer.Option(metavar="USD", help="So much a week, from Monday on.")] = None,
    monthly: Annotated[str | None, typer.Option(metavar="USD", help="So much a month.")] = None,
    total: Annotated[str | None, typer.Option(metavar="USD", help="So much in all.")] = None,
    alert: Annotated[str, typer.Option(metavar="PERCENT,...", help="Tell people at; 100 always is.")] = "50,80,100",
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with key=value. Repeatable.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only there: aws, gcp, local.")] = None,
    person: Annotated[str | None, typer.Option(help="Only what alice, or alice@host, has launched.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Where days begin: Europe/Berlin; else here.")] = None,
    enforce: Annotated[bool, typer.Option("--enforce", help="Beyond it costgpu run refuses new runs.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Set an existing budget anew.")] = False,
) -> None:
    """Make a budget: so much a day, a week, a month or in all.

    It counts everything, or what --tag, --provider and --person leave. Amounts are US dollars.
    """
    from costgpu.ledger.records.budget_rules import Budget, parse_name, parse_thresholds
    from costgpu.ledger.records.budget_store import set_budget
    from costgpu.render.text.budget import definition, line
    from costgpu.workflows.context import app_context
    from costgpu.workflows.runs.plan import tags_of

    every, amount = _amount(daily, weekly, monthly, total)
    wanted = Budget(
        name=parse_name(name),
        amount_usd=amount,
        every=every,
        time_zone=_zone(time_zone),
        thresholds=parse_thresholds(alert),
        provider=_provider(provider),
        owner=_person(person),
        tags=tags_of(tag or []),
        enforce=enforce,
    )
    with app_context(strict=True) as parts:
        written = set_budget(parts.ledger, wanted, parts.clock.now(), replace=replace)
    what = "Set" if written else "It is so already"
    typer.echo(line(f"{what}: {definition(wanted)}. Time zone: {wanted.time_zone}."))


@budget.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    json: JSON = False,
) -> None:
    """Show budgets: spent, committed, left, forecast, told.

    Committed is what open runs may still cost under their caps. All is from the ledger;
    costgpu budget check --verbose asks the providers, too.
    """
    from costgpu.ledger.records.budget_store import all_budgets, unknown_budget
    from costgpu.render.text.budget import show_json, show_text
    from costgpu.runner.spending import gather, shipped_prices
    from costgpu.workflows.context import app_context
    from costgpu.workflows.spending.budget_check import standing_of, tell_problems

    with app_context() as parts:
        stored = all_budgets(parts.ledger)
        if name is not None:
            names = [each.budget.name for each in stored]
            stored = tuple(each for each in stored if each.budget.name == name)
            if not stored:
                raise unknown_budget(name, names)
        now = parts.clock.now()
        spending = gather(parts.ledger, [each.budget for each in stored], None, now, shipped_prices)
        standings = [standing_of(parts, each, spending) for each in stored]
        typer.echo(show_json(standings, spending.problems, now) if json else show_text(standings, spending.problems))
        tell_problems(spending.problems)
    if spending.problems:
        raise typer.Exit(spending.problems[0].exit_code)


@budget.command()
def remove(name: NAME) -> None:
    """Remove a budget. What was spent stays in the ledger."""
    from costgpu.ledger.records.budget_store import remove_budget
    from costgpu.workflows.context import app_context

    with app_context(strict=True) as parts:
        remove_budget(parts.ledger, name, parts.clock.now())
    typer.echo(f"The budget {name} is removed.")


@budget.command()
def check(
    enforce: Annotated[bool, typer.Option("--enforce", help="End what runs beyond a budget.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no provider: the ledger has to do.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show every budget, also without news.")] = False,
    billed: Annotated[
        bool, typer.Option("--billed", help="Also what providers have billed this month; AWS takes $0.01 for it.")
    ] = False,
    json: JSON = False,
) -> None:
    """Tell people when a budget is being used up; for cron.

    Silent when there is nothing new. Each threshold is told once a period: it is printed, and sent to alert_urls. The exit
    code says how things stand: 0 well, 80 a threshold is crossed, 81 a budget is exceeded,
    82 an alert could not be delivered, 46 a provider could not be asked.
    """
    from costgpu.workflows.context import app_context
    from costgpu.workflows.spending.budget_check import Check, tell_problems

    if billed and (offline or json):
        raise UsageError(
            f"--billed and {'--offline' if offline else '--json'} exclude each other.",
            hint="costgpu ledger billed --json prints the providers' figures; --stored shows those of the last time.",
        )
    with app_context() as parts:
        code = Check(parts, offline=offline, verbose=verbose, as_json=json).carry_out(enforce=enforce)
        if billed:
            from costgpu.cli.billed import billed_lines

            now = parts.clock.now()
            try:
                typer.echo("\n".join(billed_lines(parts, now.replace(day=1), now)))
            except CostGpuError as error:  # how the budgets stand is known, and the exit code says it
                tell_problems([error])
    raise typer.Exit(code)


for _command in (test_alert, cron):
    budget.command()(_command)


def _amount(daily: str | None, weekly: str | None, monthly: str | None, total: str | None) -> tuple[Every, Decimal]:
    from costgpu.ledger.records.budget_rules import Every, parse_amount

    given = [
        (every, text)
        for every, text in zip(
            (Every.DAILY, Every.WEEKLY, Every.MONTHLY, Every.TOTAL), (daily, weekly, monthly, total), strict=True
        )
        if text is not None
    ]
    if len(given) != 1:
        raise UsageError(
            "A budget needs an amount for one period." if not given else "A budget has one period, not several.",
            hint="One of --daily 10, --weekly 50, --monthly 200, --total 1000; make several budgets for several.",
        )
    ((every, text),) = given
    return every, parse_amount(text)


def _zone(asked: str | None) -> str:
    """The time zone that was asked for, else the one here."""
    import warnings
    import zoneinfo

    from costgpu.ledger.records.budget_rules import parse_zone

    if asked is not None:
        try:
            return parse_zone(asked, ())
        except UsageError:
            return parse_zone(asked, zoneinfo.available_timezones())  # slow: only for the near names
    import tzlocal

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse_zone(str(tzlocal.get_localzone_name() or "UTC"), ())
    except (UsageError, LookupError, OSError, ValueError):
        typer.echo("costgpu: the time zone here has no name; days begin at midnight UTC (--time-zone).", err=True)
        return "UTC"


def _provider(asked: str | None) -> str:
    if asked is None:
        return ""
    from costgpu.providers import registry

    name = asked.strip().lower()
    if registry.find(name) is None:
        raise UsageError(f"There is no provider {asked!r}.", hint=f"costgpu knows {', '.join(registry.names())}.")
    return name


def _person(asked: str | None) -> str:
    if asked is None:
        return ""
    if not asked.strip():
        raise UsageError("--person is empty.", hint="Write the user as costgpu jobs and reap name it: alice.")
    return asked.strip()
