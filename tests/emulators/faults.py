"""What is made to go wrong: refusals, lost replies, hanging, a killed client, expired credentials.

Everything is counted, so that a test can first count the requests of a journey and then break it at each of them.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costgpu.portable.processes import process
from tests.emulators.wire import ApiCall, Reply, refusal

_EXPIRED = {"ec2": "RequestExpired", "sts": "ExpiredToken", "s3": "ExpiredToken", "iam": "ExpiredToken"}


Refuse = Callable[[ApiCall, str, str, int | None], Reply]


class LostReply(ConnectionError):
    """The connection ends without an answer."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with requests of these properties (empty: of any)."""

    action: str = "*"  # such as RunInstances
    times: int = 1  # how often; -1 for ever
    skip: int = 0  # matching requests that pass before the first one that fails
    when: str = "before"  # nothing is executed, or "after": it is executed, and then the fault comes
    code: str = ""  # of the refusal; empty for none
    message: str = "injected"
    status: int | None = None  # None for what the cloud uses with that code
    drop: bool = False  # the connection is closed instead of an answer
    hang_seconds: float = 0.0  # wait first
    region: str = ""
    service: str = ""
    access_key: str = ""

    def concerns(self, call: ApiCall) -> bool:
        return (
            self.action in ("*", call.action)
            and self.region in ("", call.region)
            and self.service in ("", call.service)
            and self.access_key in ("", call.access_key)
        )


@dataclass(slots=True, kw_only=True)
class KillOrder:
    """SIGKILL for a client process at its `at`-th request from now (1 is the next), before or after it is executed.

    Only requests with this access key and action count (empty: all). With `series`, a request that is the same as the
    one before it does not count: those that only wait.
    """

    pid: int
    at: int
    when: str = "before"
    access_key: str = ""
    action: str = ""
    series: bool = False
    seen: int = 0
    last: tuple[str, dict[str, Any]] | None = None

    def reached(self, call: ApiCall) -> bool:
        """Counts a request; whether it is the one."""
        if self.access_key not in ("", call.access_key) or self.action not in ("", call.action):
            return False
        before, self.last = self.last, (call.name, dict(call.params))
        if self.series and before == self.last:
            return False
        self.seen += 1
        return self.seen == self.at

    def kill_client(self) -> None:
        """Kills; the process may be gone already."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and process(self.pid) is not None:
            time.sleep(0.002)


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
        """Forgets faults, orders and what was recorded."""
        with self._lock:
            self.faults: list[Fault] = []
            self.kills: list[KillOrder] = []
            self.expired: set[str] = set()
            self.recorded: list[dict[str, Any]] = []

    def record(self, call: ApiCall) -> tuple[dict[str, Any], KillOrder | None]:
        """Writes the request down; returns the row, and the kill order if this is the request that it is for."""
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
            order = next((each for each in list(self.kills) if each.reached(call)), None)
            if order is not None:
                self.kills.remove(order)
            return row, order

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
