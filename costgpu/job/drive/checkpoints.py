"""Checkpoints travel: to this computer while the job runs, and from here to the machine that it goes on on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from costgpu.errors import CostGpuError, HostUnreachable, OutputsDamaged, RunError
from costgpu.job.drive.context import KeptCheckpoints, RunContext
from costgpu.job.files.checkpoint_store import CheckpointStore, newest_path
from costgpu.job.files.selection import FileSelection
from costgpu.job.timeouts import CHECKPOINT_SECONDS, CHECKPOINT_SHARE
from costgpu.models.events import Restored, Saved
from costgpu.models.job import Checkpoint
from costgpu.models.run import RunView
from costgpu.units import format_size

LATEST = "{latest}"
STORE = "checkpoints"  # folder of a job's checkpoints, in the private folder of its first run


def store_of(folder: Path, job_id: str, machine: int = 0) -> CheckpointStore:
    """Return where the checkpoints of a machine of a job are kept.

    Args:
        folder: Private folder of all runs.
    """
    return CheckpointStore(folder / job_id / (f"{STORE}-{machine}" if machine else STORE))


def kept_checkpoints(folder: Path, view: RunView) -> KeptCheckpoints | None:
    """Return what is kept of a run's job; None if that does not go on after interruptions."""
    if view.spec.recovery is None:
        return None
    saves = view.outputs_folder is not None
    lead = store_of(folder, view.job_id)
    own = store_of(folder, view.job_id, view.machine) if saves and not view.is_first_machine else lead
    return KeptCheckpoints(store=own, lead=lead, saves=saves)


def save_when_due(context: RunContext) -> None:
    """Now and then, while the job runs: keeps its newest checkpoint here. With a bucket the machine brings it there."""
    clock = context.clock
    keeping = context.keeping
    if keeping is None or not keeping.saves or clock.monotonic() < keeping.save_at:
        return
    began = clock.monotonic()
    with contextlib.suppress(HostUnreachable):  # the next look at it tells, and the job's end is heard without it
        save_checkpoint(context)
    took = clock.monotonic() - began
    keeping.save_at = clock.monotonic() + max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)


def save_checkpoint(context: RunContext, *, everything: bool = False) -> bool:
    """Keep what is whole on the machine now, or learns what it has in the bucket. What goes wrong is only told.

    Args:
        everything: Whether the outputs belong to it, too: the machine is about to go.

    Returns:
        Whether all that is to be kept of this machine is.

    Raises:
        HostUnreachable: The connection is lost.
    """
    keeping = context.keeping
    if keeping is None or not keeping.saves:
        return True
    try:
        host = context.connection()
        checkpoint = host.checkpoint(everything=everything)
        if checkpoint.trouble:
            context.note_once(f"A checkpoint is not complete: {checkpoint.trouble}")
        if checkpoint.number <= keeping.kept or not checkpoint.files:
            return not checkpoint.trouble
        if not context.view.spec.bucket:
            context.observer.waiting(context.view, f"fetching a checkpoint of {format_size(checkpoint.total_bytes)}")
            # all that there is takes the place of what was whole a moment before: the one before that is to stay
            again = everything and keeping.kept > 0
            keeping.store.keep(checkpoint, host, replaces=again)
    except HostUnreachable:
        raise
    except CostGpuError as error:
        context.note_once(f"A checkpoint could not be fetched: {error.message}")
    except OSError as error:
        context.note_once(f"A checkpoint cannot be kept here: {error.strerror or error}.")
    else:
        keeping.kept = checkpoint.number
        files, size = len(checkpoint.files), checkpoint.total_bytes
        context.journal.add(Saved(taken_at=_taken_at(checkpoint), files=files, bytes=size))
        return not checkpoint.trouble
    return False


def fetch_newer_checkpoint(context: RunContext, last: RunView) -> None:
    """Fetch what a machine has left in the bucket, if that is newer than what is here.

    Args:
        last: The last run of the job on this number of machine.

    Raises:
        ProviderError: The bucket does not answer, or refuses.
        RunError: What is there cannot be kept here.
    """
    bucket, store, observer = context.services.bucket, context.checkpoints.store, context.observer
    if bucket is None:
        return
    newest = store.newest()
    observer.waiting(context.view, "looking for a checkpoint in the bucket")
    try:
        with bucket.checkpoint(
            last, context.services.folder / last.run_id, newest.taken_epoch if newest else 0.0
        ) as there:
            if there is not None:
                store.keep(*there)
    except OutputsDamaged as error:
        observer.note(f"A checkpoint in {last.spec.bucket} cannot be used: {error.message}")
    except OSError as error:
        raise RunError(
            f"A checkpoint in {last.spec.bucket} cannot be kept here: {error.strerror or error}.",
            hint=f"Nothing is billed meanwhile. When that is mended: costgpu attach {context.view.run_id}",
        ) from error


def checkpoint_to_restore(context: RunContext) -> Checkpoint | None:
    """Return what the job goes on from: the newest, or an older one after it has failed as soon as it went on from that."""
    attempt = context.view.spec.attempt
    if context.keeping is None or attempt is None or attempt.index == 0:
        return None
    return context.keeping.lead.newest(attempt.failed_resumes)


def with_checkpoint(context: RunContext, selection: FileSelection) -> FileSelection:
    """Return the files to send, with what the job goes on from put over them; the same for a machine of a first attempt.

    Where each of several machines has saved files of its own, those of machine 0 are put over them: ranks that all save
    under one name go on from one moment.
    """
    checkpoint, keeping = checkpoint_to_restore(context), context.keeping
    if checkpoint is None or keeping is None:
        return selection
    if keeping.store is not keeping.lead and (own := keeping.store.newest()) is not None:
        selection = selection.with_files(own.files, keeping.store.contents)
    return selection.with_files(checkpoint.files, keeping.lead.contents)


def record_restored(context: RunContext) -> None:
    """Record what the job goes on from, once the machine has it."""
    checkpoint = checkpoint_to_restore(context)
    if checkpoint is not None and context.view.restored_from is None:
        context.journal.add(Restored(taken_at=_taken_at(checkpoint), files=len(checkpoint.files)))


def resumed_command(context: RunContext) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the arguments and variables that tell the job that it goes on, and from what; none without recovery."""
    spec = context.view.spec
    if spec.recovery is None or spec.attempt is None:
        return (), {}
    variables = {"COSTGPU_ATTEMPT": str(spec.attempt.number)}
    checkpoint = checkpoint_to_restore(context)
    if checkpoint is None:
        return (), variables
    latest = newest_path(checkpoint, spec.recovery.checkpoints) or "."
    variables["COSTGPU_RESUME"] = latest
    return tuple(word.replace(LATEST, latest) for word in spec.recovery.resume_args), variables


def _taken_at(checkpoint: Checkpoint) -> datetime:
    return datetime.fromtimestamp(checkpoint.taken_epoch, UTC)
