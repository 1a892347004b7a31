"""What the control sides of the emulated clouds, under ``/emu/``, have in common: JSON in, JSON out.

- GET  requests: every API request so far; POST requests: forget them
- POST settings {SOMETHING_seconds: value}; clock {advance_seconds}
- POST faults {faults: [see `faults.Fault`], add: beside those that are there}; kill {see `faults.KillOrder`}
"""

import json
from datetime import timedelta
from typing import Any

from tests.emulators.faults import Fault, FaultInjector, KillOrder
from tests.emulators.wire import Reply

_JSON = [("Content-Type", "application/json")]


class ControlSide:
    """Answers requests: ``POST power-off`` is the method `_post_power_off`."""

    def __init__(self, state: Any, faults: FaultInjector) -> None:
        self._state, self._faults = state, faults

    def answer(self, method: str, what: str, body: bytes) -> Reply:
        """One request; an unknown one is a 404, a wrong one a 400 with the reason."""
        handler = getattr(self, f"_{method.lower()}_{what.replace('-', '_')}", None)
        if handler is None:
            return Reply("404 Not Found", _JSON, b'{"error": "no such control"}')
        try:
            answer = handler(**json.loads(body or b"{}"))
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            return Reply("400 Bad Request", _JSON, json.dumps({"error": repr(error)}).encode())
        return Reply("200 OK", _JSON, json.dumps(answer).encode())

    def _get_requests(self) -> list[dict[str, Any]]:
        return list(self._faults.recorded)

    def _post_requests(self) -> None:
        self._faults.recorded = []

    def _post_settings(self, **values: float) -> None:
        for name, value in values.items():
            if not name.endswith("_seconds") or not hasattr(self._state, name):
                raise KeyError(name)
            setattr(self._state, name, float(value))

    def _post_clock(self, advance_seconds: float) -> str:
        self._state.ahead += timedelta(seconds=advance_seconds)
        now: str = self._state.now().isoformat()
        return now

    def _post_faults(self, faults: list[dict[str, Any]], add: bool = False) -> None:
        self._faults.faults = [*(self._faults.faults if add else ()), *(Fault(**fault) for fault in faults)]

    def _post_kill(self, **order: Any) -> None:
        self._faults.kills.append(KillOrder(**order))
