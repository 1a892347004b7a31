"""What must hold: after every call, when events are recorded, when machines are ended, and at the end.

Each violation begins with the name of its invariant; `NAMES` lists them. Everything is held against the simulated
truth, not against what clients believe. One file of more than 400 lines: all of them look at the same run of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costgpu.errors import CostGpuError
from costgpu.job.state.states import apply, begin, replay
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, RunEvent, RunState, RunView
from tests.fake_cloud.guest import FakeJob
from tests.fake_cloud.host import _matches
from tests.fake_cloud.instance import FakeInstance
from tests.simulation import seams
from tests.simulation.commands import RUN
from tests.simulation.neighbour import NEIGHBOUR
from tests.simulation.process import Process

if TYPE_CHECKING:
    from costgpu.models.reap import ReapFindings
    from tests.simulation.computer import Computer
    from tests.simulation.simulation import Simulation

SLACK_SECONDS = 60.0  # from the end of the lease to the end of the machine: one billing minute
DISK_GIB = 50
MOST_SECONDS = {"fetch": 3600.0, "check": 7200.0}  # of an operation; of others until some time after the lease
CALM_PREEMPTION_SECONDS = 330.0  # from the beginning of the calm, until cron has come by twice
AFTER_LEASE_SECONDS = 4500.0  # for an end that sticks: asking, confirming, removing, twice
NAMES = (
    "one machine per run",
    "ended at its lease",
    "cost within the cap",
    "outputs come home",
    "the user's files stay",
    "the ledger replays",
    "a closed run stays closed",
    "terminated means terminated",
    "nothing left behind",
    "foreign resources untouched",
    "a running job is left alone",
    "one driver",
    "every wait ends",
    "errors are ours",
    "success is true",
    "reap ends what it sees",
    "metered is what was used",
    "everything ends",
    "the simulation works",
)


class Invariants:
    """Of one simulation."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._view: RunView | None = None  # of the run, event by event
        self._unreplayable = False
        self._calm_owes: list[FakeInstance] = []  # machines whose outputs can come home from now on
        self._told: set[str] = set()
        self._driving: dict[str, Process] = {}

    # -- after every call ---------------------------------------------------------------------------------------------

    def always(self) -> None:
        """What is cheap to look at."""
        cloud, world = self._world.cloud, self._world
        cloud.settle()
        machines = [one for one in cloud.instances.values() if one.ours]
        living = sum(one.state.alive for one in machines)
        if living > 1:
            self._once("one machine per run", f"{living} machines are alive")
        if not cloud.foreign_untouched():
            self._once("foreign resources untouched", "somebody else's machine or access rule was changed")
        now = world.timeline.seconds
        for machine in machines:
            if (
                machine.state is InstanceState.RUNNING
                and now > self.lease_end(machine) + SLACK_SECONDS
                and self._guarded(machine)
            ):
                self._once(
                    "ended at its lease",
                    f"{machine.ref.instance_id} runs {now - self.lease_end(machine):.0f} s after it",
                )
            if machine.state.alive:
                self._check_cost(machine)
        for process in world.processes:
            if world.living(process) and now > self._latest_end(process):
                self._once("every wait ends", f"{process.name} has gone on for {now - process.began_at:.0f} s")

    def _check_cost(self, machine: FakeInstance) -> None:
        if machine.request is None or not self._guarded(machine):
            return
        off = (
            machine.off_at if machine.off_at is not None else machine.stopped_due
        )  # its disk costs on, until its lease ends
        until = min(self._world.cloud.ended(machine), off)
        setting = self._world.schedule.setting
        extras = DISK_GIB * seams.COSTS.disk_usd_per_gb_month / 730.0 + seams.COSTS.address_usd_per_hour
        rate = float(setting.price_usd) + extras
        lease = self._world.cloud.on_time_line(machine.request.lease_until.timestamp()) - machine.created_at
        if lease > float(setting.cap_usd) * 3600 / rate and not (self._world.clock_set or setting.clock_offset_seconds):
            self._once("cost within the cap", f"the lease of {machine.ref.instance_id} is {lease:.0f} s long")
        cost = max(60.0, until - machine.created_at) * rate / 3600
        if cost > float(setting.cap_usd) + rate / 60 + 0.01:
            self._once("cost within the cap", f"{machine.ref.instance_id} has cost ${cost:.2f} of ${setting.cap_usd}")

    def _guarded(self, machine: FakeInstance) -> bool:
        """Whether anything on the machine is to end it at its lease."""
        setting, guest = self._world.schedule.setting, machine.guest
        works = setting.watchdog_works and machine.ref.instance_id not in self._world.unguarded
        return works and guest is not None and guest.machine.boots

    def lease_end(self, machine: FakeInstance) -> float:
        """By the tag, or by the life that its boot script allows, on the time line."""
        assert machine.request is not None
        cloud = self._world.cloud
        lease = cloud.on_time_line(machine.request.lease_until.timestamp())
        lifetime = 3600 * float(self._world.schedule.setting.cap_usd) / float(self._world.schedule.setting.price_usd)
        return max(machine.running_at, min(lease, machine.running_at + lifetime))

    def _latest_end(self, process: Process) -> float:
        if process.step.what in MOST_SECONDS:
            return process.began_at + MOST_SECONDS[process.step.what]
        leases = [self.lease_end(one) for one in self._world.cloud.instances.values() if one.request is not None]
        return max([process.began_at, *leases]) + AFTER_LEASE_SECONDS

    # -- when something is recorded -----------------------------------------------------------------------------------

    def appended(self, event: RunEvent) -> None:
        """An event of a run."""
        if event.run_id != RUN:
            return
        world, before = self._world, self._view
        if event.kind is EventKind.ENDING and any(one.discards and world.living(one) for one in world.processes):
            world.discards = True  # whoever goes on where this one is killed does as the user has said
        try:
            self._view = begin(event) if before is None else apply(before, event)
        except CostGpuError as error:
            if RUN not in world.here.store.harmed:
                self._once("the ledger replays", f"event {event.sequence} {event.kind.value}: {error.message}")
            return
        if before is not None and before.state is RunState.CLOSED and self._view.state is not RunState.CLOSED:
            self._once("a closed run stays closed", f"{event.kind.value} made it {self._view.state.value}")
        if event.kind is EventKind.CONFIRMED:
            self._all_terminated("confirmed")
        if event.kind is EventKind.COLLECTED:
            self._collected_is_true(event)
        if event.kind is EventKind.CLOSED:
            self._closed(event, self._view)

    def _closed(self, event: RunEvent, view: RunView) -> None:
        world = self._world
        self._all_terminated("closed")
        receipt = event.data["receipt"]
        if not receipt["left_behind"] and world.cloud.leftovers(RUN):
            self._once("nothing left behind", "the receipt names nothing, and something is there")
        machines = world.cloud.instances_of(RUN)
        job = self._job(machines[-1]) if machines else None
        if event.data["reason"] == EndReason.SUCCEEDED.value and (job is None or job.reason is not EndReason.SUCCEEDED):
            self._once("success is true", "the run is closed as succeeded, and its job has not")
        if view.instance is None and any(machine.terminated_at is None for machine in machines):
            self._once("terminated means terminated", "closed as if nothing had been created")
        untold = world.clock_set or world.schedule.setting.clock_offset_seconds or RUN in world.here.store.harmed
        if machines and not untold and receipt["ended_by"] == EndedBy.CLIENT.value:
            billed = [one for one in machines if one.describe().refusal is None]
            used = sum(world.cloud.ended(one) - one.created_at for one in billed)
            if receipt["metered_seconds"] < used - 5.0 - abs(world.schedule.setting.provider_skew_seconds):
                self._once("metered is what was used", f"{receipt['metered_seconds']} s of {used:.1f} s")

    def _all_terminated(self, word: str) -> None:
        for machine in self._world.cloud.instances_of(RUN):
            if machine.state.alive:
                self._once(
                    "terminated means terminated", f"{word}, and {machine.ref.instance_id} is {machine.state.value}"
                )

    def _collected_is_true(self, event: RunEvent) -> None:
        for machine in self._world.cloud.instances_of(RUN):
            job = self._job(machine)
            if job is not None and job.finished_at is not None and not self.is_home(job):
                self._once("outputs come home", "recorded as collected, and they are not here")

    # -- when a machine is ended --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def ending(self, process: Process, instance_id: str) -> Iterator[None]:
        """Around a terminate call."""
        machine = self._world.cloud.instances.get(instance_id)
        self._world.cloud.settle()
        lives = machine is not None and machine.ours and machine.state in (InstanceState.PENDING, InstanceState.RUNNING)
        yield
        if lives and machine is not None and machine.state is InstanceState.TERMINATING:
            self._may_end(process, machine)

    def _may_end(self, process: Process, machine: FakeInstance) -> None:
        world, job = self._world, self._job(machine)
        world.discards = world.discards or process.discards
        now, name = world.timeline.seconds, machine.ref.instance_id
        if process.must_not_end:
            self._once("a running job is left alone", f"{process.name} ends {name}, which it has left or only looks at")
        if job is None or now > self.lease_end(machine) - abs(world.schedule.setting.provider_skew_seconds):
            return
        known = RUN not in world.here.store.harmed and not process.lost_machine and not world.keys_lost
        if job.finished_at is None:
            if known and not world.end_wanted:
                self._once(
                    "a running job is left alone", f"{process.name} ends {name}, whose job runs within its lease"
                )
            return
        if known and not (process.discards or world.discards or self.is_safe(job)):
            self._once("outputs come home", f"{process.name} ends {name}, and the outputs of its job are nowhere else")

    def told_to_stop(self) -> None:
        """SIGTERM to a client: as long as no start of a job is recorded, that means the run's end."""
        if self._view is None or self._view.started_at is None:
            self._world.end_wanted = True

    def told_to_cancel(self, process: Process) -> None:
        """The agent is about to hear that the job is to end."""
        if not self._world.end_wanted:
            self._once("a running job is left alone", f"{process.name} asks it to end, and nobody wanted that")

    def told_collected(self, process: Process) -> None:
        """The agent is about to hear that it has nothing left to keep."""
        for machine in self._world.cloud.instances_of(RUN):
            job = self._job(machine)
            if (
                machine.state is InstanceState.RUNNING
                and job is not None
                and job.finished_at is not None
                and not self.is_home(job)
            ):
                self._once("outputs come home", f"{process.name} tells the machine so before they are here")

    # -- what commands say --------------------------------------------------------------------------------------------

    def said_ended(self, process: Process, instance_id: str) -> None:
        """A command has said that a machine is terminated."""
        if self._world.cloud.instance(instance_id).state.alive:
            self._once("terminated means terminated", f"{process.name} says so of {instance_id}")

    def said_succeeded(self, process: Process, view: RunView) -> None:
        """A command ends with exit code 0."""
        machines = self._world.cloud.instances_of(view.run_id)
        job = self._job(machines[-1]) if machines else None
        if job is None or job.exit_code != 0 or job.reason is not EndReason.SUCCEEDED:
            self._once("success is true", f"{process.name} says 0, and the job has not succeeded")
        elif not self.is_home(job):
            self._once("success is true", f"{process.name} says 0, and the outputs are not here")

    def reaped(self, process: Process, computer: Computer, found: ReapFindings) -> None:
        """A reaper that could ask everybody, by a clock that is right, leaves no machine after its lease.

        It goes by the provider's clock.
        """
        world = self._world
        if found.unreachable or found.failed or world.clock_set or computer.clock.offset_seconds:
            return
        skew = world.schedule.setting.provider_skew_seconds
        for machine in world.cloud.alive():
            late = (
                process.began_at - world.cloud.on_time_line(machine.request.lease_until.timestamp())
                if machine.request
                else 0
            )
            visible = process.began_at > machine.visible_at and world.cloud.forgets_until < 0
            if machine.state is InstanceState.RUNNING and late > abs(skew) and visible:
                self._once("reap ends what it sees", f"{machine.ref.instance_id} runs {late:.0f} s after its lease")

    def driving(self, run_id: str, process: Process | None) -> None:
        """A process begins to take a run further; None: nobody does."""
        before = self._driving.get(run_id)
        if process is None:
            self._driving.pop(run_id, None)
            return
        if before is not None and before is not process and self._world.living(before):
            self._once("one driver", f"{before.name} and {process.name} drive run {run_id}")
        self._driving[run_id] = process

    def process_over(self, process: Process) -> None:
        """It has ended, somehow."""
        for run_id, driver in list(self._driving.items()):
            if driver is process:
                del self._driving[run_id]

    # -- the end ------------------------------------------------------------------------------------------------------

    def calm_begins(self) -> None:
        """From now on nothing goes wrong: what is still somewhere has to come home."""
        world = self._world
        intact = not world.here.store.harmed & {RUN} and not world.keys_lost and not world.discards
        for machine in world.cloud.alive():
            job = self._job(machine)
            fine = job is not None and job.finished_at is not None and machine.state is InstanceState.RUNNING
            left = self.lease_end(machine) - world.timeline.seconds
            recorded = (
                self._view is not None and self._view.instance is not None and self._view.state is not RunState.CLOSED
            )
            ending = self._view is not None and self._view.state is RunState.TERMINATING
            at = machine.preempted_at  # perhaps before anybody comes
            taken = at is not None and at < world.timeline.seconds + CALM_PREEMPTION_SECONDS
            kept = not world.schedule.setting.auto_shutdown
            if (
                intact
                and fine
                and left > 120.0
                and recorded
                and not (ending or kept or taken)
                and not self._wants_end()
            ):
                self._calm_owes.append(machine)

    def _wants_end(self) -> bool:
        world = self._world
        return any(one.discards and world.living(one) for one in world.processes) or bool(world.unguarded)

    def at_the_end(self) -> None:
        """Everybody is done, and cron has come by often."""
        world, cloud = self._world, self._world.cloud
        self.always()
        for process in world.processes:
            if world.living(process):
                self._once("every wait ends", f"{process.name} still goes on")
        # a client whose clock was wrong has tagged everything with a lease that is still to come: reap waits for that
        if any(
            one.request and cloud.on_time_line(one.request.lease_until.timestamp()) > cloud.time()
            for one in (cloud.instances_of(RUN) if RUN in world.here.store.harmed else cloud.alive())
        ):
            return
        if alive := cloud.alive():
            self._once("everything ends", f"{alive[0].ref.instance_id} is {alive[0].state.value}")
        world.counts["machines"] += len(cloud.instances_of(RUN))
        world.counts["machines left"] += len(cloud.alive())
        if cloud.leftovers():
            self._once("nothing left behind", f"{cloud.leftovers()[0].kind}")
        for machine in cloud.instances_of(RUN):
            job = self._job(machine)
            if job is not None and world.schedule.setting.env_names and job.secrets != {"TOKEN": "x"}:
                self._once("success is true", "the job was started without its environment")
        for machine in self._calm_owes:
            job = self._job(machine)
            if job is not None and not (job.trouble or self.is_safe(job) or world.discards):
                self._once("outputs come home", "they were there when the calm began, and did not come")
        mine = world.here.work
        if world.schedule.setting.user_file and not self._somewhere(mine, "model.pt", b"mine"):
            self._once("the user's files stay", "what was in an output's place is gone")
        store = world.here.store
        written = store.written.get(RUN, [])
        if RUN not in store.harmed and written:
            self._ledger_is_whole(written)

    def _ledger_is_whole(self, written: list[RunEvent]) -> None:
        store = self._world.here.store
        kept = store.target.events(RUN)
        if [event.sequence for event in kept] != list(range(len(kept))):
            self._once("the ledger replays", "its sequence has holes")
        try:
            view = replay(kept)
        except CostGpuError as error:
            self._once("the ledger replays", error.message)
            return
        if view != self._view:
            self._once("the ledger replays", "to another view than its events gave one by one")
        broken = any(process.step.what and self._world.counts["fault disk full"] for process in self._world.processes)
        if view.state is not RunState.CLOSED and not broken:
            self._once("everything ends", f"the run is {view.state.value}")
        if len(written) != len(kept):
            self._once("the ledger replays", "events are missing")

    # -- truths -------------------------------------------------------------------------------------------------------

    def is_home(self, job: FakeJob) -> bool:
        """Whether everything that is to come home is in the working folder, or staged in it."""
        work = self._world.here.work
        return not job.trouble and all(self._somewhere(work, path, data) for path, data in self._expected(job).items())

    def is_safe(self, job: FakeJob) -> bool:
        """Whether it is home, or in the bucket."""
        return job.uploaded_at is not None or self.is_home(job)

    def _expected(self, job: FakeJob) -> Mapping[str, bytes]:
        patterns = job.order.outputs
        return {
            path: data
            for path, data in job.outputs.items()
            if not patterns or any(_matches(path, one) for one in patterns)
        }

    def _somewhere(self, work: Path, path: str, data: bytes) -> bool:
        places = [work / path, *work.glob(f".costgpu/incoming/{RUN}/*"), *work.glob(f".costgpu/replaced/{RUN}*")]
        for place in places:
            file = place / path if place.is_dir() else place
            if file.is_file() and file.read_bytes() == data:
                return True
        return any(
            file.read_bytes() == data
            for file in work.glob(f".costgpu/replaced/{RUN}/{Path(path).name}*")
            if file.is_file()
        )

    def _job(self, machine: FakeInstance) -> FakeJob | None:
        return machine.guest.job if machine.guest is not None else None

    def _once(self, invariant: str, how: str) -> None:
        if invariant not in self._told:
            self._told.add(invariant)
            self._world.violated(invariant, how)


__all__ = ["NAMES", "NEIGHBOUR", "Any", "Decimal", "Invariants"]
