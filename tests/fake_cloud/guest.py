"""The inside of a fake machine: watchdog, agent and job, as events on the cloud's time line.

A guest is advanced from event to event, never by small steps, so what happens while nobody looks happens at its exact
time. The rules are the real agent's: a job is ended by its limits only while the agent lives, the watchdog needs no
agent, and the outputs of a finished job wait until the lease unless they could be uploaded.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from costgpu.job.agent.outputs.outside import WORK_SECONDS
from costgpu.models.job import EndReason, FileEntry, JobOrder, JobPhase, LogStream
from costgpu.models.run import EndedBy
from tests.fake_cloud.script import NEVER, PROGRESS, JobScript, MachineScript

UNCLAIMED_SECONDS = 900.0  # without any client before a job was started, until power-off
CONTACT_SECONDS = 30.0  # a client that was there so shortly before the end of a job counts as there
LINGER_SECONDS = 120.0  # without a word of a client, once outputs are safe, until power-off
PATIENCE_SECONDS = 900.0  # once outputs are safe, until power-off even if a client looks on
COLLECT_SECONDS = 60.0  # kept free, besides the job's grace, between the job's end and the deadline
SHORT_LEASE_SHARE = 0.2  # never more than this share of the whole time is kept free
FAILS_SECONDS = 3.0  # of a job that cannot go on
LAST_SECONDS = 2.0  # how long before the deadline the agent switches off, ahead of the watchdog
UPLOAD_SECONDS = 2.0  # what an upload takes
NOTICE_SECONDS = 120.0  # how long before a machine is taken back it is told
Event = tuple[float, Callable[[float], None]]


@dataclass(kw_only=True)
class FakeJob:
    """The one job of a machine, and how far it is."""

    order: JobOrder  # what was asked for
    script: JobScript  # what it does
    setup_at: float  # when the set-up began, on the cloud's time line
    # what arrived on standard input; in the memory of the machine only, and never printed
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    uploads: Mapping[str, str] = field(default_factory=dict, repr=False)  # ``outputs`` and ``logs`` -> URL
    job_at: float | None = None  # when the job began; None until then
    stop_at: float | None = None  # when it was told to end; None if it was not
    reason: EndReason | None = None  # why it was told to end or, once finished, why it ended
    finished_at: float | None = None  # None until it has
    exit_code: int | None = None  # None until it has
    uploaded_at: float | None = None  # when outputs and logs were in the bucket; None until then
    collected_at: float | None = None  # when a client said that it has fetched all of it; None until then
    met: bool = False  # whether a client was there when it ended, or later
    cancelled_at: float | None = None  # when a client asked for its end
    outputs: Mapping[str, bytes] = field(default_factory=dict)  # what lies in the working folder at the end
    done_before: float = 0.0  # seconds of the job that earlier machines have done

    @property
    def phase(self) -> JobPhase:
        """Now."""
        if self.finished_at is not None:
            return JobPhase.FINISHED
        return JobPhase.SETUP if self.job_at is None else JobPhase.RUNNING

    @property
    def ends_at(self) -> float:
        """When the job is over if nobody ends it; asked for only once it has begun."""
        assert self.job_at is not None
        return self.job_at + (FAILS_SECONDS if self.fails_at_once else max(0.0, self.script.seconds - self.done_before))

    @property
    def fails_at_once(self) -> bool:
        """Whether it cannot go on from what it has been given."""
        return bool(self.done_before) and not self.script.resumes

    @property
    def trouble(self) -> str:
        """Why nobody should give the machine up although there is nothing to bring, as the agent decides it."""
        order, began, ended = self.order, self.job_at, self.finished_at
        if self.outputs or self.script.unreadable or order.outputs or not order.keep_outputs or _number(order):
            return ""
        if began is None or ended is None or self.reason is not EndReason.SUCCEEDED or ended - began <= WORK_SECONDS:
            return ""
        return f"The job ran for {ended - began:.0f} s and has left no outputs."

    def saved(self, now: float) -> tuple[int, float]:
        """Number of the newest checkpoint, and how many seconds of the job are done by it."""
        if self.script.saves is None or self.job_at is None:
            return 0, self.done_before
        until = now if self.finished_at is None else self.finished_at
        ran = max(0.0, until - self.job_at)  # it may have been ended while it was set up
        number = int(ran // self.script.saves)
        if self.finished_at is None:
            return number, self.done_before + number * self.script.saves
        return number + (ran > 0), self.done_before + ran

    def chunks(self) -> Iterator[tuple[float, LogStream, bytes]]:
        """What it writes: (time, stream, bytes), as far as it is known by now."""
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


def _number(order: JobOrder) -> int:
    """Of the machine among those of its job."""
    return order.rendezvous.node if order.rendezvous is not None else 0


class Guest:
    """A booted machine."""

    def __init__(
        self,
        *,
        machine: MachineScript,
        job_script: JobScript,
        booted_at: float,
        lease_at: float,
        preempted_at: float | None,
        watchdog_works: Callable[[], bool],
        agent_works: Callable[[], bool],
        power_off: Callable[[float, EndedBy, EndReason], None],
        on_time_line: Callable[[float], float],
        bucket: dict[str, Mapping[str, bytes]],
    ) -> None:
        self.machine = machine
        self.job: FakeJob | None = None  # None until one was started
        self.agent = False  # whether the agent is there and alive
        self.files: dict[str, FileEntry] = {}  # the working folder as it was sent
        self.links: dict[str, str] = {}
        self.restored = 0.0  # seconds of the job that were done by the checkpoint that was put there
        self.bucket = bucket  # where uploads go: URL -> path -> content
        self.booted_at = booted_at
        self.followers = 0
        self.preempted_at = preempted_at
        self._job_script = job_script
        self._watchdog_at = max(booted_at, lease_at)
        self._watchdog_works, self._agent_works = watchdog_works, agent_works
        self._power_off = power_off
        self._on_time_line = on_time_line
        self._agent_since = booted_at
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
            self.agent, self._agent_since, self._ever_installed = True, at, True

    def start(self, at: float, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """Starts the job, once."""
        if self.job is None:
            self.job = FakeJob(
                order=order,
                script=self._job_script,
                setup_at=at,
                secrets=dict(secrets),
                uploads=dict(uploads),
                done_before=self.restored,
            )

    def cancel(self, at: float) -> None:
        """SIGTERM, grace, SIGKILL for the job, by the agent: a dead one does it when it is back."""
        if self.job is not None and self.job.cancelled_at is None:
            self.job.cancelled_at = at

    def events(self) -> Iterator[Event]:
        """What can happen next; the earliest counts, and then the question is asked again."""
        if not self.machine.boots:
            return
        if self.job is not None:
            yield from self._job_events(self.job)
        if self.agent and self._agent_works():
            yield from self._agent_events()
        if self._watchdog_works():
            yield self._watchdog_at, self._off(EndedBy.WATCHDOG, EndReason.DEADLINE)
            if not self._ever_installed:
                unclaimed = self.booted_at + UNCLAIMED_SECONDS
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
            yield job.ends_at, self._job_over

    def _agent_events(self) -> Iterator[Event]:
        job = self.job
        if job is None:
            if not self.followers:
                since = max(self._agent_since, self._contact)
                yield since + UNCLAIMED_SECONDS, self._off(EndedBy.AGENT, EndReason.UNCLAIMED)
            return
        deadline, since = min(self._on_time_line(job.order.deadline_epoch), self._watchdog_at), self._agent_since
        if job.finished_at is None:
            if job.stop_at is None:
                for at, reason in self._limits(job, deadline):
                    yield max(at, since), self._stopper(reason)
        else:
            if job.uploads and job.uploaded_at is None and not job.trouble:
                yield max(job.finished_at, since) + UPLOAD_SECONDS, self._uploaded
            safe = [at for at in (job.uploaded_at, job.collected_at) if at is not None]
            if safe and job.order.power_off:
                off = self._off(EndedBy.AGENT, job.reason or EndReason.DEADLINE)
                yield max(min(safe) + PATIENCE_SECONDS, since), off
                if not self.followers:
                    left = self._contact + LINGER_SECONDS if job.met else 0.0
                    yield max(min(safe), left, since), off
        yield max(deadline - LAST_SECONDS, since), self._off(EndedBy.AGENT, EndReason.DEADLINE)

    def _limits(self, job: FakeJob, deadline: float) -> Iterator[tuple[float, EndReason]]:
        order = job.order
        if job.cancelled_at is not None:
            yield job.cancelled_at, EndReason.CANCELLED
        share = SHORT_LEASE_SHARE * max(0.0, deadline - self.booted_at)
        yield deadline - min(order.grace_seconds + COLLECT_SECONDS, share), EndReason.DEADLINE
        if order.spot and self.preempted_at is not None:
            yield self.preempted_at - NOTICE_SECONDS, EndReason.PREEMPTED
        if job.job_at is None:
            return
        if order.max_duration_seconds is not None:
            yield job.job_at + order.max_duration_seconds, EndReason.MAX_DURATION
        if order.idle_seconds is not None and job.script.idles_after is not None:
            yield job.job_at + job.script.idles_after + order.idle_seconds, EndReason.IDLE
        if job.script.fills_after is not None:
            yield job.job_at + job.script.fills_after, EndReason.DISK_FULL

    def _off(self, by: EndedBy, reason: EndReason) -> Callable[[float], None]:
        return lambda at: self._power_off(at, by, reason)

    def _stopper(self, reason: EndReason) -> Callable[[float], None]:
        return lambda at: self.stop_job(at, reason)

    def stop_job(self, at: float, reason: EndReason) -> None:
        """SIGTERM, for this reason; the first one counts."""
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
        code = 1 if job.fails_at_once else job.script.exit_code
        ended = EndReason.JOB_FAILED if code else EndReason.SUCCEEDED
        self._finish(at, job.reason or ended, code, {} if job.fails_at_once else job.script.outputs)

    def _stopped(self, at: float) -> None:
        job = self._the_job()
        killed = job.script.sigterm_seconds > job.order.grace_seconds
        began = job.job_at is not None and at > job.job_at
        left = dict(job.script.checkpoint) if job.job_at is not None else {}
        if job.script.saves is not None and job.job_at is not None and began:
            left[PROGRESS] = str(job.done_before + (at - job.job_at)).encode()
        code = 137 if killed else job.script.sigterm_exit_code
        self._finish(at, job.reason or EndReason.CANCELLED, code, left)

    def _finish(self, at: float, reason: EndReason, exit_code: int, outputs: Mapping[str, bytes]) -> None:
        job = self._the_job()
        job.finished_at, job.reason, job.exit_code = at, reason, exit_code
        job.outputs = {**({PROGRESS: str(job.done_before).encode()} if job.done_before else {}), **outputs}
        if not job.order.keep_outputs:
            job.collected_at = at if exit_code == 0 else at + PATIENCE_SECONDS  # nobody wants them, but why it failed
        job.met = bool(self.followers) or at - self._contact < CONTACT_SECONDS

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
