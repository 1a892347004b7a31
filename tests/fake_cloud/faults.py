"""Scripted faults, places without capacity, and the record of every call."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from costgpu.errors import NoCapacity
from costgpu.models.instance import CreateRequest

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that a client made."""

    at: float  # seconds on the cloud's time line
    method: str  # of the provider or host: ``create``, ``describe``, ``connect``, ``install``, ``fetch_file``, ...
    subject: str  # token, instance id, run id or path
    error: str = ""  # name of the class of the error that the client saw; empty if there was none


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    method: str  # name of the call, or `ANY`
    # raised to the client; None raises nothing. Any exception, also one that stands for the client's death.
    error: BaseException | None = None
    after: bool = False  # raise it after the call was carried out (a lost reply), not instead of it
    without_effect: bool = False  # answer as if it had been carried out, and do nothing
    delay_seconds: float = 0.0  # time that passes first
    skip: int = 0  # matching calls that it lets pass before
    times: int = 1  # how often it strikes
    subject: str | None = None  # only calls about this token, instance, run or path; None for all


class Faults:
    """The faults that are still to come."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self.on_call: Callable[[str, str], None] | None = None

    def next(self, method: str, **how: Any) -> None:
        """Plans a fault for the next call of a method (or of any, with ``*``); see `Fault` for the arguments."""
        self._planned.append(Fault(method=method, **how))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._planned.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """What has not struck yet."""
        return tuple(self._planned)

    def take(self, method: str, subject: str) -> Fault | None:
        """The fault that strikes this call, if one does."""
        if self.on_call is not None:
            self.on_call(method, subject)
        struck: Fault | None = None
        for index, fault in enumerate(self._planned):
            if fault.method not in (ANY, method) or fault.subject not in (None, subject):
                continue
            if fault.skip > 0:
                self._planned[index] = replace(fault, skip=fault.skip - 1)
            elif struck is None:
                struck = fault
                self._planned[index] = replace(fault, times=fault.times - 1)
        self._planned = [fault for fault in self._planned if fault.times > 0]
        return struck


@dataclass(kw_only=True)
class CapacityRule:
    """No such machine there; None means any."""

    region: str | None = None  # where
    zone: str | None = None  # where exactly
    times: int | None = None  # how many requests are refused; None for all
    skip: int = 0  # how many requests it lets pass before

    def refuses(self, request: CreateRequest, zone: str) -> bool:
        """Whether this request is refused in this zone."""
        return self.times != 0 and self.region in (None, request.offer.region) and self.zone in (None, zone)


def first_with_capacity(rules: Iterable[CapacityRule], request: CreateRequest, zones: Iterable[str]) -> str:
    """The first of the zones that has such a machine.

    Raises:
        NoCapacity: None has.
    """
    refused = "no zone"
    for zone in zones:
        rule = next((rule for rule in rules if rule.refuses(request, zone)), None)
        if rule is not None and rule.skip > 0:
            rule.skip -= 1
            rule = None
        if rule is None:
            return zone
        if rule.times is not None:
            rule.times -= 1
        refused = zone
    raise NoCapacity(f"The fake cloud has no {request.offer.instance_type} in {refused} now.")
