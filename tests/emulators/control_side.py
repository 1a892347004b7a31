"""What the control sides of the emulated clouds, under ``/emu/``, have in common: JSON in, JSON out."""

import json
from datetime import timedelta
from typing import Any

from tests.emulators.faults import Fault, FaultInjector
from tests.emulators.wire import Reply

_JSON = [("Content-Type", "application/json")]


class ControlSide:
    """Its public methods are what a test can ask and order: ``POST power_off`` with arguments is `power_off`."""

    def __init__(self, state: Any, faults: FaultInjector) -> None:
        self._state, self._faults = state, faults

    def _answer(self, verb: str, body: bytes) -> Reply:
        """One request; an unknown one is a 404, a wrong one a 400 with the reason."""
        method = None if verb.startswith("_") else getattr(self, verb, None)
        if method is None:
            return Reply("404 Not Found", _JSON, b'{"error": "no such control"}')
        given, named = json.loads(body)
        try:
            answer = method(*given, **named)
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            return Reply("400 Bad Request", _JSON, json.dumps({"error": repr(error)}).encode())
        return Reply("200 OK", _JSON, json.dumps(answer).encode())

    def requests(self) -> list[dict[str, Any]]:
        """Every API request since the last `forget_requests`."""
        return list(self._faults.recorded)

    def forget_requests(self) -> None:
        self._faults.recorded = []

    def settings(self, **values: float) -> None:
        """How long phases last, such as `pending_seconds`."""
        for name, value in values.items():
            if not name.endswith("_seconds") or not hasattr(self._state, name):
                raise KeyError(name)
            setattr(self._state, name, float(value))

    def advance(self, seconds: float) -> None:
        """The cloud's clock (not its guests') goes on."""
        self._state.ahead += timedelta(seconds=seconds)

    def fault(self, *faults: dict[str, Any], add: bool = False) -> None:
        """Replaces the faults, or adds to them; see `faults.Fault`."""
        self._faults.faults = [*(self._faults.faults if add else ()), *(Fault(**fault) for fault in faults)]

    def release(self, access_key: str) -> None:
        """Let the requests of somebody go on that a fault holds."""
        for fault in self._faults.faults:
            if fault.access_key == access_key:
                fault.released.set()
