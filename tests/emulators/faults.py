"""What is made to go wrong: refusals, lost replies, hanging, expired credentials."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.wire import ApiCall, Reply, refusal

_EXPIRED = {"ec2": "RequestExpired", "sts": "ExpiredToken", "s3": "ExpiredToken", "iam": "ExpiredToken"}
MOST_HELD_SECONDS = 60.0

Refuse = Callable[[ApiCall, str, str, int | None], Reply]


class LostReply(ConnectionError):
    """The connection ends without an answer."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with requests of these properties (empty: of any)."""

    action: str = "*"  # such as RunInstances, which is not its dry run, RunInstances?
    times: int = 1  # how often; -1 for ever
    skip: int = 0  # matching requests that pass before the first one that fails
    when: str = "before"  # nothing is executed, or "after": it is executed, and then the fault comes
    code: str = ""  # of the refusal; empty for none
    message: str = "injected"
    status: int | None = None  # None for what the cloud uses with that code
    drop: bool = False  # the connection is closed instead of an answer
    hang_seconds: float = 0.0  # wait first
    held: bool = False  # wait first, until it is released
    released: threading.Event = field(default_factory=threading.Event, init=False)
    region: str = ""
    service: str = ""
    access_key: str = ""

    def concerns(self, call: ApiCall) -> bool:
        return (
            self.action in ("*", call.name.partition(":")[2])
            and self.region in ("", call.region)
            and self.service in ("", call.service)
            and self.access_key in ("", call.access_key)
        )


class FaultInjector:
    """All of it, for one emulated cloud.

    Args:
        refuse: Makes the answer that says no, in the cloud's own form.
    """

    def __init__(self, refuse: Refuse = refusal) -> None:
        self._lock = threading.Lock()
        self._refuse = refuse
        self.clear()

    def clear(self) -> None:
        """Forgets faults and what was recorded."""
        with self._lock:
            self.faults: list[Fault] = []
            self.expired: set[str] = set()
            self.recorded: list[dict[str, Any]] = []

    def record(self, call: ApiCall) -> dict[str, Any]:
        """Writes the request down; returns the row."""
        row = {
            "service": call.service,
            "action": call.action,
            "name": call.name,
            "region": call.region,
            "access_key": call.access_key,
            "params": dict(call.params),
            "status": None,
        }
        with self._lock:
            self.recorded.append(row)
        return row

    def before(self, call: ApiCall) -> tuple[Reply | None, Fault | None]:
        """What happens instead of the request, and the fault that is still to come after it."""
        if call.access_key in self.expired:
            code = _EXPIRED.get(call.service, "ExpiredTokenException")
            return refusal(call, code, "The provided token has expired.", 400 if call.service == "s3" else 403), None
        fault = self._next(call)
        if fault is None:
            return None, None
        if fault.hang_seconds:
            time.sleep(fault.hang_seconds)
        if fault.held:
            fault.released.wait(MOST_HELD_SECONDS)
        if fault.when == "after":
            return None, fault
        return self._answer(call, fault), None

    def after(self, call: ApiCall, fault: Fault, reply: Reply) -> Reply:
        """What happens after the request was executed."""
        return self._answer(call, fault) or reply

    def _next(self, call: ApiCall) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times == 0 or not fault.concerns(call):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1 if fault.times > 0 else 0
                return fault
        return None

    def _answer(self, call: ApiCall, fault: Fault) -> Reply | None:
        if fault.drop:
            raise LostReply(f"{call.name}: the reply is lost")
        return self._refuse(call, fault.code, fault.message, fault.status) if fault.code else None
