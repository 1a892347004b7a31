"""Watches the machine of a trial beside the process that drives its run, and asks its job to end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from costgpu.clock import Clock
from costgpu.errors import CostGpuError, HostKeyMismatch, ProviderError
from costgpu.job.machine.host import Connector, Host, Keys
from costgpu.job.state.observer import Answer, Observer
from costgpu.models.first_run import MachineSighting, Maintenance
from costgpu.models.instance import Instance, InstanceRef
from costgpu.models.job import LogStream
from costgpu.models.run import RunState, RunView
from costgpu.providers.base import HostMaintenance, MaintenanceSimulator, Provider
from costgpu.workflows.first_run.trial_job import LAST_WORDS

BOOT_WORDS = "costgpu: watchdog armed"  # what the boot script says on the console
POLL_SECONDS = 2.0
JOB_SECONDS = 60.0  # for the job's first words
CONSOLE_SECONDS = 120.0  # for the words of the boot script, while the machine is up
MAINTENANCE_SECONDS = 300.0
LATE_CONSOLE_SECONDS = 300.0  # for the last words, once the machine is gone


@dataclass(slots=True)
class MachineWatch:
    """What is seen of one machine. An `Observer` that passes everything on to another one.

    Args:
        provider: Whose machine it is.
        clock: Tells the time, and waits between two looks.
        inner: Shows the run.
        ask_to_end: Asks the job of a run to end, from another thread than the run's own.
    """

    provider: Provider
    clock: Clock
    inner: Observer
    ask_to_end: Callable[[RunView], None]
    answered_at: datetime | None = None
    key_at: datetime | None = None
    foreign_key: bool = False
    boot_words_at: datetime | None = None
    last_words_at: datetime | None = None
    console_end_at: datetime | None = None
    said: bytes = b""
    seen: list[tuple[datetime, MachineSighting]] = field(default_factory=list)
    maintenance: Maintenance | None = None
    stopped: bool = False  # whether somebody has pressed Ctrl-C
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def connector(self, connect: Connector) -> Connector:
        """Connect as `connect` does, and note who has answered when."""

        def attempt(instance: Instance, keys: Keys) -> Host:
            try:
                host = connect(instance, keys)
            except HostKeyMismatch:
                self.answered_at = self.answered_at or self.clock.now()
                self.foreign_key = True
                raise
            self.key_at = self.key_at or self.clock.now()
            self.answered_at = self.answered_at or self.key_at
            return host

        return attempt

    # -- the run, as its driver tells it -----------------------------------------------------------------------------

    def changed(self, view: RunView) -> None:
        """Begin to look on as soon as the job runs."""
        self.inner.changed(view)
        if view.state is RunState.RUNNING and self._thread is None and view.instance is not None:
            self._thread = threading.Thread(target=self._look_on, args=(view, view.instance), daemon=True)
            self._thread.start()

    def waiting(self, view: RunView, what: str) -> None:
        """Pass it on."""
        self.inner.waiting(view, what)

    def output(self, stream: LogStream, data: bytes) -> None:
        """Note when the job has said its last words."""
        self.said += data
        if self.last_words_at is None and LAST_WORDS.encode() in self.said:
            self.last_words_at = self.clock.now()
        self.inner.output(stream, data)

    def note(self, text: str) -> None:
        """Pass it on."""
        self.inner.note(text)

    def interrupted(self, view: RunView) -> Answer:
        """Pass it on; whoever interrupts wants no further machine."""
        self.stopped = True
        return self.inner.interrupted(view)

    # -- the machine, as its provider tells it -----------------------------------------------------------------------

    def _look_on(self, view: RunView, ref: InstanceRef) -> None:
        try:
            self._wait(ref, JOB_SECONDS, lambda: bool(self.said))
            self.boot_words_at = self._on_console(ref, BOOT_WORDS, CONSOLE_SECONDS)
            if isinstance(self.provider, MaintenanceSimulator):
                self.maintenance = self._maintain(self.provider, ref)
        finally:
            with contextlib.suppress(CostGpuError):  # the job then ends by itself, and the machine by its lease
                self.ask_to_end(view)
        while not self._over.is_set():
            self._look(ref)
            self.clock.sleep(POLL_SECONDS)

    def _look(self, ref: InstanceRef) -> None:
        """Note how the provider describes the machine, if that is new."""
        with contextlib.suppress(ProviderError):
            found = self.provider.describe(ref)
            now = MachineSighting(
                seconds=0.0,
                state=found.state.value if found is not None else "unknown",
                words=found.reason if found is not None else "",
                by_guest=found is not None and found.by_guest,
                preempted=found is not None and found.preempted,
            )
            if not self.seen or self.seen[-1][1] != now:
                self.seen.append((self.clock.now(), now))

    def _wait(self, ref: InstanceRef, seconds: float, done: Callable[[], bool], *, late: bool = False) -> bool:
        """Look again and again, at the machine, too; whether it was done in time.

        Args:
            late: Whether to go on after the end of the run.
        """
        until = self.clock.monotonic() + seconds
        while (late or not self._over.is_set()) and self.clock.monotonic() < until:
            with contextlib.suppress(ProviderError):
                if done():
                    return True
            self._look(ref)
            self.clock.sleep(POLL_SECONDS)
        return False

    def _on_console(self, ref: InstanceRef, words: str, seconds: float, *, late: bool = False) -> datetime | None:
        """When the provider's copy of the console had these words; None if not within the time."""
        seen = self._wait(ref, seconds, lambda: words in self.provider.console(ref), late=late)
        return self.clock.now() if seen else None

    def _maintain(self, provider: MaintenanceSimulator, ref: InstanceRef) -> Maintenance:
        """Have the host maintained, and wait until the provider says what has come of it."""
        before = HostMaintenance()
        try:
            before = provider.maintained(ref)
            provider.simulate_maintenance(ref)
        except ProviderError as error:
            limited = before.time_limit is not None
            return Maintenance(time_limit_before=limited, time_limit_after=limited, refusal=error.message)
        told = [before]

        def over() -> bool:
            told.append(provider.maintained(ref))
            return told[-1].over

        if not self._wait(ref, MAINTENANCE_SECONDS, over):  # it may have ended the machine, and with it the run
            with contextlib.suppress(ProviderError):
                over()
        after = told[-1]
        return Maintenance(
            events=after.events[len(before.events) :],
            time_limit_before=before.time_limit is not None,
            time_limit_after=after.time_limit is not None,
        )

    def finish(self, view: RunView | None) -> None:
        """Look a last time, once the run is over; wait for the job's last words on the console if it has said any."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if view is None or view.instance is None:
            return
        self._look(view.instance)
        if self.last_words_at is not None:
            self.inner.note(f"Looking for its last words on the console, {LATE_CONSOLE_SECONDS:.0f} s at most.")
            self.console_end_at = self._late_words(view.instance)

    def _late_words(self, ref: InstanceRef) -> datetime | None:
        if self.boot_words_at is not None:
            with contextlib.suppress(ProviderError):
                if not self.provider.console(ref):
                    return None  # this provider forgets the console with the machine
        return self._on_console(ref, LAST_WORDS, LATE_CONSOLE_SECONDS, late=True)
