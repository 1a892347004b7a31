"""What must hold: after every call, when events are recorded, when machines are ended, and at the end.

Each violation begins with the name of its invariant; `NAMES` lists them. Everything is held against the simulated
truth, not against what clients believe. One file of more than 400 lines: all of them look at the same run of it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import CostGpuError
from costgpu.job.drive.checkpoints import store_of
from costgpu.job.state.attempts import attempt_id
from costgpu.job.state.states import apply, begin, replay
from costgpu.job.timeouts import SEARCH_SECONDS
from costgpu.models.instance import InstanceState
from costgpu.models.job import CostOutcome, EndReason
from costgpu.models.run import EndedBy, EventKind, RunEvent, RunState, RunView
from costgpu.providers.base import TAG_RUN
from tests.fake_cloud.guest import FakeJob
from tests.fake_cloud.host import _matches
from tests.fake_cloud.instance import FakeInstance
from tests.simulation import seams
from tests.simulation.commands import job_of
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
    "one attempt at a time",
    "ended at its lease",
    "cost within the cap",
    "a cap is for the job",
    "a job goes on or is told",
    "a cancelled job does not go on",
    "a search pauses",
    "checkpoints are gone on from",
    "the queue keeps to its machines",
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
    """Of one simulation.

    Attributes:
        views: Every run, event by event.
    """

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self.views: dict[str, RunView] = {}
        self._kept: dict[str, float] = {}  # job -> seconds of it that its newest checkpoint has done
        self._cancelled: set[str] = set()  # jobs that somebody was told to be ended, or about to be
        self._from_queue: set[str] = set()  # runs that the queue has asked a machine for
        self._calm_owes: list[FakeInstance] = []  # machines whose outputs can come home from now on
        self._told: set[str] = set()
        self._driving: dict[str, Process] = {}

    def job_of(self, run_id: str) -> str:
        """The job of a run."""
        view = self.views.get(run_id)
        return view.job_id if view is not None else run_id

    def is_open(self, job: str) -> bool:
        """Whether a run of a job is."""
        return any(one.state is not RunState.CLOSED for one in self.views.values() if one.job_id == job)

    # -- after every call ---------------------------------------------------------------------------------------------

    def always(self) -> None:
        """What is cheap to look at."""
        cloud, world = self._world.cloud, self._world
        cloud.settle()
        machines = [one for one in cloud.instances.values() if one.ours]
        alive = [one.tags[TAG_RUN] for one in machines if one.state.alive]
        if len(alive) > 1:
            self._together(alive)
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
        if len(machines) > 1:
            self._check_jobs(machines)
        for process in world.processes:
            if world.living(process) and now > self._latest_end(process):
                self._once("every wait ends", f"{process.name} has gone on for {now - process.began_at:.0f} s")

    def _together(self, alive: Sequence[str]) -> None:
        """Machines of these runs are alive at the same time."""
        if len(set(alive)) < len(alive):
            self._once("one machine per run", f"{len(alive)} machines are alive, of {len(set(alive))} runs")
        attempts: dict[str, set[int]] = {}
        for view in (self.views[run_id] for run_id in alive if run_id in self.views):
            attempts.setdefault(view.job_id, set()).add(view.spec.attempt.index if view.spec.attempt else 0)
        for job, indices in attempts.items():
            if len(indices) > 1:
                self._once("one attempt at a time", f"{job} has machines of attempts {sorted(indices)}")

    def _check_cost(self, machine: FakeInstance) -> None:
        if machine.request is None or not self._guarded(machine):
            return
        setting, rate = self._world.schedule.setting, self._rate
        cap = float(setting.cap_usd) / setting.nodes
        lease = self._world.cloud.on_time_line(machine.request.lease_until.timestamp()) - machine.created_at
        if lease > cap * 3600 / rate and not (self._world.clock_set or setting.clock_offset_seconds):
            self._once("cost within the cap", f"the lease of {machine.ref.instance_id} is {lease:.0f} s long")
        cost = self._cost(machine)
        if cost > cap + rate / 60 + 0.01:
            self._once("cost within the cap", f"{machine.ref.instance_id} has cost ${cost:.2f} of ${cap:.2f}")

    def _check_jobs(self, machines: Sequence[FakeInstance]) -> None:
        """All machines of all attempts at a job share its cap, each but for its last minute."""
        setting, cost, count = self._world.schedule.setting, Counter[str](), Counter[str]()
        if self._world.clock_set or setting.clock_offset_seconds:
            return
        for machine in machines:
            if machine.refusal is None and self._guarded(machine):
                job = self.job_of(machine.tags[TAG_RUN])
                cost[job] += self._cost(machine)  # type: ignore[assignment]
                count[job] += 1
        for job, usd in cost.items():
            if usd > float(setting.cap_usd) + count[job] * (self._rate / 60 + 0.01):
                self._once("a cap is for the job", f"{count[job]} machines have cost ${usd:.2f} of ${setting.cap_usd}")

    @property
    def _rate(self) -> float:
        """What a machine costs an hour, with its disk and address."""
        extras = DISK_GIB * seams.COSTS.disk_usd_per_gb_month / 730.0 + seams.COSTS.address_usd_per_hour
        return float(self._world.schedule.setting.price_usd) + extras

    def _cost(self, machine: FakeInstance) -> float:
        off = machine.off_at if machine.off_at is not None else machine.stopped_due  # its disk costs on until its lease
        until = min(self._world.cloud.ended(machine), off)
        return max(60.0, until - machine.created_at) * self._rate / 3600

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
        setting, view = self._world.schedule.setting, self.views.get(machine.tags[TAG_RUN])
        lifetime = 3600 * float(setting.cap_usd) / (float(setting.price_usd) * setting.nodes)
        if view is not None and view.option is not None:
            lifetime = min(lifetime, view.option.lease.lifetime_seconds)
        return max(machine.running_at, min(lease, machine.running_at + lifetime))

    def _latest_end(self, process: Process) -> float:
        if process.step.what in MOST_SECONDS:
            return process.began_at + MOST_SECONDS[process.step.what]
        leases = [self.lease_end(one) for one in self._world.cloud.instances.values() if one.request is not None]
        return max([process.began_at, *leases]) + AFTER_LEASE_SECONDS

    # -- when something is recorded -----------------------------------------------------------------------------------

    def appended(self, event: RunEvent) -> None:
        """An event of a run."""
        if event.run_id == NEIGHBOUR:
            return
        world, before, run_id = self._world, self.views.get(event.run_id), event.run_id
        if event.kind is EventKind.ENDING and any(one.discards and world.living(one) for one in world.processes):
            world.discards.add(
                self.job_of(run_id)
            )  # whoever goes on where this one is killed does as the user has said
        try:
            view = self.views[run_id] = begin(event) if before is None else apply(before, event)
        except CostGpuError as error:
            if run_id not in world.here.store.harmed:
                self._once("the ledger replays", f"event {event.sequence} {event.kind.value}: {error.message}")
            return
        if before is not None and before.state is RunState.CLOSED and view.state is not RunState.CLOSED:
            self._once("a closed run stays closed", f"{event.kind.value} made it {view.state.value}")
        if event.kind is EventKind.ATTEMPTED:
            self._may_ask(view)
            if view.is_later_attempt and view.job_id in self._cancelled:
                self._once("a cancelled job does not go on", f"{run_id} asks for a machine")
        if event.kind is EventKind.GIVEN_UP and view.spec.goes_on and not self._is_end_wanted(view):
            self._once("a job goes on or is told", f"{run_id} is given up, and nobody wanted that")
        if event.kind is EventKind.CONFIRMED:
            self._all_terminated("confirmed", run_id)
        if event.kind is EventKind.COLLECTED:
            self._collected_is_true(event)
        if event.kind is EventKind.SAVED and view.is_first_machine:
            self._kept[view.job_id] = self._in_store(view)
        if event.kind is EventKind.STARTED:
            self._goes_on_from(view)
        if event.kind is EventKind.CLOSED:
            self._closed(event, view)
            self._goes_on(view)

    def _may_ask(self, view: RunView) -> None:
        """Only who is to begin a job asks for a machine, and the queue only where there is room for it."""
        process, most = seams.Felt.process(), self._world.schedule.setting.max_machines
        searched, call = view.searched_at, view.create_call
        is_clock_right = not (self._world.clock_set or self._world.schedule.setting.clock_offset_seconds)
        if searched is not None and call is not None and is_clock_right:
            paused = (call.at - searched).total_seconds()
            if paused < SEARCH_SECONDS[0] - 1.0:
                self._once("a search pauses", f"{view.run_id} asks again {paused:.0f} s after nothing was found")
        if process is not None and process.step.what in ("cancel", "reap", "check", "fetch"):
            self._once("a cancelled job does not go on", f"{process.name} asks for a machine for {view.run_id}")
        if process is None or process.step.what not in ("queue", "enqueue"):
            return
        self._from_queue.add(view.run_id)
        begun = (one for one in self._from_queue if not self.views[one].waits)  # a search waits for its next look
        others = {one for one in begun if self.views[one].state is not RunState.CLOSED}
        others = {one for one in others if self.views[one].job_id != view.job_id}
        if others and len(others) + view.spec.nodes > most and not self._world.here.store.harmed:
            self._once("the queue keeps to its machines", f"{len(others)} + {view.spec.nodes} of {most} are in use")

    def _in_store(self, view: RunView) -> float:
        """How many seconds of a job its newest checkpoint has done, on this computer or in the bucket."""
        if view.spec.bucket:
            found = self._world.bucket.newest(view.run_id)
            return max(self._kept.get(view.job_id, 0.0), _done(found[1]) if found is not None else 0.0)
        contents = store_of(self._world.here.runs, view.job_id).contents
        return _done({path.name: path.read_bytes() for path in contents.glob("*")})

    def _goes_on_from(self, view: RunView) -> None:
        attempt = view.spec.attempt
        if view.spec.recovery is None or attempt is None or attempt.failed_resumes or not view.is_first_machine:
            return
        machines = self._world.cloud.instances_of(view.run_id)
        job = self._job(machines[-1]) if machines else None
        kept = self._kept.get(view.job_id, 0.0)
        if job is not None and job.done_before < kept - 0.01:
            self._once("checkpoints are gone on from", f"begins at {job.done_before:.0f} s, and {kept:.0f} s were kept")

    def _goes_on(self, view: RunView) -> None:
        """A run is closed: if its job was interrupted, somebody can go on with it, or was told why nobody can."""
        attempt, world, process = view.spec.attempt, self._world, seams.Felt.process()
        follows = attempt is not None and attempt_id(view.job_id, attempt.index + 1) in self.views
        if view.reason is EndReason.INTERRUPTED and not follows:
            self._once("a job goes on or is told", f"{view.run_id} is interrupted, and nothing follows")
        machines = [self.views[one] for one in view.machine_ids if one in self.views]
        taken = view.reason is EndReason.PREEMPTED and view.spec.recovery is not None
        never = view.reason is not None and view.reason.outcome is CostOutcome.NEVER
        unbegun = view.is_later_attempt and never and not any(one.started_at for one in machines)
        if not (taken or unbegun) or follows or any(one.given_up for one in machines):
            return
        lead = self.views.get(view.machine_ids[0], view)
        if (lead.status is not None and lead.status.ended_well) or (lead.reason is not None and lead.reason.limit):
            return  # the job is done, or its receipt names the limit that it has come to
        # perhaps by one that could not write it into the ledger
        told = any(one.told_end and (one is process or job_of(one) == view.job_id) for one in world.processes)
        is_last = all(one.state is RunState.CLOSED for one in machines)
        if not (told or self._is_end_wanted(view) or world.here.store.harmed) and is_last:
            what = "was taken back" if taken else "has not begun"
            self._once("a job goes on or is told", f"{view.run_id} {what}, and nobody said why that is the end")

    def _is_end_wanted(self, view: RunView) -> bool:
        """Whether somebody has asked for the end of a job, or a signal has come to the process whose turn it is.

        A job that has not begun ends as well where its files cannot be kept for going on.
        """
        process = seams.Felt.process()
        if not view.is_later_attempt and "state" in self._world.was_full:
            return True
        return view.job_id in self._world.end_wanted or (process is not None and process.signalled)

    def _closed(self, event: RunEvent, view: RunView) -> None:
        world, run_id = self._world, event.run_id
        self._all_terminated("closed", run_id)
        receipt = event.data["receipt"]
        if not receipt["left_behind"] and world.cloud.leftovers(run_id):
            self._once("nothing left behind", "the receipt names nothing, and something is there")
        machines = world.cloud.instances_of(run_id)
        job = self._job(machines[-1]) if machines else None
        well = job is not None and job.reason is EndReason.SUCCEEDED
        if event.data["reason"] == EndReason.SUCCEEDED.value and not well:
            self._once("success is true", "the run is closed as succeeded, and its job has not")
        if view.instance is None and any(machine.terminated_at is None for machine in machines):
            self._once("terminated means terminated", "closed as if nothing had been created")
        untold = world.clock_set or world.schedule.setting.clock_offset_seconds or run_id in world.here.store.harmed
        if machines and not untold and receipt["ended_by"] == EndedBy.CLIENT.value:
            billed = [one for one in machines if one.describe().refusal is None]
            used = sum(world.cloud.ended(one) - one.created_at for one in billed)
            if receipt["metered_seconds"] < used - 5.0 - abs(world.schedule.setting.provider_skew_seconds):
                self._once("metered is what was used", f"{receipt['metered_seconds']} s of {used:.1f} s")

    def _all_terminated(self, word: str, run_id: str) -> None:
        for machine in self._world.cloud.instances_of(run_id):
            if machine.state.alive:
                self._once(
                    "terminated means terminated", f"{word}, and {machine.ref.instance_id} is {machine.state.value}"
                )

    def _collected_is_true(self, event: RunEvent) -> None:
        for machine in self._world.cloud.instances_of(event.run_id):
            if self._owes(machine) and not self.is_home(machine):
                self._once("outputs come home", "recorded as collected, and they are not here")

    # -- when a machine is ended --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def ending(self, process: Process, instance_id: str) -> Iterator[None]:
        """Around a terminate call."""
        machine = self._world.cloud.instances.get(instance_id)
        self._world.cloud.settle()
        lives = machine is not None and machine.ours and machine.state in (InstanceState.PENDING, InstanceState.RUNNING)
        asked_at = self._world.timeline.seconds
        yield
        if lives and machine is not None and machine.state is InstanceState.TERMINATING:
            self._may_end(process, machine, asked_at)

    def _may_end(self, process: Process, machine: FakeInstance, asked_at: float) -> None:
        world, job, run_id = self._world, self._job(machine), machine.tags[TAG_RUN]
        whole = self.job_of(run_id)
        if process.discards:
            world.discards.add(whole)
        now, name = world.timeline.seconds, machine.ref.instance_id
        if process.must_not_end:
            self._once("a running job is left alone", f"{process.name} ends {name}, which it has left or only looks at")
        if job is None or now > self.lease_end(machine) - abs(world.schedule.setting.provider_skew_seconds):
            return
        known = run_id not in world.here.store.harmed and name not in process.lost and not world.keys_lost
        if job.finished_at is None or job.finished_at > asked_at:
            if known and whole not in world.end_wanted and not self._is_disturbed(run_id):
                self._once(
                    "a running job is left alone", f"{process.name} ends {name}, whose job runs within its lease"
                )
            return
        cannot_be_had = (job.trouble or process.cannot_locate) and whole in world.end_wanted
        given_up = whole in world.discards or cannot_be_had
        if known and self._owes(machine) and not (given_up or self.is_safe(machine)):
            self._once("outputs come home", f"{process.name} ends {name}, and the outputs of its job are nowhere else")

    def _is_disturbed(self, run_id: str) -> bool:
        """Whether something has happened to another machine of an attempt, so that its job may have to end."""
        view = self.views.get(run_id)
        if view is None or view.spec.node is None:
            return False
        for one in view.spec.node.run_ids:
            machines = self._world.cloud.instances_of(one)
            job = self._job(machines[-1]) if machines else None
            lives = bool(machines) and machines[-1].state is InstanceState.RUNNING
            if not lives or job is None or job.finished_at is not None or self.views[one].ending_at is not None:
                return True
        return any(end > 0 for _, end, _ in self._world.cloud.network_cuts)  # one may have been taken for gone

    def _owes(self, machine: FakeInstance) -> bool:
        """Whether a job is over whose outputs its user is to get from its machine, rather than its next attempt."""
        job, view = self._job(machine), self.views.get(machine.tags[TAG_RUN])
        if job is None or job.finished_at is None or not job.order.keep_outputs:
            return False
        if view is None or view.spec.recovery is None:
            return True
        mates = view.spec.node.run_ids if view.spec.node is not None else (view.run_id,)
        attempt = [each for one in mates for each in self._world.cloud.instances_of(one)]
        jobs = [each for each in map(self._job, attempt) if each is not None]
        return not any(each.preempted_at is not None for each in attempt) and not any(
            each.reason is EndReason.PREEMPTED for each in jobs
        )

    def told_to_stop(self, process: Process) -> None:
        """SIGTERM to a client: as long as no start of a job is recorded, that means the run's end."""
        for job in {job_of(process), *(job for job, driver in self._driving.items() if driver is process)}:
            started = [one for one in self.views.values() if one.job_id == job and one.started_at is not None]
            last = [one for one in self.views.values() if one.job_id == job and one.state is not RunState.CLOSED]
            if not started or any(one.started_at is None for one in last):
                self._world.end_wanted.add(job)

    def told_to_cancel(self, process: Process, instance_id: str) -> None:
        """The agent is about to hear that the job is to end."""
        run_id = self._world.cloud.instances[instance_id].tags[TAG_RUN]
        if self.job_of(run_id) not in self._world.end_wanted and not self._is_disturbed(run_id):
            self._once("a running job is left alone", f"{process.name} asks it to end, and nobody wanted that")

    def told_collected(self, process: Process, instance_id: str) -> None:
        """The agent is about to hear that it has nothing left to keep."""
        machine = self._world.cloud.instances[instance_id]
        if machine.state is InstanceState.RUNNING and self._owes(machine) and not self.is_home(machine):
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
        elif not self.is_home(machines[-1]):
            self._once("success is true", f"{process.name} says 0, and the outputs are not here")

    def said_cancelled(self, process: Process, job: str = "") -> None:
        """A command has said that a job is ended: this one, or those that its process drives."""
        self._cancelled.update([job] if job else [one for one, by in self._driving.items() if by is process])

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
        if world.keys_lost or world.unguarded or any(one.discards and world.living(one) for one in world.processes):
            return
        for machine in world.cloud.alive():
            run_id = machine.tags[TAG_RUN]
            view, left = self.views.get(run_id), self.lease_end(machine) - world.timeline.seconds
            recorded = view is not None and view.instance is not None and view.state is not RunState.CLOSED
            ending = view is not None and view.state is RunState.TERMINATING
            at = machine.preempted_at  # perhaps before anybody comes
            taken = at is not None and at < world.timeline.seconds + CALM_PREEMPTION_SECONDS
            kept = not world.schedule.setting.auto_shutdown
            job = self.job_of(run_id)
            intact = job not in {self.job_of(one) for one in world.here.store.harmed} | world.discards
            fine = self._owes(machine) and machine.state is InstanceState.RUNNING and left > 120.0
            if intact and fine and recorded and not (ending or kept or taken):
                self._calm_owes.append(machine)

    def at_the_end(self) -> None:
        """Everybody is done, and cron has come by often."""
        world, cloud = self._world, self._world.cloud
        self.always()
        for process in world.processes:
            if world.living(process):
                self._once("every wait ends", f"{process.name} still goes on")
        # a client whose clock was wrong has tagged everything with a lease that is still to come: reap waits for that
        ours = [one for one in cloud.instances.values() if one.ours]
        if any(
            one.request and cloud.on_time_line(one.request.lease_until.timestamp()) > cloud.time()
            for one in (ours if world.here.store.harmed else cloud.alive())
        ):
            return
        if alive := cloud.alive():
            self._once("everything ends", f"{alive[0].ref.instance_id} is {alive[0].state.value}")
        world.counts["machines"] += len(ours)
        world.counts["machines left"] += len(cloud.alive())
        if cloud.leftovers():
            self._once("nothing left behind", f"{cloud.leftovers()[0].kind}")
        for machine in ours:
            job = self._job(machine)
            if job is not None and world.schedule.setting.env_names and job.secrets.get("TOKEN") != "x":
                self._once("success is true", "the job was started without its environment")
        for machine in self._calm_owes:
            job = self._job(machine)
            discarded = self.job_of(machine.tags[TAG_RUN]) in world.discards
            if job is not None and not (job.trouble or self.is_safe(machine) or discarded):
                self._once("outputs come home", "they were there when the calm began, and did not come")
        mine = world.here.work
        if world.schedule.setting.user_file and not self._somewhere(mine, "model.pt", b"mine"):
            self._once("the user's files stay", "what was in an output's place is gone")
        store = world.here.store
        for run_id, written in store.written.items():
            if run_id not in store.harmed and written:
                self._ledger_is_whole(run_id, written)

    def _ledger_is_whole(self, run_id: str, written: list[RunEvent]) -> None:
        store = self._world.here.store
        kept = store.target.events(run_id)
        if [event.sequence for event in kept] != list(range(len(kept))):
            self._once("the ledger replays", "its sequence has holes")
        try:
            view = replay(kept)
        except CostGpuError as error:
            self._once("the ledger replays", error.message)
            return
        if view != self.views[run_id]:
            self._once("the ledger replays", "to another view than its events gave one by one")
        broken = any(process.step.what and self._world.counts["fault disk full"] for process in self._world.processes)
        stays = store.lost or (store.harmed and view.waits)  # nobody can tell what it is to go on from
        if view.state is not RunState.CLOSED and not (broken or stays):
            self._once("everything ends", f"run {run_id} is {view.state.value}")
        if len(written) != len(kept):
            self._once("the ledger replays", "events are missing")

    # -- truths -------------------------------------------------------------------------------------------------------

    def is_home(self, machine: FakeInstance) -> bool:
        """Whether everything that is to come home from a machine is in the working folder, or staged in it."""
        job, view = self._job(machine), self.views.get(machine.tags[TAG_RUN])
        if job is None or not job.order.keep_outputs:
            return True
        work, node = self._world.here.work, view.spec.node if view is not None else None
        if node is not None and not self._world.schedule.setting.rank_0:
            work /= f"rank-{node.node}"
        return not job.trouble and all(self._somewhere(work, path, data) for path, data in self._expected(job).items())

    def is_safe(self, machine: FakeInstance) -> bool:
        """Whether it is home, or in the bucket."""
        job = self._job(machine)
        return (job is not None and job.uploaded_at is not None) or self.is_home(machine)

    def _expected(self, job: FakeJob) -> Mapping[str, bytes]:
        patterns = job.order.outputs
        return {
            path: data
            for path, data in job.outputs.items()
            if not patterns or any(_matches(path, one) for one in patterns)
        }

    def _somewhere(self, work: Path, path: str, data: bytes) -> bool:
        places = [work / path, *work.glob(".costgpu/incoming/*/*"), *work.glob(".costgpu/replaced/*")]
        for place in places:
            file = place / path if place.is_dir() else place
            if file.is_file() and file.read_bytes() == data:
                return True
        return any(
            file.read_bytes() == data for file in work.glob(f".costgpu/replaced/*/{Path(path).name}*") if file.is_file()
        )

    def _job(self, machine: FakeInstance) -> FakeJob | None:
        return machine.guest.job if machine.guest is not None else None

    def _once(self, invariant: str, how: str) -> None:
        if invariant not in self._told:
            self._told.add(invariant)
            self._world.violated(invariant, how)


def _done(contents: Mapping[str, bytes]) -> float:
    """The most seconds that a checkpoint among these contents has done."""
    done = [float(data) for data in contents.values() if data.replace(b".", b"", 1).isdigit()]
    return max(done, default=0.0)
