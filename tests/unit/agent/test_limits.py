"""The rules by which a job, and then its machine, is ended."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from costgpu.job import agent
from costgpu.job.agent import limits
from costgpu.job.agent.limits import FinishedConditions, JobConditions, job_termination, power_off_reason
from costgpu.job.agent.observe.idle import Counters, is_active
from costgpu.models.job import EndReason, JobPhase

FINE = JobConditions(remaining=3600.0, reserve=90.0, grace=30.0, job_seconds=10.0, free_bytes=10 << 30)
DONE = FinishedConditions(
    power_off=True,
    reason="succeeded",
    since_contact=1e6,
    client_seen=False,
    since_uploaded=None,
    since_collected=None,
    remaining=3600.0,
    last_seconds=10.0,
)


def _reason(conditions: JobConditions) -> str | None:
    ending = job_termination(conditions)
    return ending.reason if ending else None


def test_each_limit_ends_it_for_its_own_reason() -> None:
    assert _reason(FINE._replace(remaining=90.0)) == "deadline"
    assert _reason(FINE._replace(job_seconds=60.0, max_duration=60.0)) == "max_duration"
    assert _reason(FINE._replace(job_seconds=None, max_duration=60.0)) is None  # the set-up does not count
    assert _reason(FINE._replace(idle_limit=60.0, idle_seconds=60.0)) == "idle"
    assert _reason(FINE._replace(free_bytes=1 << 20)) == "disk_full"
    assert _reason(FINE._replace(notice="terminate")) == "preempted"


def test_an_idle_job_is_told_what_counts_as_nothing(root: Path) -> None:
    ending = job_termination(FINE._replace(idle_limit=10.0, idle_seconds=10.0))
    assert ending is not None
    limit = "less than 3 % of a core, 2 % of a GPU, 20 kB/s of network, 50 kB/s of disk"
    assert f"{limit} and no output for 10 s." in ending.detail
    assert limit in " ".join((root / "docs/run.md").read_text().split())


def test_the_most_urgent_reason_comes_first() -> None:
    conditions = FINE._replace(idle_limit=1.0, idle_seconds=9.0, remaining=1.0, notice="terminate")
    assert _reason(conditions) == "preempted"
    assert _reason(conditions._replace(notice="")) == "deadline"


@given(
    grace=st.floats(0, 3600),
    whole=st.floats(1, 1e6),
    late=st.floats(0, 1),
    size=st.one_of(st.none(), st.integers(0, 10**12)),
)
def test_the_grace_always_ends_before_the_deadline(grace: float, whole: float, late: float, size: int | None) -> None:
    reserve = limits.reserve_seconds(grace, whole, size)
    assert 0 <= reserve <= limits.SHORT_LEASE_SHARE * whole
    remaining = reserve * (1 - late)
    ending = job_termination(JobConditions(remaining=remaining, reserve=reserve, grace=grace))
    assert ending is not None
    assert 0 <= ending.grace_seconds <= grace
    assert ending.grace_seconds <= remaining


def test_a_bigger_upload_starts_earlier() -> None:
    assert limits.reserve_seconds(30, 1e6, 40 * 10**9) == 30 + limits.COLLECT_SECONDS + 1000
    assert limits.reserve_seconds(30, 1e6) == 30 + limits.COLLECT_SECONDS


def test_what_counts_as_a_full_disk_grows_with_it_within_bounds() -> None:
    assert limits.min_free_bytes(8 << 30) == 256 << 20
    assert limits.min_free_bytes(100 << 30) == 1 << 30
    assert limits.min_free_bytes(10 << 40) == 2 << 30


def test_a_client_that_is_there_ends_the_machine_itself() -> None:
    there = DONE._replace(since_uploaded=0.0, client_seen=True, since_contact=1.0)
    assert power_off_reason(there) is None
    assert power_off_reason(there._replace(since_contact=-500.0)) is None  # it said that it would be busy
    assert power_off_reason(there._replace(since_contact=121.0)) == "succeeded"
    assert power_off_reason(there._replace(since_uploaded=901.0)) == "succeeded"
    assert power_off_reason(there._replace(since_uploaded=901.0, since_contact=-5.0)) is None


def test_a_machine_that_is_taken_back_is_left_to_a_provider_that_deletes_it() -> None:
    """One that has switched itself off it may only stop, and bill its disk."""
    lost = DONE._replace(reason="preempted", since_uploaded=0.0)
    assert power_off_reason(lost) == "preempted"
    assert power_off_reason(lost._replace(last_seconds=-45.0)) is None
    assert power_off_reason(lost._replace(last_seconds=-45.0, since_uploaded=180.0)) == "preempted"


@given(
    st.builds(
        FinishedConditions,
        power_off=st.booleans(),
        reason=st.just("idle"),
        since_contact=st.floats(-1e4, 1e6),
        client_seen=st.booleans(),
        since_uploaded=st.none(),
        since_collected=st.none(),
        remaining=st.floats(11, 1e6),
        last_seconds=st.just(10.0),
    )
)
def test_no_output_is_ever_lost_before_the_deadline(conditions: FinishedConditions) -> None:
    assert power_off_reason(conditions) is None


def test_any_sign_of_life_counts_and_the_chatter_of_a_machine_does_not() -> None:
    before = Counters(at=0.0, cpu_seconds=5.0, network_bytes=0, disk_bytes=0, log_bytes=10)
    quiet = Counters(at=10.0, cpu_seconds=5.1, network_bytes=20_000, disk_bytes=100_000, log_bytes=10)
    assert not is_active(before, quiet)
    assert is_active(before, quiet._replace(cpu_seconds=5.5))
    assert is_active(before, quiet._replace(network_bytes=10**6))
    assert is_active(before, quiet._replace(disk_bytes=10**6))
    assert is_active(before, quiet._replace(log_bytes=11))
    assert not is_active(before, quiet._replace(cpu_seconds=1.0))  # a process that was not waited for is gone


def test_the_agents_words_are_those_of_the_client() -> None:
    known = {each.value for each in EndReason} | {each.value for each in JobPhase}
    folder = Path(agent.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    said = set(re.findall(r'(?:Termination\(\s*|"reason": |return )"([a-z_]+)"[,)\n]', text))
    assert {"deadline", "idle", "preempted", "max_duration", "disk_full", "cancelled", "job_failed"} <= said
    assert said <= known | {"preempted"}
