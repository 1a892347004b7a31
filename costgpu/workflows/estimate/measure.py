"""Measuring a script for a command: what to run, progress on the terminal, which offers to predict. Imports lazily."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from costgpu.errors import EXIT_INTERRUPTED, NotPython, ScriptNotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from costgpu.measure import Outcome, Request
    from costgpu.models.prediction import Candidate
    from costgpu.models.workload import WorkloadProfile


def candidates(gpus: str | None, infra: tuple[str, ...], *, spot: bool) -> list[Candidate]:
    """Offers to weigh: the accelerators asked for, and the CPUs to compare them with."""
    from costgpu.models.offer import PurchaseOption
    from costgpu.models.prediction import Candidate
    from costgpu.pricing.catalog import Catalog
    from costgpu.pricing.hardware import accelerators, cpus
    from costgpu.pricing.query import OfferQuery
    from costgpu.providers import registry
    from costgpu.units import AcceleratorRequest, parse_accelerator
    from costgpu.workflows.price_warning import warn_of_prices

    catalog = Catalog.current(warn_of_prices)
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
    costs = {name: registry.costs(name) for name in {offer.provider for offer in found}}
    return [
        Candidate(
            offer=offer,
            cpu=hosts[offer.provider, offer.family],
            accelerator=chips[offer.accelerator.name] if offer.accelerator else None,
            on_demand_usd_per_hour=on_demand.get((offer.provider, offer.region, offer.instance_type)),
            costs=costs[offer.provider],
        )
        for offer in found
    ]


def to_request(
    words: list[str], module: str | None, workdir: str | None, seconds: float, limit: float, steps: int | None
) -> Request:
    """What to measure or run, with clear errors for what is not a script."""
    from pathlib import Path

    from costgpu.measure import Request

    folder = Path(workdir).resolve() if workdir else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"There is no folder {workdir}.", hint="--workdir is where the script runs.")
    if module is not None:
        return Request(
            script=None,
            module=module,
            arguments=words,
            workdir=folder or Path.cwd(),
            measure_for_seconds=seconds,
            start_limit_seconds=limit,
            steps=steps,
        )
    script = Path(words[0])
    if script.is_dir():
        package = f" -m {script.name}" if script.name else " -m package"
        raise NotPython(f"{script} is a folder.", hint=f"Name a script in it, or a package:{package}")
    if not script.exists():
        raise ScriptNotFound(f"There is no script {script}.", hint=_nearby(script))
    if script.suffix == ".ipynb":
        raise NotPython(f"{script} is a notebook.", hint=f"Convert it: jupyter nbconvert --to script {script}")
    script = script.resolve()
    _warn_of_paths(words[1:], folder or script.parent)
    return Request(
        script=script,
        module=None,
        arguments=words[1:],
        workdir=folder or script.parent,
        measure_for_seconds=seconds,
        start_limit_seconds=limit,
        steps=steps,
    )


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


def run_measurement(request: Request, python: str | None) -> tuple[WorkloadProfile, Outcome]:
    """Measures with progress on stderr; Ctrl-C ends the script and the command."""
    import platformdirs

    from costgpu.measure import find_interpreter, measure_script

    interpreter = find_interpreter(python, dict(os.environ))
    cache = platformdirs.user_cache_path("costgpu")
    try:
        words = f"Measuring {request.name} with {interpreter.path} (Python {interpreter.version}, {interpreter.origin})"
        with progress(words, request.measure_for_seconds, request.start_limit_seconds) as tick:
            return measure_script(request, interpreter, cache, tick)
    except KeyboardInterrupt:
        typer.echo("Stopped. The script and everything that it started have been ended.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def progress(words: str, measure_for_seconds: float, limit_seconds: float) -> Iterator[Callable[[float, bool], None]]:
    """A live line on a terminal, a plain line elsewhere; on stderr."""
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
                left = max(0.0, measure_for_seconds - (seconds - reached[0]))
                status.update(f"training steps are being timed: {left:.0f} s left (Ctrl-C ends it)")
            else:
                status.update(f"waiting for the first step: {seconds:.0f} s (limit {limit_seconds:.0f} s)")

        yield tick


def tell_about_files(outcome: Outcome) -> None:
    """Says on stderr which files were diverted, made or put back."""
    if outcome.diverted:
        typer.echo(
            f"{_files(len(outcome.diverted))} that the script writes went to a scratch folder instead: {outcome.scratch}",
            err=True,
        )
    if outcome.created:
        shown = ", ".join(outcome.created[:3]) + (" ..." if len(outcome.created) > 3 else "")
        typer.echo(f"The script made {_files(len(outcome.created), 'new ')}: {shown}", err=True)
    if outcome.restored:
        typer.echo(f"Put back {_files(len(outcome.restored))}: {', '.join(outcome.restored[:3])}", err=True)
    if outcome.programs:
        typer.echo(f"It started other programs, whose writes costgpu cannot divert: {outcome.programs[0]}", err=True)


def _files(count: int, kind: str = "") -> str:
    return f"1 {kind}file" if count == 1 else f"{count} {kind}files"
