"""Checks: their time limit, what stops what, how grave it is; and what the policies ask for."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import (
    AuthError,
    ConfigError,
    CostGpuError,
    InvalidRequest,
    LedgerDamaged,
    LedgerError,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unreachable,
)
from costgpu.models import diagnostics
from costgpu.models.diagnostics import (
    Check,
    Examination,
    Status,
    clock_check,
    examine,
    failed,
    gravest,
    ok,
    permissions_check,
)
from costgpu.providers.aws import diagnostics as aws
from costgpu.providers.aws.facts import POLICY_FILE
from costgpu.providers.gcp import diagnostics as gcp
from costgpu.providers.gcp.facts import ROLE_FILE
from costgpu.render.text.doctor import FREE, PlaceReport, doctor_text

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=30)


def test_an_error_is_a_failure_with_its_hint_and_code() -> None:
    def look() -> Check:
        raise QuotaExceeded("The quota is 0.", hint="Ask for more.")

    quota = Check(name="quota", status=Status.FAILED, detail="The quota is 0.", fix="Ask for more.", exit_code=43)
    assert examine("quota", look) == quota


def test_a_fault_of_our_own_is_no_failure_of_the_users() -> None:
    def look() -> Check:
        raise KeyError("Zone")

    check = examine("zone", look)
    assert (check.status, check.exit_code) == (Status.UNKNOWN, 0)
    assert "KeyError: 'Zone'" in check.detail


def test_nobody_waits_longer_than_the_limit() -> None:
    over = threading.Event()

    def look() -> Check:
        over.wait(60)
        return ok("slow", "late")

    begun = time.monotonic()
    check = examine("slow", look, seconds=0.05)
    assert time.monotonic() - begun < 1
    over.set()
    assert (check.status, check.exit_code) == (Status.FAILED, Unreachable.exit_code)
    assert "0.05 s" in check.detail


def test_what_needs_a_failed_check_is_left_out_and_nothing_else() -> None:
    made: list[str] = []

    def look(name: str) -> Check:
        made.append(name)
        if name == "a":
            raise AuthError("no")
        return diagnostics.unknown(name, "?") if name == "b" else ok(name, "yes")

    done = Examination()
    a, b = (done.add(name, lambda name=name: look(name)) for name in "ab")  # type: ignore[misc]
    c = done.add("c", lambda: look("c"), after=[a])
    d = done.add("d", lambda: look("d"), after=[c])
    e = done.add("e", lambda: look("e"), after=[b])
    assert made == ["a", "b", "e"]
    assert [each.status for each in done.checks] == [Status.FAILED, *[Status.UNKNOWN] * 3, Status.OK]
    assert (c.detail, d.detail, e.detail) == ("not asked: see a", "not asked: see c", "yes")


@given(st.floats(-1e6, 1e6))
def test_the_clock_is_judged_by_how_far_it_is_off(seconds: float) -> None:
    check = clock_check("AWS", NOON, NOON + timedelta(seconds=seconds))
    off = abs(timedelta(seconds=seconds).total_seconds())
    wanted = Status.OK if off <= 60 else Status.WARNING if off <= 300 else Status.FAILED
    assert check.status is wanted
    if wanted is not Status.OK:
        assert ("ahead of AWS's" in check.detail) == (seconds > 0)
        assert "timedatectl" in check.fix
    assert check.exit_code == (41 if wanted is Status.FAILED else 0)


@given(st.sets(TEXT, min_size=1), st.data())
def test_permissions_are_counted_and_named(needed: set[str], data: st.DataObject) -> None:
    subsets = st.sets(st.sampled_from(sorted(needed)))
    held, optional = data.draw(subsets), data.draw(subsets)
    check = permissions_check(sorted(needed), sorted(held), sorted(optional), "ask")
    grave = needed - held - optional
    assert check.status is (Status.FAILED if grave else Status.WARNING if needed - held else Status.OK)
    assert all(name in check.detail for name in needed - held)
    assert check.exit_code == (41 if grave else 0)


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([], None),
        ([AuthError("")], AuthError),
        ([Unreachable(""), QuotaExceeded("")], QuotaExceeded),
        ([LedgerError(""), ConfigError("")], ConfigError),
        ([LedgerDamaged("")], LedgerError),
        ([InvalidRequest(""), AuthError("")], AuthError),
        ([Throttled("")], ProviderError),
        ([Throttled(""), Unreachable("")], Unreachable),
        ([CostGpuError("")], CostGpuError),
    ],
)
def test_the_gravest_failure_is_told(errors: list[CostGpuError], kind: type[CostGpuError] | None) -> None:
    checks = [ok("fine", "yes"), diagnostics.unknown("what", "?"), *(failed("x", error) for error in errors)]
    assert gravest(checks) is kind
    assert gravest(checks[::-1]) is kind


# -- policies ----------------------------------------------------------------------------------------------------------


def test_every_action_of_the_policy_is_asked_with_real_resources_and_its_conditions_met() -> None:
    document = json.loads(POLICY_FILE.read_text())
    asked = aws.questions(document, "123456789012", "eu-west-1")
    assert len(asked) == len(document["Statement"])
    for question, statement in zip(asked, document["Statement"], strict=True):
        actions = statement["Action"]
        assert set(question.actions) == ({actions} if isinstance(actions, str) else set(actions))
        assert all("*" not in arn and arn.startswith("arn:aws:") for arn in question.resources)
        assert bool(question.resources) == (statement["Resource"] != "*")
        assert set(question.context) == {key for keys in statement.get("Condition", {}).values() for key in keys}
    resources_ = {arn for question in asked for arn in question.resources}
    assert "arn:aws:ec2:eu-west-1:123456789012:instance/costgpu-example" in resources_
    assert "arn:aws:ec2:eu-west-1::image/ami-0123456789abcdef0" in resources_
    assert "arn:aws:iam::123456789012:role/costgpu-scheduler" in resources_


def test_a_condition_that_nobody_can_answer_is_not_passed_over() -> None:
    condition = {"IpAddress": {"aws:SourceIp": "192.0.2.1"}}
    statement = {"Action": "ec2:RunInstances", "Resource": "*", "Condition": condition}
    with pytest.raises(ValueError, match="IpAddress"):
        aws.questions({"Statement": [statement]}, "1", "us-east-1")


def test_what_no_run_works_without() -> None:
    for action in ("ec2:RunInstances", "ec2:TerminateInstances", "ssm:GetParameters"):
        assert aws.is_needed(action, spot=False)
    for action in ("ce:GetCostAndUsage", "s3:PutObject", "scheduler:CreateSchedule", "ec2:GetConsoleOutput"):
        assert not aws.is_needed(action, spot=True)
    assert aws.is_needed("iam:CreateServiceLinkedRole", spot=True)
    assert not aws.is_needed("iam:CreateServiceLinkedRole", spot=False)


def test_the_permissions_of_the_role_are_read() -> None:
    role = ROLE_FILE.read_text()
    found = gcp.permissions_in(role)
    assert len(found) == len(set(found)) == role.count("\n- ")
    assert {"compute.instances.create", "compute.instances.delete", "compute.firewalls.create"} <= set(found)
    assert set(found) >= gcp.NOT_NEEDED
    assert all(name.startswith("compute.") and " " not in name for name in found)


# -- as it is shown ----------------------------------------------------------------------------------------------------

NO_QUOTA = QuotaExceeded(
    "The account's quota for Running On-Demand P instances (L-417A185B) in us-east-1 is 0.", hint="Ask AWS for more."
)
PLACES = [
    PlaceReport(name="this computer", checks=[ok("python", "3.11.2, costgpu 1.0")]),
    PlaceReport(
        name="aws",
        checks=[
            failed("quota", NO_QUOTA),
            diagnostics.warning("clock", "off", "Set it."),
            diagnostics.unknown("dry run", "not asked: see quota"),
        ],
    ),
]


def test_the_text() -> None:
    assert (
        doctor_text(PLACES)
        == f"""\
this computer
  ok   python       3.11.2, costgpu 1.0

aws
  FAIL quota        The account's quota for Running On-Demand P instances
                    (L-417A185B) in us-east-1 is 0.
                    Ask AWS for more.
  warn clock        off
                    Set it.
  ?    dry run      not asked: see quota

4 checks: 1 failed, 1 to be looked at, 1 not known.
{FREE}"""
    )
    assert doctor_text(PLACES[:1]).splitlines()[-2] == "1 check, all well."


WORDS = st.lists(TEXT).map(" ".join)
NAMES, STATUSES = st.sampled_from(["credentials", "API, billing"]), st.sampled_from(Status)


@given(st.lists(st.builds(Check, name=NAMES, status=STATUSES, detail=WORDS, fix=WORDS)))
def test_no_line_is_too_long(checks: list[Check]) -> None:
    for line in doctor_text([PlaceReport(name="aws", checks=checks)]).splitlines():
        assert len(line) <= 80
