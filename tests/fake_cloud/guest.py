"""The inside of a fake machine: watchdog, agent and job, as events on the cloud's time line.

A guest is advanced from event to event, never by small steps, so what happens while nobody looks happens at its exact
time. The rules are the real agent's: a job is ended by its limits only while the agent lives, the watchdog needs no
agent, and the outputs of a finished job wait until the lease unless they could be uploaded.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from costgpu.models.job import EndReason, FileEntry, JobOrder, JobPhase, LogStream
from costgpu.models.run import EndedBy
from tests.fake_cloud.script import NEVER, AgentRules, JobScript, MachineScript

Event = tuple[float, Callable[[float], None]]


@dataclass(kw_only=True)
class FakeJob:
    """The one job of a machine, and how far it is.

    Attributes:
        order: What was asked for.
        script: What it does.
        secrets: What arrived on standard input; in the memory of the machine only, and never printed.
        uploads: ``outputs`` and ``logs`` -> URL.
        setup_at: When the set-up began, on the cloud's time line.
        job_at: When the job began; None until then.
        stop_at: When it was told to end; None if it was not.
        reason: Why it was told to end or, once finished, why it ended.
        finished_at: None until it has.
        exit_code: None until it has.
        uploaded_at: When outputs and logs were in the bucket; None until then.
        collected_at: When a client said that it has fetched all of it; None until then.
        met: Whether a client was there when it ended, or later.
        cancelled_at: When a client asked for its end.
        outputs: What lies in the working folder at the end.
    """

    order: JobOrder
    script: JobScript
    setup_at: float
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    uploads: Mapping[str, str] = field(default_factory=dict, repr=False)
    job_at: float | None = None
    stop_at: float | None = None
    reason: EndReason | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    uploaded_at: float | None = None
    collected_at: float | None = None
    met: bool = False
    cancelled_at: float | None = None
    outputs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def phase(self) -> JobPhase:
        """Now."""
        if self.finished_at is not None:
            return JobPhase.FINISHED
        return JobPhase.SETUP if self.job_at is None else JobPhase.RUNNING

    def chunks(self) -> Iterator[tuple[float, LogStream, bytes]]:
        """What it writes: (time, stream, bytes), as far as it is known by now."""
        if self.script.setup_output:
            yield self.setup_at, LogStream.STDERR, self.script.setup_output
        if self.job_at is None:
            return
        until = NEVER if self.finished_at is None else self.finished_at
        for name, chunks in ((LogStream.STDOUT, self.script.stdout), (LogStream.STDERR, self.script.stderr)):
            for after, data in chunks:
                if self.job_at + after <= until:
                    yield self.job_at + after, name, data

    def written(self, stream: LogStream, at: float) -> bytes:
        """Everything on a stream up to a time."""
        return b"".join(data for when, name, data in self.chunks() if name == stream and when <= at)


class Guest:
    """A booted machine.

    Attributes:
        job: None until one was started.
        agent: Whether the agent is there and alive.
        files: The working folder as it was sent.
        bucket: Where uploads go: URL -> path -> content.
    """

    def __init__(
        self,
        *,
        machine: MachineScript,
        job_script: JobScript,
        rules: AgentRules,
        booted_at: float,
        lease_at: float,
        lifetime_seconds: float,
        preempted_at: float | None,
        watchdog_works: Callable[[], bool],
        agent_works: Callable[[], bool],
        power_off: Callable[[float, EndedBy, EndReason], None],
        on_machine_clock: Callable[[float], float],
        bucket: dict[str, Mapping[str, bytes]],
    ) -> None:
        self.machine = machine
        self.job: FakeJob | None = None
        self.agent = False
        self.files: dict[str, FileEntry] = {}
        self.links: dict[str, str] = {}
        self.bucket = bucket
        self.booted_at = booted_at
        self.followers = 0
        self.preempted_at = preempted_at
        self._job_script = job_script
        self._rules = rules
        # The lease as the machine's own clock sees it, and the time since boot: whichever comes first.
        self._watchdog_at = min(max(booted_at, lease_at - machine.clock_skew_seconds), booted_at + lifetime_seconds)
        self._watchdog_works, self._agent_works = watchdog_works, agent_works
        self._power_off = power_off
        self._on_machine_clock = on_machine_clock
        self._agent_since = booted_at
        self._agent_dead_since: float | None = None
        self._agent_dies_at = NEVER
        self._ever_installed = False
        self._contact = booted_at

    @property
    def ssh_at(self) -> float:
        """When SSH answers."""
        return self.booted_at + self.machine.boot_seconds if self.machine.boots and self.machine.ssh else NEVER

    def heard(self, at: float) -> None:
        """A client was there."""
        self._contact = max(self._contact, at)
        if self.job is not None and self.job.finished_at is not None:
            self.job.met = True

    def install(self, at: float) -> None:
        """The agent is put there and started, if it does not run."""
        self.heard(at)
        if not self.agent:
            first = not self._ever_installed
            self._start_agent(at)
            if first and self.machine.agent_dies_at is not None:
                self._agent_dies_at = at + self.machine.agent_dies_at
            self._ever_installed = True

    def kill_agent(self, at: float) -> None:
        """The agent dies; the job and the watchdog do not."""
        if self.agent:
            self.agent, self._agent_dead_since, self._agent_dies_at = False, at, NEVER

    def start(self, at: float, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """Starts the job, once."""
        if self.job is None:
            self.job = FakeJob(
                order=order, script=self._job_script, setup_at=at, secrets=dict(secrets), uploads=dict(uploads)
            )

    def cancel(self, at: float) -> None:
        """SIGTERM, grace, SIGKILL for the job, by the agent: a dead one does it when it is back."""
        if self.job is not None and self.job.cancelled_at is None:
            self.job.cancelled_at = at

    def events(self) -> Iterator[Event]:
        """What can happen next; the earliest counts, and then the question is asked again."""
        if not self.machine.boots:
            return
        if self._agent_dead_since is not None and self.machine.agent_back_after is not None:
            yield self._agent_dead_since + self.machine.agent_back_after, self._start_agent
        if self.agent and self._agent_dies_at < NEVER:
            yield self._agent_dies_at, self.kill_agent
        if self.job is not None:
            yield from self._job_events(self.job)
        if self.agent and self._agent_works():
            yield from self._agent_events()
        if self._watchdog_works():
            yield self._watchdog_at, self._off(EndedBy.WATCHDOG, EndReason.DEADLINE)
            if not self._ever_installed:
                unclaimed = self.booted_at + self._rules.unclaimed_seconds
                yield unclaimed, self._off(EndedBy.WATCHDOG, EndReason.UNCLAIMED)

    def _job_events(self, job: FakeJob) -> Iterator[Event]:
        if job.finished_at is not None:
            return
        if job.stop_at is not None:
            grace = job.order.grace_seconds
            yield job.stop_at + min(job.script.sigterm_seconds, grace), self._stopped
        if job.job_at is None:
            yield job.setup_at + (job.script.setup_seconds if job.order.setup else 0.0), self._setup_over
        else:
            yield job.job_at + job.script.seconds, self._job_over

    def _agent_events(self) -> Iterator[Event]:
        job = self.job
        if job is None:
            if not self.followers:
                since = max(self._agent_since, self._contact)
                yield since + self._rules.unclaimed_seconds, self._off(EndedBy.AGENT, EndReason.UNCLAIMED)
            return
        deadline, since, rules = self._on_machine_clock(job.order.deadline_epoch), self._agent_since, self._rules
        if job.finished_at is None:
            if job.stop_at is None:
                for at, reason in self._limits(job, deadline):
                    yield max(at, since), self._stopper(reason)
        else:
            if job.uploads and job.uploaded_at is None:
                yield max(job.finished_at, since) + rules.upload_seconds, self._uploaded
            safe = [at for at in (job.uploaded_at, job.collected_at) if at is not None]
            if safe and job.order.power_off:
                off = self._off(EndedBy.AGENT, job.reason or EndReason.DEADLINE)
                yield max(min(safe) + rules.patience_seconds, since), off
                if not self.followers:
                    left = self._contact + rules.linger_seconds if job.met else 0.0
                    yield max(min(safe), left, since), off
        yield max(deadline - rules.last_seconds, since), self._off(EndedBy.AGENT, EndReason.DEADLINE)

    def _limits(self, job: FakeJob, deadline: float) -> Iterator[tuple[float, EndReason]]:
        order, script = job.order, job.script
        if job.cancelled_at is not None:
            yield job.cancelled_at, EndReason.CANCELLED
        share = self._rules.short_lease_share * max(0.0, deadline - self.booted_at)
        yield deadline - min(order.grace_seconds + self._rules.collect_seconds, share), EndReason.DEADLINE
        if order.spot and self.preempted_at is not None:
            yield self.preempted_at - self.machine.preemption_notice_seconds, EndReason.PREEMPTED
        if job.job_at is None:
            return
        if order.max_duration_seconds is not None:
            yield job.job_at + order.max_duration_seconds, EndReason.MAX_DURATION
        if order.idle_seconds is not None and script.idle_after is not None:
            yield job.job_at + script.idle_after + order.idle_seconds, EndReason.IDLE
        if script.disk_full_after is not None:
            yield job.job_at + script.disk_full_after, EndReason.DISK_FULL

    def _start_agent(self, at: float) -> None:
        self.agent, self._agent_since, self._agent_dead_since = True, at, None

    def _off(self, by: EndedBy, reason: EndReason) -> Callable[[float], None]:
        return lambda at: self._power_off(at, by, reason)

    def _stopper(self, reason: EndReason) -> Callable[[float], None]:
        return lambda at: self._stop(at, reason)

    def _stop(self, at: float, reason: EndReason) -> None:
        job = self.job
        if job is not None and job.finished_at is None and job.stop_at is None:
            job.stop_at, job.reason = at, reason

    def _setup_over(self, at: float) -> None:
        job = self._the_job()
        if job.order.setup and job.script.setup_exit_code:
            self._finish(at, EndReason.SETUP_FAILED, job.script.setup_exit_code, {})
        else:
            job.job_at = at

    def _job_over(self, at: float) -> None:
        job = self._the_job()
        ended = EndReason.JOB_FAILED if job.script.exit_code else EndReason.SUCCEEDED
        self._finish(at, job.reason or ended, job.script.exit_code, job.script.outputs)

    def _stopped(self, at: float) -> None:
        job = self._the_job()
        killed = job.script.sigterm_seconds > job.order.grace_seconds
        left = job.script.checkpoint if job.job_at is not None else {}
        self._finish(at, job.reason or EndReason.CANCELLED, 137 if killed else job.script.sigterm_exit_code, left)

    def _finish(self, at: float, reason: EndReason, exit_code: int, outputs: Mapping[str, bytes]) -> None:
        job = self._the_job()
        job.finished_at, job.reason, job.exit_code, job.outputs = at, reason, exit_code, dict(outputs)
        job.met = bool(self.followers)

    def _uploaded(self, at: float) -> None:
        job = self._the_job()
        job.uploaded_at = at
        logs = {f"{stream}.log": job.written(stream, at) for stream in LogStream}
        for kind, content in (("outputs", job.outputs), ("logs", logs)):
            if kind in job.uploads:
                self.bucket[job.uploads[kind]] = dict(content)

    def _the_job(self) -> FakeJob:
        assert self.job is not None
        return self.job
