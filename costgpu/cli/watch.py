"""A person who watches a run at a terminal, or reads its log: the engine's observer on stderr and stdout."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from costgpu.job import RunState
from costgpu.runner.engine import Hangup
from costgpu.runner.host import Stream
from costgpu.runner.observer import Answer

if TYPE_CHECKING:
    from types import FrameType

    from rich.status import Status

    from costgpu.clock import Clock
    from costgpu.run import RunView


class Terminal:
    """Shows a run.

    Args:
        clock: For seconds and cents so far.
        data_to_stderr: With ``--json``: stdout is for the document alone.
        ask: Whether somebody is there to answer.
    """

    def __init__(self, clock: Clock, *, data_to_stderr: bool = False, ask: bool | None = None) -> None:
        self.clock = clock
        self.ask = sys.stdin.isatty() and sys.stderr.isatty() if ask is None else ask
        self._sinks: dict[Stream, BinaryIO] = {
            Stream.STDOUT: sys.stderr.buffer if data_to_stderr else sys.stdout.buffer,
            Stream.STDERR: sys.stderr.buffer,
        }
        self._status: Status | None = None
        self._last = ""
        self._closed: set[Stream] = set()

    def changed(self, view: RunView) -> None:
        """A line for each state that a person cares about."""
        self._quiet()
        place = ""
        if view.option is not None and view.attempt is not None:
            offer = view.option.offer
            place = f"{offer.provider} {offer.instance_type} in {view.attempt.zone or offer.region}"
        words = {
            RunState.INTENT: f"Run {view.run_id} ({view.name})",
            RunState.PROVISIONING: f"Asking for {place}",
            RunState.BOOTING: f"Created {view.instance.instance_id if view.instance else ''}; it boots",
            RunState.SYNCING: "It answers; sending the working folder",
            RunState.RUNNING: "The job runs; its output follows",
            RunState.COLLECTING: "The job is over; its outputs are coming home",
            RunState.TERMINATING: f"Ending {view.instance.instance_id if view.instance else 'what may have been created'}",
            RunState.CLOSED: "",
        }[view.state]
        if words:
            self.note(words)

    def waiting(self, view: RunView, what: str) -> None:
        """A live line with the seconds and cents so far; without a terminal, one line for each new thing."""
        seconds, cost = view.metered(self.clock.now())
        if not sys.stderr.isatty():
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(f"{view.state.value}: {what}  {seconds:.0f} s  ${cost:.4f}")

    def output(self, stream: Stream, data: bytes) -> None:
        """Unchanged. A reader that has gone away does not end the run."""
        self._quiet()
        if stream in self._closed:
            return
        try:
            self._sinks[stream].write(data)
            self._sinks[stream].flush()
        except (BrokenPipeError, ValueError):
            self._closed.add(stream)

    def note(self, text: str) -> None:
        """A line on stderr."""
        self._quiet()
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.write(f"costgpu: {text}\n")
            sys.stderr.flush()

    def interrupted(self, view: RunView) -> Answer:
        """Asks what Ctrl-C means; without a person it means cancel."""
        self._quiet()
        if not self.ask:
            return Answer.CANCEL
        until = f"{view.lease_until:%H:%M} UTC" if view.lease_until else "later"
        sys.stderr.write(
            f"\ncostgpu: [d]etach: the run goes on without this terminal, until {until} at most\n"
            "         [c]ancel: end the job, bring home what there is, end the machine\n"
            "         [Enter]: go on watching.   (Ctrl-C again: cancel)  "
        )
        sys.stderr.flush()
        answer = sys.stdin.readline().strip().lower()
        if answer.startswith("d") and view.state in (RunState.RUNNING, RunState.COLLECTING):
            return Answer.DETACH
        if answer.startswith("d"):
            sys.stderr.write("costgpu: the job has not started yet, and nobody else would start it; going on.\n")
        return Answer.CANCEL if answer.startswith("c") else Answer.CONTINUE

    def close(self) -> None:
        """Takes the live line away."""
        self._quiet()

    def _quiet(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM and SIGHUP become `Hangup`, SIGINT a KeyboardInterrupt even where the shell had it ignored."""

    def hang_up(number: int, _frame: FrameType | None) -> None:
        raise Hangup(number)

    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {kind: signal.signal(kind, hang_up) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
