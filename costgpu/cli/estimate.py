"""`costgpu estimate`: measure a script here, predict it everywhere, and say where to run it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli.measuring import candidates, run_measurement, tell_about_files, to_request
from costgpu.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def estimate(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its own arguments, or a saved profile.json."),
    ] = None,
    module: Annotated[str | None, typer.Option("-m", help="Run a module; what follows it is its own.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter; else the active venv's, else python.")] = None,
    workdir: Annotated[str | None, typer.Option(help="Folder to run in; else the script's own.")] = None,
    measure_for: Annotated[str, typer.Option(help="How long after the first step.")] = "30s",
    start_limit: Annotated[str, typer.Option(help="How long to wait for the first step.")] = "180s",
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many timed steps.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Predict for so many epochs.")] = None,
    total_steps: Annotated[float | None, typer.Option(help="Predict for so many optimizer steps.")] = None,
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
    explain: Annotated[bool, typer.Option("--explain", help="Show every term and its source.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; as -o json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Format: text or json.")] = "text",
) -> None:
    """Measure a training script here for some seconds and say where to run it.

    The script runs unmodified with its own arguments, which follow its name; options of
    costgpu stand before it. Its files stay as they were: saves go to a scratch folder.
    """
    from datetime import UTC, datetime
    from pathlib import Path

    from costgpu.cli.speeds import Speeds
    from costgpu.estimate.amount import amount_of
    from costgpu.estimate.predict import predict, prepare
    from costgpu.estimate.verdict import Preferences, decide
    from costgpu.measure.document import load_profile, save_profile
    from costgpu.prediction import Candidate, Objective
    from costgpu.render.estimate import verdict_json, verdict_text
    from costgpu.units import parse_duration, parse_usd

    words = list(command or [])
    if objective not in list(Objective):
        raise UsageError(f"There is no objective {objective!r}.", hint="Choose cheapest, fastest or balanced.")
    if output not in ("text", "json"):
        raise UsageError(f"There is no output format {output!r}.", hint="Choose text or json.")
    if epochs is not None and total_steps is not None:
        raise UsageError("--epochs and --total-steps exclude each other.", hint="Give one of them.")
    for name, value in (("--epochs", epochs), ("--total-steps", total_steps)):
        if value is not None and not 0 < value < 1e15:
            raise UsageError(f"{name} {value:g} is not a positive number.")
    if module is None and not words:
        raise UsageError("Which script?", hint="costgpu estimate train.py, or costgpu estimate -m package")
    preferences = Preferences(
        objective=Objective(objective),
        deadline_seconds=parse_duration(deadline) if deadline else None,
        max_cost_usd=float(parse_usd(max_cost)) if max_cost else None,
        value_of_time_usd_per_hour=float(parse_usd(value_of_time)) if value_of_time else 0.0,
        rows=top,
    )
    places = candidates(gpus, tuple(infra or ()), spot=spot)  # a wrong name is an error before 30 s of measuring
    log = None
    if module is None and words[0].endswith(".json"):
        if len(words) > 1:
            raise UsageError(f"A profile takes no arguments: {' '.join(words[1:])}", hint="Put options before it.")
        profile = load_profile(Path(words[0]))
    else:
        seconds, limit = parse_duration(measure_for), parse_duration(start_limit)
        if save:
            _check_save(Path(save))
        request = to_request(words, module, workdir, seconds, limit, steps)
        profile, outcome = run_measurement(request, python)
        log = str(outcome.log)
        if save:
            save_profile(profile, Path(save))
            typer.echo(f"Profile written to {save}", err=True)
        tell_about_files(outcome)
    if epochs is not None and not profile.phases[-1].total.steps_per_epoch:
        raise UsageError("No epochs could be found in this script.", hint="Use --total-steps.")
    now = datetime.now(UTC)
    amount = amount_of(profile, epochs=epochs, total_steps=total_steps)
    workload = prepare(profile, amount, year=now.year)
    with Speeds(profile.workload) as known:
        here = predict(workload, Candidate(offer=None), known.of(None))
        offers = [predict(workload, place, known.of(place.offer)) for place in places]
        verdict = decide(amount, here, offers, preferences, ())
        known.record(verdict, profile, now)
    if json or output == "json":
        typer.echo(verdict_json(verdict, profile, now.date()))
    else:
        typer.echo(verdict_text(verdict, profile, now.date(), explain=explain, log=log))


def _check_save(path: Path) -> None:
    """Refuses, before anything is measured, to write over what no costgpu has saved: the script, say.

    Raises:
        UsageError: It is such a file, or its folder is not there.
    """
    from costgpu.cli.files import check_target
    from costgpu.measure.document import load_profile

    if os.path.lexists(path):
        try:
            ours = path.is_file() and bool(load_profile(path))
        except ProfileError:
            ours = False
        if not ours:
            raise UsageError(
                f"--save {path}: it exists, and is no profile that costgpu has saved.", hint="Choose another name."
            )
    check_target(path, force=True)
