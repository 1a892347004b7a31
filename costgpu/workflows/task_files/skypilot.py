"""Reads a task of SkyPilot."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costgpu.workflows.task_files.task import Task
from costgpu.workflows.task_files.yaml_tree import Section, Value

KEYS = frozenset({"resources", "run", "setup", "num_nodes", "workdir", "file_mounts", "envs", "secrets", "service"})
Tables = Mapping[str, Mapping[str, Mapping[str, str]]]
_URL = re.compile(r"[a-z][a-z0-9+.-]*://|git@", re.IGNORECASE)
_GIB = {"": 1, "gb": 1, "gib": 1, "g": 1, "tb": 1024, "tib": 1024, "t": 1024}
_SIZE = re.compile(r"(\d{1,6})\s*([a-z]*)", re.IGNORECASE)


def read_skypilot(task: Section, tables: Tables, note: Callable[[str], None]) -> Task:
    """Read a task; a relative workdir is taken from the current folder, as SkyPilot does.

    Raises:
        UsageError: It has a key that is not known or not supported.
    """
    task.refuse(tables["skypilot"]["refused"])
    task.tell(tables["skypilot"]["noted"], note)
    resources = task.section("resources")
    fields = _machine(resources, tables, note) if resources is not None else {}
    folder = _folder(task)
    links = dict(_mounts(task, folder))
    name, run, setup = task.text("name"), task.text("run"), task.text("setup")
    fields |= {"name": name, "nodes": task.whole("num_nodes")}
    env = (*task.variables("envs"), *task.variables("secrets"))
    task.close()
    return Task(folder=folder, run=run or "", run_key="run", setup=setup, env=env, fields=fields, links=links)


def _folder(task: Section) -> Path | None:
    value = task.get("workdir")
    if value is None:
        return None
    if isinstance(value.content, dict) or _URL.match(str(value.content)):
        raise task.wrong(
            "workdir", "is a git repository, and a folder of this computer is sent", "Clone it, and run the file there."
        )
    folder = Path(task.text("workdir") or "").expanduser()
    if not folder.is_dir():
        raise task.wrong("workdir", f"is {folder}, and there is no such folder", "It is relative to the current one.")
    return folder.resolve()


def _machine(resources: Section, tables: Tables, note: Callable[[str], None]) -> dict[str, Any]:
    resources.refuse(tables["skypilot_resources"]["refused"])
    resources.tell(tables["skypilot_resources"]["noted"], note)
    disk = resources.text("disk_size")
    spot = resources.flag("use_spot")
    fields = {
        "infra": _places(resources),
        "gpus": _accelerators(resources),
        "cpus": resources.text("cpus"),
        "memory": resources.text("memory"),
        "instance_type": resources.texts("instance_type"),
        "spot": spot,
        "disk_gib": None if disk is None else gib(resources, "disk_size", disk),
        "tags": resources.variables("labels"),
    }
    resources.close()
    return fields


def gib(section: Section, key: str, text: str) -> int:
    """Return a size of a disk in GiB."""
    match = _SIZE.fullmatch(text.strip())
    unit = _GIB.get(match[2].lower()) if match is not None else None
    if match is None or unit is None:
        raise section.wrong(key, f"is {text!r}, and not a size such as 256GB")
    return int(match[1]) * unit


def _places(resources: Section) -> tuple[str, ...]:
    """Return where machines may be, as `costgpu run` names places."""
    infra, cloud, region = resources.text("infra"), resources.text("cloud"), resources.text("region")
    if infra is not None and (cloud is not None or region is not None):
        raise resources.wrong("infra", "stands beside cloud or region", "Keep one of them.")
    parts = [part for part in (infra or "").split("/") if part != "*"] if infra else [p for p in (cloud, region) if p]
    if infra is not None and len(infra.split("/")) > 2 and infra.split("/")[2] != "*":
        place = "/".join(infra.split("/")[:2])
        raise resources.wrong("infra", "names a zone: only regions are chosen", f"Name the region: infra: {place}")
    return ("/".join(parts).lower(),) if parts else ()


def _accelerators(resources: Section) -> str | None:
    """Return ``A100:8``, or several with commas between them, any of which will do."""
    value = resources.get("accelerators")
    if value is None or isinstance(value.content, str):
        return resources.text("accelerators")
    if isinstance(value.content, dict):
        counts = resources.section("accelerators")
        assert counts is not None  # noqa: S101 - it is a mapping
        wanted = [(name, counts.text(name)) for name in value.content]
        return ",".join(name if count is None else f"{name}:{count}" for name, count in wanted)
    return ",".join(resources.texts("accelerators"))


def _mounts(task: Section, folder: Path | None) -> list[tuple[str, str]]:
    """Return links of the machine to what is in the folder; none where the path is the same."""
    found = []
    below = task.section("file_mounts")
    for target, value in below.values.items() if below is not None else ():
        assert below is not None  # noqa: S101 - it has values
        if isinstance(value.content, dict) or _URL.match(str(value.content)):
            raise below.wrong(
                target, "mounts a bucket or an address", "Let setup download it; --bucket s3://name keeps outputs."
            )
        source = Path(posixpath.normpath(Path.cwd().resolve() / Path(below.text(target) or "").expanduser()))
        found += _link(below, target, source, folder, value)
    return found


def _link(below: Section, target: str, source: Path, folder: Path | None, value: Value) -> list[tuple[str, str]]:
    home = folder if folder is not None else Path.cwd()
    if not source.exists():
        raise below.wrong(target, f"is {value.content}, and there is no such file here")
    if not source.is_relative_to(home):
        raise below.wrong(
            target,
            f"is {value.content}, which is not in the folder that is sent, {home}",
            "Put it, or a copy of it, into that folder: all of that is sent.",
        )
    inside = source.relative_to(home).as_posix()
    if posixpath.normpath(target) == inside:
        return []
    if ".." in Path(target).parts:
        raise below.wrong(target, "leaves the folder", "Name an absolute path, or one in the folder.")
    return [(target, inside)]
