"""Carries out a schedule, and says what has not held."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costgpu import errors
from costgpu.errors import CostGpuError
from costgpu.job.drive.context import Detached
from costgpu.job.drive.machine import StopSignal
from costgpu.job.state.states import IllegalEvent
from costgpu.models.instance import CreateRequest, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import RunEvent
from costgpu.providers.base import TAG_RUN
from tests.fake_cloud import JobScript, MachineScript
from tests.simulation import seams
from tests.simulation.bucket import MemoryBucket
from tests.simulation.cloud import LaggingCloud
from tests.simulation.commands import COMMANDS, ENVIRONMENT, JOBS, RUN
from tests.simulation.computer import Computer
from tests.simulation.faults import FAULTS
from tests.simulation.invariants import Invariants
from tests.simulation.neighbour import plant_budget, plant_neighbour
from tests.simulation.process import Killed, Process
from tests.simulation.schedule import Schedule, Step
from tests.simulation.store import MemoryLedger, SqlLedger, Store
from tests.simulation.timeline import NEVER, OwnClock, Timeline, TrueClock

OUTPUTS = {
    "none": {},
    "some": {"model.pt": b"weights", "log/run.txt": b"loss 0.1\n"},
    "odd": {"model.pt": b"weights", "logs\\run1.csv": b"1,2\n", "a b/\u00e9\n.txt": b"odd", "-rf": b"dash"},
    "many": {f"step{number:03d}.pt": b"%d" % number for number in range(12)},
    "huge": {"model.pt": b"weights" * 1000},
}
NOTICED_SECONDS = 20.0  # until ranks fail that miss others
FREED_SECONDS = 600.0  # after so long somebody makes room for huge outputs
FINALE = ((90.0, "attach", ()), (2400.0, "attach", ()), (5400.0, "cancel", (("now", False), ("by_tag", False))))
"""After the calm has begun: what the people do whose jobs are not over."""
CRON_SECONDS = (30.0, 330.0, 630.0, 930.0, 1530.0, 2130.0, 3600.0, 7200.0, 7500.0)  # after the calm has begun


@dataclass(kw_only=True)
class Outcome:
    """What became of a schedule."""

    schedule: Schedule
    violations: list[str]  # each with the name of the invariant first
    log: list[str]
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """Of the log."""
        return hashlib.sha256("\n".join(self.log).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def broken(self) -> frozenset[str]:
        """The invariants that were violated."""
        return frozenset(one.partition(":")[0] for one in self.violations)


class Simulation:
    """One world, and everybody in it.

    Attributes:
        counts: What happened how often.
        end_wanted: Jobs whose end somebody, or a budget, has asked for.
        discards: Jobs whose outputs somebody has given up.
        unguarded: Machines on which nothing works any more.
    """

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self.timeline = Timeline()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.lines: list[tuple[float, str, str, str, str]] = []
        self.end_wanted: set[str] = set()
        self.discards: set[str] = set()
        self.keys_lost = self.clock_set = False
        self.unguarded: set[str] = set()
        self._missing: set[str] = set()  # machines whose ranks miss others
        self.full: set[str] = set()
        self.was_full: set[str] = set()
        self.wrong_answers = 0
        self.ledger_seconds = 0.0
        self.small_disk = schedule.setting.output == "huge"
        self.processes: list[Process] = []
        self.chasers: dict[str, list[Step]] = {}  # call of the run -> commands that are given then
        self._started: set[int] = set()
        setting, clock = schedule.setting, TrueClock(self.timeline)
        self.cloud = LaggingCloud(clock, script=_job(schedule), machine=_machine(schedule))
        if refusal := schedule.setting.refused_launch:
            first = replace(_machine(schedule), refusal=getattr(errors, refusal)("It ended while it was launched."))
            self.cloud.machines.append(first)
        for name in ("terminating_seconds", "watchdog_works", "agent_works", "power_off_stops", "disks_stay"):
            setattr(self.cloud, name, getattr(setting, name))
        self.cloud.visible_after_seconds = setting.visible_after_seconds
        self.cloud.remembers_seconds = setting.remembers_seconds
        self.cloud.skew_seconds = setting.provider_skew_seconds
        self.cloud.quota_vcpus = setting.quota_vcpus
        self.cloud.leaves_rules = schedule.seed % 2 == 0
        self.cloud.add_foreign()
        self.cloud.add_foreign_resource("somebody")
        self.cloud.choose = self._script
        self.bucket = MemoryBucket(self.cloud)
        self.folder = folder
        self.invariants = Invariants(self)
        own = SqlLedger.fresh() if setting.real_ledger else MemoryLedger()
        self.here = self._computer("here", folder, own)
        self.elsewhere = self._computer("elsewhere", folder, MemoryLedger())
        self.here.clock.offset_seconds = setting.clock_offset_seconds
        self.computers = {"here": self.here, "elsewhere": self.elsewhere}
        if setting.user_file:
            (self.here.work / "model.pt").write_bytes(b"mine")
        if setting.damaged_neighbour:
            plant_neighbour(self.here, setting.damaged_neighbour)
        if setting.budget_usd and setting.real_ledger:
            plant_budget(self.here, setting.budget_usd)

    def run(self) -> Outcome:
        """From the beginning to the end."""
        for step in self.schedule.steps:
            if step.chases:
                self.chasers.setdefault(step.chases, []).append(step)
            self.timeline.at(step.at, lambda step=step: self._happens(step))  # type: ignore[misc]
        calm = self.schedule.calm_at
        self.timeline.at(FREED_SECONDS, lambda: setattr(self, "small_disk", False))
        self.timeline.at(calm, self._calm)
        for after in CRON_SECONDS:
            self.timeline.at(calm + after, self._cron)
        if self.is_job:
            for after, what, facts in FINALE:
                self.timeline.at(calm + after, lambda what=what, facts=facts: self._all_jobs(what, facts))  # type: ignore[misc]
        self.timeline.run(until=calm + CRON_SECONDS[-1] + 3600.0)
        with self._guarded():
            self.invariants.at_the_end()
        self.counts["runs"] += 1
        self.counts["seconds"] += int(self.timeline.seconds)
        return Outcome(schedule=self.schedule, violations=self.violations, log=self._log(), counts=self.counts)

    def log(self, process: Process | None, what: str, subject: str, result: str) -> None:
        """Notes something that happened."""
        self.lines.append((self.timeline.seconds, process.name if process else "world", what, subject, result))

    def violated(self, invariant: str, how: str) -> None:
        """Notes that something has not held."""
        if len(self.violations) < 20:
            how = how.replace(str(self.folder), "~")
            self.violations.append(f"{invariant}: {how} (at {self.timeline.seconds:.1f} s)")
            self.log(None, "VIOLATED", invariant, how)

    def check(self) -> None:
        """After every event."""
        self.invariants.always()
        if self.schedule.setting.nodes > 1:
            self._ranks_miss()

    def _ranks_miss(self) -> None:
        """The ranks of a job notice that a machine of it is gone, or that its job has failed."""
        setting = self.schedule.setting
        for machine in self.cloud.alive():
            job = machine.guest.job if machine.guest is not None else None
            if job is None or job.job_at is None or job.finished_at is not None or job.order.rendezvous is None:
                continue
            view = self.invariants.views[machine.tags[TAG_RUN]]
            number = job.order.rendezvous.node
            mates = [one for one in view.spec.node.run_ids if one != view.run_id] if view.spec.node else []
            gone = [one for one in mates if self._is_gone(one)]
            on = setting.min_nodes and len(mates) + 1 - len(gone) >= setting.min_nodes
            if not gone or machine.ref.instance_id in self._missing or (on and not (number and mates[0] in gone)):
                continue
            self._missing.add(machine.ref.instance_id)
            done = self.timeline.seconds - job.job_at + job.done_before
            failing = replace(job.script, seconds=done + NOTICED_SECONDS, exit_code=1, outputs={})
            job.script = replace(job.script, seconds=NEVER) if setting.ranks_hang else failing

    def _is_gone(self, run_id: str) -> bool:
        """Whether the ranks of a run's machine are."""
        machines = self.cloud.instances_of(run_id)
        job = machines[-1].guest.job if machines and machines[-1].guest is not None else None
        if job is not None and job.finished_at is not None:
            return job.reason is not EndReason.SUCCEEDED
        return bool(machines) and not (machines[-1].state is InstanceState.RUNNING or machines[-1].guest is None)

    def is_full(self, path: str) -> bool:
        """Whether the disk with that path has no room."""
        if not self.full or not path.startswith(str(self.folder / "here")):
            return False
        return ("work" if path.startswith(str(self.here.work)) else "state") in self.full

    def chased(self, call: str) -> None:
        """The run makes a call: those who wait for it begin."""
        for step in self.chasers.pop(call, ()):
            if id(step) not in self._started:
                self._started.add(id(step))
                self._start(step)

    def living(self, process: Process) -> bool:
        """Whether a process goes on."""
        return not process.over and not process.dead

    def _happens(self, step: Step) -> None:
        with self._guarded():
            if step.what in COMMANDS:
                if id(step) not in self._started:
                    self._started.add(id(step))
                    self._start(step)
            elif self.timeline.seconds < self.schedule.calm_at:
                self.counts[f"fault {step.what}"] += 1
                self.log(None, str(step.what), "", str(step.facts))
                FAULTS[step.what](self, step)
                self.here.store.full = "ledger" in self.full
            self.check()

    def _start(self, step: Step) -> None:
        process = Process(self, len(self.processes) + 1, step)
        self.processes.append(process)
        self.counts[f"command {step.what}"] += 1
        self.timeline.start(process, lambda: self._live(process))

    def _live(self, process: Process) -> None:
        said = "done"
        try:
            COMMANDS[process.step.what](process)
        except Killed:
            said = "killed"
        except Detached:
            said, process.must_not_end = "detached", True
        except (KeyboardInterrupt, StopSignal) as signal:
            said = type(signal).__name__
            if not process.signalled:
                self.violated("errors are ours", f"{process.name} ended by a {said} that nobody sent")
        except CostGpuError as error:
            said = f"{type(error).__name__}: {error.message}"
            if isinstance(error, IllegalEvent) and not self.here.store.harmed:
                self.violated("errors are ours", f"{process.name} ended with {said}")
        except BaseException as error:  # noqa: BLE001 - that is what is looked for
            said = f"{type(error).__name__}: {error}"
            where = traceback.extract_tb(error.__traceback__)
            place = next(
                (
                    f"{one.filename.rpartition('/')[2]}:{one.name}"
                    for one in reversed(where)
                    if "/costgpu/" in one.filename
                ),
                "",
            )
            self.violated("errors are ours", f"{process.name} ended with {said} in {place}")
        process.over = True
        self.log(process, "ends", "", said)
        with self._guarded():
            self.invariants.process_over(process)
            self.check()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A mistake of the simulation itself is no reason to hang."""
        try:
            yield
        except Exception:  # noqa: BLE001 - it is told as a violation
            self.violated("the simulation works", traceback.format_exc())

    def _calm(self) -> None:
        cloud = self.cloud
        cloud.faults.clear()
        cloud.network_cuts = [cut for cut in cloud.network_cuts if cut[2] in self.unguarded and cut[1] == NEVER]
        cloud.no_capacity_rules.clear()
        cloud.credentials_expire_at = None
        cloud.forgets_until = cloud.lags_until = -1.0
        cloud.damaged.clear()
        self.wrong_answers = 0
        self.ledger_seconds = 0.0
        self.small_disk = False
        self.full.clear()
        self.here.store.full = False
        self.here.store.failing_until = -1.0
        self.here.clock.offset_seconds = self.elsewhere.clock.offset_seconds = 0.0
        self._unstick()
        self.log(None, "calm", "", "")
        self.invariants.calm_begins()

    def _unstick(self) -> None:
        self.cloud.terminating_seconds = 2.0
        self.cloud.unstick()

    @property
    def is_job(self) -> bool:
        """Whether there is more than one run of one machine."""
        setting = self.schedule.setting
        several = setting.nodes > 1 or setting.recover is not None or setting.max_machines > 0
        return several or setting.retry_until_up or setting.next_size

    def _all_jobs(self, what: str, facts: tuple[tuple[str, Any], ...]) -> None:
        """Somebody comes back to every job that is not over."""
        for number in range(self.schedule.setting.jobs):
            if self.invariants.is_open(JOBS[number]):
                self._start(Step(at=self.timeline.seconds, what=what, facts=(("job", number), *facts)))

    def _script(self, request: CreateRequest, script: JobScript) -> JobScript:
        """What the job of a machine does there: those of other jobs make other things."""
        setting, view = self.schedule.setting, self.invariants.views[request.run_id]
        if int(request.offer.family[1:]) - 1 < setting.fits_size:
            return replace(script, seconds=5.0, exit_code=137, out_of_memory="gpu", outputs={})
        name = view.job_id + (f"/{view.spec.node.node}" if view.spec.node is not None and view.spec.node.node else "")
        if name == RUN:
            return script
        return replace(script, outputs={path: data + name.encode() for path, data in script.outputs.items()})

    def _cron(self) -> None:
        self._unstick()
        if self.schedule.setting.max_machines:
            self._start(Step(at=self.timeline.seconds, what="queue"))
        self._start(Step(at=self.timeline.seconds, what="reap", facts=(("elsewhere", False),)))

    def appended(self, event: RunEvent) -> None:
        """An event is in the ledger."""
        self.log(None, "event", event.run_id, f"{event.sequence} {event.kind.value}")
        self.invariants.appended(event)

    def _computer(self, name: str, folder: Path, target: Any) -> Computer:
        store = Store(target, lambda: self.timeline.seconds, self.appended)
        return Computer(name, folder, OwnClock(self.timeline), store)

    def _log(self) -> list[str]:
        root = str(self.folder)
        return [f"{at:10.3f} {who} {' '.join(rest)}".replace(root, "~") for at, who, *rest in self.lines]


def simulate(schedule: Schedule) -> Outcome:
    """Carries a schedule out, in a folder of its own. To be used within `seams.in_place`."""
    folder = Path(tempfile.mkdtemp(prefix="costgpu-simulation-"))
    try:
        world = Simulation(schedule, folder)
        seams.begin(schedule.seed, world.timeline, folder, ENVIRONMENT if schedule.setting.knows_variables else {})
        with contextlib.chdir(world.elsewhere.work):  # what is known by its tag alone comes home to where one is
            return world.run()
    finally:
        seams.end()
        shutil.rmtree(folder, ignore_errors=True)


def _job(schedule: Schedule) -> JobScript:
    setting = schedule.setting
    return JobScript(
        setup_seconds=setting.setup_seconds,
        setup_exit_code=setting.setup_exit_code,
        seconds=setting.job_seconds,
        exit_code=setting.exit_code,
        stdout=[(1.0, b"one\n"), (4.0, b"two\n")],
        stderr=[(2.0, b"oops\n")],
        outputs=OUTPUTS[setting.output],
        unreadable={"secret": "not yours"} if setting.unreadable else {},
        checkpoint={"model.pt": b"half"} if setting.output != "none" else {},
        sigterm_seconds=setting.sigterm_seconds,
        saves=setting.saves,
        resumes=setting.resumes,
        idles_after=setting.idles_after,
        fills_after=setting.fills_after,
    )


def _machine(schedule: Schedule) -> MachineScript:
    setting = schedule.setting
    names = ("pending_seconds", "boot_seconds", "boots", "ssh", "python", "host_key_matches")
    return MachineScript(**{name: getattr(setting, name) for name in names})


__all__ = ["RUN", "Outcome", "Simulation", "simulate"]
