"""Brings the outputs of a finished job home, from its machine, or what a machine that is gone has left elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costgpu.errors import CostGpuError, HostUnreachable, OutputsMissing, ProviderError, RunError
from costgpu.job.agent.outputs.find_outputs import NO_OUTPUTS
from costgpu.job.drive.checkpoints import save_checkpoint
from costgpu.job.drive.context import CAN_DETACH, RunContext
from costgpu.job.files.checkpoint_store import CheckpointStore
from costgpu.job.files.download import OutputSource
from costgpu.job.files.paths import printable_path
from costgpu.job.files.place_outputs import PlacedOutputs, fetch_and_place
from costgpu.job.files.safe_move import has_content
from costgpu.job.timeouts import POLL_SECONDS, RECONNECT_SECONDS, UPLOAD_SECONDS
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.events import Collected
from costgpu.models.job import Checkpoint, EndReason, FileEntry, JobPhase, Outputs
from costgpu.models.run import RunState, RunView
from costgpu.units import format_size

_LISTED = 5
_SHOWN = 100  # characters of a path


def collect(context: RunContext) -> None:
    """Bring the outputs home, verified; then the machine has done its work."""
    if not context.view.collected:
        try:
            if not context.for_next:
                _fetch_outputs(context)
            elif not _keep_for_next(context):
                return
        except HostUnreachable as error:
            if context.seconds_disconnected() > RECONNECT_SECONDS:
                context.keep_machine(error)
            context.await_connection(error)
            return
        except ProviderError:
            raise
        except CostGpuError as error:  # no space here, a damaged file: the outputs stay safe where they are
            context.keep_machine(error)
        except OSError as error:
            context.keep_machine(RunError(f"The logs and outputs cannot be kept here: {error.strerror or error}."))
    view = context.view
    if not view.spec.auto_shutdown and not context.cancelling:
        context.check_alive(context.provider().describe(context.instance))
        context.leave()
        return
    context.end((view.status.reason if view.status else None) or EndReason.SUCCEEDED)


def _fetch_outputs(context: RunContext) -> None:
    view, host = context.view, context.connection()
    context.observer.waiting(view, "bringing outputs home")
    host.fetch_logs(context.folder)
    context.answered()
    if view.outputs_folder is None:  # another machine of the job has what is wanted
        _record_collected(context, PlacedOutputs(files=0, bytes=0), ())
        with contextlib.suppress(CostGpuError):
            host.collected()
        return
    outputs = host.outputs()
    if outputs.missing and view.status is not None and view.status.ended_well:
        context.error = context.error or OutputsMissing(
            f"The job ended well, but {', '.join(outputs.missing)} is not there.",
            hint="--outputs are paths or patterns relative to the working folder.",
        )
    if not outputs.trouble:  # what is nowhere cannot come home without the machine
        expected = context.folder / "outputs.json.new"  # so that a killed client's successor can finish it
        expected.write_text(json.dumps(to_json(list(outputs.files))))
        expected.replace(context.folder / "outputs.json")
    brought = _place(context, host, outputs)
    if brought.staying is not None:
        raise brought.staying
    _record_collected(context, brought.placed, outputs.missing)
    with contextlib.suppress(CostGpuError):
        host.collected()


def _keep_for_next(context: RunContext) -> bool:
    """Upload before the machine is taken away: what the job goes on from comes first, then all else that it has made.

    Returns:
        Whether that is done; with a bucket the machine does it by itself, and is asked again.
    """
    host, clock = context.connection(), context.clock
    keeping = context.keeping
    saved = True
    if keeping is not None and context.view.spec.bucket:
        keeping.keep_until = keeping.keep_until or clock.monotonic() + UPLOAD_SECONDS
        if not host.status().uploaded and clock.monotonic() < keeping.keep_until:
            context.observer.waiting(context.view, "the machine saves what the job has made")
            clock.sleep(POLL_SECONDS)
            return False
        saved = host.status().uploaded
        save_checkpoint(context)
    else:
        save_checkpoint(context)
        saved = save_checkpoint(context, everything=True)
    if not saved and not context.view.interrupted:  # this machine stays, and what it has is not to be lost with it
        _fetch_outputs(context)
        return True
    host.fetch_logs(context.folder)
    context.answered()
    _record_collected(context, PlacedOutputs(files=0, bytes=0), (), kept=True)
    with contextlib.suppress(CostGpuError, OSError):  # last, for the seconds that the machine still has
        if outside := [entry for entry in host.outputs().files if entry.source]:
            _place(context, host, Outputs(files=tuple(outside)))
    with contextlib.suppress(CostGpuError):
        host.collected()
    return True


def place_checkpoint(
    context: RunContext, store: CheckpointStore, checkpoint: Checkpoint, *, only_lacking: bool
) -> bool:
    """Bring home what a job has made that does not go on; whether all of it is there. Never raises.

    Args:
        only_lacking: Whether newer outputs are home, and only what is not among them is missing.
    """
    home = Path(context.view.outputs_folder or context.view.spec.workdir)
    wanted = [entry for entry in checkpoint.files if not (only_lacking and (home / entry.path).exists())]
    try:
        return not wanted or not _place(context, store, Outputs(files=tuple(wanted))).placed.left_out
    except (CostGpuError, OSError) as error:
        again = f"costgpu fetch {context.view.run_id} tries again."
        context.observer.note(f"What the job has made is kept, and could not be brought home: {error} {again}")
        return False


def bring_unrecorded_home(context: RunContext) -> None:
    """Bring home what a job has made of whose start or end the record does not know. Never in the way of the end."""
    if context.view.instance is None:
        return
    try:
        host = context.connection()
        if host.status().phase is JobPhase.FINISHED:
            host.fetch_logs(context.folder)
            if context.view.outputs_folder is None:
                return
            if error := _place(context, host, host.outputs()).staying:
                raise error
    except (CostGpuError, OSError) as error:
        context.observer.note(f"Outputs that may be on the machine could not be fetched: {error}")
    finally:
        context.disconnect()


def recover_outputs(context: RunContext) -> None:
    """Bring home what a machine that is gone has sent already, or left in the bucket. Never in the way of the end."""
    view, bucket = context.view, context.services.bucket
    if view.collected or view.state not in CAN_DETACH or view.outputs_folder is None:
        return
    try:
        entries = _expected_outputs(context.folder)
        source: OutputSource | None = None
        if view.state is RunState.COLLECTING and entries is not None:
            source = DownloadedOutputs()
        elif bucket is not None and (rescued := bucket.rescue(view, context.folder)) is not None:
            status, entries, source = rescued
            if view.state is RunState.RUNNING:
                context.journal.add(status)
            if status.detail:
                context.observer.note(status.detail)
            if context.for_next:
                return  # the next machine gets it
        if source is not None and entries is not None:
            _record_collected(context, _place(context, source, Outputs(files=entries)).placed, ())
    except (CostGpuError, OSError) as error:
        where = view.spec.bucket or f"{view.outputs_folder}/.costgpu/incoming"
        context.observer.note(f"What is left of the outputs is in {where}: {error}")


def _place(context: RunContext, source: OutputSource, outputs: Outputs) -> Brought:
    """Bring outputs home and tell whoever watches."""
    view = context.view
    home = Path(view.outputs_folder or view.spec.workdir)
    brought = bring_home(source, outputs, home=home, run_id=view.run_id, view=view)
    context.error = context.error or brought.placed.problem
    for remark in brought.remarks:
        context.observer.note(remark)
    return brought


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Outputs that have come home."""

    placed: PlacedOutputs
    remarks: tuple[str, ...]  # sentences for a person
    staying: OutputsMissing | None  # what is only where they came from; None if that is nothing


def bring_home(
    source: OutputSource, outputs: Outputs, *, home: Path, run_id: str, view: RunView | None = None
) -> Brought:
    """Bring outputs into a folder, from wherever they are.

    Raises:
        OutputsDamaged: Something arrived damaged.
        RunError: The folder cannot be written, or there is no space.
        HostUnreachable: The connection was lost. Call again.
    """
    placed = fetch_and_place(source, outputs.files, workdir=home, run_id=run_id, folders=outputs.folders)
    remarks = [_placed_summary(placed, home, run_id, view)]
    if outputs.elsewhere:
        remarks.append(f"Not brought home: {_listed(outputs.elsewhere)}.")
    return Brought(placed=placed, remarks=tuple(remarks), staying=staying_error(outputs, placed))


def _record_collected(
    context: RunContext, placed: PlacedOutputs, missing: Sequence[str], *, kept: bool = False
) -> None:
    context.journal.add(
        Collected(
            kept=kept,
            files=placed.files,
            bytes=placed.bytes,
            replaced=len(placed.replaced),
            stuck=len(placed.stuck),
            missing=tuple(missing),
        )
    )


def staying_error(outputs: Outputs, placed: PlacedOutputs) -> OutputsMissing | None:
    """Return the error for what is on the machine and cannot be read there, or not be kept here; None if nothing is."""
    if outputs.trouble:
        return OutputsMissing(outputs.trouble, hint="--outputs none says that none are expected.")
    staying = {**outputs.unreadable, **placed.left_out}
    if not staying:
        return None
    return OutputsMissing(f"Outputs cannot be brought home: {_listed(staying)}.", hint="All others are home.")


def _listed(paths: Mapping[str, str]) -> str:
    shown = "; ".join(f"{_short(printable_path(path))} ({why})" for path, why in sorted(paths.items())[:_LISTED])
    more = len(paths) - _LISTED
    return f"{shown}{f'; and {more} more' if more > 0 else ''}"


def _short(path: str) -> str:
    return path if len(path) <= _SHOWN else f"{path[: _SHOWN // 2]}...{path[-_SHOWN // 2 :]}"


def _placed_summary(placed: PlacedOutputs, home: Path, run_id: str, view: RunView | None) -> str:
    if view is not None and list(view.spec.outputs) == NO_OUTPUTS:
        return "No outputs are brought home (--outputs none)."
    if not placed.files and not placed.left_out:
        if view is not None and view.spec.outputs:
            return "No outputs: --outputs names nothing that is there."
        return "No outputs: the job has made or changed no files in its working folder, nor beside it."
    files = "1 file" if placed.files == 1 else f"{placed.files} files"
    text = f"{files} ({format_size(placed.bytes)}) came home to {home}."
    if placed.outside:
        text += f" Of these, {placed.outside} lay outside the working folder there: see {placed.outside_folder}/."
    if placed.left_out:
        text += f" Not here: {_listed(placed.left_out)}."
    if placed.replaced:
        text += f" {len(placed.replaced)} that were there are kept in .costgpu/replaced/{run_id}."
    return text


class DownloadedOutputs:
    """An `OutputSource` for a machine that is gone: all of its outputs may be here already."""

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Raise `HostUnreachable` if one is not."""
        for entry in entries:
            if not has_content(folder / entry.path, entry):
                raise HostUnreachable(f"{entry.path} had not arrived when the machine ended")


def _expected_outputs(folder: Path) -> tuple[FileEntry, ...] | None:
    """Return what was coming home when a client was killed; None if that had not begun."""
    try:
        return from_json(tuple[FileEntry, ...], json.loads((folder / "outputs.json").read_text()))
    except (OSError, ValueError, CostGpuError):
        return None
