"""`costgpu estimate`: measure a script here, predict it everywhere, and say where to run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import EXIT_INTERRUPTED, NotPython, ScriptNotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from costgpu.measure import Interpreter, Outcome, Request
    from costgpu.prediction import Candidate
    from costgpu.workload import WorkloadProfile


def estimate(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its own arguments, or a saved profile.json."),
    ] = None,
    module: Annotated[str | None, typer.Option("-m", help="Run a module, as python -m does.")] = None,
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

    from costgpu.estimate.predict import amount_of, predict, prepare
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
    candidates = _candidates(gpus, tuple(infra or ()), spot=spot)  # a wrong name is an error before 30 s of measuring
    log = None
    if module is None and words[0].endswith(".json"):
        if len(words) > 1:
            raise UsageError(f"A profile takes no arguments: {' '.join(words[1:])}", hint="Put options before it.")
        profile = load_profile(Path(words[0]))
    else:
        seconds, limit = parse_duration(measure_for), parse_duration(start_limit)
        request = _request(words, module, workdir, seconds, limit, steps)
        profile, outcome = _measure(request, python)
        log = str(outcome.log)
        if save:
            save_profile(profile, Path(save))
            typer.echo(f"Profile written to {save}", err=True)
        _tell_about_files(outcome)
    if epochs is not None and not profile.phases[-1].total.steps_per_epoch:
        raise UsageError("No epochs could be found in this script.", hint="Use --total-steps.")
    now = datetime.now(UTC)
    amount = amount_of(profile, epochs=epochs, total_steps=total_steps)
    workload = prepare(profile, amount, year=now.year)
    here = predict(workload, Candidate(offer=None))
    verdict = decide(amount, here, [predict(workload, candidate) for candidate in candidates], preferences, ())
    if json or output == "json":
        typer.echo(verdict_json(verdict, profile, now.date()))
    else:
        typer.echo(verdict_text(verdict, profile, now.date(), explain=explain, log=log))


def _candidates(gpus: str | None, infra: tuple[str, ...], *, spot: bool) -> list[Candidate]:
    """Offers to weigh: the accelerators asked for, and the CPUs to compare them with."""
    from costgpu.models import PurchaseOption
    from costgpu.prediction import Candidate
    from costgpu.pricing.catalog import Catalog
    from costgpu.pricing.hardware import accelerators, cpus
    from costgpu.pricing.query import OfferQuery
    from costgpu.units import AcceleratorRequest, parse_accelerator

    catalog = Catalog.shipped()
    option = PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND
    asked = parse_accelerator(gpus) if gpus else None
    found = list(catalog.query(OfferQuery(accelerator=asked, infra=infra, purchase_options=(option,))))
    if asked is not None and not asked.none:
        none = AcceleratorRequest(none=True)
        found += catalog.query(OfferQuery(accelerator=none, infra=infra, purchase_options=(option,)))
    on_demand = {
        (o.provider, o.region, o.instance_type): o.price_usd_per_hour
        for o in catalog.offers
        if o.purchase_option is PurchaseOption.ON_DEMAND
    }
    chips, hosts = accelerators(), cpus()
    return [
        Candidate(
            offer=offer,
            cpu=hosts[offer.provider, offer.family],
            accelerator=chips[offer.accelerator.name] if offer.accelerator else None,
            on_demand_usd_per_hour=on_demand.get((offer.provider, offer.region, offer.instance_type)),
        )
        for offer in found
    ]


def _request(
    words: list[str], module: str | None, workdir: str | None, seconds: float, limit: float, steps: int | None
) -> Request:
    from pathlib import Path

    from costgpu.measure import Request

    folder = Path(workdir).resolve() if workdir else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"There is no folder {workdir}.", hint="--workdir is where the script runs.")
    if module is not None:
        return Request(
            script=None, module=module, arguments=words, workdir=folder or Path.cwd(), measure_for_seconds=seconds,
            start_limit_seconds=limit, steps=steps,
        )  # fmt: skip
    script = Path(words[0])
    if script.is_dir():
        raise NotPython(f"{script} is a folder.", hint=f"Run a package with: costgpu estimate -m {script.name}")
    if not script.exists():
        raise ScriptNotFound(f"There is no script {script}.", hint=_nearby(script))
    if script.suffix == ".ipynb":
        raise NotPython(f"{script} is a notebook.", hint=f"Convert it: jupyter nbconvert --to script {script}")
    script = script.resolve()
    _warn_of_paths(words[1:], folder or script.parent)
    return Request(
        script=script, module=None, arguments=words[1:], workdir=folder or script.parent, measure_for_seconds=seconds,
        start_limit_seconds=limit, steps=steps,
    )  # fmt: skip


def _nearby(script: Path) -> str:
    import difflib

    names = [p.name for p in script.parent.glob("*.py")] if script.parent.is_dir() else []
    near = difflib.get_close_matches(script.name, names, 3)
    return f"Did you mean {', '.join(near)}?" if near else "Check the path; the script's arguments come after it."


def _warn_of_paths(arguments: list[str], workdir: Path) -> None:
    from pathlib import Path

    for word in arguments:
        path = word.split("=", 1)[-1]
        if path and not path.startswith(("-", "/")) and Path(path).exists() and not (workdir / path).exists():
            typer.echo(
                f"costgpu: {path} exists here, but the script runs in {workdir}; if it needs {path}, add --workdir .",
                err=True,
            )


def _measure(request: Request, python: str | None) -> tuple[WorkloadProfile, Outcome]:
    import platformdirs

    from costgpu.measure import find_interpreter, measure_script

    interpreter = find_interpreter(python, dict(os.environ))
    cache = platformdirs.user_cache_path("costgpu")
    try:
        with _progress(request, interpreter) as tick:
            return measure_script(request, interpreter, cache, tick)
    except KeyboardInterrupt:
        typer.echo("Stopped. The script and everything that it started have been ended.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def _progress(request: Request, interpreter: Interpreter) -> Iterator[Callable[[float, bool], None]]:
    """A live line on a terminal, a plain line elsewhere; on stderr."""
    words = f"Measuring {request.name} with {interpreter.path} (Python {interpreter.version}, {interpreter.origin})"
    typer.echo(words, err=True)
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console

    reached: list[float] = []
    with Console(stderr=True).status("starting") as status:

        def tick(seconds: float, stepping: bool) -> None:
            if stepping and not reached:
                reached.append(seconds)
            if stepping:
                left = max(0.0, request.measure_for_seconds - (seconds - reached[0]))
                status.update(f"training steps are being timed: {left:.0f} s left (Ctrl-C ends it)")
            else:
                status.update(
                    f"waiting for the first step: {seconds:.0f} s (limit {request.start_limit_seconds:.0f} s)"
                )

        yield tick


def _tell_about_files(outcome: Outcome) -> None:
    if outcome.diverted:
        typer.echo(
            f"{len(outcome.diverted)} files that the script writes went to a scratch folder instead: {outcome.scratch}",
            err=True,
        )
    if outcome.created:
        shown = ", ".join(outcome.created[:3]) + (" ..." if len(outcome.created) > 3 else "")
        typer.echo(f"The script made {len(outcome.created)} new files: {shown}", err=True)
    if outcome.restored:
        typer.echo(f"Put back {len(outcome.restored)} files: {', '.join(outcome.restored[:3])}", err=True)
    if outcome.programs:
        typer.echo(f"It started other programs, whose writes costgpu cannot divert: {outcome.programs[0]}", err=True)
