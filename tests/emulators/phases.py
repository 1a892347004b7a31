"""How long the phases of an emulated machine's life last: a test can end one, however long it was to be."""

import threading
import time
from collections.abc import Callable
from typing import Any


class Phases:
    """Settings in seconds, read again and again while a phase lasts."""

    def dwell(self, name: str, share: float = 1.0) -> None:
        """Waits until that many seconds are over, by the setting's value of then."""
        began = time.monotonic()
        while time.monotonic() - began < getattr(self, name) * share:
            time.sleep(0.005)

    def after(self, name: str, action: Callable[..., None], *args: Any) -> None:
        """Runs something after the phase, in a thread of its own."""

        def wait() -> None:
            self.dwell(name)
            action(*args)

        later(0, wait)


def later(seconds: float, action: Callable[..., None], *args: Any) -> None:
    """Runs something in a thread of its own after a while."""
    timer = threading.Timer(seconds, action, args)
    timer.daemon = True
    timer.start()
