"""Drives a job on several machines: one run for each, taken forward together by one process.

Each machine has a run of its own, with its own call, lease, tags and record, so that whatever ends one machine ends each
of these. What is added here is that all of them live together: the next phase begins when all have come to it, and
what ends one ends all. Machine 0 is first to be created and last to be cleaned up after: it owns what they share.

One file of more than 400 lines: the order of these steps is one decision, and is read as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from costgpu.errors import (
    AuthError,
    CostGpuError,
    InstanceLost,
    LedgerError,
    NodesApart,
    RunCancelled,
    TerminationUnconfirmed,
)
from costgpu.job.drive import boot, follow, node
from costgpu.job.drive.context import CAN_DETACH, Detached, RunContext, retry_on_conflict
from costgpu.job.drive.loop import Driver, StopSignal, advance
from costgpu.job.drive.node import ENDING
from costgpu.job.end_instance import request_termination
from costgpu.job.state.observer import Answer
from costgpu.job.timeouts import PEER_POLL_SECONDS, PEER_SECONDS, RECONNECT_SECONDS, TOUCH_SECONDS
from costgpu.models.job import EndReason, Launcher, OutputsFrom
from costgpu.models.run import EndedBy, RunState, RunView

ASKING = (RunState.INTENT, RunState.PROVISIONING)
UNSTARTED = (*ASKING, RunState.BOOTING, RunState.SYNCING)


class PeersChanged(Exception):
    """Another machine of the job has ended, or its job has."""


@dataclass(slots=True)
class GroupDriver:
    """Takes the runs of one job forward; there is one at a time.

    Attributes:
        drivers: One for each machine, by its number.
    """

    drivers: Sequence[Driver]
    stopping: bool = False  # whether somebody has asked for the end, though nothing was left to be ended
    _installed: set[int] = field(default_factory=set)  # machines that this process has found, or started, an agent on
    _sent: set[int] = field(default_factory=set)  # machines that this process has sent the files to
    _touch_at: float = 0.0  # from then on, monotonic, machines that wait are asked again how they are
    _asked: set[int] = field(default_factory=set)  # machines whose job was asked to end, because of another one
    _requested: set[int] = field(default_factory=set)  # machines whose end was asked for ahead of its turn
    _failed_since: float | None = None  # monotonic; None as long as no job has failed
    _peers_at: float = 0.0  # from then on, monotonic, the others are asked again
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        services = self.context.services
        chosen = cache(lambda: services.select(self.view))  # read and hashed once, whatever the number of machines
        for driver in self.drivers:
            driver.context.services = replace(services, select=lambda _: chosen())

    @property
    def view(self) -> RunView:
        """Return the run of machine 0, which stands for the job."""
        return self.drivers[0].view

    @property
    def views(self) -> tuple[RunView, ...]:
        """Return all runs, by number of the machine."""
        return tuple(driver.view for driver in self.drivers)

    @property
    def machines(self) -> Sequence[Driver]:
        """Return the drivers of what may have a machine: all."""
        return self.drivers

    @property
    def context(self) -> RunContext:
        """Context of machine 0."""
        return self.drivers[0].context

    @property
    def error(self) -> CostGpuError | None:
        """Return what the command line ends with; None for the exit code of the job."""
        drivers = self.drivers[:1] if self._succeeded_with_fewer else self.drivers
        found = [driver.error for driver in drivers if driver.error is not None]
        causes = [error for error in found if not isinstance(error, NodesApart | RunCancelled)]
        return next(iter(causes or found), None)

    @property
    def ledger_error(self) -> LedgerError | None:
        """Return why the ledger could not be written; None if it could."""
        return next((driver.ledger_error for driver in self.drivers if driver.ledger_error is not None), None)

    def leave_when_running(self) -> None:
        """Leave the job as soon as it runs."""
        for driver in self.drivers:
            driver.leave_when_running()

    @property
    def decisive(self) -> RunView:
        """Return the run that tells how the job has ended: the one that failed first, or was missing.

        Else that of machine 0.
        """
        if self._succeeded_with_fewer:
            return self.view
        missing = next((view for view in self.views if node.is_missing(view)), None)
        failed = self.first_failed
        if failed is not None and (missing is None or failed.reason is not EndReason.CANCELLED):
            return failed
        return missing or self.view

    @property
    def _succeeded_with_fewer(self) -> bool:
        """Return whether the job has ended well, though a machine of it is gone.

        Under torchrun and its like machine 0 ends well only if all ranks do that were still needed.
        """
        view, spec = self.view, self.view.spec
        well = view.status is not None and view.status.ended_well
        together = spec.launcher is not Launcher.NONE and spec.outputs_from is OutputsFrom.RANK_0
        return well and (spec.min_nodes > 0 or (together and self.first_failed is None))

    @property
    def first_failed(self) -> RunView | None:
        """Return the run whose job failed first, by the machines' clocks; None if none did."""
        failed = [view for view in self.views if node.has_failed(view)]
        return min(failed, key=node.finished_at, default=None)

    def drive(self) -> RunView:
        """Take all runs to their end and return that of machine 0.

        Raises:
            Detached: The user left on purpose, or a detached run was asked for.
            TerminationUnconfirmed: A machine may be billing.
            CostGpuError: The driver cannot go on, but the machines can; the hint says how to come back.
        """
        try:
            advance(
                self._step,
                lambda: all(view.state is RunState.CLOSED for view in self.views),
                interrupted=self._interrupted,
                stopped=self._stopped,
                turn=lambda act: act(),
            )
        except TerminationUnconfirmed:
            raise
        except CostGpuError as error:
            self._end_unstarted(error)
            raise
        finally:
            with contextlib.suppress(KeyboardInterrupt, StopSignal):
                for driver in self.drivers:
                    driver.context.disconnect()
        return self.view

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if len(self.drivers) < self.view.spec.nodes:  # its client was killed: there will never be all machines
            lost = NodesApart("The client was gone before all machines of the job were recorded.", hint="Run it again.")
            for driver in self._in(*UNSTARTED):
                _end(driver, EndReason.UNCLAIMED, lost)
        elif self._lacks_machine():
            self._end_others()
        self._keep_in_touch()
        if asking := self._in(*ASKING):
            self._provision(asking[0])
        elif bare := [
            driver for driver in self._in(RunState.SYNCING) if node.number(driver.view) not in self._installed
        ]:
            _act(bare[0], self._install)
        elif booting := self._in(RunState.BOOTING):
            _take_step(booting[0])
        elif unsent := [driver for driver in self._in(RunState.SYNCING) if node.number(driver.view) not in self._sent]:
            _act(unsent[0], self._send)
        elif syncing := self._in(RunState.SYNCING):
            self._start(syncing)
        elif collecting := self._in(RunState.COLLECTING):
            self._collect(collecting)
        elif running := self._in(RunState.RUNNING):
            self._follow(running)
        else:
            self._terminate()

    def _in(self, *states: RunState) -> list[Driver]:
        return [driver for driver in self.drivers if driver.view.state in states]

    def _lacks_machine(self) -> bool:
        """Return whether a machine has ended, or is to end, that the others cannot do without."""
        ended = [view for view in self.views if node.is_missing(view)]
        if not ended or all(view.state in (*ENDING, RunState.COLLECTING) for view in self.views):
            return False
        least = self.view.spec.min_nodes
        left = len(self.drivers) - len(ended)
        if least and left >= least and not node.is_missing(self.view):
            lost = ", ".join(node.name(view) for view in ended)
            self._tell(f"{lost} is gone; torchrun goes on with {left} machines.")
            return False
        return True

    def _end_others(self) -> None:
        """All or nothing: what cannot start is ended, and a job that runs is asked to end and to save what it has."""
        ended = next(view for view in self.views if node.is_missing(view))
        why = f"{node.name(ended)} {node.what_happened(ended)}"
        if not self.context.cancelling:
            self._tell(f"{why}; the others are ended, too.")
        lost = NodesApart(f"{why}.", hint="All machines of a job are needed: see why it is missing.")
        error = None if ended.reason is EndReason.CANCELLED or self.error is not None else lost
        for driver in self._in(*UNSTARTED):
            _end(driver, EndReason.NODE_LOST, error)
        if self._failed_since is None:
            self._failed_since = self.context.clock.monotonic()
        for driver in self._in(RunState.TERMINATING):
            self._request_end(driver)

    def _request_end(self, driver: Driver) -> None:
        """Ask for a machine's end at once; that it has come is confirmed when it is its turn."""
        number, view = node.number(driver.view), driver.view
        if number in self._requested or view.instance is None or view.confirmed_at is not None:
            return
        self._requested.add(number)
        with contextlib.suppress(CostGpuError):
            request_termination(driver.context.provider(), view.instance, driver.context.clock)

    def _provision(self, driver: Driver) -> None:
        first = self.drivers[0]
        if driver is not first and driver.context.only_place is None and first.view.create_call is not None:
            _act(first, partial(self._keep_to_place, driver))
        if driver is first or driver.context.only_place is not None or driver.context.cancelling:
            _take_step(driver)

    def _keep_to_place(self, driver: Driver, first: RunContext) -> None:
        """Send the other machines where the first one is."""
        call = first.view.create_call
        instance = first.describe() if first.view.instance is not None else None
        if call is not None:
            driver.context.only_place = (
                call.option,
                (instance.zone if instance is not None else None) or call.zone,
            )

    def _install(self, context: RunContext) -> None:
        """First of all: a machine without an agent takes its client for gone after a while, whatever it is busy with."""
        if boot.install_agent(context):
            self._installed.add(node.number(context.view))

    def _send(self, context: RunContext) -> None:
        """Send the files to one machine; the others hear that they have to wait."""
        size = context.services.select(context.view).total_bytes
        for driver in self._in(RunState.SYNCING):
            if driver.context is not context:
                with contextlib.suppress(CostGpuError):
                    driver.context.connection().hold(size)
        if boot.send_files(context):
            self._sent.add(node.number(context.view))

    def _keep_in_touch(self) -> None:
        """Touch the machines that wait for the others, so that they do not take their client for gone."""
        now = self.context.clock.monotonic()
        waiting = [driver for driver in self._in(RunState.SYNCING) if node.number(driver.view) in self._installed]
        if not waiting or now < self._touch_at:
            return
        self._touch_at = now + TOUCH_SECONDS
        for driver in waiting:
            with contextlib.suppress(CostGpuError):
                driver.context.connection().status()

    def _start(self, left: Sequence[Driver]) -> None:
        """Start the job: all machines have its files."""
        try:
            addresses = [node.private_address(driver.context) for driver in self.drivers]
            token = node.token_of(self.context)
        except CostGpuError as error:
            for driver in left:
                _end(driver, EndReason.NODES_APART, error)
            return
        for driver in left:
            _act(driver, partial(boot.start_job, rendezvous=node.rendezvous_of(driver.view, addresses, token)))

    def _follow(self, running: Sequence[Driver]) -> None:
        lead = min(running, key=lambda driver: driver.context.disconnected_at is not None)
        if self._is_given_up(lead, running):
            return
        if lead.context.detach_when_running and not self.context.cancelling:
            self._leave()
        watch = partial(follow.follow, meanwhile=partial(self._ask_peers, lead), quiet=lead is not self.drivers[0])
        with contextlib.suppress(PeersChanged):
            _act(lead, watch)
        if not lead.context.is_connected:
            lead.context.seconds_disconnected()  # begins to count

    def _is_given_up(self, lead: Driver, running: Sequence[Driver]) -> bool:
        """End the last machine if it does not answer any more, and the job is over on all others."""
        context = lead.context
        silent = context.disconnected_at is not None and context.seconds_disconnected() > RECONNECT_SECONDS
        # it may well be busy, or done, with outputs that nobody has yet: then its lease and its agent end it
        may_matter = self.view.spec.launcher is Launcher.NONE or lead.view.outputs_folder is not None
        waits = may_matter and self.first_failed is None
        if not silent or waits or len(running) > 1 or len(self.drivers) == 1:
            return False
        lost = InstanceLost(
            f"{node.name(lead.view)} did not answer for {RECONNECT_SECONDS / 60:.0f} min, and the job is over on the others."
        )
        _end(lead, EndReason.INSTANCE_LOST, lost)
        return True

    def _ask_peers(self, lead: Driver) -> None:
        """Now and then: what the other machines say. Raises `PeersChanged` if one of them is done."""
        now = self.context.clock.monotonic()
        if now < self._peers_at:
            return
        self._peers_at = now + PEER_POLL_SECONDS
        changed = False
        for driver in self._in(RunState.RUNNING):
            if driver is not lead:
                before = driver.view.state
                _act(driver, node.look)
                changed = changed or driver.view.state is not before
        failed = self.first_failed
        if failed is not None and self._failed_since is None:
            self._failed_since = now
        if self._failed_since is not None and now - self._failed_since > PEER_SECONDS and not self.context.cancelling:
            self._ask_running()
        if changed:
            raise PeersChanged

    def _ask_running(self) -> None:
        for driver in self._in(RunState.RUNNING):
            if node.number(driver.view) not in self._asked:
                with contextlib.suppress(CostGpuError):
                    driver.context.connection().cancel()
                    self._asked.add(node.number(driver.view))

    def _collect(self, collecting: Sequence[Driver]) -> None:
        """Collect from each machine; what cannot come home from one keeps only that one."""
        stays: list[Exception] = []
        # first those that end themselves soon, since nobody wants what they have: their logs are still wanted
        for driver in sorted(collecting, key=lambda driver: driver.view.outputs_folder is not None):
            try:
                _take_step(driver)
                if driver.view.state is RunState.TERMINATING:
                    self._request_end(driver)
            except (CostGpuError, Detached) as error:
                stays.append(error)
        if stays and len(stays) == len(self._in(RunState.COLLECTING)):
            try:
                self._terminate()
            except TerminationUnconfirmed:
                raise
            except CostGpuError:
                pass  # what stays is the graver matter
            raise stays[0]

    def _terminate(self) -> None:
        """All are asked first, so that none waits for another's confirmation. Machine 0 owns what they share: it is last."""
        ending = self._in(RunState.TERMINATING)
        for driver in ending:
            self._request_end(driver)
        failed: CostGpuError | None = None
        for driver in reversed(ending):
            try:
                while driver.view.state is RunState.TERMINATING:
                    _take_step(driver)
            except CostGpuError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _end_unstarted(self, error: CostGpuError) -> None:
        """Before an error leaves this process: machines without a job are of no use to anybody.

        Raises:
            TerminationUnconfirmed: One of them may be billing, which is worse than the error.
        """
        for driver in self._in(*UNSTARTED):
            with contextlib.suppress(CostGpuError):
                driver.context.end(EndReason.NODE_LOST, error=error)
        if self._in(RunState.TERMINATING) and not self._in(*CAN_DETACH):
            with contextlib.suppress(AuthError):
                self._terminate()

    # -- people --------------------------------------------------------------------------------------------------------

    def cancel(self) -> RunView:
        """End the job on all machines; where it runs it is asked first, and outputs are brought home."""
        self.give_up(EndReason.CANCELLED)
        return self.drive()

    def give_up(self, reason: EndReason) -> None:
        """Turn all runs towards their end; `drive` takes them there."""
        for driver in self.drivers:
            if driver.view.state not in ENDING:
                driver.give_up(reason)

    def _interrupted(self) -> None:
        """Ctrl-C."""
        views = [view for view in self.views if view.state not in ENDING]
        observer = self.context.observer
        if not views:
            self.stopping = True
            if any(view.state is not RunState.CLOSED for view in self.views):
                observer.note("The machines are being ended; that cannot be interrupted.")
            return
        shown = next((view for view in views if view.state not in CAN_DETACH), views[0])
        try:
            answer = observer.interrupted(shown)
        except KeyboardInterrupt:
            answer = Answer.CANCEL
        if answer is Answer.DETACH and all(view.state in CAN_DETACH for view in views):
            self._leave()
        if answer is Answer.CANCEL:
            self._cancel()

    def _stopped(self) -> None:
        """SIGTERM or SIGHUP: jobs that run go on without this process; nothing else would."""
        if self.context.cancelling:
            return
        for driver in self.drivers:
            driver.context.journal.refresh()
        left = [view for view in self.views if view.state not in ENDING]
        if not left:
            self.stopping = True
            return
        if all(view.state in CAN_DETACH for view in left):
            for driver in self._in(RunState.TERMINATING):
                self._request_end(driver)
            self._leave()
        ended = RunCancelled("The client was ended before the job had started on all machines.")
        for driver in self.drivers:
            if driver.view.state not in ENDING:
                _end(driver, EndReason.CANCELLED, ended)

    def _cancel(self) -> None:
        for driver in self.drivers:
            if driver.view.state not in ENDING:
                driver.turn(partial(driver.ask_to_end, EndReason.CANCELLED))

    def _leave(self) -> None:
        for driver in self.drivers:
            with contextlib.suppress(Detached):
                driver.context.leave()
        raise Detached(self.view.run_id)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.context.observer.note(text)


def _take_step(driver: Driver) -> None:
    driver.turn(driver.step)


def _act(driver: Driver, act: Callable[[RunContext], None]) -> None:
    driver.turn(partial(driver.carry_out, act))


def _end(driver: Driver, reason: EndReason, error: CostGpuError | None) -> None:
    """Turn one run towards its end."""
    driver.turn(partial(retry_on_conflict, partial(driver.context.end, reason, EndedBy.CLIENT, error)))
