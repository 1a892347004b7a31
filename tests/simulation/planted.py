"""Bugs that the simulation must find: each takes one safeguard away from the real code, as a careless change would."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from costgpu.errors import CostGpuError, LedgerConflict, LedgerDamaged, NoCapacity, TerminationUnconfirmed, Unreachable
from costgpu.job import adopt, end_instance, launch, load_runs, place_policy, plan, reap
from costgpu.job.drive import boot, collect, context, next_attempt, provision, receipt, termination
from costgpu.job.drive.context import Detached, RunContext
from costgpu.job.drive.job import JobDriver
from costgpu.job.drive.machine import MachineDriver
from costgpu.job.files import place_outputs
from costgpu.job.files.checkpoint_store import CheckpointStore
from costgpu.job.machine.boot_script import boot_script
from costgpu.job.state import states
from costgpu.job.state.journal import RunJournal
from costgpu.models.events import Attempted
from costgpu.models.job import EndReason
from costgpu.models.run import RunState, RunView
from costgpu.retry import retry_provider_call
from costgpu.workflows.runs import attach, cancel, queue
from tests.simulation.cloud import LaggingProvider

Plant = Callable[[contextlib.ExitStack], None]


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One planted bug.

    Attributes:
        found_by: The first seed that finds it.
    """

    name: str
    found_by: int
    plant: Plant

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """While the bug is in the code. To be used within `seams.in_place`."""
        with contextlib.ExitStack() as stack:
            self.plant(stack)
            yield


BUGS: list[Bug] = []


def bug(found_by: int) -> Callable[[Plant], Plant]:
    """Registers a bug under its function's name."""

    def note(plant: Plant) -> Plant:
        BUGS.append(Bug(name=plant.__name__.replace("_", " ").strip(), found_by=found_by, plant=plant))
        return plant

    return note


def put(stack: contextlib.ExitStack, where: Any, name: str, what: Any) -> None:
    stack.enter_context(mock.patch.object(where, name, what))


def unlocked(*folders: Path) -> contextlib.AbstractContextManager[None]:
    """A lock that keeps nobody out."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return contextlib.nullcontext()


def gone_at_once(provider: Any, ref: Any, clock: Any, *, known_since: Any) -> Any:
    """A wait that waits for nothing."""
    return provider.describe(ref)


@bug(7)
def the_watchdog_is_not_armed(stack: contextlib.ExitStack) -> None:
    real = boot_script

    def late(**limits: Any) -> str:
        late_by = timedelta(days=30)
        return real(**{**limits, "deadline": limits["deadline"] + late_by, "lifetime_seconds": late_by.total_seconds()})

    put(stack, provision, "boot_script", late)


@bug(100)
def each_create_call_has_a_new_token(stack: contextlib.ExitStack) -> None:
    real, number = provision.create_request, itertools.count()
    put(stack, provision, "create_request", lambda *a: replace(real(*a), token=f"{real(*a).token}.{next(number)}"))


@bug(3)
def the_receipt_is_written_before_the_proof(stack: contextlib.ExitStack) -> None:
    put(stack, end_instance, "wait_until_terminated", gone_at_once)


@bug(2)
def the_cap_forgets_disk_and_address(stack: contextlib.ExitStack) -> None:
    put(stack, plan, "extras_usd_per_hour", lambda *_: Decimal(0))


@bug(2)
def the_lease_is_counted_from_another_clock(stack: contextlib.ExitStack) -> None:
    real = RunJournal.add

    def add(self: RunJournal, event: Any, *admit: Any) -> Any:
        if isinstance(event, Attempted):
            until = self.clock.now() + timedelta(seconds=(event.lifetime_seconds or 0) + 3600)
            event = replace(event, lease_until=until)
        return real(self, event, *admit)

    put(stack, RunJournal, "add", add)


@bug(2)
def the_minute_of_powering_off_is_not_paid_for(stack: contextlib.ExitStack) -> None:
    put(stack, plan, "POWER_OFF_SECONDS", -60.0)


@bug(8)
def an_unanswered_create_call_counts_as_refused(stack: contextlib.ExitStack) -> None:
    real = retry_provider_call

    def retry(*args: Any, **limits: Any) -> Any:
        try:
            return real(*args, **limits)
        except Unreachable as error:
            raise NoCapacity(error.message) from error

    put(stack, provision, "retry_provider_call", retry)
    put(stack, provision, "find_created", lambda _: None)


@bug(8)
def a_refusal_after_an_unanswered_call_is_believed(stack: contextlib.ExitStack) -> None:
    put(stack, provision, "find_created", lambda _: None)


@bug(117)
def nobody_looks_for_the_machine_of_an_unanswered_call(stack: contextlib.ExitStack) -> None:
    put(stack, termination, "find_created", lambda _: None)


@bug(2)
def an_unknown_machine_is_gone_at_once(stack: contextlib.ExitStack) -> None:
    for module in (end_instance, context, provision):
        put(stack, module, "VISIBLE_SECONDS", 0.0)


@bug(2)
def the_agent_is_told_before_the_outputs_are_here(stack: contextlib.ExitStack) -> None:
    real = collect._fetch_outputs

    def fetch(context: RunContext) -> None:
        with contextlib.suppress(CostGpuError):
            context.connection().collected()
        real(context)

    put(stack, collect, "_fetch_outputs", fetch)


@bug(18)
def outputs_that_cannot_be_fetched_are_given_up(stack: contextlib.ExitStack) -> None:
    put(stack, context.RunContext, "keep_machine", lambda *_: None)


@bug(101)
def a_job_that_made_nothing_is_over(stack: contextlib.ExitStack) -> None:
    real = collect.staying_error
    put(stack, collect, "staying_error", lambda outputs, placed: real(replace(outputs, trouble=""), placed))


@bug(18)
def reap_believes_the_clock_here(stack: contextlib.ExitStack) -> None:
    real = LaggingProvider.list_owned
    put(stack, LaggingProvider, "list_owned", lambda *a: replace(real(*a), told_at=None))


@bug(202)
def reap_does_not_wait_for_the_end(stack: contextlib.ExitStack) -> None:
    put(stack, reap, "wait_until_terminated", gone_at_once)


@bug(14)
def reap_takes_over_a_job_that_runs(stack: contextlib.ExitStack) -> None:
    real = adopt._take_over

    def take_over(driver: MachineDriver) -> bool:
        if driver.view.state is RunState.RUNNING:
            driver.give_up(EndReason.UNCLAIMED)
            return True
        return real(driver)

    put(stack, adopt, "_take_over", take_over)


@bug(292)
def reap_gives_up_a_job_that_its_client_could_not_record(stack: contextlib.ExitStack) -> None:
    put(stack, adopt, "catch_up", lambda _: False)


@bug(2)
def a_second_client_is_not_kept_out(stack: contextlib.ExitStack) -> None:
    for module in (launch, adopt, attach, cancel):
        put(stack, module, "lock_run", unlocked)
    put(stack, adopt, "is_driven", lambda _: False)


@bug(231)
def a_conflict_in_the_ledger_is_taken_for_written(stack: contextlib.ExitStack) -> None:
    real = RunJournal.add

    def add(self: RunJournal, event: Any, *admit: Any) -> Any:
        before = self.view
        try:
            return real(self, event, *admit)
        except LedgerConflict:
            self._stale = False
            self._view = states.apply(before, self._row(before.next_sequence, event))
            return self._view

    put(stack, RunJournal, "add", add)


@bug(107)
def a_termination_that_fails_is_swallowed(stack: contextlib.ExitStack) -> None:
    real = end_instance.end_instance

    def end(*args: Any, **known: Any) -> Any:
        try:
            return real(*args, **known)
        except TerminationUnconfirmed:
            return None

    put(stack, termination, "end_instance", end)


@bug(1132)
def a_preempted_job_has_succeeded(stack: contextlib.ExitStack) -> None:
    real = termination._why_ended

    def why(context: RunContext, instance: Any, marker: str) -> Any:
        if instance is not None and instance.preempted:
            return EndReason.SUCCEEDED, None
        return real(context, instance, marker)

    put(stack, termination, "_why_ended", why)


@bug(4162)
def a_machine_that_left_no_word_has_succeeded(stack: contextlib.ExitStack) -> None:
    real = termination._why_ended

    def why(context: RunContext, instance: Any, marker: str) -> Any:
        reason, error = real(context, instance, marker)
        return EndReason.SUCCEEDED if reason is EndReason.UNKNOWN else reason, error

    put(stack, termination, "_why_ended", why)


@bug(249)
def ctrl_c_while_outputs_come_home_ends_the_machine(stack: contextlib.ExitStack) -> None:
    real = MachineDriver.ask_to_end

    def end(self: MachineDriver, reason: EndReason) -> None:
        self.context.cancelling = self.context.cancelling or self.view.state is RunState.COLLECTING
        real(self, reason)

    put(stack, MachineDriver, "ask_to_end", end)


@bug(50)
def a_client_that_detaches_ends_the_machine(stack: contextlib.ExitStack) -> None:
    real = RunContext._leave

    def leave(self: RunContext) -> None:
        try:
            real(self)
        except Detached:
            with contextlib.suppress(CostGpuError):
                self.provider().terminate(self.instance)
            raise

    put(stack, RunContext, "_leave", leave)


@bug(8)
def a_file_in_an_outputs_place_is_removed(stack: contextlib.ExitStack) -> None:
    def remove(self: Any, target: Path, path: str) -> None:
        target.unlink()

    put(stack, place_outputs._Placement, "_keep", remove)


@bug(14)
def a_machine_that_is_switched_off_counts_as_gone(stack: contextlib.ExitStack) -> None:
    real = end_instance.end_instance

    def end(provider: Any, ref: Any, clock: Any, *, known_since: Any) -> Any:
        found = provider.describe(ref)
        off = found is not None and found.by_guest
        return found if off else real(provider, ref, clock, known_since=known_since)

    put(stack, termination, "end_instance", end)


@bug(2)
def what_a_run_leaves_is_not_removed(stack: contextlib.ExitStack) -> None:
    put(stack, termination, "clean_up", lambda *_: ())


@bug(741)
def a_job_starts_without_its_environment(stack: contextlib.ExitStack) -> None:
    put(stack, boot, "_environment_lost", lambda context: boot.start_job(context, None))


@bug(2)
def one_damaged_record_stops_the_reaper(stack: contextlib.ExitStack) -> None:
    real = states.read_event

    def read(row: Any) -> Any:
        try:
            return real(row)
        except LedgerDamaged as error:
            raise KeyError(row.sequence) from error

    put(stack, states, "read_event", read)


@bug(827)
def provider_calls_are_repeated_for_ever(stack: contextlib.ExitStack) -> None:
    for module in (provision, context, end_instance):
        real = module.retry_provider_call
        put(
            stack,
            module,
            "retry_provider_call",
            lambda c, call, limit_seconds, real=real: real(c, call, limit_seconds=1e9),
        )


@bug(45)
def each_attempt_has_the_whole_cap(stack: contextlib.ExitStack) -> None:
    put(stack, place_policy, "_what_is_left", lambda option, *_: option)


@bug(32)
def each_machine_has_the_whole_cap(stack: contextlib.ExitStack) -> None:
    real = plan.lease_for
    put(stack, plan, "lease_for", lambda offer, limits, **more: real(offer, replace(limits, nodes=1), **more))


@bug(130)
def a_checkpoint_is_not_sent(stack: contextlib.ExitStack) -> None:
    put(stack, boot, "with_checkpoint", lambda _, selection: selection)


@bug(238)
def a_job_goes_on_from_the_older_checkpoint(stack: contextlib.ExitStack) -> None:
    real = CheckpointStore.newest
    put(stack, CheckpointStore, "newest", lambda self, before=0: real(self, before + 1))


@bug(84)
def an_interrupted_job_is_over(stack: contextlib.ExitStack) -> None:
    put(stack, receipt, "record_next_attempt", lambda *_: None)


@bug(17)
def an_interruption_is_recorded_before_what_follows(stack: contextlib.ExitStack) -> None:
    put(stack, receipt, "record_next_attempt", lambda _, closing: closing.spec.recovery is not None)


@bug(180)
def the_queue_counts_no_machines(stack: contextlib.ExitStack) -> None:
    real = load_runs.load_runs

    def waiting_ones(*args: Any) -> Any:
        views, damaged = real(*args)
        return [view for view in views if view.waits], damaged

    put(stack, queue, "load_runs", waiting_ones)


@bug(1258)
def a_job_that_is_given_up_goes_on(stack: contextlib.ExitStack) -> None:
    real = next_attempt.record_next_attempt

    def record(run: RunContext, closing: RunView) -> bool | None:
        return real(run, replace(closing, given_up=False))

    put(stack, receipt, "record_next_attempt", record)
    put(stack, next_attempt, "EventKind", SimpleNamespace(GIVEN_UP=None))
    put(stack, JobDriver, "_is_given_up", lambda _: False)


@bug(2545)
def reap_ends_a_job_that_may_go_on(stack: contextlib.ExitStack) -> None:
    real = next_attempt.record_next_attempt
    put(stack, receipt, "record_next_attempt", lambda run, closing: not run.cancelling and real(run, closing))


@bug(1150)
def a_search_does_not_pause(stack: contextlib.ExitStack) -> None:
    put(stack, JobDriver, "_due", lambda _: 0.0)


@bug(32)
def outputs_of_all_machines_go_to_one_folder(stack: contextlib.ExitStack) -> None:
    put(stack, RunView, "outputs_folder", property(lambda self: self.spec.workdir))


@bug(6)
def the_queue_starts_what_somebody_drives(stack: contextlib.ExitStack) -> None:
    put(stack, queue, "lock_run", unlocked)
    put(stack, queue, "is_driven", lambda _: False)
