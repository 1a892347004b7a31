"""A run's events on their way into the ledger and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from costgpu.clock import Clock
from costgpu.errors import LedgerConflict, LedgerDamaged, LedgerError
from costgpu.job.state.states import IllegalEvent, apply, begin, replay
from costgpu.models.run import EventKind, RunEvent, RunState, RunView


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

    def begin(self, data: Mapping[str, Any]) -> RunView:
        """Write the intent. Raises `LedgerError` if it cannot."""
        event = RunEvent(run_id=self.run_id, sequence=0, at=self.clock.now(), kind=EventKind.INTENDED, data=data)
        view = begin(event)
        self.book.append(event)
        self._view = view
        return view

    def refresh(self) -> None:
        """Look whether another process has appended."""
        self._stale = self.ledger_error is None

    def add(self, kind: EventKind, admit: Callable[[], None] | None = None, /, **data: Any) -> RunView:
        """Append an event and return the new view.

        Args:
            admit: As `EventStore.append`; None for an event that nobody decides on.

        Raises:
            LedgerConflict: Another process has appended; `view` is up to date again, and the caller looks at it anew.
            LedgerError: Only as long as nothing has been created.
        """
        view = self.view
        event = RunEvent(run_id=self.run_id, sequence=view.next_sequence, at=self.clock.now(), kind=kind, data=data)
        after = apply(view, event)
        if self.ledger_error is not None and kind is EventKind.ATTEMPTED:
            raise self.ledger_error  # a create call that nobody could know of
        if self.ledger_error is None:
            try:
                self.book.append(event) if admit is None else self.book.append(event, admit)
            except LedgerConflict:
                self._stale = True
                raise
            except LedgerError as error:
                if view.state is RunState.INTENT and kind is EventKind.ATTEMPTED:
                    raise
                self.ledger_error = error
        self._view = after
        return after
