"""Outputs on their way home: what was sent, what is coming, and what a machine that is gone has left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import CostGpuError, HostUnreachable, OutputsMissing
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.job import FileEntry, Outputs
from costgpu.models.run import EventKind, RunState
from costgpu.runner.files.place_outputs import PlacedOutputs, bring_home
from costgpu.runner.files.safe_move import is_file_with
from costgpu.runner.files.select import printable
from costgpu.runner.machine.host import Fetches, Selection
from costgpu.units import format_size

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver

_LISTED = 5


def rescue(driver: Driver) -> None:
    """Of a machine that is gone: brings home what had arrived already, or is in the bucket. Never in the way of the end."""
    view, depot = driver.view, driver.tools.depot
    if view.collected or view.state not in (RunState.RUNNING, RunState.COLLECTING):
        return
    try:
        entries = read_entries(driver.folder)
        host: Fetches | None = Arrived() if view.state is RunState.COLLECTING and entries is not None else None
        if host is None and depot is not None and (rescued := depot.rescue(view, driver.folder)) is not None:
            status, entries, host = rescued
            if view.state is RunState.RUNNING:
                driver.record.add(EventKind.FINISHED, **to_json(status))
            if status.detail:
                driver.observer.note(status.detail)
        if host is not None and entries is not None:
            landed(driver, host, entries, ())
    except (CostGpuError, OSError) as error:
        where = view.spec.bucket or f"{view.spec.workdir}/.costgpu/incoming"
        driver.observer.note(f"What is left of the outputs is in {where}: {error}")


def landed(driver: Driver, host: Fetches, entries: Sequence[FileEntry], missing: Sequence[str]) -> None:
    """Puts outputs into the working folder and records that these are all."""
    found = land(driver, host, entries)
    driver.record.add(
        EventKind.COLLECTED,
        files=found.files,
        bytes=found.bytes,
        replaced=len(found.replaced),
        stuck=len(found.stuck),
        missing=list(missing),
    )


def land(driver: Driver, host: Fetches, entries: Sequence[FileEntry]) -> PlacedOutputs:
    """Puts outputs into the working folder and tells whoever watches."""
    view = driver.view
    found = bring_home(
        host, entries, workdir=Path(view.spec.workdir), sent=read_sent(driver.folder), run_id=view.run_id
    )
    driver.error = driver.error or found.problem
    driver.observer.note(landed_words(found, view.spec.workdir, view.run_id))
    return found


def unreadable(outputs: Outputs) -> OutputsMissing:
    """The error to show for what is on the machine and cannot be read there."""
    shown = "; ".join(f"{printable(path)} ({why})" for path, why in sorted(outputs.unreadable.items())[:_LISTED])
    more = len(outputs.unreadable) - _LISTED
    return OutputsMissing(
        f"Outputs cannot be read on the machine: {shown}{f'; and {more} more' if more > 0 else ''}.",
        hint="All others are home.",
    )


class Arrived:
    """A machine that is gone, of whose outputs all may be here already."""

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Raises `HostUnreachable` if one is not."""
        for entry in entries:
            if not is_file_with(folder / entry.path, entry):
                raise HostUnreachable(f"{entry.path} had not arrived when the machine ended")


def write_sent(folder: Path, selection: Selection) -> None:
    """Remembers what was sent, so that a file changed meanwhile is known from one that was not."""
    text = json.dumps({entry.path: entry.sha256 for entry in selection.files})
    fresh = folder / "sent.json.new"
    fresh.write_text(text)
    fresh.replace(folder / "sent.json")


def read_sent(folder: Path) -> dict[str, str]:
    """Path -> sha256 of what was sent; empty if it is not known any more."""
    try:
        sent = json.loads((folder / "sent.json").read_text())
    except (OSError, ValueError):
        return {}
    return {str(path): str(checksum) for path, checksum in sent.items()}


def write_entries(folder: Path, entries: Sequence[FileEntry]) -> None:
    """Remembers what is coming home, so that a killed client's successor can finish it without the machine."""
    fresh = folder / "outputs.json.new"
    fresh.write_text(json.dumps(to_json(list(entries))))
    fresh.replace(folder / "outputs.json")


def read_entries(folder: Path) -> tuple[FileEntry, ...] | None:
    """What was coming home; None if that had not begun."""
    try:
        return tuple(from_json(FileEntry, one) for one in json.loads((folder / "outputs.json").read_text()))
    except (OSError, ValueError, CostGpuError):
        return None


def landed_words(found: PlacedOutputs, home: str, run_id: str) -> str:
    """What came home, in a sentence."""
    if not found.files:
        return "No outputs: the job has made or changed no files."
    files = "1 file" if found.files == 1 else f"{found.files} files"
    text = f"{files} ({format_size(found.bytes)}) came home to {home}."
    if found.replaced:
        text += f" {len(found.replaced)} that were there are kept in .costgpu/replaced/{run_id}."
    return text
