"""Takes one run forward, a step at a time. Every step can be the first one of a new process.

What is next follows from the run's state, so a client that was killed anywhere is followed by one that goes on from there.
Nothing here keeps a machine alive: all limits are armed on the machine and at the provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from costgpu.errors import (
    AuthError,
    CostGpuError,
    HostUnreachable,
    LedgerConflict,
    ProviderError,
    RunCancelled,
    TerminationUnconfirmed,
)
from costgpu.job.drive import boot, collect, provision, termination
from costgpu.job.drive.context import CAN_DETACH, MachineEnded, RunContext, retry_on_conflict
from costgpu.job.end_instance import end_by_hand
from costgpu.job.machine.host import Host
from costgpu.job.state.states import IllegalEvent
from costgpu.job.timeouts import ASK_SECONDS, RECONNECT_POLL_SECONDS
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, RunState, RunView
from costgpu.units import format_duration

STEPS: Mapping[RunState, Callable[[RunContext], None]] = {
    RunState.INTENT: provision.choose_place,
    RunState.PROVISIONING: provision.create_instance,
    RunState.BOOTING: boot.boot,
    RunState.COLLECTING: collect.collect,
    RunState.TERMINATING: termination.terminate,
}
"""What a machine needs no others for; `drive.attempt` has the other steps."""


class StopSignal(BaseException):
    """SIGTERM or SIGHUP: the terminal is gone, or somebody ends this process politely."""


@dataclass(slots=True)
class MachineDriver:
    """Takes the run of one machine forward; there is one at a time."""

    context: RunContext
    _shown: RunState | None = field(init=False)

    def __post_init__(self) -> None:
        self._shown = self.view.state

    @property
    def view(self) -> RunView:
        """Return the run now."""
        return self.context.view

    @property
    def error(self) -> CostGpuError | None:
        """Return what the command line ends with once the run is closed; None for the job's own exit code."""
        return self.context.error

    def turn(self, act: Callable[[], None]) -> None:
        """Carry something out, and show the state that it has led to."""
        act()
        if self.view.state is not self._shown:
            self._shown = self.view.state
            self.context.observer.changed(self.view)

    def step(self) -> None:
        """Take the one step that the run's state calls for."""
        self.carry_out(STEPS[self.view.state])

    def carry_out(self, act: Callable[[RunContext], object]) -> None:
        """Take a step of the run, and deal with its failure."""
        self.turn(lambda: self._try(act))

    def end(self, reason: EndReason, error: CostGpuError | None = None) -> None:
        """Turn the run towards its end."""
        self.turn(lambda: retry_on_conflict(lambda: self.context.end(reason, EndedBy.CLIENT, error)))

    def _try(self, act: Callable[[RunContext], object]) -> None:
        before = self.view.state
        try:
            try:
                act(self.context)
            except MachineEnded as ended:
                termination.record_machine_end(self.context, ended.instance)
        except LedgerConflict:
            pass  # somebody else took it further: look again
        except IllegalEvent:
            if self.view.state is before:
                raise
        except ProviderError as error:
            self._provider_failed(error)

    def give_up(self, reason: EndReason) -> None:
        """Turn a run towards its end.

        Raises:
            ProviderError: The credentials are not the run's, or nobody can be asked; nothing is changed.
        """
        if self.view.create_call is not None:
            try:
                self.context.provider()
            except ProviderError as error:
                self._provider_failed(error)
        self.ask_to_end(reason)

    def ask_to_end(self, reason: EndReason) -> None:
        """Ask a running job first; the second time, or without one, the machine is ended at once."""
        context, view = self.context, self.view
        again, context.cancelling = context.cancelling, True
        if reason is EndReason.CANCELLED or not view.spec.goes_on:
            context.give_up_job()
        context.error = context.error or RunCancelled(f"Run {view.run_id} ({view.name}) was cancelled.")
        if view.state is RunState.RUNNING and not again:
            try:
                self._answering_host().cancel()
            except MachineEnded:
                return
            except CostGpuError as error:
                context.observer.note(f"The job could not be asked to end: {error.message}")
            else:
                grace = format_duration(view.spec.grace_seconds)
                context.observer.note(f"The job is asked to end; it has {grace}. Then its outputs come home.")
                return  # follow it to its end, then its outputs, then the machine
        if view.state is RunState.COLLECTING and not again:
            return
        retry_on_conflict(lambda: context.end(reason))

    def _answering_host(self) -> Host:
        """Return the connection to a machine whose job is to end; one that does not answer at once is given some time.

        Raises:
            HostUnreachable: It does not answer.
            MachineEnded: It is no more.
        """
        context = self.context
        until = context.clock.monotonic() + ASK_SECONDS
        while True:
            try:
                return context.connection()
            except HostUnreachable as error:
                context.disconnect()
                context.check_alive(context.describe())
                if context.clock.monotonic() >= until:
                    raise
                context.observer.waiting(
                    context.view, f"no connection ({error.message}); the job is to be asked to end"
                )
                context.clock.sleep(RECONNECT_POLL_SECONDS)

    def _provider_failed(self, error: ProviderError) -> None:
        view = self.view
        possibly_billing = view.state in (RunState.PROVISIONING, RunState.TERMINATING)
        if possibly_billing and not isinstance(error, TerminationUnconfirmed):
            raise _unconfirmed(view, error) from error
        if view.state in (RunState.INTENT, RunState.TERMINATING):
            raise error
        if view.state in CAN_DETACH or isinstance(error, AuthError):
            goes_on = view.state in CAN_DETACH
            what = "The machine goes on without this client" if goes_on else "No job runs on the machine"
            error.hint = (
                f"{error.hint} {what}, and it ends itself by {_lease_text(view)} at the latest."
                f" Come back: costgpu attach {view.run_id}; end it: costgpu cancel {view.run_id}"
            ).strip()
            raise error
        self.context.end(EndReason.PROVISION_FAILED, error=error)


def _unconfirmed(view: RunView, error: ProviderError) -> TerminationUnconfirmed:
    """Return the error for a machine that may be there, and about which nobody can be asked."""
    ref = view.instance
    if ref is None:
        place = f"{view.option.offer.provider} {view.option.offer.region}" if view.option else "the provider"
        what = f"Whether a machine was created for run {view.run_id} in {place} is not known:"
        by_hand = f"end what has the tag costgpu-run={view.run_id}. It would end itself by"
    else:
        what = f"{ref.instance_id} in {ref.region} is to be ended, and nobody can be asked to do it: it may be billing."
        by_hand = f"{end_by_hand(ref, view.create_call.account if view.create_call else '')}. It ends itself by"
    return TerminationUnconfirmed(
        f"{what} {error.message}",
        hint=f"{error.hint} Then: costgpu cancel {view.run_id}. By hand: {by_hand} {_lease_text(view)}.".strip(),
    )


def _lease_text(view: RunView) -> str:
    return f"{view.lease_until:%Y-%m-%d %H:%M} UTC" if view.lease_until is not None else "its lease's end"
