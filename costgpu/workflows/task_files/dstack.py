"""Reads a task of dstack."""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yaml import MappingNode, Node

from costgpu.errors import UsageError
from costgpu.pricing import price_store
from costgpu.pricing.hardware import accelerator, accelerator_key, accelerators
from costgpu.workflows.estimate.request import MOST_NODES
from costgpu.workflows.task_files.skypilot import URL, Tables, gib
from costgpu.workflows.task_files.task import Task
from costgpu.workflows.task_files.yaml_tree import TAG, Section

_PIP = re.compile(r"(?:python3? -m )?(?:uv )?pip3? install [\w .,=/@:+\-\[\]'\"<>~]+")
_GPU_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*gb(\.\.)?", re.IGNORECASE)
_COUNT = re.compile(r"\d+(\.\.\d*)?|\.\.\d+")
KINDS = ("task", "service", "dev-environment", "fleet", "gateway", "volume")
ANY_MEMORY = "1GB"  # at least: any GPU
OTHER_VENDORS = ("amd", "google", "tpu", "intel", "tenstorrent")


def read_dstack(task: Section, path: Path, tables: Tables, note: Callable[[str], None]) -> Task:
    """Read a task; paths are relative to its file, as dstack has them.

    Raises:
        UsageError: It is no task, or has a key that is not known or not supported.
    """
    kind = task.text("type")
    if kind != "task":
        raise task.wrong("type", f"is {kind}: only tasks are run", "In a task, commands end: type: task.")
    task.judge(tables["dstack"], note)
    fields: dict[str, Any] = {}
    if (resources := task.section("resources")) is not None:
        resources.judge(tables["dstack_resources"], note)
        disk = resources.mapping("disk")
        fields = {
            "cpus": _range(resources.text("cpu")),
            "memory": _range(resources.text("memory")),
            "gpus": _gpus(resources, tables, note),
            "disk_gib": gib(resources, "disk") if disk is None else gib(disk, "size"),
        }
        for section in (resources, disk):
            if section is not None:
                section.close()
    policy = task.text("spot_policy")
    if policy not in (None, "spot", "on-demand", "auto"):
        raise task.wrong("spot_policy", f"is {policy!r}", "It is spot, on-demand or auto.")
    if policy == "auto":
        note(f"{task.at('spot_policy')}: auto: machines are rented on demand; --spot takes spot machines.")
    fields |= {
        "name": task.text("name"),
        "nodes": task.whole("nodes", MOST_NODES),
        "max_duration": _span(task, "max_duration"),
        "grace": _span(task, "stop_duration"),
        "spot": None if policy is None else policy == "spot",
        "infra": _places(task),
        "instance_type": task.texts("instance_types"),
        "tags": task.variables("tags", TAG),
    }
    sources = [
        _source(task, key, item, path.absolute().parent) for key in ("repos", "files") for item in task.items(key)
    ]
    folder = min(sources, key=lambda one: len(one.parts), default=None)
    if folder is not None and not all(one.is_relative_to(folder) for one in sources):
        raise task.wrong("files", "are in several folders", "Put them into one: all of that is sent.")
    if task.text("shell") not in (None, "bash", "sh", "/bin/bash", "/bin/sh"):
        raise task.wrong("shell", "is not bash", "Commands run under bash.")
    env, commands, setup = task.variables("env"), list(task.texts("commands")), []
    while len(commands) > 1 and _PIP.fullmatch(commands[0].strip()):
        setup.append(commands.pop(0).strip())
    run = commands[0] if len(commands) == 1 else " &&\n".join(f"{{ {command.rstrip()}\n}}" for command in commands)
    inside = task.text("working_dir") or "."
    if inside.startswith(("/", "~")) or ".." in Path(inside).parts:
        raise task.wrong("working_dir", f"is {inside}", "Name a folder in the one that is sent.")
    if Path(inside).parts:
        run = f"cd {shlex.quote(inside)} || exit\n{run}"
    task.close()
    said = " && ".join(setup) or None
    return Task(folder=folder, run=run, run_key="commands", setup=said, env=env, fields=fields)


def _range(text: str | None) -> str | None:
    """Return ``8..`` of ``8GB..``, and ``0..16`` of ``..16GB``."""
    if text is None:
        return None
    plain = re.sub(r"(?i)(\d+)\s*tb", lambda found: str(int(found[1]) * 1024), text)
    plain = re.sub(r"(?i)gi?b", "", plain).replace(" ", "")
    return f"1{plain}" if plain.startswith("..") else plain


def _gpus(resources: Section, tables: Tables, note: Callable[[str], None]) -> str | None:
    """Return what ``gpu`` asks for: a name or a memory, and a number."""
    gpu = resources.mapping("gpu")
    if gpu is not None:
        gpu.judge(tables["dstack_gpu"], note)
        parts = [gpu.text("vendor"), ",".join(gpu.texts("name")), gpu.text("memory"), gpu.text("count")]
        gpu.close()
    elif (text := resources.text("gpu")) is not None:
        parts = list(text.split(":"))
    else:
        return None
    said: dict[str, str] = {}
    for part in (part.strip() for part in parts if part):
        if part.lower() in OTHER_VENDORS:
            raise resources.wrong("gpu", f"asks for one of {part}: only NVIDIA's GPUs are rented")
        if _COUNT.fullmatch(part):
            what, value = "count", _range(part) or ""
        else:
            what = "memory" if "gb" in part.lower() else "vendor" if part.lower() == "nvidia" else "name"
            value = part
        if what in said:
            raise resources.wrong("gpu", f"has two values for {what}, {said[what]} and {part}", "Keep one of them.")
        said[what] = value
    names, memory, count = (said.get(what, "") for what in ("name", "memory", "count"))
    if count in ("0", "0..0"):
        return "none"
    least = _GPU_MEMORY.fullmatch(memory)
    if memory and least is None:
        raise resources.wrong(
            "gpu",
            f"has a range of memory, {memory}",
            f"The least is enough: {memory.partition('..')[0] or '24GB'}.",
        )
    number = count or "1"
    size = f"{least[1]}GB" if least is not None else ""
    if not names:
        return f"{size or ANY_MEMORY}:{number}"
    stripped = [name.strip() for name in names.split(",")]
    found = [f"{each}:{number}" for name in stripped for each in _with_memory(name, size)]
    if not found:
        raise resources.wrong("gpu", f"asks for {size} of memory, and no {names} has that much", "Name another GPU.")
    return ",".join(found)


def _with_memory(name: str, size: str) -> list[str]:
    """Return ``A100-80GB`` where that is another GPU than ``A100``, else the name's kinds with at least that memory."""
    if not size:
        return [name]
    with contextlib.suppress(UsageError):
        accelerator(f"{name}-{size}")
        return [f"{name}-{size}"]
    kinds = re.compile(re.escape(accelerator_key(name)) + r"(\d+gb)?")
    known = [each for each in accelerators().values() if kinds.fullmatch(accelerator_key(each.name))]
    enough = [each.name for each in known if each.memory_gib >= float(size.removesuffix("GB"))]
    return enough if known else [name]


def _span(task: Section, key: str) -> str | None:
    text = task.text(key)
    return None if text is None or text.lower() in ("off", "unlimited", "false") else text


def _places(task: Section) -> tuple[str, ...]:
    backends, regions = task.texts("backends"), task.texts("regions")
    if not backends or not regions:
        return regions or backends
    pairs = [(backend.lower(), region.lower()) for backend in backends for region in regions]
    known = {(offer.provider, offer.region) for offer in price_store.list_offers()} if len(backends) > 1 else set()
    there = {region for backend, region in pairs if (backend, region) in known}
    return tuple("/".join(pair) for pair in pairs if pair in known or pair[1] not in there)


def _source(task: Section, key: str, item: Node, home: Path) -> Path:
    """Return the folder that an entry of ``repos`` or ``files`` is in; it is sent whole."""
    if isinstance(item, MappingNode):
        one = Section(task.file, item, f"{key}.")
        local, target = one.text("local_path") or one.text("url") or ".", one.text("path") or ""
        one.close()
    else:
        found = URL.match(str(item.value))
        local, _, target = (str(item.value), "", "") if found else str(item.value).partition(":")
    if URL.match(local):
        raise task.wrong(key, "is a git repository, and a folder of this computer is sent", "Clone it first.")
    path = (home / Path(local).expanduser()).resolve()
    if not path.exists():
        raise task.wrong(key, f"names {local}, and there is no such file here", "It is relative to the task file.")
    folder = path if path.is_dir() and (key == "repos" or not local.strip("./")) else path.parent
    if folder != path and not folder.is_relative_to(home.resolve()):
        hint = "Put it, or a copy of it, beside the task file."
        raise task.wrong(key, f"names {local}, and all of {folder} would be sent with it", hint)
    if target and posixpath.normpath(target) != ("." if folder == path else path.name):
        raise task.wrong(key, f"puts {local} at {target}", "A file has the path on the machine that it has here.")
    return folder
