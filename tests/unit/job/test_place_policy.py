"""What follows on what has happened to a job: pure rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.job.place_policy import (
    AT_ONCE_SECONDS,
    MOST_FAILED_RESUMES,
    MOST_SEARCHES,
    Ended,
    NextAttempt,
    NoNextAttempt,
    how_it_ended,
    next_attempt,
    place_rank,
    search_pause,
)
from costgpu.job.plan import LEAST_JOB_SECONDS, boot_seconds
from costgpu.job.state.attempts import attempt_id
from costgpu.models.instance import Identity, InstanceRef
from costgpu.models.job import Attempt, EndReason, JobPhase, JobStatus, Recovery
from costgpu.models.run import CreateCall, EndedBy, LaunchOption, Receipt, RunState, RunView
from tests.job.examples import START, option, spec

JOB = "r1"


def view(
    attempt: Attempt, *, cost: str = "0.10", job: float = 300.0, options: tuple[LaunchOption, ...] = (), **changes: Any
) -> RunView:
    """A closed run of the job that was interrupted after so many seconds of it."""
    run_id = attempt_id(JOB, attempt.index)
    reason: EndReason = changes.pop("reason", EndReason.PREEMPTED)
    facts: Mapping[str, Any] = {"max_cost_usd": Decimal("2.00"), **changes.pop("job_spec", {})}
    receipt = Receipt(
        run_id=run_id,
        instance=InstanceRef(provider="fake", region="north", instance_id="i"),
        instance_type="f1",
        layers=(),
        reason=reason,
        ended_by=EndedBy.PROVIDER,
        requested_at=None,
        confirmed_state="terminated",
        confirmed_at=START,
        provider_reason="",
        left_behind=(),
        metered_seconds=job + 60,
        metered_cost_usd=Decimal(cost),
    )
    status = JobStatus(
        phase=JobPhase.FINISHED, reason=reason, exit_code=1, job_started_epoch=1000.0, finished_epoch=1000.0 + job
    )
    values: dict[str, Any] = {
        "run_id": run_id,
        "state": RunState.CLOSED,
        "name": "train",
        "owner": "me",
        "client": "here",
        "spec": spec(attempt=attempt, **{"recovery": Recovery(most=5), **facts}),
        "identity": Identity(provider="fake", account="0", principal="me"),
        "options": options or (option(spot=True), option("south", spot=True)),
        "created_at": START,
        "changed_at": START,
        "create_call": CreateCall(
            number=1, token="t", option=0, zone=None, at=START, lease_until=START + timedelta(hours=2), allow_from=""
        ),
        "instance": receipt.instance,
        "started_at": START,
        "status": status,
        "reason": reason,
        "receipt": receipt,
    }
    return RunView(**{**values, **changes})


def after(*views: RunView) -> NextAttempt | NoNextAttempt | None:
    return next_attempt([(each,) for each in views], START)


FIRST = Attempt(job_id=JOB, index=0, number=1)


def test_an_interrupted_job_goes_on() -> None:
    found = after(view(FIRST))
    assert isinstance(found, NextAttempt)
    assert found.attempt == Attempt(job_id=JOB, index=1, number=2)
    assert [each.offer.region for each in found.options] == ["north", "south"]


@pytest.mark.parametrize(
    "reason",
    [each for each in EndReason if each not in (EndReason.PREEMPTED, EndReason.INTERRUPTED)],
)
def test_a_job_that_was_not_interrupted_does_not(reason: EndReason) -> None:
    assert after(view(FIRST, reason=reason)) is None


def test_a_spot_machine_that_its_provider_forgot_was_taken_back_if_it_may_have_worked() -> None:
    forgotten = view(FIRST, reason=EndReason.INSTANCE_LOST, forgotten=True, status=None)
    assert isinstance(after(forgotten), NextAttempt)
    assert after(replace(forgotten, started_at=None)) is None
    later = Attempt(job_id=JOB, index=1, number=2)
    unrecorded = view(later, reason=EndReason.INSTANCE_LOST, forgotten=True, status=None, started_at=None)
    assert isinstance(after(view(FIRST), unrecorded), NextAttempt)


def test_nor_does_one_without_recovery() -> None:
    alone = view(FIRST)
    assert after(replace(alone, spec=replace(alone.spec, recovery=None))) is None


def test_only_so_often() -> None:
    last = view(Attempt(job_id=JOB, index=5, number=6))
    assert after(view(FIRST), last) == NoNextAttempt("It has gone on 5 times already, as --recover allows.")


def test_runs_without_a_machine_are_no_attempts_and_do_not_go_on_for_ever() -> None:
    nothing: dict[str, Any] = {"instance": None, "reason": EndReason.NO_CAPACITY, "started_at": None, "status": None}
    found = after(view(FIRST), view(Attempt(job_id=JOB, index=1, number=2), cost="0", **nothing))
    assert isinstance(found, NextAttempt)
    assert found.attempt == Attempt(job_id=JOB, index=2, number=2, searches=1)
    last = view(Attempt(job_id=JOB, index=9, number=2, searches=MOST_SEARCHES - 1), cost="0", **nothing)
    assert isinstance(after(view(FIRST), last), NoNextAttempt)
    assert after(view(FIRST, **nothing)) is None  # the first: nothing was begun yet


@pytest.mark.parametrize(
    ("job", "saved", "at_once"),
    [(AT_ONCE_SECONDS - 1, None, True), (AT_ONCE_SECONDS, None, False), (AT_ONCE_SECONDS - 1, START, False)],
)
def test_what_failing_at_once_is(job: float, saved: Any, at_once: bool) -> None:
    failed = view(
        Attempt(job_id=JOB, index=1, number=2),
        job=job,
        reason=EndReason.JOB_FAILED,
        restored_from=START,
        saved_at=saved,
    )
    found = after(view(FIRST), failed)
    assert isinstance(found, NextAttempt) == at_once
    if isinstance(found, NextAttempt):
        assert found.attempt.failed_resumes == 1


def test_three_failures_are_enough() -> None:
    attempt = Attempt(job_id=JOB, index=3, number=4, failed_resumes=MOST_FAILED_RESUMES - 1)
    failed = view(attempt, job=1, reason=EndReason.JOB_FAILED, restored_from=START)
    assert isinstance(after(view(FIRST), failed), NoNextAttempt)


def test_the_longest_time_is_for_all() -> None:
    facts: dict[str, Any] = {"job_spec": {"max_duration_seconds": 1000.0}}
    found = after(view(FIRST, job=300, **facts), view(Attempt(job_id=JOB, index=1, number=2), job=400, **facts))
    assert isinstance(found, NextAttempt)
    assert found.max_duration_seconds == 300
    assert isinstance(after(view(FIRST, job=990, **facts)), NoNextAttempt)


@given(
    st.lists(st.floats(0, 5000), min_size=1, max_size=6),
    st.sampled_from(["1.00", "2.00", "5.00"]),
    st.one_of(st.none(), st.floats(600, 20000)),
)
def test_all_attempts_together_stay_within_the_limits(attempts: list[float], cap: str, duration: float | None) -> None:
    facts = {"max_cost_usd": Decimal(cap), "max_duration_seconds": duration}
    options = (option(spot=True, max_cost=cap),)
    views = [
        view(
            Attempt(job_id=JOB, index=number, number=number + 1),
            cost="0.01",  # less than the rate of the lease says: the listed spot price may be an old one
            job=seconds,
            options=options,
            job_spec=facts,
        )
        for number, seconds in enumerate(attempts)
    ]
    found = after(*views)
    worked = sum(attempts)
    spent = Decimal(str(worked + 60 * len(attempts))) / 3600 * options[0].lease.usd_per_hour
    if isinstance(found, NextAttempt):
        (left,) = found.options
        assert spent + left.lease.worst_cost_usd <= Decimal(cap) + Decimal("0.0001")
        assert left.lease.lifetime_seconds <= options[0].lease.lifetime_seconds
        assert left.lease.lifetime_seconds >= boot_seconds(left.offer) + LEAST_JOB_SECONDS
        if duration is not None:
            assert found.max_duration_seconds == pytest.approx(duration - worked)
    else:
        assert isinstance(found, NoNextAttempt)


def ended(reason: EndReason, **facts: Any) -> RunView:
    """A first attempt of a job without recovery that has ended so."""
    spec_facts = {"recovery": None, **facts.pop("job_spec", {})}
    return view(FIRST, reason=reason, job_spec=spec_facts, **facts)


NOTHING: dict[str, Any] = {"instance": None, "started_at": None, "status": None, "cost": "0"}
SMALL, LARGE = replace(option(), size=0), replace(option("south"), size=1)
OUT = JobStatus(phase=JobPhase.FINISHED, reason=EndReason.JOB_FAILED, exit_code=1, out_of_memory="gpu")
SEARCHING: dict[str, Any] = {"retry_until_up": True, "search_seconds": 3600.0}
GROWING: dict[str, Any] = {"on_oom_next_size": True}


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (ended(EndReason.NO_CAPACITY, **NOTHING), Ended.FOR_GOOD),
        (ended(EndReason.NO_CAPACITY, job_spec=SEARCHING, **NOTHING), Ended.NOT_BEGUN),
        (ended(EndReason.PROVISION_FAILED, job_spec=SEARCHING, **NOTHING), Ended.FOR_GOOD),
        (ended(EndReason.NO_CAPACITY, given_up=True, job_spec=SEARCHING, **NOTHING), Ended.FOR_GOOD),
        (ended(EndReason.JOB_FAILED, status=OUT), Ended.FOR_GOOD),
        (ended(EndReason.JOB_FAILED, status=OUT, job_spec=GROWING), Ended.OUT_OF_MEMORY),
        (ended(EndReason.JOB_FAILED, job_spec=GROWING), Ended.FOR_GOOD),
        (ended(EndReason.PREEMPTED, job_spec=GROWING), Ended.FOR_GOOD),
    ],
)
def test_how_an_attempt_has_ended(run: RunView, what: Ended) -> None:
    assert how_it_ended((run,)) is what


def test_machines_are_looked_for_until_there_are_some_or_the_time_is_over() -> None:
    nothing = ended(EndReason.NO_CAPACITY, job_spec=SEARCHING, **NOTHING)
    found = next_attempt([(nothing,)], START)
    assert isinstance(found, NextAttempt)
    assert (found.attempt.searches, found.attempt.number) == (1, 1)
    late = next_attempt([(nothing,)], START + timedelta(seconds=3600 - search_pause(1) + 1))
    assert late == NoNextAttempt("No machine was to be had within 60 min, as --deadline says.")
    again = replace(nothing, spec=replace(nothing.spec, search_seconds=None, attempt=replace(FIRST, searches=99)))
    assert isinstance(next_attempt([(again,)], START + timedelta(days=9)), NextAttempt)  # for as long as it takes


def test_a_job_that_ran_out_of_memory_begins_again_on_a_larger_machine() -> None:
    first = ended(EndReason.JOB_FAILED, status=OUT, job_spec=GROWING, options=(SMALL, LARGE))
    assert place_rank(first, (1, None), None) is None  # not before
    found = next_attempt([(first,)], START)
    assert isinstance(found, NextAttempt)
    assert [each.size for each in found.options] == [1]
    second = replace(first, options=found.options)
    assert place_rank(second, (0, None), None) == 0
    assert next_attempt([(first,), (second,)], START) == NoNextAttempt("The plan has no machine with more memory.")


def test_places_without_room_for_all_do_not_prolong_the_search() -> None:
    def pair(index: int, searches: int, minutes: float, **facts: Any) -> tuple[RunView, RunView]:
        first = ended(EndReason.NO_CAPACITY, job_spec={**SEARCHING, "nodes": 2}, cost="0", **facts)
        attempt = Attempt(job_id=JOB, index=index, number=1, searches=searches)
        at = START + timedelta(minutes=minutes)
        lead = replace(first, spec=replace(first.spec, attempt=attempt), created_at=at, started_at=None, status=None)
        return lead, replace(lead, instance=None, create_call=None)

    full = [pair(index, 0, 10.0 * index) for index in range(5)]  # machine 0 was there, machine 1 was not
    nothing = pair(5, 0, 55.0, instance=None)
    assert [how_it_ended(each) for each in (*full, nothing)] == [*[Ended.PLACE_FULL] * 5, Ended.NOT_BEGUN]
    late = next_attempt([*full, nothing], START + timedelta(minutes=59.5))
    assert late == NoNextAttempt("No machine was to be had within 60 min, as --deadline says.")
