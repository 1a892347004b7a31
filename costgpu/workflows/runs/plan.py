"""From the options of `costgpu run` to a plan: where, with what set-up, for how much at most. Imports lazily."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import AuthError, CostGpuError, PriceNotFound, ProviderError, UsageError

if TYPE_CHECKING:
    from datetime import date

    from costgpu.ledger import Ledger
    from costgpu.models.instance import Identity
    from costgpu.models.job import JobSpec
    from costgpu.models.prediction import Candidate, Prediction
    from costgpu.models.run import Option, Plan
    from costgpu.models.workload import WorkloadProfile
    from costgpu.runner.plan import LaunchPlace, Limits
    from costgpu.workflows.context import AppContext


def check_local(options: dict[str, object]) -> None:
    """This machine is as it is. Raises `UsageError` for an option that asks for another one."""
    meant = [name for name, value in options.items() if value]
    if meant:
        raise UsageError(
            f"{' and '.join(meant)} cannot be chosen on this machine: it is as it is.",
            hint="Leave it away, or rent a machine: --infra aws.",
        )


def default_places(default: str | None, *, renting: bool) -> tuple[str, ...]:
    """Without --infra: what the settings say, unless what is asked for cannot be this machine."""
    return () if default is None or (renting and default == "local") else (default,)


def check_credentials(parts: AppContext, clouds: Iterable[str]) -> None:
    """Raises `AuthError` if no cloud that is meant can be asked."""
    from costgpu.providers import registry

    usable, without = _with_credentials(clouds)
    if not usable:
        raise AuthError(
            f"There are no credentials for {' or '.join(without)} here.",
            hint="; ".join(f"{name}: {registry.spec(name).login_hint}" for name in without),
        )
    refused: list[AuthError] = []
    for name in usable:
        try:
            parts.provider(name).identity()
        except AuthError as error:
            refused.append(error)
        else:
            return
    if len(refused) == 1:
        raise refused[0]
    raise AuthError(
        " ".join(error.message for error in refused), hint=" Or: ".join(error.hint for error in refused if error.hint)
    )


def _with_credentials(clouds: Iterable[str]) -> tuple[list[str], list[str]]:
    """Clouds with credentials here, and those without."""
    from costgpu.providers import registry

    usable: list[str] = []
    without: list[str] = []
    for name in clouds:
        (usable if registry.spec(name).has_credentials() else without).append(name)
    return usable, without


def check_places(infra: tuple[str, ...], instance_type: str | None, gpus: str | None, *, spot: bool) -> tuple[str, ...]:
    """The clouds that have what was asked for. A wrong name is an error before anything is measured."""
    if infra == ("local",):
        return ()
    found = _wanted(infra, instance_type, gpus, spot=spot)
    return tuple(sorted({candidate.offer.provider for candidate in found if candidate.offer}))


def _wanted(infra: tuple[str, ...], instance_type: str | None, gpus: str | None, *, spot: bool) -> list[Candidate]:
    """Offers that were asked for and can be launched."""
    from costgpu.providers import registry
    from costgpu.units import parse_accelerator
    from costgpu.workflows.estimate.measure import candidates

    found = candidates(gpus, tuple(place for place in infra if place != "local"), spot=spot)
    asked = parse_accelerator(gpus) if gpus else None
    if asked is not None and not asked.none:
        found = [c for c in found if c.is_gpu]
    if instance_type is not None:
        kinds = sorted({c.offer.instance_type for c in found if c.offer})
        found = [c for c in found if c.offer and c.offer.instance_type == instance_type.lower()]
        if not found:
            import difflib

            near = difflib.get_close_matches(instance_type, kinds, 3)
            raise PriceNotFound(
                f"There is no offer of {instance_type}{' in ' + ', '.join(infra) if infra else ''}.",
                hint=f"Did you mean {', '.join(near)}?" if near else "costgpu offers lists what there is.",
            )
    launchable = [c for c in found if c.offer and registry.find(c.offer.provider)]
    if found and not launchable:
        names = ", ".join(sorted({c.offer.provider for c in found if c.offer}))
        raise UsageError(
            f"costgpu cannot launch on {names} yet.", hint=f"It launches on {', '.join(registry.names())}."
        )
    if not launchable:
        raise PriceNotFound("No offer matches.", hint="costgpu offers lists what there is.")
    return launchable


def places_for(
    measured: WorkloadProfile | None,
    infra: tuple[str, ...],
    instance_type: str | None,
    gpus: str | None,
    *,
    spot: bool,
    assume_price: str | None,
    today: date,
    workload_key: str = "",
    ledger: Ledger | None = None,
) -> tuple[list[LaunchPlace], str, list[str]]:
    """Where to run it, best first, the sentence of the verdict, and notes.

    Where the ledger has earlier runs of the same workload, their measured speed is the prediction.
    """
    import os
    from decimal import Decimal

    import psutil

    from costgpu.estimate.predict import predict, prepare
    from costgpu.estimate.scope import scope_of
    from costgpu.estimate.verdict import Preferences, decide, effective_cost
    from costgpu.models.prediction import Candidate, Choice
    from costgpu.pricing.hardware import accelerators
    from costgpu.pricing.speedups import speedups
    from costgpu.runner.plan import LaunchPlace, this_machine
    from costgpu.units import parse_usd
    from costgpu.workflows.estimate.speed_history import Speeds

    scope = scope_of(measured, epochs=None, total_steps=None) if measured else None
    workload = (
        prepare(measured, scope, year=today.year, speedups=speedups(), cards=accelerators().values())
        if measured and scope
        else None
    )
    whole = scope is not None and scope.whole
    here_offer = this_machine(
        parse_usd(assume_price) if assume_price else Decimal(0),
        today,
        vcpus=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
    )
    speeds = Speeds(workload_key if workload else "", ledger=ledger)
    here = predict(workload, Candidate(offer=None), speeds.of(None)) if workload else None
    here_place = LaunchPlace(offer=here_offer, prediction=here if whole else None)
    notes = (
        []
        if whole or scope is None
        else ["How long the whole job takes is not known: " + scope.unit + " was predicted."]
    )
    if infra == ("local",):
        return [here_place], "", notes
    wanted = _wanted(infra, instance_type, gpus, spot=spot)
    usable, without = _with_credentials(sorted({c.offer.provider for c in wanted if c.offer}))
    if usable and without:  # not a place to go to, or to fail over to
        wanted = [c for c in wanted if c.offer and c.offer.provider in usable]
        notes.append(f"Not considered: {', '.join(without)} (no credentials here).")
    if workload is None or scope is None or here is None:
        if not (instance_type or gpus):
            raise UsageError(
                "Without an estimate nothing says what machine to run it on.",
                hint="Name one: --infra local, -t g5.xlarge or --gpus L4:1, with --max-cost or --max-duration.",
            )
        ranked = sorted(wanted, key=lambda c: c.offer.price_usd_per_hour if c.offer else 0)
        return [_place(c, None) for c in ranked], "", notes
    preferences = Preferences()
    predictions = [p for p in (predict(workload, c, speeds.of(c.offer)) for c in wanted) if not p.infeasible]
    if not predictions:
        raise UsageError("The job fits on none of the machines asked for.", hint="costgpu estimate says why.")
    ranked_predictions = sorted(predictions, key=lambda p: (effective_cost(p, preferences), p.wall_seconds.value))
    sentence = ""
    if not (instance_type or gpus):
        verdict = decide(scope, here, predictions, preferences, ())
        sentence = verdict.sentence
        if verdict.choice is Choice.HERE and (not infra or "local" in infra):
            return [here_place], sentence, notes
        if verdict.recommended is not None and verdict.recommended in ranked_predictions:
            ranked_predictions.remove(verdict.recommended)
            ranked_predictions.insert(0, verdict.recommended)
    return [_place(p.candidate, p if whole else None) for p in ranked_predictions], sentence, notes


def _place(candidate: Candidate, prediction: Prediction | None) -> LaunchPlace:
    from costgpu.runner.plan import LaunchPlace

    assert candidate.offer is not None  # noqa: S101 - only offers are launched
    return LaunchPlace(
        offer=candidate.offer, prediction=prediction, on_demand_usd_per_hour=candidate.on_demand_usd_per_hour
    )


def setup_for(
    asked: str | None, workdir: Path, measured: WorkloadProfile | None, place: LaunchPlace, *, local: bool
) -> str:
    """The set-up command: the user's; else the requirements; else the PyTorch that was measured."""
    if asked is not None or local:
        return asked or ""
    if (workdir / "requirements.txt").is_file():
        return "pip install -r requirements.txt"
    if measured is None:
        return ""
    version = measured.framework.version.partition("+")[0]
    cpu = "" if place.offer.accelerator else " --extra-index-url https://download.pytorch.org/whl/cpu"
    return f"pip install torch=={version} numpy{cpu}"


def python_for(asked: str | None, *, local: bool) -> str:
    """On this machine the user's own interpreter; elsewhere the machine's."""
    if not local:
        return ""
    import os

    from costgpu.measure import find_interpreter

    return find_interpreter(asked, dict(os.environ)).path


def tags_of(words: list[str]) -> dict[str, str]:
    """The user's tags. Raises `UsageError` for what no provider would take."""
    tags: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise UsageError(f"--tag {word!r} is not key=value.", hint="Such as --tag team=vision.")
        if key.lower().startswith(("costgpu", "aws:")):
            raise UsageError(f"The tag {key} is reserved.", hint="Tags of costgpu begin with costgpu-.")
        if len(key) > 60 or len(value) > 60:
            raise UsageError(f"The tag {key} is too long.", hint="Key and value have at most 60 characters.")
        tags[key] = value
    if len(tags) > 30:
        raise UsageError(f"{len(tags)} tags are too many.", hint="Providers allow about 30 besides ours.")
    return tags


def spec_of(
    *,
    name: str | None,
    module: str | None,
    script: Path | None,
    arguments: list[str],
    workdir: Path,
    environment: tuple[str, ...],
    env_file: str | None,
    outputs: list[str] | None,
    nproc: str | None,
    limits: Limits,
    idle: float | None,
    grace: float,
    auto_shutdown: bool,
    bucket: str,
    tags: dict[str, str],
) -> JobSpec:
    """The job as asked for. Raises `UsageError` for paths that leave the folder and numbers that are none."""
    from costgpu.models.job import JobSpec
    from costgpu.runner.launch import job_name

    if script is not None:
        try:
            argv = (script.relative_to(workdir.resolve()).as_posix(), *arguments)
        except ValueError:
            raise UsageError(
                f"{script} is not in the folder that is sent, {workdir}.", hint="Choose another --workdir."
            ) from None
    else:
        argv = ("-m", str(module), *arguments)
    processes = 0
    if nproc is not None:
        if nproc != "auto" and not (nproc.isdigit() and 0 < int(nproc) < 1000):
            raise UsageError(
                f"--nproc {nproc!r} is not a number of processes.", hint="Write --nproc 4 or --nproc auto."
            )
        processes = -1 if nproc == "auto" else int(nproc)
    for pattern in outputs or []:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise UsageError(f"--outputs {pattern} leaves the working folder.", hint="Patterns are relative to it.")
    return JobSpec(
        name=job_name(name or (script.stem if script else str(module))),
        argv=argv,
        workdir=str(workdir.resolve()),
        env_names=environment,
        env_file=str(Path(env_file).resolve()) if env_file else None,
        outputs=tuple(outputs or ()),
        processes=processes,
        max_cost_usd=limits.max_cost_usd,
        max_duration_seconds=limits.max_duration_seconds,
        idle_seconds=idle,
        grace_seconds=grace,
        auto_shutdown=auto_shutdown,
        bucket=bucket,
        tags=tags,
    )


def _first_possible(
    parts: AppContext, options: tuple[Option, ...]
) -> tuple[tuple[Option, ...], tuple[str | None, ...], list[str]]:
    """The options from the first one on that its provider can launch, that one's zones, and what was passed over."""
    from costgpu.errors import InvalidRequest

    passed: list[str] = []
    for index, option in enumerate(options):
        try:
            zones = parts.tools.provider(option.offer.provider).zones(option.offer)
        except InvalidRequest as error:
            if index + 1 == len(options):
                raise
            passed.append(f"Passed over: {error.message}")
        else:
            return options[index:], zones, passed
    raise UsageError("No offer that can be launched matches.")


def _identities(
    parts: AppContext, options: tuple[Option, ...]
) -> tuple[tuple[Option, ...], dict[str, Identity], list[str]]:
    """The options that credentials here can pay for, whose money it is at each provider, and what was left out."""
    refused: dict[str, ProviderError] = {}
    found: dict[str, Identity] = {}
    for name in dict.fromkeys(option.offer.provider for option in options):
        try:
            found[name] = parts.tools.provider(name).identity()
        except ProviderError as error:
            if name == options[0].offer.provider and not isinstance(error, AuthError):
                raise  # the best place may work a moment later: another one is not chosen for that
            refused[name] = error
    if not found:
        raise next(iter(refused.values()))
    dropped = [f"Not considered: {name} ({error.message})" for name, error in refused.items()]
    return tuple(option for option in options if option.offer.provider in found), found, dropped


def plan_for(
    parts: AppContext,
    spec: JobSpec,
    places: list[LaunchPlace],
    limits: Limits,
    verdict: str,
    notes: list[str],
    *,
    workload: str = "",
    steps: float | None = None,
) -> Plan:
    """The plan, with everything checked that can be checked without spending."""
    from datetime import timedelta

    from costgpu.models.instance import CreateRequest
    from costgpu.models.run import Plan
    from costgpu.runner.drive.receipt import common_safeguards
    from costgpu.runner.files.select import select
    from costgpu.runner.plan import options_for

    options, identities, refused = _identities(parts, options_for(places, limits))
    options, zones, dropped = _first_possible(parts, options)
    first, notes = options[0], [*notes, *refused, *dropped]
    provider = parts.tools.provider(first.offer.provider)
    who = [identities[name] for name in dict.fromkeys(option.offer.provider for option in options)]
    selection = select(Path(spec.workdir), limit_bytes=int(parts.settings.sync_limit_mib * 2**20))
    request = CreateRequest(
        run_id="plan",
        token="plan",  # noqa: S106 - a name, no secret
        name=spec.name,
        owner="plan",
        offer=first.offer,
        zone=zones[0],
        disk_gib=first.disk_gib,
        lease_until=parts.tools.clock.now() + timedelta(seconds=first.lease.lifetime_seconds),
        boot_script="#!/bin/sh\n",
        allow_from=parts.tools.allow_from(first.offer.provider),
        tags=spec.tags,
    )
    layers = (*provider.layers(request), *common_safeguards(request.lease_until))
    if spec.bucket and parts.tools.bucket is not None:
        warning = parts.tools.bucket.check(spec.bucket, request.lease_until)
        notes = [*notes, warning] if warning else notes
    try:
        provider.check(request)
    except CostGpuError as error:
        if len(options) == 1 or type(error).__name__ in ("AuthError", "InvalidRequest"):
            raise
        notes = [*notes, f"{first.offer.instance_type} would be refused now: {error.message}"]
    chosen = next(p for p in places if p.offer == first.offer)
    return Plan(
        spec=spec,
        options=options,
        prediction=chosen.prediction,
        verdict=verdict,
        identity=who[0],
        layers=layers,
        files=len(selection.files),
        bytes=selection.total_bytes,
        left_out=dict(selection.left_out),
        price_as_of=first.offer.price_as_of,
        workload=workload,
        steps=steps,
        notes=tuple(notes),
        others=tuple(who[1:]),
    )
