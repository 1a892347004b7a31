"""`costgpu estimate`: measure a script here, predict it everywhere, and say where to run it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import UsageError
from costgpu.models.workload import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS
from costgpu.workflows.estimate.measure import candidates

if TYPE_CHECKING:
    from costgpu.estimate.verdict import Preferences


def estimate(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its own arguments, or a saved profile.json."),
    ] = None,
    module: Annotated[str | None, typer.Option("-m", help="Run a module; what follows it is its own.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter; else the active venv's, else python.")] = None,
    workdir: Annotated[str | None, typer.Option(help="Folder to run in; else the script's own.")] = None,
    measure_for: Annotated[str, typer.Option(help="How long after the first step.")] = f"{MEASURE_FOR_SECONDS:.0f}s",
    start_limit: Annotated[
        str, typer.Option(help="How long to wait for the first step.")
    ] = f"{START_LIMIT_SECONDS:.0f}s",
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many timed steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Predict for so many epochs.")] = None,
    total_steps: Annotated[float | None, typer.Option(help="Predict for so many optimizer steps.")] = None,
    like: Annotated[
        str | None, typer.Option(help="Nothing to measure: a kind of work, such as resnet50; see costgpu speedups.")
    ] = None,
    params: Annotated[str | None, typer.Option(help="Nothing to measure: a language model of so many (7B).")] = None,
    tokens: Annotated[str | None, typer.Option(help="That --params is trained on: 1B.")] = None,
    step_pattern: Annotated[
        str | None, typer.Option(help="Of a program's progress lines: 'tick (?P<step>[0-9]+)'.")
    ] = None,
    save: Annotated[str | None, typer.Option(help="Write what was measured to this JSON file.")] = None,
    objective: Annotated[str, typer.Option(help="cheapest, fastest or balanced.")] = "cheapest",
    deadline: Annotated[str | None, typer.Option(help="Only what is done in this time: 2h.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Only what costs at most so much, USD.")] = None,
    value_of_time: Annotated[str | None, typer.Option(help="What an hour of waiting is worth, USD.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Only these: L4, A100:1, 24GB:1..2, none.")] = None,
    infra: Annotated[
        list[str] | None, typer.Option("--infra", "--region", help="Place: aws, aws/us-east-1. Repeatable.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", "--use-spot", help="Spot prices.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 8,
    own: Annotated[str | None, typer.Option(help="Beside the offers: a GPU of your own, such as RTX 3090.")] = None,
    own_price: Annotated[str | None, typer.Option(help="What it would cost to buy, USD.")] = None,
    power_price: Annotated[str | None, typer.Option(help="Of electricity, USD per kWh.")] = None,
    energy: Annotated[bool, typer.Option("--energy", help="Show kWh, modelled.")] = False,
    chart: Annotated[bool, typer.Option("--chart", help="Draw time and interval of each row.")] = False,
    report: Annotated[str | None, typer.Option(help="Write a page to look at to this HTML file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --report replace a file.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show every term and its source.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; as -o json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Format: text or json.")] = "text",
) -> None:
    """Measure a training script here for some seconds and say where to run it.

    The script runs unmodified with its own arguments, which follow its name; options of
    costgpu stand before it. Its files stay as they were: saves go to a scratch folder.
    Any other program is measured by the progress that it prints: costgpu estimate -- caffe train.
    """
    from datetime import UTC, datetime

    from costgpu import __version__
    from costgpu.estimate.predict import predict, prepare
    from costgpu.estimate.scope import scope_of
    from costgpu.estimate.verdict import decide
    from costgpu.models.prediction import Candidate
    from costgpu.pricing.hardware import accelerators
    from costgpu.pricing.speedups import speedups
    from costgpu.render.text.estimate import verdict_json, verdict_text
    from costgpu.units import parse_duration
    from costgpu.workflows.estimate.extras import Besides
    from costgpu.workflows.estimate.profile_source import Asked, check, subject
    from costgpu.workflows.estimate.speed_history import Speeds

    if output not in ("text", "json"):
        raise UsageError(f"There is no output format {output!r}.", hint="Choose text or json.")
    if epochs is not None and total_steps is not None:
        raise UsageError("--epochs and --total-steps exclude each other.", hint="Give one of them.")
    for name, value in (("--epochs", epochs), ("--total-steps", total_steps)):
        if value is not None and not 0 < value < 1e15:
            raise UsageError(f"{name} {value:g} is not a positive number.")
    asked = Asked(
        words=tuple(command or ()),
        module=module,
        python=python,
        workdir=workdir,
        measure_for_seconds=parse_duration(measure_for),
        start_limit_seconds=parse_duration(start_limit),
        steps=steps,
        save=save,
        like=like,
        params=params,
        tokens=tokens,
        step_pattern=step_pattern,
        epochs=epochs,
    )
    check(asked)
    preferences = _preferences(objective, deadline, max_cost, value_of_time, top)
    besides = Besides.asked(
        own=own, own_price=own_price, power_price=power_price, energy=energy, chart=chart, report=report, force=force
    )
    places = candidates(gpus, tuple(infra or ()), spot=spot)  # a wrong name is an error before 30 s of measuring
    now = datetime.now(UTC)
    found = subject(asked, now, __version__)
    profile = found.profile
    if found.epochs is not None and not profile.phases[-1].total.steps_per_epoch:
        raise UsageError("No epochs could be found in this script.", hint="Use --total-steps.")
    scope = scope_of(profile, epochs=found.epochs, total_steps=total_steps)
    workload = prepare(profile, scope, year=now.year, speedups=speedups(), cards=accelerators().values())
    with Speeds(profile.workload) as known:
        here = predict(workload, Candidate(offer=None), known.of(None))
        offers = [predict(workload, place, known.of(place.offer)) for place in places]
        verdict = decide(scope, here, offers, preferences, ())
        known.record(verdict, profile, now)
    besides.weigh(workload, verdict, offers, preferences, now.date(), gpus=gpus, infra=tuple(infra or ()), spot=spot)
    if json or output == "json":
        typer.echo(verdict_json(verdict, profile, now.date(), besides=besides.documents()))
    else:
        texts = besides.texts(sys.stdout.encoding or "ascii")
        typer.echo(verdict_text(verdict, profile, now.date(), explain=explain, log=found.log, besides=texts))


def _preferences(
    objective: str, deadline: str | None, max_cost: str | None, value_of_time: str | None, rows: int
) -> Preferences:
    from costgpu.estimate.verdict import Preferences
    from costgpu.models.prediction import Objective
    from costgpu.units import parse_duration, parse_usd

    if objective not in list(Objective):
        raise UsageError(f"There is no objective {objective!r}.", hint="Choose cheapest, fastest or balanced.")
    return Preferences(
        objective=Objective(objective),
        deadline_seconds=parse_duration(deadline) if deadline else None,
        max_cost_usd=float(parse_usd(max_cost)) if max_cost else None,
        value_of_time_usd_per_hour=float(parse_usd(value_of_time)) if value_of_time else 0.0,
        rows=rows,
    )
