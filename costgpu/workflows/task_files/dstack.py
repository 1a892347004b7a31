"""Reads a task of dstack."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costgpu.errors import UsageError
from costgpu.pricing.hardware import accelerator
from costgpu.workflows.task_files.skypilot import Tables, gib
from costgpu.workflows.task_files.task import Task
from costgpu.workflows.task_files.yaml_tree import Section, Value

_PIP = re.compile(r"(?:python3? -m )?(?:uv )?pip3? install [\w .,=/@:+\-\[\]'\"<>~]+")
_GPU_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*gb(\.\.)?", re.IGNORECASE)
_COUNT = re.compile(r"\d+(\.\.\d*)?|\.\.\d+")
ANY_MEMORY = "1GB"  # at least: any GPU
VENDORS = {
    "nvidia": "",
    "amd": "an AMD GPU",
    "google": "a TPU",
    "tpu": "a TPU",
    "intel": "a Gaudi",
    "tenstorrent": "it",
}


def read_dstack(task: Section, path: Path, tables: Tables, note: Callable[[str], None]) -> Task:
    """Read a task; paths are relative to its file, as dstack has them.

    Raises:
        UsageError: It is no task, or has a key that is not known or not supported.
    """
    kind = task.text("type")
    if kind != "task":
        raise task.wrong("type", f"is {kind}: only tasks are run", "In a task, commands end: type: task.")
    task.refuse(tables["dstack"]["refused"])
    task.tell(tables["dstack"]["noted"], note)
    resources = task.section("resources")
    fields = _machine(resources, tables, note) if resources is not None else {}
    fields |= {
        "name": task.text("name"),
        "nodes": task.whole("nodes"),
        "max_duration": _span(task, "max_duration"),
        "grace": _span(task, "stop_duration"),
        "spot": _spot(task, note),
        "infra": _places(task),
        "instance_type": task.texts("instance_types"),
        "tags": task.variables("tags"),
    }
    folder = _folder(task, path.absolute().parent)
    if task.text("shell") not in (None, "bash", "sh", "/bin/bash", "/bin/sh"):
        raise task.wrong("shell", "is not bash", "Commands run under bash.")
    env, commands = task.variables("env"), list(task.texts("commands"))
    setup = []
    while len(commands) > 1 and _PIP.fullmatch(commands[0].strip()):
        setup.append(commands.pop(0).strip())
    run = commands[0] if len(commands) == 1 else " &&\n".join(f"{{ {command.rstrip()}\n}}" for command in commands)
    inside = task.text("working_dir")
    if inside is not None:
        run = _in_folder(task, inside, run)
    task.close()
    said = " && ".join(setup) or None
    return Task(folder=folder, run=run, run_key="commands", setup=said, env=env, fields=fields)


def _machine(resources: Section, tables: Tables, note: Callable[[str], None]) -> dict[str, Any]:
    resources.tell(tables["dstack_resources"]["noted"], note)
    value = resources.get("disk")
    disk_of = resources.section("disk") if value is not None and isinstance(value.content, dict) else resources
    assert disk_of is not None  # noqa: S101 - it is a mapping
    key = "disk" if disk_of is resources else "size"
    disk = disk_of.text(key)
    if disk_of is not resources:
        disk_of.close()
    fields = {
        "cpus": _range(resources.text("cpu")),
        "memory": _range(resources.text("memory")),
        "gpus": _gpus(resources, tables),
        "disk_gib": None if disk is None else gib(disk_of, key, disk.partition("..")[0] or disk.strip(".")),
    }
    resources.close()
    return fields


def _range(text: str | None) -> str | None:
    """Return ``8..`` of ``8GB..``, and ``0..16`` of ``..16GB``."""
    if text is None:
        return None
    plain = re.sub(r"(?i)gi?b", "", text).replace(" ", "")
    return f"1{plain}" if plain.startswith("..") else plain


def _gpus(resources: Section, tables: Tables) -> str | None:
    """Return what ``gpu`` asks for: a name or a memory, and a number."""
    value = resources.get("gpu")
    if value is None:
        return None
    if isinstance(value.content, dict):
        gpu = resources.section("gpu")
        assert gpu is not None  # noqa: S101 - it is a mapping
        gpu.refuse(tables["dstack_gpu"]["refused"])
        parts = [gpu.text("vendor"), ",".join(gpu.texts("name")), gpu.text("memory"), gpu.text("count")]
        gpu.close()
    else:
        parts = list(str(resources.text("gpu")).split(":"))
    names, memory, count = "", "", ""
    for part in (part.strip() for part in parts if part):
        if part.lower() in VENDORS:
            if what := VENDORS[part.lower()]:
                raise resources.wrong("gpu", f"asks for {what}: only NVIDIA's GPUs are rented")
        elif _COUNT.fullmatch(part):
            count = _range(part) or ""
        elif "gb" in part.lower():
            memory = part
        else:
            names = part
    return _as_option(resources, names, memory, count)


def _as_option(resources: Section, names: str, memory: str, count: str) -> str | None:
    if count in ("0", "0..0"):
        return "none"
    least = _GPU_MEMORY.fullmatch(memory)
    if memory and least is None:
        raise resources.wrong(
            "gpu",
            f"has a range of memory, {memory}",
            f"The least is enough: {memory.partition('..')[0] or '24GB'}.",
        )
    number = f":{count}" if count else ""
    size = f"{least[1]}GB" if least is not None else ""
    if not names:
        return f"{size or ANY_MEMORY}{number}"
    return ",".join(f"{_with_memory(name.strip(), size)}{number}" for name in names.split(","))


def _with_memory(name: str, size: str) -> str:
    """Return ``A100-80GB`` where that is another GPU than ``A100``, else the name."""
    if not size:
        return name
    with contextlib.suppress(UsageError):
        accelerator(f"{name}-{size}")
        return f"{name}-{size}"
    return name


def _span(task: Section, key: str) -> str | None:
    text = task.text(key)
    return None if text is None or text.lower() in ("off", "unlimited", "false") else text


def _spot(task: Section, note: Callable[[str], None]) -> bool | None:
    policy = task.text("spot_policy")
    if policy not in (None, "spot", "on-demand", "auto"):
        raise task.wrong("spot_policy", f"is {policy!r}", "It is spot, on-demand or auto.")
    if policy == "auto":
        note(f"{task.file}: spot_policy: auto: machines are rented on demand; --spot takes spot machines.")
    return None if policy is None else policy == "spot"


def _places(task: Section) -> tuple[str, ...]:
    backends, regions = task.texts("backends"), task.texts("regions")
    if len(backends) == 1 and regions:
        return tuple(f"{backends[0]}/{region}" for region in regions)
    return regions or backends


def _folder(task: Section, home: Path) -> Path | None:
    """Return the folder that ``repos`` and ``files`` mean, which must be one; None if there are none."""
    folders = set()
    for key in ("repos", "files"):
        value = task.get(key)
        for item in (value.content if isinstance(value.content, list) else [value]) if value is not None else ():
            folders.add(_source(task, key, item, home))
    if not folders:
        return None
    outermost = min(folders, key=lambda one: len(one.parts))
    for folder in folders:
        if not folder.is_relative_to(outermost):
            raise task.wrong("files", "are in several folders", "Put them into one: all of that is sent.")
    return outermost


def _source(task: Section, key: str, item: Value, home: Path) -> Path:
    """Return the folder that an entry of ``repos`` or ``files`` is in; it is sent whole."""
    if isinstance(item.content, dict):
        one = Section(task.file, item.content, f"{key}.")
        for unsupported in ("url", "branch", "hash"):
            one.refuse({unsupported: "Clone the repository, and run the file there."})
        local, target = one.text("local_path") or ".", one.text("path")
        one.close()
    else:
        text = str(item.content)
        if "://" in text or text.startswith("git@"):
            raise task.wrong(key, "is a git repository, and a folder of this computer is sent", "Clone it first.")
        local, _, target = text.partition(":")
    path = (home / Path(local).expanduser()).resolve()
    if not path.exists():
        raise task.wrong(key, f"names {local}, and there is no such file here", "It is relative to the task file.")
    folder = path if path.is_dir() and (key == "repos" or local.strip("./") == "") else path.parent
    place = path.relative_to(folder).as_posix() if key == "files" else "."
    if target not in ("", None, ".", place, f"./{place}"):
        raise task.wrong(key, f"puts {local} at {target}", "A file has the path on the machine that it has here.")
    return folder


def _in_folder(task: Section, inside: str, run: str) -> str:
    if inside in (".", "./"):
        return run
    if inside.startswith(("/", "~")) or ".." in Path(inside).parts:
        raise task.wrong("working_dir", f"is {inside}", "Name a folder in the one that is sent.")
    return f"cd {shlex.quote(inside)} || exit\n{run}"
