"""From a request to the plan of a run: where, with what set-up, for how much at most."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from costgpu.errors import (
    AuthError,
    CostGpuError,
    InterpreterError,
    InvalidRequest,
    PriceNotFound,
    ProviderError,
    RefusedHere,
    ScriptError,
    UsageError,
)
from costgpu.estimator.scope import scope_of
from costgpu.job.drive.receipt import common_safeguards
from costgpu.job.files.select import select_for
from costgpu.job.launch import current_owner
from costgpu.job.plan import LaunchPlace, Limits, larger_options, options_for
from costgpu.measure import Request, find_interpreter, workload_key
from costgpu.measure.launcher import Launch
from costgpu.measure.prefixes import NO_PREFIXES
from costgpu.measure.profile_file import load_profile
from costgpu.models.instance import CreateRequest, Identity, NodeGroup
from costgpu.models.job import JobSpec, Launcher
from costgpu.models.run import LaunchOption, Plan
from costgpu.models.workload import WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.providers import registry
from costgpu.workflows.context import AppContext
from costgpu.workflows.environment import job_environment
from costgpu.workflows.estimate.measure import check_script, note_files, run_measurement, run_program
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs import setup_ray
from costgpu.workflows.runs.budgets import ask_budgets, fit_to_budgets
from costgpu.workflows.runs.inputs import compare, largest_left_out, module_file
from costgpu.workflows.runs.packages import PackageSource, check_imports, find_packages, with_framework
from costgpu.workflows.runs.patterns import check_rules
from costgpu.workflows.runs.places import (
    Places,
    check_credentials,
    find_places,
    providers_of,
    wanted_offers,
    with_more_memory,
)
from costgpu.workflows.runs.request import RunRequest, check_program, job_spec, limits_of
from costgpu.workflows.runs.visible_secrets import visible_secrets

FALLBACK_OPTIONS = 4  # places on demand to turn to where no spot machine is free
OPEN_MODULES_SINCE = (7, 5)
"""The least compute capability (Turing) that NVIDIA's open kernel modules serve. Source: NVIDIA, open-gpu-kernel-modules,
"Compatible GPUs" (2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A plan and what it takes to carry it out."""

    plan: Plan
    environment: dict[str, str]  # variables of the job, secrets among them
    refusal: CostGpuError | None  # why a budget refuses the run; None if none does
    at: datetime  # when the plan was made


Adapt = Callable[[JobSpec, Places, WorkloadProfile | None], tuple[JobSpec, Places]]
"""Makes of the job that was measured, and of what was predicted for it on one machine, those of another job around it."""


def plan_run(request: RunRequest, script: Request, context: AppContext, adapt: Adapt | None = None) -> PlannedRun:
    """Measure the script if need be, and plan its run. Nothing is spent.

    Args:
        adapt: For a job that runs the script several times; its speed is then not one of the script.
    """
    assigned = [f"{name}={value}" for name, value in script.assigned.items()]
    environment = job_environment([*assigned, *request.task_env, *request.env], request.env_file)
    limits = limits_of(request, longest_hours=context.settings.max_lease_hours)
    now = context.clock.now()
    if not request.queue and not request.goes_on:  # others begin, or go on, who knows when
        limits = replace(limits, now=now)
    default = context.settings.default_infra
    if not request.infra and default is not None and not (request.renting and registry.is_here(default)):
        request = replace(request, infra=(default,))
    providers = providers_of(wanted_offers(request, context.reporter))  # a wrong name is an error at once
    spec = job_spec(request, script, limits, environment, bucket=context.settings.bucket)
    check_rules(spec)
    rented = request.renting or not all(map(registry.is_here, request.infra))
    if adapt is None and request.runs_once and request.estimate:
        context.reporter.note(setup_ray.NO_ESTIMATE)
        request = replace(request, estimate=False)
    single = request if adapt is None else replace(request, nodes=None, launcher=None)
    if request.estimate and not request.profile and rented:
        check_credentials(context, providers)  # without them there is no need to measure for a minute
    check_script(script, request.python)
    check_program(script.program, script.workdir, rented=rented)
    packages = PackageSource()
    if rented:
        prefixes = script.launch.prefixes if script.launch is not None else NO_PREFIXES
        packages = find_packages(
            script.workdir,
            script.script,
            setup=request.setup,
            extras=request.extra,
            prefixes=prefixes,
            variables=environment,
        )
    for secret, advice in visible_secrets(request):
        context.reporter.note(secret, advice)
    profile = _profile(single, script, context.reporter)
    key = ""
    if not script.program:
        key = workload_key(
            script=script.script,
            module=script.module,
            arguments=script.arguments,
            workdir=script.workdir,
            processes=spec.processes,
            variables=environment,
        )
    places = find_places(single, context, profile, now.date(), workload_key=key)
    if request.fallback is not None:
        dearer = replace(single, spot=False)
        found = find_places(dearer, context, profile, now.date(), workload_key=key)
        places = replace(places, fallback=found.ranked)
    if spec.on_oom_next_size:
        wider = with_more_memory(single, places.ranked[0].offer)
        with suppress(PriceNotFound, UsageError):  # nothing is larger, which the plan says
            larger = find_places(wider, context, profile, now.date(), workload_key=key)
            places = replace(places, larger=larger.ranked)
    first = places.ranked[0]
    if profile is not None and profile.ranks.needs_gpu_backend and first.offer.accelerator is None:
        raise UsageError(
            f"The script asks for NCCL, which works between GPUs only, and {first.offer.instance_type} has none.",
            hint='Choose one with --gpus L4:1, or init_process_group("gloo") where torch.cuda.is_available() is False.',
        )
    local = registry.is_here(first.offer.provider)
    python = find_interpreter(request.python or script.python, dict(os.environ)).path if local else ""
    if local and single.runs_once and not request.setup:
        setup_ray.check_installed(python)
    if local:
        packages = PackageSource(setup=request.setup or "")
    else:
        packages = _completed(packages, request, script, profile, first)
        places = replace(places, notes=[*places.notes, *packages.notes])
    spec = replace(spec, setup=packages.setup, python=python)
    steps = scope_of(profile).total_steps if profile else None
    if adapt is not None:
        spec, places = adapt(spec, places, profile)
        key, steps = "", None
    if not local:
        limits = replace(limits, storage=places.storage)
    owner = context.settings.owner or current_owner()
    if request.fit:
        limits = fit_to_budgets(context.ledger, spec, limits, [*places.ranked, *places.fallback], owner, now)
        spec = replace(spec, max_cost_usd=limits.max_cost_usd)
    plan = make_plan(
        context, spec, places, limits, workload=key, steps=steps, script=script, profile=profile, packages=packages
    )
    answer = ask_budgets(context.ledger, plan.spec, plan.options, owner, context.clock.now())
    plan = replace(plan, notes=(*plan.notes, *answer.notes))
    return PlannedRun(plan=plan, environment=environment, refusal=answer.refusal, at=now)


def _profile(request: RunRequest, script: Request, reporter: Reporter) -> WorkloadProfile | None:
    """Return what the script does; None if it is not to be, or cannot be measured here."""
    if request.profile is not None:
        return load_profile(Path(request.profile))
    if not request.estimate:
        return None
    try:
        if script.program:
            variables = [f"{name}={value}" for name, value in script.variables.items()]
            command = ("env", *variables, *script.program) if variables else script.program
            profile, outcome = run_program(command, script.workdir, request, reporter)
        else:
            profile, outcome = run_measurement(_as_launched(request, script), request.python, reporter)
    except ScriptError as error:
        reporter.note(f"No estimate: {error.message}", error.hint)
        return None
    note_files(outcome, reporter)
    return profile


def _as_launched(request: RunRequest, script: Request) -> Request:
    """Return the script as it will be started: one rank of those that the run's own options ask for."""
    if script.launch is not None or (request.machines == 1 and request.nproc is None):
        return script
    each = int(request.nproc) if request.nproc and request.nproc.isdigit() else None
    if request.launcher == Launcher.NONE:
        each = 1
    launch = Launch(
        launcher="torchrun",
        script=str(script.script) if script.script is not None else None,
        module=script.module,
        arguments=tuple(script.arguments),
        processes=each * request.machines if each is not None else None,
        machines=request.machines,
        ranked=True,
    )
    return replace(script, launch=launch)


def _completed(
    packages: PackageSource, request: RunRequest, script: Request, profile: WorkloadProfile | None, place: LaunchPlace
) -> PackageSource:
    """Return what this machine installs, after a look at what the measured script imports."""
    if request.setup is not None:
        return packages
    packages = with_framework(packages, profile, gpu=place.offer.accelerator is not None)
    if request.runs_once:
        packages = setup_ray.with_ray(packages)
    if profile is None or profile.footprint is None:
        return packages
    with suppress(InterpreterError):
        python = find_interpreter(request.python or script.python, dict(os.environ)).path
        notes = check_imports(packages, profile.footprint, script.workdir, python, script.environment)
        return replace(packages, notes=(*packages.notes, *notes))
    return packages


def _first_possible(
    context: AppContext, options: tuple[LaunchOption, ...]
) -> tuple[tuple[LaunchOption, ...], tuple[str | None, ...], list[str]]:
    """Return the options from the first one on that its provider can launch, that one's zones, and what was passed over."""
    passed: list[str] = []
    for index, option in enumerate(options):
        try:
            zones = context.tools.provider(option.offer.provider).zones(option.offer)
        except (InvalidRequest, RefusedHere) as error:
            if index + 1 == len(options) or options[index + 1].size:
                raise
            passed.append(f"Passed over: {error.message}")
        else:
            return options[index:], zones, passed
    raise UsageError("No offer that can be launched matches.")


def _identities(
    context: AppContext, options: tuple[LaunchOption, ...]
) -> tuple[tuple[LaunchOption, ...], dict[str, Identity], list[str]]:
    """Return the options that credentials here can pay for, whose money it is at each provider, and what was left out."""
    refused: dict[str, ProviderError] = {}
    found: dict[str, Identity] = {}
    for name in dict.fromkeys(option.offer.provider for option in options):
        try:
            found[name] = context.tools.provider(name).identity()
        except ProviderError as error:
            if name == options[0].offer.provider and not isinstance(error, AuthError):
                raise  # the best place may work a moment later: another one is not chosen for that
            refused[name] = error
    usable = tuple(option for option in options if option.offer.provider in found)
    if not usable or usable[0].size:  # larger machines are only for a job that has run out of memory
        raise next(iter(refused.values()))
    dropped = [f"Not considered: {name} ({error.message})" for name, error in refused.items()]
    return usable, found, dropped


def make_plan(
    context: AppContext,
    spec: JobSpec,
    places: Places,
    limits: Limits,
    *,
    workload: str = "",
    steps: float | None = None,
    script: Request | None = None,
    profile: WorkloadProfile | None = None,
    packages: PackageSource | None = None,
) -> Plan:
    """Return the plan, with everything checked that can be checked without spending."""
    wanted = options_for(places.ranked, limits)
    if places.fallback:
        wanted += options_for(places.fallback, limits)[:FALLBACK_OPTIONS]
    if places.larger:
        wanted += larger_options(places.larger, wanted, limits)
    options, identities, refused = _identities(context, wanted)
    options, zones, dropped = _first_possible(context, options)
    first = options[0]
    notes = [*places.notes, *refused, *dropped]
    card = accelerators().get(first.offer.accelerator.name) if first.offer.accelerator is not None else None
    if card is not None and card.compute_capability is not None and card.compute_capability < OPEN_MODULES_SINCE:
        unserved = f"NVIDIA's open kernel modules do not serve the {card.name}"
        notes.append(f"{unserved}: if the image has no others, the run ends before anything is sent.")
    provider = context.tools.provider(first.offer.provider)
    who = [identities[name] for name in dict.fromkeys(option.offer.provider for option in options)]
    selection = select_for(spec, context.settings.sync_limit_mib)
    sent = {*selection.links, *selection.folders, *(each.path for each in selection.files)}
    for path in packages.files if packages is not None else ():
        if path not in sent and not any(each.startswith(f"{path}/") for each in sent) and path != ".":
            raise UsageError(
                f"The set-up reads {path}, which does not travel.",
                hint="Look into .gitignore and .costgpuignore, or add --include.",
            )
    file = module_file(script) if script is not None else None
    footprint = profile.footprint if profile is not None else None
    inputs, remarks = compare(spec, selection, file, footprint, here=registry.is_here(first.offer.provider))
    notes += remarks
    group = None
    if spec.nodes > 1:
        group = NodeGroup(
            group_id="plan",
            nodes=spec.nodes,
            node=0,
            placement=first.placement,
            efa_interfaces=first.efa_interfaces,
        )
    request = CreateRequest(
        run_id="plan",
        token="plan",  # noqa: S106 - a name, no secret
        name=spec.name,
        owner="plan",
        offer=first.offer,
        zone=zones[0],
        disk_gib=first.disk_gib,
        lease_until=context.tools.clock.now() + timedelta(seconds=first.lease.lifetime_seconds),
        boot_script="#!/bin/sh\n",
        allow_from=context.tools.allow_from(first.offer.provider),
        tags=spec.tags,
        group=group,
    )
    layers = (*provider.layers(request), *common_safeguards(request.lease_until))
    if spec.bucket and context.tools.bucket is not None:
        warning = context.tools.bucket.check(spec.bucket, request.lease_until)
        notes = [*notes, warning] if warning else notes
    if spec.recovery is not None:
        notes = [
            *notes,
            "Checkpoints leave the provider's network. It bills that, and these figures do not contain it.",
        ]
    try:
        provider.check(request)
    except CostGpuError as error:
        if len(options) == 1 or isinstance(error, AuthError | InvalidRequest):
            raise
        notes = [*notes, f"{first.offer.instance_type} would be refused now: {error.message}"]
    chosen = next(p for p in (*places.ranked, *places.fallback) if p.offer == first.offer)
    return Plan(
        spec=spec,
        options=options,
        prediction=chosen.prediction,
        verdict=places.verdict,
        identity=who[0],
        layers=layers,
        files=len(selection.files),
        bytes=selection.total_bytes,
        left_out=selection.left_out,
        largest=largest_left_out(selection),
        inputs=inputs,
        price_as_of=first.offer.price_as_of,
        workload=workload,
        steps=steps,
        notes=tuple(notes),
        others=tuple(who[1:]),
        packages=packages.text if packages is not None else "",
        storage=limits.storage if limits.storage.is_large else None,
    )
