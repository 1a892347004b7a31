"""A run's events on their way into the ledger and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from costgpu.clock import Clock
from costgpu.errors import LedgerConflict, LedgerDamaged, LedgerError
from costgpu.job.state.states import IllegalEvent, apply, begin, replay
from costgpu.ledger.codec import to_json
from costgpu.models.events import KINDS, Adopted, Attempted, Event, Intended
from costgpu.models.run import RunEvent, RunView


class EventStore(Protocol):
    """What the engine needs of a ledger."""

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        """Raise `LedgerConflict` if the run already has this sequence number, `LedgerError` if it cannot write.

        What `admit` raises keeps the event out; of two processes at once, one decides after the other.
        """

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        """Return all of a run, in order; empty for an unknown one."""


class RunJournal:
    """The view of one run, kept in step with the ledger.

    Before the machine exists a ledger that cannot be written stops the run. Afterwards it never does: the events
    are kept in memory, the run goes on to its end, and `broken` says what was not written.
    """

    def __init__(self, book: EventStore, clock: Clock, run_id: str) -> None:
        self.book = book
        self.clock = clock
        self.run_id = run_id
        self.ledger_error: LedgerError | None = None
        self._view: RunView | None = None
        self._stale = False

    @property
    def view(self) -> RunView:
        """Return the run as of the last event."""
        if self._stale or self._view is None:
            try:
                self._view = self._read()
            except LedgerError as error:
                if self._view is None or self._view.instance is None:
                    raise
                self.ledger_error = error  # what is known has to do: there is a machine to be ended
            self._stale = False
        return self._view

    def _read(self) -> RunView:
        """Return the view by what the ledger says. Raises `LedgerDamaged` if it has lost something."""
        try:
            found = replay(self.book.events(self.run_id))
        except IllegalEvent as error:
            raise self._damaged(error.message) from error
        if self._view is not None and found.next_sequence < self._view.next_sequence:
            raise self._damaged(f"it has {found.next_sequence} of at least {self._view.next_sequence} events.")
        return found

    def _damaged(self, why: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"The ledger's record of run {self.run_id} is damaged or lost: {why}",
            hint=f"A machine of it is found by its tag: costgpu cancel {self.run_id} ends it, and it ends itself at the end"
            " of its lease.",
        )

    def begin(self, intent: Intended) -> RunView:
        """Write the intent. Raises `LedgerError` if it cannot."""
        row = self._row(0, intent)
        view = begin(row)
        self.book.append(row)
        self._view = view
        return view

    def _row(self, sequence: int, event: Event) -> RunEvent:
        kind = KINDS[type(event)]
        return RunEvent(run_id=self.run_id, sequence=sequence, at=self.clock.now(), kind=kind, data=to_json(event))

    def refresh(self) -> None:
        """Look whether another process has appended."""
        self._stale = self.ledger_error is None

    def add(self, event: Event, admit: Callable[[], None] | None = None, /) -> RunView:
        """Append an event and return the new view.

        Args:
            admit: As `EventStore.append`; None for an event that nobody decides on.

        Raises:
            LedgerConflict: Another process has appended; `view` is up to date again, and the caller looks at it anew.
            LedgerError: Only as long as nothing has been created.
        """
        view = self.view
        row = self._row(view.next_sequence, event)
        after = apply(view, row)
        if self.ledger_error is not None and isinstance(event, Attempted):
            raise self.ledger_error  # a create call that nobody could know of
        if self.ledger_error is None:
            try:
                self.book.append(row) if admit is None else self.book.append(row, admit)
            except LedgerConflict:
                self._stale = True
                raise
            except LedgerError as error:
                if view.instance is None and isinstance(event, Attempted | Adopted):
                    raise
                self.ledger_error = error
        self._view = after
        return after
