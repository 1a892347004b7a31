"""`costgpu estimate`: measure a script here, predict it everywhere, and say where to run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costgpu.cli import options as opt
from costgpu.cli.commands import command_of
from costgpu.cli.terminal_reporter import TerminalReporter, print_note, say
from costgpu.errors import EXIT_INTERRUPTED, UsageError
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.write_file import check_target, write_file

if TYPE_CHECKING:
    from costgpu.render.text.blocks import Block
    from costgpu.workflows.estimate.estimate import Estimate


@command_of(EstimateRequest)
def estimate(
    request: EstimateRequest,
    *,
    currency: opt.Currency = None,
    exchange_rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="How much of --currency is one US dollar: 0.92; also --rate 0.92."),
    ] = None,
    report: Annotated[str | None, typer.Option(help="HTML file to write a page to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --report overwrite an existing file.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show all figures and notes, with their sources.")] = False,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """Measure a script that trains or infers and say where to run it.

    The script runs unmodified with its own arguments, which follow its name; options of
    costgpu stand before it. Whatever it writes is thrown away: your files stay as they were.
    Of what torchrun, accelerate launch or deepspeed start, one process is measured.
    Any other program is measured by the progress that it prints: costgpu estimate -- caffe train.
    """
    from costgpu.render.text.estimate import verdict_json, verdict_text
    from costgpu.workflows.estimate.estimate import estimate as estimate_workload

    as_json = opt.wants_json(json, output)
    if currency is not None and exchange_rate is None and request.rate is not None and "/" not in request.rate:
        exchange_rate, request = request.rate, replace(request, rate=None)  # a rate of requests has a unit of time
    opt.show_amounts(currency, exchange_rate, as_json=as_json)
    if report is not None:
        check_target(Path(report), force=force)
    elif force:
        raise UsageError("--force is for --report.", hint="A saved profile is replaced without it.")
    try:
        found = estimate_workload(request, TerminalReporter())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if report is not None:
        write_file(Path(report), [_page(found)], force=force)
        print_note(f"The page: {report}")
    if as_json:
        say(verdict_json(found.verdict, found.profile, found.today, besides=_extra_documents(found)))
    else:
        blocks = _extra_blocks(found)
        say(
            verdict_text(
                found.verdict,
                found.profile,
                found.today,
                explain=explain,
                log=found.log,
                besides=blocks,
                service=found.service,
            )
        )


def _page(found: Estimate) -> str:
    from costgpu.render.html.verdict_page import verdict_html
    from costgpu.render.text.advice import sentences
    from costgpu.render.text.buy_vs_rent import COLAB

    return verdict_html(
        found.verdict,
        found.profile,
        [" ".join(sentences(advice)) for advice in found.advice],
        found.today,
        own=found.own,
        notebooks=[COLAB] if found.fits_colab else [],
        energy=None if found.energy is None else [kwh for _, kwh in found.energy],
        service=found.service,
    )


def _extra_blocks(found: Estimate) -> list[Block]:
    """Return what follows the table."""
    from costgpu.pricing.speedups import speedups
    from costgpu.render.phrases import offer_name
    from costgpu.render.text.advice import advice_block
    from costgpu.render.text.blocks import Block, asked_for
    from costgpu.render.text.buy_vs_rent import COLAB, energy_text, own_text
    from costgpu.render.text.layout import wrap
    from costgpu.render.text.several_gpus import scaling_table
    from costgpu.render.text.speedups import speedups_table

    verdict = found.verdict
    energy = [(offer_name(place), kwh) for place, kwh in found.energy or ()]
    return [
        Block(full=scaling_table(found.by_gpus, verdict.recommended)),
        advice_block(found.advice, unit=verdict.unit),
        asked_for(own_text(found.own, verdict.unit) if found.own is not None else ""),
        asked_for(energy_text(energy) if energy else ""),
        Block(full=wrap(COLAB, "- ") if found.fits_colab else ""),
        *(Block(full=speedups_table([row for row in speedups() if row.kind == kind])) for kind in found.looked_up),
    ]


def _extra_documents(found: Estimate) -> dict[str, Any]:
    """Return the same as parts of a JSON document."""
    from costgpu.render.phrases import offer_name
    from costgpu.render.text.advice import advice_values
    from costgpu.render.text.buy_vs_rent import own_value
    from costgpu.render.text.service import service_value
    from costgpu.render.text.several_gpus import scaling_values

    documents: dict[str, Any] = {
        "advice": advice_values(found.advice),
        "own": own_value(found.own) if found.own is not None else None,
        "by_gpus": scaling_values(found.by_gpus),
        "service": service_value(found.service) if found.service is not None else None,
    }
    if found.energy is not None:
        documents["energy_kwh"] = [{"where": offer_name(place), "kwh": kwh} for place, kwh in found.energy]
    return documents
