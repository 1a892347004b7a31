"""Which file says what a machine installs: the most specific one."""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path, PurePath

from costgpu.errors import UsageError
from costgpu.measure.prefixes import NO_PREFIXES, Prefixes
from costgpu.workflows.runs.packages import project
from costgpu.workflows.runs.packages.conda import conda_source
from costgpu.workflows.runs.packages.project import LOCK, PROJECT, Table, below
from costgpu.workflows.runs.packages.requirements import Listing, read_requirements
from costgpu.workflows.runs.packages.source import (
    EITHER,
    GET_UV,
    PIP,
    UV,
    PackageSource,
    check_python,
    install,
    quoted,
    refuse_secrets,
    refuse_unset,
)

REQUIREMENTS = "requirements.txt"
CONDA = ("environment.yml", "environment.yaml")
_NOT_FOR_RUNS = re.compile(r"[-_./](dev|develop|tests?|testing|docs?|lint|ci|build)\b", re.IGNORECASE)
_NOT_READ = {
    "poetry.lock": "poetry export -o requirements.txt",
    "pdm.lock": "pdm export -o requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "conda-lock.yml": "conda env export --from-history > environment.yml",
    "pixi.toml": "pixi project export conda-environment environment.yml",
}
_INDEX = re.compile(r"(PIP|UV)_((EXTRA_|DEFAULT_)?INDEX|(EXTRA_)?INDEX_URL)")
_INDEX_LINE = re.compile(r"^\s*\[*(extra-)?index(-url)?\s*[]=:]", re.MULTILINE)
_SETTINGS = ("$PIP_CONFIG_FILE", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "~/.config/uv/uv.toml")
_INTO = "--inexact --no-python-downloads --python python3"
_SYNC = f'UV_PROJECT_ENVIRONMENT="$(python3 -c "import sys; print(sys.prefix)")" uv sync --frozen {_INTO}'
# Options of ``uv run`` that decide on packages, and what they are to uv's other commands.
_OF_UV = {
    "--with": "",
    "-w": "",
    "--with-requirements": "-r",
    "--with-editable": "-e",
    "--extra": "--extra",
    "--group": "--group",
    "--index": "--index",
    "--extra-index-url": "--index",
    "--default-index": "--default-index",
    "-i": "--default-index",
    "--index-url": "--default-index",
    "-f": "--find-links",
    "--find-links": "--find-links",
}


_BETWEEN = re.compile(r",(?=\s*[A-Za-z./])(?![^\[]*\])")  # not in ``x>=1,<2`` and ``x[a,b]``


def find_packages(
    folder: Path,
    script: Path | None,
    *,
    setup: str | None = None,
    extras: Sequence[str] = (),
    prefixes: Prefixes = NO_PREFIXES,
    variables: Mapping[str, str] | None = None,
) -> PackageSource:
    """Return what a machine installs, without a label if nothing says it.

    The most specific comes first: `setup`, the script itself (PEP 723), uv.lock, requirements.txt, pyproject.toml,
    setup.py, environment.yml.

    Args:
        folder: The folder that is sent; the machine has nothing outside of it.
        script: The script; None for a module.
        setup: The user's own command, to which nothing is added.
        extras: Extras of the project that are installed, too.
        prefixes: What stands in front of the script: ``uv run --with`` adds packages.
        variables: Variables that the job gets.

    Raises:
        UsageError: A file is broken, names what does not travel, or has a secret in it.
    """
    if setup is not None:
        return PackageSource(label="--setup", setup=setup)
    asked = _uv_options(prefixes.asked)
    listing, starters = Listing(folder.resolve()), ", ".join(prefixes.deciding)
    chosen = list(dict.fromkeys([*extras, *asked["--extra"]]))
    indexes = [word for option in ("--index", "--default-index", "--find-links") for word in asked[option]]
    source = _found(listing, script, chosen, asked["--group"], indexes)
    if chosen and PROJECT not in source.label:
        raise UsageError(f"--extra {chosen[0]} is for a {PROJECT}, and {source.label or 'nothing'} is installed.")
    if added := [*asked[""], *asked["-r"], *asked["-e"]]:
        refuse_secrets(" ".join(added), "uv run --with")
        for each in asked[""] + asked["-e"][1::2]:
            listing.add(each, "uv run --with")
        for each in asked["-r"][1::2]:
            read_requirements(listing, listing.travels(each, listing.folder, "uv run --with-requirements"))
        setup = " && ".join(filter(None, (source.setup, install([*indexes, *added], UV))))
        label = f"{source.label} + uv run --with" if source.label else "uv run --with"
        source = replace(source, label=label, installer=UV, setup=setup, locked=False)
    if starters and not source.label:
        raise UsageError(
            f"{starters} gives the script its packages here, and nothing says what the machine is to install.",
            hint=f"Put a {REQUIREMENTS} into its folder (uv export -o {REQUIREMENTS}), or add --setup 'pip install ...'.",
        )
    project.add_named_projects(listing)  # those that --with-editable names
    refuse_secrets(" ".join(indexes), "uv run")
    refuse_unset([*listing.texts, *indexes], source.label, variables or {})
    if starters:
        listing.notes.append(f"On the machine its own Python starts the script, not {starters}.")
    return replace(
        source,
        requirements=(*source.requirements, *listing.requirements),
        complete=not listing.nameless,
        files=tuple(dict.fromkeys([*source.files, *listing.files])),
        notes=(*source.notes, *listing.notes, *_not_read(listing.folder, source), *_own_indexes(source)),
    )


def _uv_options(words: Sequence[str]) -> defaultdict[str, list[str]]:
    """Return what ``uv run`` in front of a script says: words for uv's other commands, by their option."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    rest = list(dropwhile(lambda word: PurePath(word).name != "uv", words))
    while rest:
        word, sign, value = rest.pop(0).partition("=")
        if (option := _OF_UV.get(word)) is not None:
            value = value if sign or not rest else rest.pop(0)
            values = _BETWEEN.split(value) if option in ("", "-r", "-e") else [value]
            for each in values:
                found[option] += [each] if option in ("", "--extra", "--group") else [option, each]
    return found


def _found(
    listing: Listing, script: Path | None, extras: list[str], groups: list[str], indexes: list[str]
) -> PackageSource:
    """Return the first source that there is; what it installs is added to the listing."""
    folder = listing.folder
    listing.needs_uv = (folder / "uv.toml").is_file()
    inline = project.inline_metadata(script) if script is not None else None
    if script is not None and inline is not None:
        words, by = project.texts_of(inline.get("dependencies")), UV if indexes or listing.needs_uv else EITHER
        for each in words:
            listing.add(each, f"{script.name} (PEP 723)")
        project.check_sources(listing, inline, folder, script.name)
        command = install([*indexes, *words], by)
        if project.needs_uv(inline):
            named = quoted([script.resolve().relative_to(folder).as_posix(), *indexes])
            by, command = UV, f"{GET_UV} && uv sync --active {_INTO} --script {named}"
        steps = [*check_python(inline.get("requires-python"), script.name), *([command] if words else [])]
        return _source(f"{script.name} (PEP 723)", by, steps)
    data = project.read_toml(folder / PROJECT)
    listing.needs_uv |= project.needs_uv(data)
    if data and (folder / LOCK).is_file():
        project.add_project(Listing(folder), folder, data, extras)  # an extra that there is not is an error
        project.add_locked(listing, project.read_toml(folder / LOCK), extras)
        listing.files += [PROJECT, LOCK]
        chosen = [*(w for e in extras for w in ("--extra", e)), *(w for g in groups for w in ("--group", g)), *indexes]
        steps = [*_version_of(data), GET_UV, f"{_SYNC} {quoted(chosen)}".strip()]
        return replace(_source(f"{PROJECT} + {LOCK}", UV, steps), locked=True)
    if (path := _requirements_file(listing, script)) is not None:
        return _of_requirements(listing, path, data, indexes)
    # it says what to install, and does not only set up tools such as a formatter
    said = [below(data, "project").get(each) for each in ("dependencies", "optional-dependencies", "dynamic")]
    if data and (any(said) or below(data, "tool", "poetry") or project.is_built(data, folder)):
        return _of_project(listing, data, extras, groups, indexes)
    if project.has_setup(folder):
        listing.nameless = True
        return _source(
            "setup.py" if (folder / "setup.py").is_file() else "setup.cfg", EITHER, [install(["-e", "."], EITHER)]
        )
    conda = next((folder / name for name in CONDA if (folder / name).is_file()), None)
    return conda_source(conda, listing) if conda is not None else PackageSource()


def _of_requirements(listing: Listing, path: Path, data: Table, indexes: list[str]) -> PackageSource:
    """Return what a file of requirements says, and the project beside it that they do not name."""
    folder, name = listing.folder, path.relative_to(listing.folder).as_posix()
    read_requirements(listing, path)
    listing.files.append(name)
    named = any(each == folder for each, _ in listing.folders)
    project.add_named_projects(listing)
    by = UV if indexes or listing.needs_uv else PIP if listing.several_indexes else EITHER
    steps = [install([*indexes, "-r", name], by)]
    if any((folder / "src").glob("*/*.py")) and project.is_built(data, folder) and not named:
        steps += [*_version_of(data), "pip install --no-deps -e ."]
        listing.nameless |= "name" not in below(data, "project")
        listing.requirements += [str(each) for key, each in below(data, "project").items() if key == "name"]
    return _source(name, by, steps)


def _of_project(
    listing: Listing, data: Table, extras: list[str], groups: list[str], indexes: list[str]
) -> PackageSource:
    """Return what a pyproject.toml without a lock says."""
    tools = {tool: below(data, "tool", tool) for tool in ("poetry", "pdm")}
    alone = tools["poetry"].get("package-mode") is False and not below(data, "project")
    if alone or any(table.get("source") for table in tools.values()):
        what = "has package-mode = false" if alone else "names indexes that pip does not know"
        hint = "poetry export -o requirements.txt, or pdm export; or give --setup 'pip install ...'."
        raise UsageError(f"{PROJECT} is for Poetry or PDM alone: it {what}.", hint=hint)
    built = project.is_built(data, listing.folder)
    project.add_project(listing, listing.folder, data, extras, groups)
    by = UV if listing.needs_uv or groups or indexes else EITHER
    if built:
        words = ["-e", f".[{','.join(extras)}]" if extras else "."]
    elif by == UV:
        words = ["-r", PROJECT, *(word for extra in extras for word in ("--extra", extra))]
    else:
        words = list(listing.requirements)
    words += [word for group in groups for word in ("--group", group)]
    checks = [] if built else check_python(below(data, "project").get("requires-python"), PROJECT)
    steps = [*checks, *_version_of(data), *([install([*indexes, *words], by)] if words else [])]
    return _source(PROJECT, by, steps)


def _source(label: str, by: str, steps: Sequence[str]) -> PackageSource:
    return PackageSource(label=label, installer=by if steps else "", setup=" && ".join(steps))


def _version_of(data: Table) -> list[str]:
    """Return what gives a version to a project that takes it from git, whose history does not travel."""
    if "version" not in project.texts_of(below(data, "project").get("dynamic")):
        return []
    name = re.sub(r"[^A-Z0-9]+", "_", str(below(data, "project").get("name")).upper())
    return [f"export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}=0 PDM_BUILD_SCM_VERSION=0"]


def _requirements_file(listing: Listing, script: Path | None) -> Path | None:
    """Return the file of requirements that is meant for runs; None if there is none."""
    patterns = ("requirements*.txt", "*requirements.txt", "requirements/*.txt")
    found = sorted({path for pattern in patterns for path in listing.folder.glob(pattern) if path.is_file()})
    names = [path.relative_to(listing.folder).as_posix() for path in found]
    meant = [name for name in names if not _NOT_FOR_RUNS.search(f"-{name}")]
    if not meant:
        listing.notes += [f"{names[0]} is not installed: by its name it is not for runs."] if names else []
        return None
    stem = script.stem if script is not None else ""
    first = (REQUIREMENTS, f"requirements-{stem}.txt", f"requirements_{stem}.txt", "requirements/base.txt")
    chosen = next((name for name in first if name in meant), meant[0])
    if others := ", ".join(name for name in meant if name != chosen):
        listing.notes.append(f"{chosen} is installed, and not {others}.")
    return listing.folder / chosen


def _not_read(folder: Path, source: PackageSource) -> list[str]:
    """Return remarks on files that say something about packages, and that no machine gets to see."""
    notes = [f"{name} is not read: {how}" for name, how in _NOT_READ.items() if (folder / name).is_file()][:1]
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder.parent)
    above = [each for each in folder.parents if each.is_relative_to(top)] if not source.label else []
    for each in above:
        for name in (LOCK, REQUIREMENTS, PROJECT, *CONDA):
            if (each / name).is_file():
                return [*notes, f"{each / name} is not in the folder that is sent: add --workdir {each} to send it."]
    return notes


def _own_indexes(source: PackageSource) -> list[str]:
    """Return a remark on package indexes that only this computer's settings know; they may carry a password."""
    if source.locked or not source.label:
        return []
    files = [Path(os.path.expandvars(name)).expanduser() for name in _SETTINGS]
    named = [name for name, value in os.environ.items() if value and _INDEX.fullmatch(name)]
    for path in files:
        with contextlib.suppress(OSError):
            named += [str(path)] * bool(_INDEX_LINE.search(path.read_text(errors="replace")))
    if not named:
        return []
    what = f"The package index of {' and '.join(named)} is not known to the machine"
    return [f"{what}; if packages come from it, name it with --setup."]
