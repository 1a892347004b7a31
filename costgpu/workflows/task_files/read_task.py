"""The door to task files: a request whose command is one becomes the request that the file means."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from costgpu.errors import UsageError
from costgpu.models.job import Launcher
from costgpu.models.offer import THIS_COMPUTER
from costgpu.pricing.not_supported import accelerator_error, place_error
from costgpu.providers import registry
from costgpu.units import DISK_GIB, parse_accelerator, parse_duration, parse_range
from costgpu.workflows.environment import job_environment
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs.request import RunRequest
from costgpu.workflows.tags import parse_tags
from costgpu.workflows.task_files.run_text import command_of, setup_of
from costgpu.workflows.task_files.task import Task

if TYPE_CHECKING:
    from costgpu.workflows.task_files.yaml_tree import Section

SUFFIXES = (".yaml", ".yml")
OF_A_MACHINE = ("infra", "gpus", "cpus", "memory", "instance_type", "spot", "disk_gib", "tags")
WHICH_MACHINE = ("gpus", "cpus", "memory", "instance_type")
"""Options of which one on the command line replaces all of the file's."""

KEYS_OF: Mapping[str, tuple[str, ...]] = {
    "cpus": ("resources.cpus", "resources.cpu"),
    "memory": ("resources.memory",),
    "gpus": ("resources.accelerators", "resources.gpu"),
    "infra": ("resources.infra", "resources.cloud", "resources.region", "backends", "regions"),
    "disk_gib": ("resources.disk_size", "resources.disk"),
    "max_duration": ("max_duration",),
    "grace": ("stop_duration",),
    "tags": ("resources.labels", "tags"),
}
"""Option that can be wrong -> the keys of both formats that it comes from."""

R = TypeVar("R", bound=RunRequest)


def with_task_file(request: R, reporter: Reporter) -> R:
    """Return the request that a task file means; the same one if its command is none.

    Options of the request win over what the file says.

    Raises:
        UsageError: The file is no task, or asks for what costgpu does not do.
    """
    if request.module is not None or not request.command or not request.command[0].lower().endswith(SUFFIXES):
        return request
    path, *arguments = request.command
    if arguments:
        raise UsageError(
            f"{path} is a task file, and takes no arguments: {shlex.join(arguments)}",
            hint="Options of costgpu stand before it. An argument of a script stands behind the script.",
        )
    try:
        section, task = _read(Path(path), reporter)
    except (OSError, RuntimeError) as error:  # too long; or ~somebody whom this computer does not know
        why = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise UsageError(f"{path} names a path that cannot be looked at: {why}.") from None
    name = Path(path).name.removesuffix(".yml").removesuffix(".yaml").removesuffix(".dstack").strip(".")
    folder = Path(request.workdir).resolve() if request.workdir is not None else task.folder
    if folder is None:
        folder = Path.cwd()
        reporter.note(f"{path} names no folder to send: it is the current one, {folder}.")
    nodes = request.nodes if request.nodes is not None else task.fields.get("nodes") or 1
    given = {each.partition("=")[0] for each in request.env}
    if request.env_file is not None:
        given |= set(job_environment((), request.env_file))
    env = tuple(each for each in task.env if each.partition("=")[0] not in given)
    given = {each.partition("=")[0] for each in (*env, *request.env)}
    command = command_of(task.run, folder, nodes, given, partial(section.wrong, task.run_key))
    setup_key = "setup" if "setup" in section.values else task.run_key
    found = {
        **task.fields,
        "name": task.fields.get("name") or name or Path(path).absolute().parent.name,
        "setup": setup_of(task.setup, given, partial(section.wrong, setup_key)) if task.setup else None,
        "launcher": Launcher.NONE.value if nodes > 1 and not command.launched else None,
    }
    chosen = _chosen(request, found, reporter)
    _check(chosen, section)
    merged = replace(
        request,
        **chosen,
        command=command.words,
        workdir=str(folder),
        task_env=env,
        estimate=request.estimate and command.is_script,
    )
    if not command.is_script and not request.here:
        reporter.note("No estimate: the task is a text for the shell, and not one Python script.")
        if not (merged.gpus or merged.instance_type):
            merged = replace(merged, gpus="none")  # what cannot be measured needs to say where it is to run
    return _with_links(merged, task.links, section) if task.links else merged


def _read(path: Path, reporter: Reporter) -> tuple[Section, Task]:
    from costgpu.workflows.task_files import dstack, skypilot
    from costgpu.workflows.task_files.yaml_tree import read_yaml

    section = read_yaml(path)
    tables = tomllib.loads(Path(__file__).with_name("keys.toml").read_text(encoding="utf-8"))
    if section is not None and (section.text("type") in dstack.KINDS or "commands" in section.values):
        return section, dstack.read_dstack(section, path, tables, reporter.note)
    if section is None or skypilot.KEYS.isdisjoint(section.values):
        raise UsageError(
            f"{path} is neither a task of SkyPilot nor one of dstack.",
            hint="An argument of a script stands behind the script: costgpu run train.py config.yaml",
        )
    return section, skypilot.read_skypilot(section, tables, reporter.note)


def _chosen(request: RunRequest, found: Mapping[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Return the file's options that the command line does not decide."""
    default = {field.name: field.default for field in fields(RunRequest)}
    here = request.here
    machine_given = any(getattr(request, name) != default[name] for name in WHICH_MACHINE)
    chosen: dict[str, Any] = {}
    for name, value in found.items():
        if value in (None, ()) or getattr(request, name) != default[name]:
            continue
        if (here and name in OF_A_MACHINE) or (machine_given and name in WHICH_MACHINE):
            continue
        chosen[name] = value
    if here and any(found.get(name) not in (None, ()) for name in OF_A_MACHINE):
        reporter.note("What the task file says about machines is for rented ones; this one is as it is.")
    return chosen


def _check(chosen: Mapping[str, Any], section: Section) -> None:
    """Refuse a value that its option does not take, while its line is known."""
    for name, keys in KEYS_OF.items():
        try:
            if name in chosen:
                _check_option(name, chosen[name])
        except UsageError as error:
            for above, _, key in (each.rpartition(".") for each in keys):
                place = section.section(above) if above else section
                if place is not None and key in place.values:
                    raise place.wrong(key, f"is not read: {error.message.rstrip('.')}", error.hint or "") from None
            raise


def _check_option(name: str, value: Any) -> None:
    error = None
    if name in ("cpus", "memory"):
        parse_range(re.sub("(?i)gi?b", "", value), what=name)
    elif name in ("max_duration", "grace"):
        parse_duration(value)
    elif name == "tags":
        parse_tags(value)
    elif name == "disk_gib" and value not in DISK_GIB:
        error = UsageError(
            f"{value} GiB is out of range", hint=f"A disk has {DISK_GIB.low:,} to {DISK_GIB.high:,} GiB."
        )
    elif name == "gpus":
        names = [each.name for each in parse_accelerator(value).alternatives if each.name]
        error = next(filter(None, map(accelerator_error, names)), None)
    elif name == "infra":
        no_zones: dict[str, tuple[str, ...]] = dict.fromkeys(registry.names(), ())
        error = next(filter(None, (place_error(place, no_zones) for place in value)), None)
    if error is not None:
        raise error


def _with_links(request: R, links: Mapping[str, str], section: Section) -> R:
    """Return a request whose set-up makes the file's mounts: links to what is in the folder that is sent."""
    below = section.section("file_mounts")
    assert below is not None  # noqa: S101 - it has links
    if not request.renting and (not request.infra or THIS_COMPUTER in request.infra):
        raise below.wrong(
            next(iter(links)),
            "is a path outside of the folder, which is made on rented machines only",
            "Name a machine: --gpus L4:1 or -t TYPE; or let the path be the one in the folder.",
        )
    made = []
    for target, source in links.items():  # with root's rights where it takes those
        plain = shlex.quote(target.removeprefix("~/").rstrip("/"))
        named = f"~/{plain}" if target.startswith("~/") else plain
        with_rights = 'mkdir -p "$(dirname "$to")" 2>/dev/null && [ -w "$(dirname "$to")" ] || as="sudo -n"'
        free = '{ [ -L "$to" ] || [ ! -e "$to" ] || { echo "file_mounts: $to is there already." >&2; false; }; }'
        link = f'$as mkdir -p "$(dirname "$to")" && $as ln -sfnT "$PWD"/{shlex.quote(source)} "$to"'
        made.append(f"{{ as=; to={named}; {with_rights}; {free} && {link}; }}")
    return replace(request, setup=" && ".join([*made, *([request.setup] if request.setup else [])]))
