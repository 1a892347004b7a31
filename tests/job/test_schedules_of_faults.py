"""Schedules of faults against the invariants of termination, for a job on two machines of the fake cloud.

A single machine has the same in tests/simulation.

Clients are started, killed and followed by others; providers fail, throttle and lose answers; machines are preempted,
cut off and ended by hand; agents die. Afterwards time passes and reap runs. What must hold:

- no machine outlives its lease; what is billed never exceeds the cap by more than one billing minute;
- a run is closed only when its machine is gone;
- there is at most one machine per run at any time, and never more for a job than it asked for, however often create
  calls went unanswered;
- nothing of somebody else's is touched;
- a finished job's outputs are home whenever a client or reap ended the machine.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from costgpu.errors import CostGpuError, Throttled, Unreachable
from costgpu.job.adopt import adopt_job
from costgpu.job.drive.context import Detached
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import load_run
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import NullObserver
from costgpu.models.job import JobPhase
from costgpu.models.run import EndedBy, RunState
from costgpu.providers.base import TAG_RUN
from tests.fake_cloud import JobScript, MachineScript
from tests.job.group_world import GroupWorld
from tests.job.mortal import Killed, Life, MemoryBook, Mortal, tools
from tests.job.world import RUN
from tests.properties import examples

CAP_USD, PRICE_USD = 2.0, 1.0
WATCHDOG_TICK = 60.0


class Schedule(RuleBasedStateMachine):
    """One job, many clients, one unreliable world."""

    @initialize(
        job=st.fixed_dictionaries(
            {
                "seconds": st.sampled_from([5.0, 300.0, 6000.0, 20000.0]),
                "exit_code": st.sampled_from([0, 0, 3]),
                "setup_exit_code": st.sampled_from([0, 0, 0, 1]),
            }
        ),
        machine=st.builds(
            MachineScript,
            boot_seconds=st.sampled_from([1.0, 20.0, 900.0]),
            ssh=st.sampled_from([True, True, True, False]),
        ),
        facts=st.fixed_dictionaries(
            {
                "visible_after_seconds": st.sampled_from([0.0, 0.0, 30.0]),
                "terminating_seconds": st.sampled_from([0.0, 30.0, 1200.0]),
                "watchdog_works": st.sampled_from([True, True, True, False]),
                "skew_seconds": st.sampled_from([0.0, 0.0, 3600.0, -3600.0]),
            }
        ),
    )
    def begin(self, job: dict[str, Any], machine: MachineScript, facts: dict[str, Any]) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        outputs: dict[str, Any] = {"outputs": {"model.pt": b"weights"}, "stdout": [(1.0, b"hello\n")]}
        script = JobScript(setup_seconds=20, **outputs, **job)
        self.world = GroupWorld(Path(self.temporary.name), script, machine)
        self.clock, self.cloud, self.book = self.world.clock, self.world.cloud, self.world.book
        for name, value in facts.items():
            setattr(self.cloud, name, value)
        self.most_at_once = 0
        self.cloud.faults.on_call = lambda _method, _subject: self._count()

    def _count(self) -> None:
        machines = [i for i in self.cloud.instances.values() if i.ours and i.state.alive]
        self.most_at_once = max(self.most_at_once, len(machines))

    @rule(dies_at=st.none() | st.integers(1, 60), after=st.booleans(), has_environment=st.booleans())
    def a_client_comes(self, dies_at: int | None, after: bool, has_environment: bool) -> None:
        life = Life(dies_at=dies_at, after=after)
        with contextlib.suppress(Killed, Detached, CostGpuError):
            if RUN not in self.book.rows:
                self.world.launch_group(life=life, max_cost=str(CAP_USD), env_names=("TOKEN",))
            else:
                with self._adopted(life, {"TOKEN": "x"} if has_environment else None) as driver:
                    driver.drive()

    @contextlib.contextmanager
    def _adopted(self, life: Life, environment: dict[str, str] | None) -> Iterator[JobDriver]:
        kit, book = tools(self.cloud, self.world.folder, life), Mortal(self.book, life, "ledger")
        view = load_run(self.book, self._run_id())
        with lock_run(self.world.folder / "runs" / view.job_id):
            yield adopt_job(view, book, kit, NullObserver(), environment)

    def _run_id(self) -> str:
        """The first run of the newest try."""
        node = load_run(self.book, next(reversed(self.book.rows))).spec.node
        return node.group_id if node is not None else RUN

    @rule(dies_at=st.none() | st.integers(1, 60), after=st.booleans())
    def cancelled(self, dies_at: int | None, after: bool) -> None:
        if RUN in self.book.rows and load_run(self.book, self._run_id()).state is not RunState.CLOSED:
            with (
                contextlib.suppress(Killed, Detached, CostGpuError),
                self._adopted(Life(dies_at=dies_at, after=after), None) as driver,
            ):
                driver.cancel()

    @rule(minutes=st.sampled_from([0.1, 1.0, 10.0, 45.0]))
    def time_passes(self, minutes: float) -> None:
        self.clock.sleep(minutes * 60)

    @rule(dies_at=st.none() | st.integers(1, 40), after=st.booleans())
    def cron_comes_by(self, dies_at: int | None, after: bool) -> None:
        with contextlib.suppress(Killed):
            self.world.reap(Life(dies_at=dies_at, after=after))

    @rule(
        method=st.sampled_from(["create", "describe", "terminate", "find", "list_owned", "clean_up"]),
        error=st.sampled_from([Unreachable("no answer"), Throttled("slow down")]),
        after=st.booleans(),
        times=st.sampled_from([1, 2, 5, 40]),
    )
    def the_provider_fails(self, method: str, error: CostGpuError, after: bool, times: int) -> None:
        self.cloud.faults.next(method, error=error, after=after and isinstance(error, Unreachable), times=times)

    @rule(after=st.sampled_from([0.0, 30.0, 400.0]), seconds=st.sampled_from([5.0, 200.0, 5000.0]))
    def the_network_is_cut(self, after: float, seconds: float) -> None:
        self.cloud.cut_network(seconds, after=after)

    @rule(region=st.sampled_from(["us-east-1", "us-west-2"]), times=st.sampled_from([1, 3, None]))
    def no_capacity(self, region: str, times: int | None) -> None:
        self.cloud.no_capacity(region=region, times=times)

    @rule(after=st.sampled_from([0.0, 100.0, 3000.0]))
    def preempted(self, after: float) -> None:
        for instance in self.cloud.alive():
            self.cloud.preempt(instance.ref.instance_id, after=after)

    @rule(after=st.sampled_from([1.0, 100.0, 2000.0]))
    def the_agent_dies(self, after: float) -> None:
        for instance in self.cloud.alive():
            name = instance.ref.instance_id
            self.cloud.schedule(after, lambda name=name: self.cloud.kill_agent(name))  # type: ignore[misc]

    @rule(stop=st.booleans())
    def somebody_else_ends_it(self, stop: bool) -> None:
        for instance in self.cloud.alive():
            if instance.state.value == "running":
                end = self.cloud.stop_by_somebody if stop else self.cloud.terminate_by_somebody
                end(instance.ref.instance_id)

    @invariant()
    def nothing_is_billed_for_long_after_its_lease(self) -> None:
        if not hasattr(self, "cloud"):
            return
        self._count()
        assert self.most_at_once <= self.world.nodes
        assert self.cloud.foreign_untouched()
        if self.cloud.watchdog_works:
            late = [i for i in self.cloud.past_lease(slack_seconds=WATCHDOG_TICK) if i.guest is not None]
            assert not late

    @invariant()
    def a_closed_run_has_no_machine(self) -> None:
        alive = {one.tags[TAG_RUN] for one in self.cloud.alive()} if hasattr(self, "cloud") else set()
        for run_id in getattr(self, "book", MemoryBook()).rows:
            assert run_id not in alive or load_run(self.book, run_id).state is not RunState.CLOSED

    def teardown(self) -> None:
        if not hasattr(self, "cloud"):
            return
        try:
            self.the_end()
        finally:
            self.temporary.cleanup()

    def the_end(self) -> None:
        """Only time passes, and reap runs from cron."""
        self.cloud.faults.clear()
        self.cloud.unstick()
        self.cloud.network_cuts.clear()
        for _ in range(16):
            self.clock.sleep(900)
            self.cloud.unstick()
            self.world.reap()
        assert not self.cloud.alive()
        assert self.most_at_once <= self.world.nodes
        assert self.cloud.foreign_untouched()
        for run_id in self.book.rows:
            assert len(self.cloud.instances_of(run_id)) <= 1
            assert not self.cloud.leftovers(run_id)
            assert load_run(self.book, run_id).state is RunState.CLOSED
        for instance in [one for one in self.cloud.instances.values() if one.ours]:
            cost = max(60.0, self.cloud.billing_seconds(instance.ref.instance_id)) * PRICE_USD / 3600
            if self.cloud.watchdog_works and instance.guest is not None:
                assert cost <= CAP_USD + PRICE_USD / 60
            job = instance.guest.job if instance.guest is not None else None
            finished = job is not None and job.phase is JobPhase.FINISHED and job.exit_code == 0
            if finished and instance.ended_by is EndedBy.CLIENT and job is not None and job.order.keep_outputs:
                assert (self.world.work / "model.pt").read_bytes() == b"weights"


TestSchedules = Schedule.TestCase
TestSchedules.settings = examples(400, stateful_step_count=12, suppress_health_check=list(HealthCheck))
