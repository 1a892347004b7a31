"""`costgpu doctor`: whether a run would work from here, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costgpu.models.diagnostics import Check
    from costgpu.models.offer import Offer
    from costgpu.render.text.doctor import Place
    from costgpu.workflows.context import AppContext


def doctor(
    infra: Annotated[
        list[str] | None, typer.Option("--infra", "--region", help="Only there: aws, gcp/us-central1, local.")
    ] = None,
    instance_type: Annotated[
        str | None, typer.Option("-t", "--instance-type", help="The machine wanted: g5.xlarge, g2-standard-4.")
    ] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", help="Or its accelerator: L4:1, A100-80GB:8.")] = None,
    spot: Annotated[bool, typer.Option("--spot", "--use-spot", help="As a spot instance.")] = False,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="CLOUD", help="Only print what costgpu needs: aws or gcp.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check credentials, permissions, quotas, the clock and this computer before a run does.

    Every cloud with credentials is asked, side by side, and nothing is created or paid for.
    With -t or --gpus also whether that machine can be had: its zones, its quota, a dry
    run. Exit code 0 if nothing failed, else that of the gravest failure: 41
    credentials or permissions, 43 quota, 44 no such region or machine, 46 no answer, ...

    --policy aws prints the least IAM policy that is enough, as JSON; --policy gcp the
    custom role, as YAML.
    """
    from costgpu.errors import UsageError
    from costgpu.models.diagnostics import Status, gravest
    from costgpu.render.text.doctor import doctor_json, doctor_text
    from costgpu.workflows.context import app_context

    if policy is not None:
        from costgpu.providers import registry

        policies = {spec.name: spec.policy for spec in registry.specs() if spec.policy is not None}
        if policy not in policies:
            raise UsageError(f"--policy {policy}: there is none.", hint=f"Use {' or '.join(policies)}.")
        typer.echo(policies[policy](), nl=False)
        return
    with app_context(strict=True) as parts:
        places = _places(parts, infra or [], instance_type, gpus, spot=spot)
        kind = gravest([check for place in places for check in place.checks])
        now = parts.clock.now()
        typer.echo(doctor_json(places, now, kind.exit_code if kind else 0) if json else doctor_text(places))
    if kind is not None:
        count = sum(check.status is Status.FAILED for place in places for check in place.checks)
        raise kind(f"{count} check{'s' if count > 1 else ''} failed.", hint="The lines marked FAIL say what to do.")


def _places(
    parts: AppContext, infra: list[str], instance_type: str | None, gpus: str | None, *, spot: bool
) -> list[Place]:
    """All that is asked for, the clouds side by side."""
    import threading

    from costgpu.render.text.doctor import Place
    from costgpu.workflows.doctor import cloud_checks, clouds, own_checks, places_of

    chosen = places_of(infra) if infra else [spec.name for spec in clouds()]
    offers = _offers(chosen, instance_type, gpus, spot=spot, asked=bool(infra))
    found: dict[str, Sequence[Check]] = {}

    def ask(place: str) -> None:
        provider = place.partition("/")[0]
        found[place] = cloud_checks(parts, provider, offers[place], asked=bool(infra))

    threads = [threading.Thread(target=ask, args=(place,), name=place, daemon=True) for place in chosen]
    for thread in threads:
        thread.start()
    here = Place(name="this computer", checks=own_checks(parts))
    for thread in threads:
        thread.join()
    return [here, *(Place(name=place, checks=found[place], offer=offers[place]) for place in chosen)]


def _offers(
    places: list[str], instance_type: str | None, gpus: str | None, *, spot: bool, asked: bool
) -> dict[str, Offer | None]:
    """The machine to ask about in each place. One that was named must have it; of the others, one of them."""
    from costgpu.errors import PriceNotFound, UsageError
    from costgpu.workflows.doctor import wanted

    if instance_type is not None and gpus is not None:
        raise UsageError("-t and --gpus contradict each other.", hint="A machine type has its accelerators.")
    found: dict[str, Offer | None] = {}
    errors: list[PriceNotFound] = []
    for place in places:
        try:
            found[place] = wanted(place, instance_type, gpus, spot=spot)
        except PriceNotFound as error:
            found[place] = None
            errors.append(error)
    if errors and (asked or len(errors) == len(places)):
        raise errors[0]
    return found
