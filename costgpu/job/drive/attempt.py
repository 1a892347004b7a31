"""Takes one attempt at a job forward: a run for each of its machines, one or several, in one process.

Each machine has a run of its own, with its own call, lease, tags and record, so that whatever ends one machine ends each
of these. What is added here is that all of them live together: the next phase begins when all have come to it, and
what ends one ends all. Machine 0 is first to be created and last to be cleaned up after: it owns what they share.

One file of more than 400 lines: the order of these steps is one decision, and is read as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from costgpu.errors import (
    AuthError,
    CostGpuError,
    HostUnreachable,
    InstanceLost,
    LedgerError,
    NodesApart,
    RunCancelled,
    TerminationUnconfirmed,
)
from costgpu.job import place_policy
from costgpu.job.drive import boot, follow, node, termination
from costgpu.job.drive.checkpoints import save_when_due
from costgpu.job.drive.context import CAN_DETACH, Detached, RunContext
from costgpu.job.drive.machine import MachineDriver, StopSignal
from costgpu.job.drive.node import ENDING
from costgpu.job.end_instance import request_termination
from costgpu.job.state.attempts import attempts_of_job
from costgpu.job.state.observer import Answer
from costgpu.job.timeouts import PEER_POLL_SECONDS, PEER_SECONDS, RECONNECT_SECONDS, TOUCH_SECONDS
from costgpu.models.job import EndReason, Launcher
from costgpu.models.run import RunState, RunView

ASKING = (RunState.INTENT, RunState.PROVISIONING)
UNSTARTED = (*ASKING, RunState.BOOTING, RunState.SYNCING)


class PeersChanged(Exception):
    """Another machine of the job has ended, or its job has, or what that has made is due to come home."""


@dataclass(slots=True)
class AttemptDriver:
    """Takes the runs of one attempt forward; there is one at a time.

    Attributes:
        machines: One driver for each machine, by its number.
    """

    machines: list[MachineDriver] = field(default_factory=list)
    _installed: set[int] = field(default_factory=set)  # machines that this process has found, or started, an agent on
    _sent: set[int] = field(default_factory=set)  # machines that this process has sent the files to
    _touch_at: float = 0.0  # from then on, monotonic, machines that wait are asked again how they are
    _asked: set[int] = field(default_factory=set)  # machines whose job was asked to end, because of another one
    _requested: set[int] = field(default_factory=set)  # machines whose end was asked for ahead of its turn
    _failed_since: float | None = None  # monotonic; None as long as no job has failed
    _peers_at: float = 0.0  # from then on, monotonic, the others are asked again
    _told: set[str] = field(default_factory=set)

    def add(self, driver: MachineDriver) -> None:
        """Add the next machine."""
        services = driver.context.services
        if not self.machines:
            chosen = cache(lambda: services.select(self.view))  # read and hashed once, whatever the number of machines
            driver.context.services = replace(services, select=lambda _: chosen())
        else:
            driver.context.services = self.context.services
        self.machines.append(driver)

    @property
    def view(self) -> RunView:
        """Return the run of machine 0, which stands for the attempt."""
        return self.machines[0].view

    @property
    def views(self) -> tuple[RunView, ...]:
        """Return all runs, by number of the machine."""
        return tuple(driver.view for driver in self.machines)

    @property
    def context(self) -> RunContext:
        """Context of machine 0."""
        return self.machines[0].context

    @property
    def error(self) -> CostGpuError | None:
        """Return what the command line ends with; None for the exit code of the job."""
        drivers = self.machines[:1] if place_policy.succeeded_with_fewer(self.views) else self.machines
        found = [driver.error for driver in drivers if driver.error is not None]
        causes = [error for error in found if not isinstance(error, NodesApart | RunCancelled)]
        return next(iter(causes or found), None)

    @property
    def ledger_error(self) -> LedgerError | None:
        """Return why the ledger could not be written; None if it could."""
        return next(
            (error for driver in self.machines if (error := driver.context.journal.ledger_error) is not None), None
        )

    @property
    def decisive(self) -> RunView:
        """Return the run that tells how the job has ended: the one that failed first, or was missing.

        Else that of machine 0.
        """
        if place_policy.succeeded_with_fewer(self.views):
            return self.view
        missing = next((view for view in self.views if node.is_missing(view)), None)
        failed = self.first_failed
        if failed is not None and (missing is None or failed.reason is not EndReason.CANCELLED):
            return failed
        return missing or self.view

    @property
    def first_failed(self) -> RunView | None:
        """Return the run whose job failed first, by the machines' clocks; None if none did."""
        failed = [view for view in self.views if node.has_failed(view)]
        return min(failed, key=node.finished_at, default=None)

    @property
    def is_closed(self) -> bool:
        """Return whether all its runs are over."""
        return all(view.state is RunState.CLOSED for view in self.views)

    def disconnect(self) -> None:
        """Close all connections."""
        with contextlib.suppress(KeyboardInterrupt, StopSignal):  # what is decided stays decided
            for driver in self.machines:
                driver.context.disconnect()

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take the step that is next for all of them."""
        if self._lacks_machine():
            self._end_others()
        self._keep_in_touch()
        syncing = self._in(RunState.SYNCING)
        if asking := self._in(*ASKING):
            self._provision(asking[0])
        elif bare := [driver for driver in syncing if not self._is_installed(driver)]:
            bare[0].carry_out(self._install)
        elif booting := self._in(RunState.BOOTING):
            booting[0].step()
        elif unsent := [driver for driver in syncing if driver.view.machine not in self._sent]:
            unsent[0].carry_out(self._send)
        elif syncing:
            self._start(syncing)
        elif (collecting := self._in(RunState.COLLECTING)) and not self._may_be_interrupted():
            self._collect(collecting)
        elif running := self._in(RunState.RUNNING):
            self._follow(running)
        else:
            self._terminate()

    def _in(self, *states: RunState) -> list[MachineDriver]:
        return [driver for driver in self.machines if driver.view.state in states]

    def _lacks_machine(self) -> bool:
        """Return whether a machine has ended, or is to end, that the others cannot do without."""
        if len(self.machines) == 1:
            return False
        ended = [view for view in self.views if node.is_missing(view)]
        if not ended or all(view.state in (*ENDING, RunState.COLLECTING) for view in self.views):
            return False
        least = self.view.spec.min_nodes
        left = len(self.machines) - len(ended)
        began = all(view.started_at is not None for view in ended)  # before, the others would wait for it
        if least and left >= least and began and not node.is_missing(self.view):
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
            driver.end(EndReason.NODE_LOST, error)
        self._note_failure()
        for driver in self._in(RunState.TERMINATING):
            self._request_end(driver)

    def _note_failure(self) -> None:
        """Begin to count how long the others have had to notice by themselves that the job is over."""
        if self._failed_since is None:
            self._failed_since = self.context.clock.monotonic()

    def _may_be_interrupted(self) -> bool:
        """Return whether it is not known yet that a job is over because a machine was taken back.

        Then what it has made is for the next machines.
        """
        if self.view.spec.recovery is None or not self._in(RunState.RUNNING) or self.context.cancelling:
            return False
        if place_policy.is_interrupted(self.views) or self.first_failed is None:
            return False
        self._note_failure()
        return not self._is_overdue()

    def _is_overdue(self) -> bool:
        """Return whether the others have had their time to notice by themselves that the job is over."""
        since = self._failed_since
        return since is not None and self.context.clock.monotonic() - since > PEER_SECONDS

    def _request_end(self, driver: MachineDriver) -> None:
        """Ask for a machine's end at once; that it has come is confirmed when it is its turn."""
        number, view = driver.view.machine, driver.view
        asked = len(self.machines) == 1 or number in self._requested
        if asked or view.instance is None or view.confirmed_at is not None:
            return
        self._requested.add(number)
        with contextlib.suppress(CostGpuError):
            request_termination(driver.context.provider(), view.instance, driver.context.clock)

    def _provision(self, driver: MachineDriver) -> None:
        first = self.machines[0]
        if driver is not first and driver.context.only_place is None and first.view.create_call is not None:
            first.carry_out(partial(self._keep_to_place, driver))
        if driver is first or driver.context.only_place is not None or driver.context.cancelling:
            driver.step()

    def _keep_to_place(self, driver: MachineDriver, first: RunContext) -> None:
        """Send the other machines where the first one is."""
        call = first.view.create_call
        instance = first.describe() if first.view.instance is not None else None
        if call is not None:
            driver.context.only_place = (
                call.option,
                (instance.zone if instance is not None else None) or call.zone,
            )

    def _is_installed(self, driver: MachineDriver) -> bool:
        """Return whether this process has met an agent there, and not lost the connection since."""
        return driver.view.machine in self._installed and driver.context.is_connected

    def _install(self, context: RunContext) -> None:
        """First of all: a machine without an agent takes its client for gone after a while, whatever it is busy with."""
        if boot.install_agent(context):
            self._installed.add(context.view.machine)

    def _send(self, context: RunContext) -> None:
        """Send the files to one machine; the others hear that they have to wait."""
        others = [driver for driver in self._in(RunState.SYNCING) if driver.context is not context]
        size = context.services.select(context.view).total_bytes if others else 0
        for driver in others:
            with contextlib.suppress(CostGpuError):
                driver.context.connection().hold(size)
        if boot.send_files(context):
            self._sent.add(context.view.machine)

    def _keep_in_touch(self) -> None:
        """Touch the machines that wait for the others, so that they do not take their client for gone."""
        now = self.context.clock.monotonic()
        waiting = [driver for driver in self._in(RunState.SYNCING) if driver.view.machine in self._installed]
        if len(self.machines) == 1 or not waiting or now < self._touch_at:
            return
        self._touch_at = now + TOUCH_SECONDS
        for driver in waiting:
            with contextlib.suppress(CostGpuError):
                driver.context.connection().status()

    def _start(self, left: Sequence[MachineDriver]) -> None:
        """Start the job: all machines have its files."""
        several = len(self.machines) > 1
        meets = several or self.view.spec.launcher.runs_once
        try:
            addresses = [node.private_address(one.context) for one in self.machines] if several else [node.LOOPBACK]
            token = node.token_of(self.context) if meets else ""
        except CostGpuError as error:
            for driver in left:
                driver.end(EndReason.NODES_APART, error)
            return
        for driver in left:
            rendezvous = node.rendezvous_of(driver.view, addresses, token) if meets else None
            driver.carry_out(partial(boot.start_job, rendezvous=rendezvous))

    def _follow(self, running: Sequence[MachineDriver]) -> None:
        lead = min(running, key=lambda driver: driver.context.disconnected_at is not None)
        if self._is_given_up(lead, running):
            return
        if lead.context.detach_when_running and not self.context.cancelling:
            self._leave()
        watch = partial(follow.follow, meanwhile=partial(self._ask_peers, lead), quiet=lead is not self.machines[0])
        with contextlib.suppress(PeersChanged):
            lead.carry_out(watch)
        if len(self.machines) > 1 and not lead.context.is_connected:
            lead.context.seconds_disconnected()  # begins to count

    def _is_given_up(self, lead: MachineDriver, running: Sequence[MachineDriver]) -> bool:
        """End the last machine if it does not answer any more, and the job is over on all others."""
        context = lead.context
        silent = context.disconnected_at is not None and context.seconds_disconnected() > RECONNECT_SECONDS
        # it may well be busy, or done, with outputs that nobody has yet: then its lease and its agent end it
        may_matter = self.view.spec.launcher is Launcher.NONE or lead.view.outputs_folder is not None
        waits = may_matter and self.first_failed is None
        if not silent or waits or len(running) > 1 or len(self.machines) == 1:
            return False
        lost = InstanceLost(
            f"{node.name(lead.view)} did not answer for {RECONNECT_SECONDS / 60:.0f} min, and the job is over on the others."
        )
        lead.end(EndReason.INSTANCE_LOST, lost)
        return True

    def _ask_peers(self, lead: MachineDriver) -> None:
        """Now and then: what the other machines say. Raises `PeersChanged` if one of them is due."""
        now = self.context.clock.monotonic()
        if now < self._peers_at:
            return
        self._peers_at = now + PEER_POLL_SECONDS
        changed = False
        for driver in self._in(RunState.RUNNING):
            if driver is not lead:
                before = driver.view.state
                driver.carry_out(node.look)
                if driver.view.state is before:
                    driver.carry_out(_save_when_due)
                changed = changed or driver.view.state is not before
        if self.first_failed is not None:
            self._note_failure()
        # one that goes on elsewhere saves what it has as soon as it can
        if (self._is_overdue() or place_policy.is_interrupted(self.views)) and not self.context.cancelling:
            self._ask_running()
        if changed or (self._in(RunState.COLLECTING) and not self._may_be_interrupted()):
            raise PeersChanged

    def _ask_running(self) -> None:
        for driver in self._in(RunState.RUNNING):
            if driver.view.machine not in self._asked:
                with contextlib.suppress(CostGpuError):
                    driver.context.connection().cancel()
                    self._asked.add(driver.view.machine)

    def _collect(self, collecting: Sequence[MachineDriver]) -> None:
        """Collect from each machine; what cannot come home from one keeps only that one."""
        stays: list[Exception] = []
        self._note_interruption()
        # first those that end themselves soon, since nobody wants what they have: their logs are still wanted
        for driver in sorted(collecting, key=lambda driver: driver.view.outputs_folder is not None):
            try:
                driver.step()
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

    def _note_interruption(self) -> None:
        """Tell all machines whether what the job has made is for its next attempt, because one was taken back."""
        interrupted = place_policy.is_interrupted(self.views) and self._is_followed()
        for driver in self.machines:
            driver.context.saves_for_next = interrupted

    def _is_followed(self) -> bool:
        """Return whether another attempt follows, as far as can be said before this one's machines have ended."""
        attempt = self.view.spec.attempt
        if attempt is None:
            return False
        try:
            earlier = attempts_of_job(self.context.journal.book, self.view)[: attempt.index]
        except LedgerError:
            return False
        following = place_policy.next_attempt([*earlier, self.views], self.context.clock.now())
        return isinstance(following, place_policy.NextAttempt)

    def _terminate(self) -> None:
        """All are asked first, so that none waits for another's confirmation. Machine 0 owns what they share: it is last.

        No run is closed before all machines have ended, as far as that is known: then it is decided what follows.
        """
        ending = self._in(RunState.TERMINATING)
        self._note_interruption()
        for driver in ending:
            self._request_end(driver)
        failed: dict[int, CostGpuError] = {}
        for act in (_confirm, _close):
            for driver in reversed(ending):
                number = driver.view.machine
                try:
                    if number not in failed:
                        act(driver)
                except CostGpuError as error:
                    failed[number] = error
        if failed:
            raise next(iter(failed.values()))

    def end_unstarted(self, error: CostGpuError) -> None:
        """Before an error leaves this process: of several machines, those without a job are of no use to anybody.

        Raises:
            TerminationUnconfirmed: One of them may be billing, which is worse than the error.
        """
        if len(self.machines) == 1:
            return
        for driver in self._in(*UNSTARTED):
            with contextlib.suppress(CostGpuError):
                driver.context.end(EndReason.NODE_LOST, error=error)
        if self._in(RunState.TERMINATING) and not self._in(*CAN_DETACH):
            with contextlib.suppress(AuthError):
                self._terminate()

    # -- people --------------------------------------------------------------------------------------------------------

    def give_up(self, reason: EndReason) -> None:
        """Turn all runs towards their end; further steps take them there."""
        for driver in self.machines:
            if driver.view.state not in ENDING:
                driver.give_up(reason)

    def interrupted(self) -> None:
        """Ask what Ctrl-C means, and do it."""
        observer = self.context.observer
        left = [driver for driver in self.machines if driver.view.state not in ENDING]
        if not left:
            self.context.give_up_job()
            if not self.is_closed:
                which = "The machine is" if len(self.machines) == 1 else "The machines are"
                goes_on = " The job does not go on." if self.view.given_up and self.view.spec.goes_on else ""
                observer.note(f"{which} being ended; that cannot be interrupted.{goes_on}")
            return
        shown = next((each.view for each in left if each.view.state not in CAN_DETACH), left[0].view)
        try:
            answer = observer.interrupted(shown)
        except KeyboardInterrupt:
            answer = Answer.CANCEL
        if answer is Answer.DETACH and all(driver.view.state in CAN_DETACH for driver in left):
            self._leave()
        if answer is Answer.CANCEL:
            for driver in left:
                driver.turn(partial(driver.ask_to_end, EndReason.CANCELLED))

    def stopped(self) -> None:
        """Leave a job that runs, since it goes on without this process; nothing else would. SIGTERM or SIGHUP came."""
        if self.context.cancelling:
            return  # leaving would keep machines that nobody wants: on to the end
        for driver in self.machines:
            driver.context.journal.refresh()  # the job's start may be written without this process having heard so
        left = [driver for driver in self.machines if driver.view.state not in ENDING]
        if not left:
            for driver in self.machines:
                driver.context.cancelling = not self.view.spec.goes_on  # no other place is tried
            return
        if all(driver.view.state in CAN_DETACH for driver in left):
            for driver in self._in(RunState.TERMINATING):
                self._request_end(driver)
            self._leave()
        where = " on all machines" if len(self.machines) > 1 else ""
        ended = RunCancelled(f"The client was ended before the job had started{where}.")
        # a job that has begun before waits for the next client
        reason = EndReason.UNCLAIMED if self.view.is_later_attempt else EndReason.CANCELLED
        for driver in left:
            driver.end(reason, ended)

    def _leave(self) -> None:
        for driver in self.machines:
            with contextlib.suppress(Detached):
                driver.context.leave()
        raise Detached(self.view.run_id)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.context.observer.note(text)


def _save_when_due(context: RunContext) -> None:
    with contextlib.suppress(HostUnreachable):  # the next look at it tells
        save_when_due(context)


def _confirm(driver: MachineDriver) -> None:
    while driver.view.state is RunState.TERMINATING and driver.view.confirmed_at is None:
        before = driver.view
        driver.carry_out(termination.confirm_end)
        if driver.view == before and before.instance is None:
            break  # nothing was created


def _close(driver: MachineDriver) -> None:
    while driver.view.state is RunState.TERMINATING:
        driver.step()
