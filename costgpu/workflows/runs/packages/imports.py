"""What the measured script imports, held against what a machine would install."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from costgpu.errors import PackagesMissing
from costgpu.models.footprint import Footprint
from costgpu.workflows.runs.packages.source import PackageSource, normal, parse

_ASK_SECONDS = 120
_TOOLS = frozenset({"pip", "setuptools", "wheel", "costgpu"})
_SHOWN = 5
# What the interpreter has with which the script was measured: each distribution, what it needs, and its modules.
_TELL = """
import json
from importlib import metadata
found = []
for each in metadata.distributions():
    try:
        top = (each.read_text("top_level.txt") or "").split()
        code = () if top else [str(path) for path in each.files or () if str(path).endswith((".py", ".so"))]
        top += sorted({path.split("/")[0].split(".")[0] for path in code})
        found.append([each.metadata["Name"] + "", each.requires or [], top])
    except Exception:
        pass
print(chr(10) + json.dumps(found))
"""
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
_PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))

Installed = dict[str, tuple[list[str], list[str]]]  # name -> requirements and modules


def check_imports(
    source: PackageSource, footprint: Footprint, folder: Path, python: str, environment: Mapping[str, str] | None
) -> tuple[str, ...]:
    """Return a remark on imports of which it is not certain that the machine will have them.

    Args:
        folder: The folder that is sent.
        python: Interpreter with which the script was measured.
        environment: Its variables; None for those of this process.

    Raises:
        PackagesMissing: It will certainly not have one.
    """
    own = [each for each in footprint.imported if each.by_script and each.distribution]
    wanted = [each for each in own if normal(each.distribution) not in _TOOLS]
    if not wanted or not source.complete:
        return ()
    installed = _installed(python, folder, environment)
    names, unknown = _closure(source, installed)
    modules = {module for name in names for module in installed.get(name, ([], []))[1]}
    missing = [each for each in wanted if normal(each.distribution) not in names and each.module not in modules]
    if not missing:
        return ()
    titles = [f"{each.distribution} {each.version}".strip() for each in missing[:_SHOWN]]
    what = ", ".join(
        title if each.module == each.distribution else f"{each.module} ({title})"
        for each, title in zip(missing, titles, strict=False)
    )
    what += f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    by = f"which {source.label} does not install" if source.label else "and nothing says what the machine is to install"
    if unknown:
        others = ", ".join(sorted(unknown)[:_SHOWN])
        return (f"The script imports {what}, {by}, unless it comes with {others}, which is not installed here.",)
    lines = [
        "-e ."
        if each.origin and Path(each.origin).is_relative_to(folder)
        else "==".join(filter(None, (each.distribution, each.version)))
        for each in missing
    ]
    where = f"Add to {source.label}" if source.files else "Write into a requirements.txt"
    extra = " (or --extra NAME, if an extra has it)" if "pyproject" in source.label else ""
    hint = f"{where}: {' '.join(dict.fromkeys(lines))}{extra}; or say what to install with --setup 'pip install ...'."
    raise PackagesMissing(f"The script imports {what}, {by}.", hint=hint)


def _installed(python: str, folder: Path, environment: Mapping[str, str] | None) -> Installed:
    """Return the distributions of an interpreter by their normalized names; none if it does not tell them."""
    variables = None if environment is None else dict(environment)
    try:
        done = subprocess.run(
            [python, "-c", _TELL],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_ASK_SECONDS,
            cwd=folder,
            env=variables,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {normal(name): (requires, modules) for name, requires, modules in reversed(found)}


def _closure(source: PackageSource, installed: Installed) -> tuple[set[str], set[str]]:
    """Return the names of all that a source brings along, and of those whose own needs are not known here."""
    seen: set[tuple[str, str]] = set()
    unknown: set[str] = set()
    todo = [(need, "", True) for each in source.requirements if (need := parse(each)) is not None]
    while todo:
        need, part, named = todo.pop()
        # on a Linux machine, whatever its Python
        variants = ({"python_version": each, "python_full_version": f"{each}.0"} for each in _PYTHONS)
        if need.marker and not any(need.marker.evaluate({**_LINUX, **each, "extra": part}) for each in variants):
            continue
        name = normal(need.name)
        for extra in {"", *need.extras}:
            if (name, extra) not in seen and not source.locked:
                needs = installed.get(name, ([], []))[0]
                todo += [(below, extra, False) for each in needs if (below := parse(each)) is not None]
            seen.add((name, extra))
        if name not in installed and not source.locked and (named or need.marker is None):
            unknown.add(name)
    return {name for name, _ in seen}, unknown
