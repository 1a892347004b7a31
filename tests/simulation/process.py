"""A process of a client: everything that it calls is counted, takes time, and may be its last."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from costgpu.errors import CostGpuError, Throttled, Unreachable
from costgpu.job.drive.machine import StopSignal
from costgpu.job.timeouts import CONFIRM_SECONDS
from tests.simulation.timeline import NEVER

if TYPE_CHECKING:
    from tests.simulation.schedule import Step
    from tests.simulation.simulation import Simulation

SECONDS = {"ledger": 0.004, "disk": 0.0, "provider": 0.3, "host": 0.1}
"""What a call takes on average, by what is called."""
MOST_CALLS = 40_000
LEASE_OVER = "its lease is over"  # what the runner says to itself when it stops listening for that
MOST_UNANSWERED_SECONDS = CONFIRM_SECONDS + 60.0  # that one provider call may be repeated for a machine


class Killed(BaseException):
    """SIGKILL: nothing of the process happens any more, and what its `finally` blocks call has no effect."""


class Process:
    """One command that somebody has given, on a computer.

    Attributes:
        lost: Ids of the machines that did not answer it the last time.
        discards: Whether somebody has told it to give the outputs up.
        signalled: Whether it has been sent a signal.
        must_not_end: Whether it has left its run on purpose, or only looks at it.
        told_end: Whether it has said why a job does not go on.
    """

    def __init__(self, world: Simulation, number: int, step: Step) -> None:
        self.world, self.number, self.step = world, number, step
        self.name = f"{step.what}#{number}"
        self.calls = 0
        self.dead = self.over = self.told_end = False
        self.lost: set[str] = set()
        self.discards = self.signalled = self.must_not_end = False
        self.cannot_locate = False  # whether the provider did not say, when asked last, where a machine is
        self.began_at = world.timeline.seconds
        self._chance = random.Random(world.schedule.seed * 1000 + number)
        self._fates: dict[tuple[str, bool], list[str]] = {}
        self._by_name: Counter[str] = Counter()
        self._pending: list[str] = []
        self._failing: tuple[str, float] | None = None  # call that gets no answer, since when
        for moment, kind in ((step.dies, "KILL"), *step.signals):
            if moment is not None and moment.call:
                self._fates.setdefault((moment.call, moment.after), []).append(kind)
            elif moment is not None:
                world.timeline.at(self.began_at + moment.seconds, lambda kind=kind: self._pending.append(kind))  # type: ignore[misc]

    def call(self, what: str, subject: str, carry_out: Callable[[], Any]) -> Any:
        """Carries a call out, unless the process is killed before; it hears nothing of it if it is killed right after."""
        if self.dead:
            raise Killed
        self.calls += 1
        self._by_name[what] += 1
        number = str(self.calls), f"{what} {self._by_name[what]}"
        if self.calls > MOST_CALLS:
            self.world.violated("every wait ends", f"{self.name} has made {self.calls} calls")
            self.die(what)
        kind = what.partition(".")[0]
        average = SECONDS[kind] + (self.world.ledger_seconds if kind == "ledger" else 0.0)
        if average:
            self.world.timeline.sleep(average * (0.1 + self._chance.random()))
        if self.number == 1 and self.world.chasers:
            self.world.chased(number[1])
        self._struck(number, False, what)
        try:
            result = carry_out()
        except CostGpuError as error:
            self.world.log(self, what, subject, type(error).__name__)
            if kind == "host" and error.message != LEASE_OVER:
                self.lost.add(subject)
            self.cannot_locate |= what == "provider.describe"
            self._unanswered(what, error)
            self._struck(number, True, what)
            raise
        self.world.log(self, what, subject, "")
        self._failing = None if kind == "provider" else self._failing
        if kind == "host":
            self.lost.discard(subject)
        self.cannot_locate &= what != "provider.describe"
        if average:
            self.world.timeline.sleep(average * 0.9 * self._chance.random())
        self.world.check()
        self._struck(number, True, what)
        return result

    def die(self, what: str) -> None:
        """Now."""
        self.dead = True
        self.world.log(self, what, "", "killed")
        self.world.counts["kills"] += 1
        raise Killed(what)

    def woken(self) -> None:
        """After each wait: what came meanwhile is felt now."""
        if self.dead:
            raise Killed
        if self._pending:
            self._hit(self._pending.pop(0), "waiting")

    def _struck(self, names: tuple[str, str], after: bool, what: str) -> None:
        if not self._fates:
            return
        for name in names:
            for kind in self._fates.pop((name, after), ()):
                self._hit(kind, what)

    def _hit(self, kind: str, what: str) -> None:
        if kind == "KILL":
            self.die(what)
        self.signalled, self._failing = True, None  # whoever answers it begins to wait anew
        self.world.log(self, what, "", f"SIG{kind}")
        self.world.counts[f"signal {kind}"] += 1
        if kind == "INT":
            raise KeyboardInterrupt
        self.world.invariants.told_to_stop(self)
        raise StopSignal(15)

    def _unanswered(self, what: str, error: CostGpuError) -> None:
        """Notes how long one call has been repeated without an answer."""
        if not isinstance(error, (Throttled, Unreachable)):
            return
        now, setting = self.world.timeline.seconds, self.world.schedule.setting
        if self._failing is None or self._failing[0] != what:
            self._failing = what, now
        elif now - self._failing[1] > (most := MOST_UNANSWERED_SECONDS * setting.jobs * setting.nodes):
            self._failing = what, NEVER
            self.world.violated("every wait ends", f"{self.name} repeats {what} for {most:.0f} s and more")


class Remote:
    """Something that a process calls: passes on what it is asked, as calls of the process."""

    def __init__(
        self, process: Process, target: Any, name: str, *, subject: str = "", free: frozenset[str] = frozenset()
    ) -> None:
        self._process, self._target, self._name, self._free = process, target, name, free
        self._subject = subject

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._target, attribute)
        if attribute in self._free or not callable(found):
            return found
        name = f"{self._name}.{attribute}"

        def called(*args: Any, **kwargs: Any) -> Any:
            return self._process.call(name, self._subject, lambda: found(*args, **kwargs))

        self.__dict__[attribute] = called
        return called
