"""The fake cloud's machine side: what a runner's Host sees, and the agent's rules in simulated time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import HostKeyMismatch, HostUnreachable, MachineUnusable, OutputsDamaged
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason, FileEntry, JobOrder, JobPhase, LogStream
from costgpu.models.run import EndedBy
from costgpu.runner.machine.host import Host, LogPosition, Selection
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeHost, JobScript, MachineScript
from tests.fake_cloud.script import NEVER

UPLOADS = {"outputs": "https://bucket/outputs", "logs": "https://bucket/logs"}


class Machine:
    """A fake machine that SSH answers on, and what a client does with it."""

    def __init__(self, job: JobScript, machine: MachineScript | None = None, *, lease: float = 3600.0) -> None:
        self.harness = FakeHarness()
        self.clock, self.cloud = self.harness.clock, self.harness.cloud
        self.cloud.visible_after_seconds = 0
        self.cloud.script, self.cloud.machine = job, machine or MachineScript()
        type(self.harness).lease_seconds = lease
        self.request = self.harness.request()
        self.ref = self.harness.client().create(self.request).ref
        self.clock.sleep(25)
        self.heard: dict[LogStream, bytes] = {LogStream.STDOUT: b"", LogStream.STDERR: b""}

    def order(self, **changes: Any) -> JobOrder:
        made = JobOrder(
            argv=("train.py",),
            setup="",
            outputs=(),
            processes=0,
            python="",
            deadline_epoch=self.request.lease_until.timestamp(),
            max_duration_seconds=None,
            idle_seconds=None,
            grace_seconds=30.0,
            spot=False,
            provider="fake",
            power_off=True,
        )
        return replace(made, **changes)

    def connect(self) -> FakeHost:
        found = self.harness.client().describe(self.ref)
        assert found is not None
        return self.cloud.connect(found, None)

    def start(self, uploads: dict[str, str] | None = None, **changes: Any) -> FakeHost:
        host = self.connect()
        host.install()
        host.start(self.order(**changes), {"TOKEN": "secret"}, uploads or {})
        return host

    def sink(self, stream: LogStream, data: bytes) -> None:
        self.heard[stream] += data

    @property
    def truth(self) -> Any:
        return self.cloud.instance(self.ref.instance_id)

    @property
    def job(self) -> Any:
        return self.truth.guest.job


@pytest.fixture(autouse=True)
def lease() -> Any:
    before = FakeHarness.lease_seconds
    yield
    FakeHarness.lease_seconds = before


def test_a_connection_is_a_host() -> None:
    host: Host = Machine(JobScript()).connect()
    assert host.status().phase is JobPhase.WAITING


def test_the_whole_journey(tmp_path: Path) -> None:
    machine = Machine(
        JobScript(
            setup_seconds=20,
            setup_output=b"collecting\n",
            seconds=100,
            exit_code=3,
            stdout=[(0, b"one\n"), (50, b"two\n")],
            stderr=[(60, b"warn\n")],
            outputs={"out/model.pt": b"weights", "notes.txt": b"x"},
        )
    )
    host = machine.connect()
    host.install()
    sent = Selection(root=tmp_path, files=(FileEntry(path="train.py", size=12, sha256="ab"),), links={"a": "train.py"})
    assert (host.send(sent), host.send(sent)) == (12, 0)
    order = machine.order(setup="pip install x", outputs=("out/", "*.csv"))
    host.start(order, {"TOKEN": "secret"}, {})
    host.start(machine.order(), {}, {})
    assert host.status().phase is JobPhase.SETUP
    before = machine.clock.monotonic()
    status = host.follow(LogPosition(), machine.sink)
    assert machine.clock.monotonic() == before + 120
    assert (status.phase, status.reason, status.exit_code) == (JobPhase.FINISHED, EndReason.JOB_FAILED, 3)
    assert (status.stdout_bytes, status.stderr_bytes) == (8, 16)
    assert status.finished_epoch == pytest.approx((status.started_epoch or 0) + 120)
    assert machine.heard == {LogStream.STDOUT: b"one\ntwo\n", LogStream.STDERR: b"collecting\nwarn\n"}
    outputs = host.outputs()
    assert [entry.path for entry in outputs.files] == ["out/model.pt"]
    assert outputs.missing == ("*.csv",)
    host.fetch(outputs.files, tmp_path)
    host.fetch_logs(tmp_path)
    assert (tmp_path / "out" / "model.pt").read_bytes() == b"weights"
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"
    assert machine.job.order == order
    assert machine.job.secrets == {"TOKEN": "secret"}
    assert "secret" not in repr(machine.job)
    assert "secret" not in repr(machine.cloud.calls)


def test_following_again_goes_on_where_it_was() -> None:
    machine = Machine(JobScript(seconds=100, stdout=[(t, b"0123456789") for t in range(0, 100, 10)]))
    host = machine.start()

    class Enough(Exception):
        pass

    def fed_up(stream: LogStream, data: bytes) -> None:
        machine.sink(stream, data)
        if len(machine.heard[LogStream.STDOUT]) >= 30:
            raise Enough

    with pytest.raises(Enough):
        host.follow(LogPosition(), fed_up)
    host.close()
    with pytest.raises(HostUnreachable, match="closed"):
        host.status()
    machine.clock.sleep(33)
    position = LogPosition(stdout=27)
    machine.heard[LogStream.STDOUT] = machine.heard[LogStream.STDOUT][:27]
    machine.connect().follow(position, machine.sink)
    assert machine.heard[LogStream.STDOUT] == b"0123456789" * 10


@pytest.mark.parametrize(
    ("script", "changes", "reason", "exit_code", "after"),
    [
        (JobScript(seconds=50), {}, EndReason.SUCCEEDED, 0, 50),
        (JobScript(seconds=NEVER), {"max_duration_seconds": 70.0}, EndReason.MAX_DURATION, 143, 71),
        (
            JobScript(seconds=NEVER, sigterm_seconds=NEVER),
            {"max_duration_seconds": 70.0},
            EndReason.MAX_DURATION,
            137,
            100,
        ),
        (JobScript(seconds=NEVER, idle_after=20), {"idle_seconds": 60.0}, EndReason.IDLE, 143, 81),
        (JobScript(seconds=NEVER, disk_full_after=20), {}, EndReason.DISK_FULL, 143, 21),
        (JobScript(seconds=NEVER), {}, EndReason.DEADLINE, 143, 3600 - 25 - 90 + 1),
        (JobScript(setup_seconds=9, setup_exit_code=4), {"setup": "false"}, EndReason.SETUP_FAILED, 4, 9),
    ],
)
def test_what_ends_a_job(
    script: JobScript, changes: dict[str, Any], reason: EndReason, exit_code: int, after: float
) -> None:
    machine = Machine(replace(script, outputs={"a": b"all"}, checkpoint={"a": b"part"}))
    host = machine.start(**changes)
    before = machine.clock.monotonic()
    status = host.follow(LogPosition(), machine.sink)
    assert (status.reason, status.exit_code) == (reason, exit_code)
    assert machine.clock.monotonic() - before == pytest.approx(after)
    content = {EndReason.SUCCEEDED: {"a": b"all"}, EndReason.SETUP_FAILED: {}}.get(reason, {"a": b"part"})
    assert machine.job.outputs == content


def test_cancel_from_another_terminal() -> None:
    machine = Machine(JobScript(seconds=NEVER))
    host = machine.start()
    machine.cloud.schedule(100, lambda: machine.connect().cancel())
    before = machine.clock.monotonic()
    status = host.follow(LogPosition(), machine.sink)
    assert (status.reason, status.exit_code) == (EndReason.CANCELLED, 143)
    assert machine.clock.monotonic() == before + 101


def test_preemption_gives_notice_and_time_for_a_checkpoint() -> None:
    machine = Machine(JobScript(seconds=NEVER, checkpoint={"ck": b"1"}), MachineScript(preempted_at=500))
    host = machine.start(UPLOADS, spot=True)
    status = host.follow(LogPosition(), machine.sink)
    assert status.reason is EndReason.PREEMPTED
    assert machine.clock.monotonic() == pytest.approx(500 - 120 + 1)
    machine.clock.sleep(100)
    assert machine.cloud.bucket[UPLOADS["outputs"]] == {"ck": b"1"}


def test_preempted_while_somebody_follows() -> None:
    machine = Machine(JobScript(seconds=NEVER), MachineScript(preempted_at=500, preemption_notice_seconds=0))
    host = machine.start()
    with pytest.raises(HostUnreachable):
        host.follow(LogPosition(), machine.sink)
    found = machine.harness.client().describe(machine.ref)
    assert found is not None
    assert found.preempted


def test_outputs_wait_under_the_lease_for_a_client_that_is_gone() -> None:
    machine = Machine(JobScript(seconds=50, outputs={"a": b"1"}))
    machine.start()
    machine.clock.sleep(3400)
    assert machine.truth.state is InstanceState.RUNNING
    assert machine.connect().outputs().files
    machine.clock.sleep(3600)
    assert machine.truth.ended_by is EndedBy.AGENT
    assert not machine.cloud.past_lease()


def test_with_a_bucket_it_need_not_wait() -> None:
    machine = Machine(JobScript(seconds=50, stdout=[(1, b"hi")], outputs={"a": b"1"}))
    machine.start(UPLOADS)
    machine.clock.sleep(60)
    assert machine.cloud.bucket == {
        UPLOADS["outputs"]: {"a": b"1"},
        UPLOADS["logs"]: {"stdout.log": b"hi", "stderr.log": b""},
    }
    assert machine.truth.ended_by is EndedBy.AGENT
    assert machine.truth.end_reason is EndReason.SUCCEEDED
    assert "agent succeeded: powering off" in machine.harness.client().console(machine.ref)


def test_without_auto_shutdown_it_waits_even_then() -> None:
    machine = Machine(JobScript(seconds=50))
    machine.start(UPLOADS, power_off=False)
    machine.clock.sleep(3000)
    assert machine.connect().status().uploaded
    machine.clock.sleep(3000)
    assert not machine.cloud.alive()


def test_a_client_that_took_everything_and_died(tmp_path: Path) -> None:
    machine = Machine(JobScript(seconds=50, outputs={"a": b"1"}))
    host = machine.start()
    host.follow(LogPosition(), machine.sink)
    host.fetch_logs(tmp_path)
    host.fetch(host.outputs().files, tmp_path)
    host.collected()
    machine.clock.sleep(119)
    assert machine.truth.state is InstanceState.RUNNING
    machine.clock.sleep(2)
    assert machine.truth.ended_by is EndedBy.AGENT


@pytest.mark.parametrize("installed", [True, False])
def test_a_machine_that_nobody_claims(installed: bool) -> None:
    machine = Machine(JobScript())
    if installed:
        machine.connect().install()
    machine.clock.sleep(930)
    assert machine.truth.end_reason is EndReason.UNCLAIMED
    assert machine.truth.ended_by is (EndedBy.AGENT if installed else EndedBy.WATCHDOG)


def test_a_dead_agent_stops_neither_the_job_nor_the_watchdog() -> None:
    machine = Machine(JobScript(seconds=NEVER, stdout=[(200, b"still here")]), MachineScript(agent_dies_at=100))
    host = machine.start(max_duration_seconds=150.0)
    machine.clock.sleep(300)
    status = host.status()
    assert (status.phase, status.stdout_bytes) == (JobPhase.RUNNING, 10)
    machine.clock.sleep(4000)
    assert machine.truth.ended_by is EndedBy.WATCHDOG
    assert not machine.cloud.past_lease()


def test_a_dead_agent_can_be_installed_again() -> None:
    machine = Machine(JobScript(seconds=NEVER))
    host = machine.start(max_duration_seconds=150.0)
    machine.cloud.kill_agent(machine.ref.instance_id)
    machine.clock.sleep(300)
    host.cancel()
    assert host.status().phase is JobPhase.RUNNING
    host.install()
    machine.clock.sleep(2)
    assert host.status().reason in (EndReason.MAX_DURATION, EndReason.CANCELLED)


def test_an_agent_that_comes_back_by_itself() -> None:
    machine = Machine(JobScript(seconds=NEVER), MachineScript(agent_dies_at=100, agent_back_after=5))
    status = machine.start(max_duration_seconds=102.0).follow(LogPosition(), machine.sink)
    assert status.reason is EndReason.MAX_DURATION
    assert machine.job.stop_at == machine.job.setup_at + 105


def test_the_network_is_cut_for_a_while() -> None:
    machine = Machine(JobScript(seconds=1000))
    host = machine.start()
    machine.cloud.cut_network(100, after=50)
    before = machine.clock.monotonic()
    with pytest.raises(HostUnreachable, match="network"):
        host.follow(LogPosition(), machine.sink)
    assert machine.clock.monotonic() == pytest.approx(before + 50)
    assert machine.harness.state(machine.ref) is InstanceState.RUNNING
    with pytest.raises(HostUnreachable):
        machine.connect()
    machine.clock.sleep(100)
    assert machine.connect().status().phase is JobPhase.RUNNING


def test_access_is_checked_if_the_client_has_an_address() -> None:
    machine = Machine(JobScript())
    machine.cloud.client_address = "203.0.113.7"
    machine.connect()
    machine.cloud.client_address = "198.51.100.1"
    with pytest.raises(HostUnreachable, match="lets nobody in"):
        machine.connect()
    found = machine.harness.client().describe(machine.ref)
    assert found is not None
    machine.harness.client().open_access(found, "198.51.100.0/24")
    machine.connect()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (MachineScript(ssh=False), HostUnreachable),
        (MachineScript(boot_seconds=100), HostUnreachable),
        (MachineScript(host_key_matches=False), HostKeyMismatch),
        (MachineScript(python=False), MachineUnusable),
    ],
)
def test_machines_that_are_of_no_use(script: MachineScript, error: type[Exception]) -> None:
    machine = Machine(JobScript(), script)
    with pytest.raises(error):
        machine.connect().install()


def test_a_damaged_output_arrives_the_second_time(tmp_path: Path) -> None:
    machine = Machine(JobScript(seconds=1, outputs={"a": b"1", "b": b"2"}))
    host = machine.start()
    host.follow(LogPosition(), machine.sink)
    machine.cloud.damage_transfers("b")
    with pytest.raises(OutputsDamaged, match="b arrived"):
        host.fetch(host.outputs().files, tmp_path)
    assert not (tmp_path / "b").exists()
    host.fetch(host.outputs().files, tmp_path)
    assert (tmp_path / "b").read_bytes() == b"2"
    assert [call.subject for call in machine.cloud.calls if call.method == "fetch_file"] == ["a", "b", "a", "b"]


def test_faults_strike_hosts_too(tmp_path: Path) -> None:
    machine = Machine(JobScript(seconds=1, outputs={"a": b"1", "b": b"2"}))
    host = machine.start()
    host.follow(LogPosition(), machine.sink)
    machine.cloud.faults.next("fetch_file", error=HostUnreachable("cut"), skip=1)
    with pytest.raises(HostUnreachable):
        host.fetch(host.outputs().files, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    machine.cloud.faults.next("start", after=True, error=HostUnreachable("lost"))
    with pytest.raises(HostUnreachable):
        host.start(machine.order(), {}, {})
