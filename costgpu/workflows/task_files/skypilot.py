"""Reads a task of SkyPilot."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costgpu.workflows.estimate.request import MOST_NODES
from costgpu.workflows.task_files.task import Task
from costgpu.workflows.task_files.yaml_tree import TAG, Section

KEYS = frozenset({"resources", "run", "setup", "num_nodes", "workdir", "file_mounts", "envs", "secrets", "service"})
Tables = Mapping[str, Mapping[str, Mapping[str, str]]]
URL = re.compile(r"[a-z][a-z0-9+.-]*://|git@", re.IGNORECASE)
_GIB = {"": 1, "gb": 1, "gib": 1, "g": 1, "tb": 1024, "tib": 1024, "t": 1024}
_SIZE = re.compile(r"(\d{1,6})\s*([a-z]*)", re.IGNORECASE)


def read_skypilot(task: Section, tables: Tables, note: Callable[[str], None]) -> Task:
    """Read a task; its paths are taken from the current folder, as SkyPilot does.

    Raises:
        UsageError: It has a key that is not known or not supported.
    """
    task.judge(tables["skypilot"], note)
    fields: dict[str, Any] = {}
    if (resources := task.section("resources")) is not None:
        resources.judge(tables["skypilot_resources"], note)
        counts = resources.mapping("accelerators")
        if counts is None:
            wanted = ",".join(resources.texts("accelerators")).split(",")
        else:
            wanted = [f"{name}:{counts.text(name) or ''}".rstrip(":") for name in counts.values]
        # any of them will do; a name alone is one GPU
        gpus = ",".join(each.strip() if ":" in each else f"{each.strip()}:1" for each in wanted if each.strip())
        fields = {
            "infra": _places(resources),
            "gpus": gpus or None,
            "cpus": resources.text("cpus"),
            "memory": resources.text("memory"),
            "instance_type": resources.texts("instance_type"),
            "spot": resources.flag("use_spot"),
            "disk_gib": gib(resources, "disk_size"),
            "tags": resources.variables("labels", TAG),
        }
        resources.close()
    if task.mapping("workdir") is not None or URL.match(text := task.text("workdir") or ""):
        hint = "Clone it, and run the file there."
        raise task.wrong("workdir", "is a git repository, and a folder of this computer is sent", hint)
    folder = Path(text).expanduser().resolve() if text else None
    if folder is not None and not folder.is_dir():
        where = Path(text).expanduser()
        raise task.wrong("workdir", f"is {where}, and there is no such folder", "It is relative to the current one.")
    read = Task(
        folder=folder,
        run=task.text("run") or "",
        run_key="run",
        setup=task.text("setup"),
        env=(*task.variables("envs"), *task.variables("secrets")),
        fields={**fields, "name": task.text("name"), "nodes": task.whole("num_nodes", MOST_NODES)},
        links=_links(task.section("file_mounts"), folder or Path.cwd().resolve()),
    )
    task.close()
    return read


def gib(section: Section, key: str) -> int | None:
    """Return the size of a disk, or the least of a range of sizes, in GiB."""
    text = section.text(key)
    if text is None:
        return None
    match = _SIZE.fullmatch((text.partition("..")[0] or text).strip(" ."))
    unit = _GIB.get(match[2].lower()) if match is not None else None
    if match is None or unit is None:
        raise section.wrong(key, f"is {text!r}, and not a size such as 256GB")
    return int(match[1]) * unit


def _places(resources: Section) -> tuple[str, ...]:
    """Return where machines may be, as `costgpu run` names places."""
    infra, cloud, region = resources.text("infra"), resources.text("cloud"), resources.text("region")
    if infra is not None and (cloud is not None or region is not None):
        raise resources.wrong("infra", "stands beside cloud or region", "Keep one of them.")
    parts = infra.split("/") if infra is not None else [cloud or "*", region or "*"]
    if parts[0].lower() in ("k8s", "kubernetes", "ssh", "slurm"):
        raise resources.wrong("infra" if infra else "cloud", f"is {infra or cloud}: machines are rented from clouds")
    if any(part != "*" for part in parts[2:]):
        place = "/".join(parts[:2])
        raise resources.wrong("infra", "names a zone: only regions are chosen", f"Name the region: infra: {place}")
    place = "/".join(part for part in parts if part != "*").lower()
    return (place,) if place else ()


def _links(mounts: Section | None, home: Path) -> dict[str, str]:
    """Return paths on the machine that lead to what is in the folder; none where the path is the same."""
    found = {}
    for target in mounts.values if mounts is not None else ():
        assert mounts is not None  # noqa: S101 - it has values
        if mounts.mapping(target) is not None or URL.match(mounts.text(target) or ""):
            hint = "Let setup download it; --bucket s3://name keeps outputs."
            raise mounts.wrong(target, "mounts a bucket or an address", hint)
        text = mounts.text(target) or ""
        source = Path(posixpath.normpath(Path.cwd().resolve() / Path(text).expanduser()))
        if not source.exists():
            raise mounts.wrong(target, f"is {text}, and there is no such file here")
        if not source.is_relative_to(home):
            hint = "Put it, or a copy of it, into that folder: all of that is sent."
            raise mounts.wrong(target, f"is {text}, which is not in the folder that is sent, {home}", hint)
        inside = source.relative_to(home).as_posix()
        if ".." in Path(target).parts:
            raise mounts.wrong(target, "leaves the folder", "Name an absolute path, or one in the folder.")
        if posixpath.normpath(target).strip("/") in ("", ".", "~") and inside != ".":
            raise mounts.wrong(target, "is a folder that is there already", "Name a path below it.")
        if posixpath.normpath(target) != inside:
            found[target] = inside
    return found
