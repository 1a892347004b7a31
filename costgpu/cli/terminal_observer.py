"""A person who watches a run at a terminal, or reads its log: the engine's observer on stderr and stdout."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import BinaryIO

from costgpu.cli.live_line import LiveLine
from costgpu.clock import Clock
from costgpu.job.drive.context import CAN_DETACH
from costgpu.job.drive.machine import StopSignal
from costgpu.job.state.observer import Answer
from costgpu.models.job import LogStream
from costgpu.models.run import RunState, RunView
from costgpu.providers import registry
from costgpu.render import safe_text

SLOW_SECONDS = 10.0


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
        self._sinks: dict[LogStream, BinaryIO] = {
            LogStream.STDOUT: sys.stderr.buffer if data_to_stderr else sys.stdout.buffer,
            LogStream.STDERR: sys.stderr.buffer,
        }
        self._filters = {
            stream: safe_text.LogFilter() for stream, sink in self._sinks.items() if safe_text.is_terminal(sink)
        }
        self._line = LiveLine(sys.stderr)
        self._closed: set[LogStream] = set()
        self._what, self._since = "", 0.0

    def changed(self, view: RunView) -> None:
        """Print a line for each state that a person cares about."""
        self._line.clear()
        place = "a machine"
        if view.option is not None and view.create_call is not None:
            offer = view.option.offer
            place = f"{offer.provider} {offer.instance_type} in {view.create_call.zone or offer.region}"
            if here := registry.label(offer.provider):
                place = f"a place on {here}"
        collecting = "The job is over; its outputs are coming home"
        if view.interrupted:
            collecting = "The machine is taken back; what the job has made is saved for the next one"
        words = {
            RunState.INTENT: f"Run {view.run_id} ({view.name})",
            RunState.PROVISIONING: f"Asking for {place}",
            RunState.BOOTING: f"Created {view.instance.instance_id if view.instance else ''}; it boots",
            RunState.SYNCING: "It answers; sending the working folder",
            RunState.RUNNING: "The job runs; its output follows",
            RunState.COLLECTING: collecting,
            RunState.TERMINATING: f"Ending {view.instance.instance_id if view.instance else 'what may have been created'}",
            RunState.CLOSED: "",
        }[view.state]
        if words:
            self.note(f"{view.machine_mark}{words}")

    def waiting(self, view: RunView, what: str) -> None:
        """Show a live line with the seconds and cents so far; without a terminal, print a line for what takes long."""
        if not self._line.works:
            now = self.clock.monotonic()
            if what != self._what:
                self._what, self._since = what, now
            elif now - self._since > SLOW_SECONDS:
                self._since = math.inf
                self.note(what)
            return
        seconds, cost = view.metered(self.clock.now())
        money = f"  ${cost:.4f}" if cost else ""
        self._line.show(f"{view.machine_mark}{view.state.value}: {what}  {seconds:.0f} s{money}")

    def output(self, stream: LogStream, data: bytes) -> None:
        """To a terminal without what it would obey, elsewhere unchanged.

        A reader that has gone away, or a full disk, does not end the run.
        """
        if not data or stream in self._closed:
            return
        self._line.clear()
        if stream in self._filters:
            data = self._filters[stream].feed(data)
        try:
            self._sinks[stream].write(data)
            self._sinks[stream].flush()
        except BrokenPipeError:
            self._closed.add(stream)
        except (OSError, ValueError) as error:
            self._closed.add(stream)
            why = getattr(error, "strerror", None) or "it is closed"
            self.note(f"The job's {stream.value} cannot be shown any more ({why}); it is kept with the run.")

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        self._line.clear()
        with contextlib.suppress(OSError, ValueError):  # a terminal that is gone keeps no machine alive
            sys.stderr.write(f"costgpu: {safe_text.escaped(text)}\n")
            sys.stderr.flush()

    def interrupted(self, view: RunView) -> Answer:
        """Asks what Ctrl-C means; without a person it means cancel."""
        self._line.clear()
        if not self.ask:
            return Answer.CANCEL
        try:
            return self._ask(view)
        except OSError:  # the terminal is gone; its SIGHUP says what to do
            return Answer.CONTINUE

    def _ask(self, view: RunView) -> Answer:
        until = f"{view.lease_until:%Y-%m-%d %H:%M} UTC" if view.lease_until else "later"
        started = view.state in CAN_DETACH
        lines = [f"[d]etach: it goes on without you, until {until} at most"] if started else []
        lines.append("[c]ancel: end the job, bring home what there is, end the machine")
        if not started:
            lines = ["[c]ancel: end it all; the job has not started"]
        lines.append("[Enter]: go on" + (" watching" if started else "") + ".   (Ctrl-C again: cancel)  ")
        sys.stderr.write("\ncostgpu: " + "\n         ".join(lines))
        sys.stderr.flush()
        try:
            answer = sys.stdin.readline().strip().lower()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            raise
        if answer.startswith("d") and started:
            return Answer.DETACH
        if answer.startswith("d"):
            self.note("The job has not started, and nobody else would start it; going on.")
        return Answer.CANCEL if answer.startswith("c") else Answer.CONTINUE

    def close(self) -> None:
        """Take the live line away."""
        self._line.clear()


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP become `StopSignal`, except those that are ignored (nohup); yields those that came."""
    came: list[int] = []

    def hang_up(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        raise StopSignal(number)

    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heard = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]
    before = {kind: signal.signal(kind, hang_up) for kind in heard}
    try:
        yield came
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
