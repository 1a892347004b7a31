"""Scripted faults, and the record of every call."""

from collections.abc import Callable
from dataclasses import dataclass, replace

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that a client made.

    Attributes:
        at: Seconds on the cloud's time line.
        method: Of the provider or host: ``create``, ``describe``, ``connect``, ``install``, ``fetch_file``, ...
        subject: Token, instance id, run id or path.
        error: Name of the class of the error that the client saw; empty if there was none.
        took_effect: False if the fault kept the call from being carried out.
    """

    at: float
    method: str
    subject: str
    error: str = ""
    took_effect: bool = True


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        method: Name of the call, or `ANY`.
        error: Raised to the client; None raises nothing. Any exception, also one that stands for the client's death.
        after: Raise it after the call was carried out (a lost reply), not instead of it.
        without_effect: Answer as if it had been carried out, and do nothing.
        delay_seconds: Time that passes first.
        skip: Matching calls that it lets pass before.
        times: How often it strikes.
        subject: Only calls about this token, instance, run or path; None for all.
    """

    method: str
    error: BaseException | None = None
    after: bool = False
    without_effect: bool = False
    delay_seconds: float = 0.0
    skip: int = 0
    times: int = 1
    subject: str | None = None


class Faults:
    """The faults that are still to come."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self.on_call: Callable[[str, str], None] | None = None

    def next(
        self,
        method: str,
        *,
        error: BaseException | None = None,
        after: bool = False,
        without_effect: bool = False,
        delay_seconds: float = 0.0,
        skip: int = 0,
        times: int = 1,
        subject: str | None = None,
    ) -> None:
        """Plans a fault for the next call of a method (or of any, with ``*``); see `Fault` for the arguments."""
        self._planned.append(
            Fault(
                method=method,
                error=error,
                after=after,
                without_effect=without_effect,
                delay_seconds=delay_seconds,
                skip=skip,
                times=times,
                subject=subject,
            )
        )

    def nth(self, number: int, *, error: BaseException, after: bool = False) -> None:
        """Plans an error for the `number`-th call from now on, the next one being 1, whatever it is."""
        self.next(ANY, error=error, after=after, skip=number - 1)

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
