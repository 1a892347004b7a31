"""Waiting for something that happens in another process or thread."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 60.0) -> T:
    """Returns what the condition says as soon as it holds; fails after a time that no success ever takes."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found
