"""One event loop in one background thread, for all connections of this process. Imports nothing of ours."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_EXIT_SECONDS = 1.0


class BackgroundLoop:
    """Runs coroutines for threads that wait for them."""

    def __init__(self) -> None:
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="costgpu-transport", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the coroutine; its result may be waited for in any other thread. Cancelled at once after `stop`."""
        if self._stopped:
            coroutine.close()
            never: Future[T] = Future()
            never.cancel()
            return never
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Cancel what still runs, let it clean up for a moment, and end the thread."""
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                self.submit(self._cancel_all()).result(_EXIT_SECONDS)
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_EXIT_SECONDS)

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_shared: BackgroundLoop | None = None
_lock = threading.Lock()


def shared() -> BackgroundLoop:
    """Return the one loop of this process, started on first use."""
    global _shared  # noqa: PLW0603 - one per process is the point
    with _lock:
        if _shared is None:
            _shared = BackgroundLoop()
            atexit.register(_shared.stop)
        return _shared


def _forget() -> None:
    """After a fork the child has no such thread: it starts its own."""
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
