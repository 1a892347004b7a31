"""What the engine tells whoever watches, and what it asks."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from costgpu.models.job import LogStream
from costgpu.models.run import RunView


class Answer(StrEnum):
    """To Ctrl-C."""

    CONTINUE = "continue"
    DETACH = "detach"
    CANCEL = "cancel"


class Observer(Protocol):
    """Somebody who watches a run."""

    def changed(self, view: RunView) -> None:
        """Note that the state has changed."""

    def waiting(self, view: RunView, what: str) -> None:
        """Note that the engine waits for something; called about once a second."""

    def output(self, stream: LogStream, data: bytes) -> None:
        """Take what the job wrote, unchanged."""

    def note(self, text: str) -> None:
        """Something that a person should know."""

    def interrupted(self, view: RunView) -> Answer:
        """Ctrl-C was pressed. A second one while this asks is a `KeyboardInterrupt`, and means cancel."""


class NullObserver:
    """Watches nothing; Ctrl-C cancels."""

    def changed(self, _view: RunView) -> None:
        """Nothing."""

    def waiting(self, _view: RunView, what: str) -> None:
        """Nothing."""

    def output(self, stream: LogStream, data: bytes) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def interrupted(self, _view: RunView) -> Answer:
        """Cancel."""
        return Answer.CANCEL
