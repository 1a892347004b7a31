"""What a job has written: the logs of a machine, or of a single rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from costgpu.errors import CostGpuError, RunError, UsageError
from costgpu.job.find_run import runs_of_job
from costgpu.job.machine.host import LogPosition
from costgpu.job.state.observer import Observer
from costgpu.models.run import RunView
from costgpu.portable.files import open_regular
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.find_run import connection, run_and_machine

LOGS = ("stderr.log", "stdout.log")


@dataclass(frozen=True, slots=True)
class KeptLogs:
    """Logs of one machine that are on this computer."""

    run_id: str
    folder: Path
    title: str  # which machine of several this is; empty if there is one

    @property
    def files(self) -> list[Path]:
        """Return those that are there."""
        return [self.folder / name for name in LOGS if (self.folder / name).is_file()]


def fetch_logs(context: AppContext, text: str) -> KeptLogs:
    """Return the logs of a run, fetched from its machine as long as that has more than what is here.

    Raises:
        RunError: There is no machine yet.
    """
    view, instance = run_and_machine(context, text)
    run_id = view.run_id if view is not None else instance.run_id if instance else ""
    kept = KeptLogs(run_id, context.tools.folder / run_id, _title(view))
    if view is not None and (view.collected or instance is None or not instance.state.alive):
        return kept
    if instance is None:
        raise RunError(f"Run {run_id} has no machine yet.", hint="costgpu jobs shows how far it is.")
    with connection(context, instance) as host:
        host.fetch_logs(kept.folder)
    return kept


@dataclass(frozen=True, slots=True)
class Logs:
    """What a job has written, as text."""

    run_id: str
    stdout: str
    stderr: str


def read_logs(kept: KeptLogs, rank: int | None = None) -> Logs:
    """Return logs that are on this computer, of one rank if there are several.

    Raises:
        RunError: There are none.
    """
    if not kept.files:
        raise no_logs(kept)
    texts = {}
    for name in LOGS:
        path = kept.folder / name
        data = b""
        if path in kept.files:
            with open_regular(path) as file:
                data = file.read() if rank is None else b"".join(lines_of_rank(file, rank))
        texts[name] = data.decode("utf-8", "replace")
    return Logs(kept.run_id, stdout=texts["stdout.log"], stderr=texts["stderr.log"])


def no_logs(kept: KeptLogs) -> RunError:
    """Return the error for a run without logs on this computer."""
    return RunError(
        f"Run {kept.run_id} has left no logs here.", hint="They are downloaded with the outputs; see costgpu jobs."
    )


def follow_logs(context: AppContext, text: str, observer: Observer) -> bool:
    """Show what a job writes until it is over; return False if its machine has nothing to show any more."""
    view, instance = run_and_machine(context, text)
    if instance is None or not instance.state.alive or (view is not None and view.collected):
        return False
    with connection(context, instance) as host:
        host.follow(LogPosition(), observer.output)
    return True


def fetch_all_logs(context: AppContext, text: str) -> Iterator[KeptLogs]:
    """Yield the logs of all machines of a run's job, one after the other.

    One that cannot be had is named and passed over.
    """
    view, _ = run_and_machine(context, text)
    if view is None:
        yield fetch_logs(context, text)
        return
    for one in runs_of_job(context.ledger, view):
        try:
            yield fetch_logs(context, one.run_id)
        except CostGpuError as error:
            context.reporter.note(f"{_title(one) or one.run_id}: {error.message}", error.hint)


def machine_of_rank(context: AppContext, text: str, rank: int) -> str:
    """Return the run whose machine has a rank.

    Raises:
        UsageError: The job has no such rank.
    """
    view, _ = run_and_machine(context, text)
    several = view is not None and view.has_peers
    views = runs_of_job(context.ledger, view) if view is not None and several else ()
    ranks = len(views) * views[0].ranks_per_node if views else 1
    if not 0 <= rank < ranks:
        raise UsageError(f"The job has no rank {rank}: it has {ranks}, from 0.")
    if len(views) < 2:
        raise UsageError(
            "What the ranks of one machine write is in one log.", hint="Leave --rank out; it is for --nodes 2 or more."
        )
    return views[rank // views[0].ranks_per_node].run_id


def lines_of_rank(lines: Iterable[bytes], rank: int) -> Iterator[bytes]:
    """Yield the lines that torchrun has marked with a rank, without the mark; all of them where none is marked."""
    mark, marked, held = b"[rank%d]:" % rank, False, []
    for line in lines:
        if line.startswith(mark):
            yield line[len(mark) :]
            marked = True
        elif line.startswith(b"[rank"):
            marked = True
        elif not marked:
            held.append(line)
        if marked:
            held.clear()
    yield from held


def _title(view: RunView | None) -> str:
    if view is None or not view.has_peers:
        return ""
    if view.spec.launcher.runs_once:
        return f"machine {view.machine}, run {view.run_id}"
    first, last = view.first_rank, view.first_rank + view.ranks_per_node - 1
    ranks = f"rank {first}" if first == last else f"ranks {first}-{last}"
    return f"machine {view.machine}, {ranks}, run {view.run_id}"
