"""What the measured script reads, compared with what travels: named in the plan, and decided before anything is spent."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from costgpu.errors import SyncRefused, UsageError
from costgpu.job.files import secret_files
from costgpu.job.files.gitignore import RuleFile
from costgpu.job.files.paths import printable_path
from costgpu.job.files.select import EXCLUDED, is_by_rule, select_for
from costgpu.job.files.selection import FileSelection
from costgpu.measure import Request
from costgpu.models.footprint import FileUse, Footprint
from costgpu.models.inputs import Inputs, StayingInput
from costgpu.models.job import JobSpec
from costgpu.models.run import Plan
from costgpu.render.phrases import used_file
from costgpu.workflows.runs.patterns import literal_pattern

REFILLED = {
    "HF_HOME": "~/.cache/huggingface",
    "HF_HUB_CACHE": "",
    "HF_DATASETS_CACHE": "",
    "TORCH_HOME": "~/.cache/torch",
    "KERAS_HOME": "~/.keras",
    "NLTK_DATA": "~/nltk_data",
    "TFDS_DATA_DIR": "~/tensorflow_datasets",
    "SCIKIT_LEARN_DATA": "~/scikit_learn_data",
    "XDG_CACHE_HOME": "~/.cache",
}
"""Caches that libraries fill again by themselves: the variable that names one, and where it is by default."""
_LISTED = 5  # paths in a sentence
_LARGEST = 3  # of what ignore rules leave out
_LOOKED_AT = 400_000  # files that are looked at for the size of what is left out
_RECORDS = ("mlruns/**/meta.yaml", "events.out.tfevents.*")  # that loggers read of earlier runs, and scripts do without
_CACHES = RuleFile((*secret_files.DISPENSABLE, *_RECORDS), "caches")
_LEAVES = "a link that leads out of the folder"


def compare(
    spec: JobSpec, selection: FileSelection, script: Path | None, footprint: Footprint | None, *, here: bool = False
) -> tuple[Inputs, list[str]]:
    """Return what the script reads and nobody has decided about, and notes on the rest of what it uses.

    Args:
        script: The script, or the file of its module; None if that is not known.
        footprint: What the measurement saw; None if there was none.
        here: Whether the job runs on this computer.

    Raises:
        UsageError: The script itself is left out by name.
    """
    used = [] if footprint is None else list(footprint.read)
    itself: FileUse | None = None
    top, excluded = os.path.realpath(spec.workdir), RuleFile(spec.exclude, EXCLUDED)
    if script is not None and os.path.realpath(script).startswith(f"{top}/"):
        path = os.path.relpath(os.path.realpath(script), top)
        itself = FileUse(path=path, size=script.stat().st_size)
        used = [itself, *(one for one in used if one.path != path)]
    travelling = {entry.path for entry in selection.files}
    staying: dict[str, StayingInput] = {}
    for one in used:
        found = _staying(one, selection, travelling, excluded)
        if found is None or f"{top}/{found.path}" == spec.env_file:  # its variables reach the job
            continue
        if found.why == EXCLUDED and one is itself:
            raise UsageError(
                f"--exclude leaves out the script itself, {one.path}.", hint="Name less, or another script."
            )
        staying[found.path] = found
    together = _whole_folders(staying.values(), selection)
    ordered = sorted(together, key=lambda one: (-one.size, one.path))
    named = [one for one in ordered if one.why == EXCLUDED]
    notes = [f"Left out by name, though the script reads it: {listed(named)}."] if named else []
    notes += outside_notes(footprint, spec.workdir, here=here)
    undecided = tuple(one for one in ordered if one.why != EXCLUDED)
    complete = footprint is None or footprint.complete
    return Inputs(known=footprint is not None, complete=complete, staying=undecided), notes


def _whole_folders(staying: Iterable[StayingInput], selection: FileSelection) -> list[StayingInput]:
    """Return the folder in the place of many files in it, or of several if it has more, where nothing of it travels.

    The measurement has seen a part of the job only: of a data set, which would else be sent in that part.
    """
    sent = [*(entry.path for entry in selection.files), *selection.links, *(f"{one}/" for one in selection.folders)]
    kept = {parent for path in sent for parent in PurePosixPath(path).parents}
    groups: dict[tuple[str, str], list[StayingInput]] = defaultdict(list)
    for one in staying:
        folders = [parent for parent in PurePosixPath(one.path).parents[:-1] if parent not in kept]
        groups[str(folders[-1]) if folders and one.sendable else one.path, one.why].append(one)
    found: list[StayingInput] = []
    for each in groups.values():
        files = sum(one.files for one in each)
        if len(each) > 1:
            folder = os.path.commonpath([one.path for one in each])
            if files > _LISTED or len(list(islice(_sizes(selection.root / folder), files + 1))) > files:
                each = [replace(each[0], path=folder, size=sum(one.size for one in each), files=files)]
        found += each
    return found


def _staying(use: FileUse, selection: FileSelection, travelling: set[str], excluded: RuleFile) -> StayingInput | None:
    """Return a file or folder as one that does not travel; None if it does, or if nobody misses it."""
    if use.path in travelling:
        return None
    top = Path(os.path.realpath(selection.root))
    full = Path(os.path.realpath(top / use.path))
    leaves = not full.is_relative_to(top)
    path = use.path if leaves else str(full.relative_to(top))  # a link and what it leads to travel by themselves
    if path in travelling or not os.path.lexists(top / use.path):
        return None
    around = [f"{one}{end}" for one in (PurePosixPath(path), *PurePosixPath(path).parents) for end in ("", "/")]
    why = next((selection.stays[one] for one in reversed(around) if one in selection.stays), "")
    if any(map(excluded.ignores_around, (use.path, path, f"{path}/"))):
        why = EXCLUDED
    elif leaves:
        why = _LEAVES
    elif not why and full.is_dir():  # all of a folder stays, a part, or nothing
        parts = (one for one in selection.stays.items() if path == "." or one[0].startswith(f"{path}/"))
        why = next((why for one, why in parts if not _idle(one, why)), "caches")
    if _idle(path, why):
        return None
    size = use.size or (full.stat().st_size if full.is_file() else 0)  # a link has none
    why, sendable = why or "it cannot be sent", not leaves and is_by_rule(why)
    return StayingInput(path=path, size=size, files=use.files, why=why, sendable=sendable)


def _idle(path: str, why: str) -> bool:
    """Return whether a job finds the same there, or does without: caches, environments, and git's own records."""
    parts = path.split("/")
    if why == "repositories":
        return "annex" not in parts and "lfs" not in parts
    cached = why == "caches" or (is_by_rule(why) and _CACHES.ignores_around(path))  # most people's rules name them, too
    return why == secret_files.ENVIRONMENT or (cached and "wandb" not in parts)


def refusal(inputs: Inputs) -> SyncRefused:
    """Return why a run whose inputs stay here does not start, with the options that decide about each of them."""
    sendable = [one.path for one in inputs.staying if one.sendable]
    send, leave = (
        " ".join(f"{option} {shlex.quote(path)}" for path in paths)
        for option, paths in (("--include", sendable), ("--exclude", [one.path for one in inputs.staying]))
    )
    hints = [f"Send it too: {send}"] if sendable else []
    hints.append(f"{'or go' if sendable else 'Go'} on without it: {leave}")
    if any(one.why.startswith("secrets") for one in inputs.staying):
        hints.append("secrets never travel as files: -e NAME and --env-file give variables to the job")
    return SyncRefused(
        f"The script reads what would not travel: {listed(inputs.staying)}.", hint=f"{'; '.join(hints)}."
    )


def check_inputs(plan: Plan) -> None:
    """Refuse to start a run whose script reads what stays here.

    Raises:
        SyncRefused: Somebody has to decide first.
    """
    if plan.inputs.staying:
        raise refusal(plan.inputs)


def send_too(plan: Plan, limit_mib: float) -> Plan:
    """Return the plan with the inputs that can travel in what is sent.

    Raises:
        SyncRefused: With them it is too large, or a link leads out of the folder.
    """
    more = ["*" if one.path == "." else literal_pattern(one.path) for one in plan.inputs.staying if one.sendable]
    spec = replace(plan.spec, include=(*plan.spec.include, *more))
    selection = select_for(spec, limit_mib)
    sent = replace(plan, spec=spec, files=len(selection.files), bytes=selection.total_bytes)
    return without(replace(sent, left_out=selection.left_out, largest=largest_left_out(selection)))


def without(plan: Plan) -> Plan:
    """Return the plan for a job that goes on without what stays here."""
    return replace(plan, inputs=replace(plan.inputs, staying=()))


def listed(inputs: Sequence[StayingInput]) -> str:
    """Return the largest of them with size and reason, in words."""
    return _several([f"{used_file(printable_path(one.path), one)} ({one.why})" for one in inputs])


def _several(words: Sequence[str]) -> str:
    more = f", and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
    return ", ".join(words[:_LISTED]) + more


def module_file(script: Request) -> Path | None:
    """Return the script, or the file of its module in the working folder; None if it is not there."""
    if script.script is not None or script.module is None:
        return script.script
    path = script.workdir / script.module.replace(".", "/")
    return next((one for one in (path.with_suffix(".py"), path / "__main__.py") if one.is_file()), None)


def outside_notes(footprint: Footprint | None, workdir: str, *, here: bool) -> Iterator[str]:
    """Yield notes on what the script reads and writes outside of the working folder.

    Args:
        here: Whether the job runs on this computer, where all is at its place but what lies beside the folder: it
            runs in a copy.
    """
    if footprint is None:
        return
    beside = Path(workdir).resolve().parent
    caches: dict[str, list[FileUse]] = defaultdict(list)
    others: list[FileUse] = []
    named = [os.environ.get(name) or place for name, place in REFILLED.items()]
    folders = {os.path.expanduser(place) for place in (*named, *REFILLED.values()) if place}  # noqa: PTH111
    roots = sorted(folders, key=len, reverse=True)  # the innermost first
    for use in footprint.read_outside:
        root = next((one for one in roots if use.path == one or use.path.startswith(f"{one}/")), "")
        (caches[root] if root else others).append(use)
    near = [use for use in others if _is_beside(use, beside)]
    around = f"--workdir {shlex.quote(str(beside))} sends the folder around it, and runs the script there"
    if here and near:
        yield f"The job runs in a copy of the folder, beside which it does not find {_words(near, beside)}. {around}."
    elif others and not here:
        advice = f"{around}; or let" if near and beside != Path.home() else "Let"
        what = f"The script reads outside of the folder what does not travel: {_words(others, beside)}"
        yield f"{what}. {advice} --setup or the script fetch it there."
    if caches and not here:
        whole = [FileUse(path=root, size=sum(use.size for use in each)) for root, each in caches.items()]
        what = "The script reads caches that do not travel, and that its libraries fill again there"
        yield f"{what}: {_words(whole, beside)}."
    written = [use for use in footprint.written_outside if not here or _is_beside(use, beside)]
    if written:
        places = "by a relative path" if here else "to the home folder, beside the working folder or to /tmp"
        what = f"The script writes outside of the folder: {_words(written, beside)}"
        yield f"{what}. What the job's own processes write there {places} comes home under outside/."


def _words(uses: Sequence[FileUse], beside: Path) -> str:
    return _several([used_file(_short(one.path, beside), one) for one in sorted(uses, key=lambda one: -one.size)])


def _is_beside(use: FileUse, beside: Path) -> bool:
    """Return whether it is in the folder around the working folder; in a home folder, what is hidden is not."""
    rest = use.path.removeprefix(f"{beside}/") if beside != Path("/") else use.path
    return rest != use.path and not (beside == Path.home() and rest.startswith("."))


def _short(path: str, beside: Path) -> str:
    """Return a path as a person would write it."""
    home = str(Path.home())
    if beside not in (Path("/"), Path(home)) and path.startswith(f"{beside}/"):
        return printable_path(f"../{path.removeprefix(f'{beside}/')}")
    return printable_path(f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path)


def largest_left_out(selection: FileSelection) -> tuple[FileUse, ...]:
    """Return the largest of what ignore rules leave out, as far as a bounded look at it tells."""
    found: list[FileUse] = []
    left = _LOOKED_AT
    for path, why in selection.stays.items():
        if why == EXCLUDED or (why != "caches" and is_by_rule(why)):
            sizes = list(islice(_sizes(selection.root / path), min(left, _LOOKED_AT // 4)))
            found.append(FileUse(path=path, size=sum(sizes), files=len(sizes)))
            left -= len(sizes)
    return tuple(sorted((one for one in found if one.size), key=lambda one: (-one.size, one.path))[:_LARGEST])


def _sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of a file, or of the files in a folder; links are not followed."""
    inside = (os.path.join(top, name) for top, _, names in os.walk(path) for name in names)  # noqa: PTH118
    for one in inside if path.is_dir() and not path.is_symlink() else (path,):
        with contextlib.suppress(OSError):  # gone meanwhile
            yield os.lstat(one).st_size
