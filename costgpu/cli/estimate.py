"""`costgpu estimate`: measure a script here, predict it everywhere, and say where to run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_note, say
from costgpu.errors import EXIT_INTERRUPTED, UsageError
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.write_file import check_target, write_file


@opt.command_of(EstimateRequest)
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
    from costgpu.render.estimate.documents import estimate_json
    from costgpu.render.estimate.first_screen import estimate_text
    from costgpu.workflows.estimate.estimate import estimate as estimate_workload

    if currency is not None and exchange_rate is None and request.rate is not None and "/" not in request.rate:
        exchange_rate, request = request.rate, replace(request, rate=None)  # a rate of requests has a unit of time
    as_json = opt.show_amounts(currency, exchange_rate, as_json=json, output=output)
    if report is not None:
        check_target(Path(report), force=force)
    elif force:
        raise UsageError("--force is for --report.", hint="A saved profile is replaced without it.")
    try:
        found = estimate_workload(request, TerminalReporter())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if report is not None:
        from costgpu.render.estimate.sections import estimate_report
        from costgpu.render.html.page import report_html

        write_file(Path(report), [report_html(estimate_report(found))], force=force)
        print_note(f"The page: {report}")
    say(estimate_json(found) if as_json else estimate_text(found, explain=explain))
