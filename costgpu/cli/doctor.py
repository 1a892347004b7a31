"""`costgpu doctor`: whether a run would work from here, and what to do if not."""

from __future__ import annotations

from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, say
from costgpu.workflows.context import AppContext


def doctor(
    infra: opt.Infra = None,
    instance_type: opt.InstanceType = None,
    gpus: opt.Gpus = None,
    spot: opt.Spot = False,
    policy: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Provider whose least permissions are printed, nothing else.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Check credentials, permissions, quotas and this computer.

    Every cloud with credentials is asked, side by side, and nothing is created or paid for.
    With -t or --gpus also whether that machine can be had: its zones, its quota, a dry
    run. Exit code 0 if nothing failed, else that of the gravest failure: 41
    credentials or permissions, 43 quota, 44 no such region or machine, 46 no answer, ...

    --policy aws prints the least IAM policy that is enough, as JSON; --policy gcp the
    custom role, as YAML.
    """
    from costgpu.models.diagnostics import Status, gravest
    from costgpu.render.text.doctor import doctor_json, doctor_text
    from costgpu.workflows.doctor import examine, permissions

    if policy is not None:
        typer.echo(permissions(policy), nl=False)
        return
    with AppContext(TerminalReporter(), strict=True) as context:
        places = examine(context, infra or [], instance_type, gpus, spot=spot)
        kind = gravest([check for place in places for check in place.checks])
        exit_code = kind.exit_code if kind else 0
        say(doctor_json(places, context.clock.now(), exit_code) if json else doctor_text(places))
    if kind is not None:
        count = sum(check.status is Status.FAILED for place in places for check in place.checks)
        raise kind(f"{count} check{'s' if count > 1 else ''} failed.", hint="The lines marked FAIL say what to do.")
