"""A check with providers that answer: machines that the ledger does not know, whose they are, what cannot be ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from costgpu.alert.notify import Delivery
from costgpu.clock import ManualClock
from costgpu.config import runs_folder
from costgpu.errors import AuthError, CostGpuError, HostUnreachable, RunBusy, Unreachable
from costgpu.job.machine.keys import USER_KEY
from costgpu.job.state.observer import NullObserver
from costgpu.ledger import Ledger
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import Alert, set_budget
from costgpu.models.instance import Instance, InstanceRef, InstanceState, OrphanedResource
from costgpu.pricing.own_prices import prices_file
from costgpu.render.text.reap import reap_text
from costgpu.workflows.context import AppContext, askable
from costgpu.workflows.runs import reap
from costgpu.workflows.spending.budget_check import BudgetCheck, CheckResult, still_to_tell
from costgpu.workflows.spending.enforce import end_run
from tests.unit.providers.planted import HOUR, NOW, Answers, closed, machine, opened
from tests.unit.workflows.reporter import ListReporter

TOTAL = Budget(name="all", amount_usd=Decimal(5), every=Every.TOTAL)


class Cloud(Answers):
    """Machines that can be ended."""

    def __init__(self, *instances: Instance, name: str = "aws") -> None:
        super().__init__(*instances, name=name)
        self.ended: list[str] = []
        self.refusal: CostGpuError | None = None

    def terminate(self, ref: InstanceRef) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.ended.append(ref.instance_id)

    def describe(self, ref: InstanceRef) -> Instance | None:
        found = next(each for each in self.owned.instances if each.ref == ref)
        return replace(found, state=InstanceState.TERMINATED) if ref.instance_id in self.ended else found

    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        return ()


@dataclass
class Told:
    """Exit code of a check, what it said on stdout, its remarks, and its whole result."""

    code: int
    out: str
    err: str
    result: CheckResult | None = field(default=None, compare=False)


class Desk:
    """The context of a workflow."""

    def __init__(self, ledger: Ledger, cloud: Answers) -> None:
        self.ledger, self.clock, self._cloud = ledger, ManualClock(NOW), cloud
        self.reporter = ListReporter()
        self.broken: CostGpuError | None = None
        self.owner = "me@here"
        self.urls: tuple[SecretStr, ...] = ()

    @property
    def settings(self) -> Any:
        if self.broken is not None:
            raise self.broken
        return type("Settings", (), {"owner": self.owner, "alert_urls": self.urls})

    def checked_settings(self) -> Any:
        return self.settings

    def provider(self, name: str) -> Answers:
        return self._cloud if name == "aws" else Answers(name=name)

    def askable(self) -> Any:
        return askable(cast("Any", self.provider))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(folder=tmp_path) as found:
        set_budget(found, TOTAL, NOW - 90 * HOUR)
        yield found


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody")


@pytest.fixture
def check(ledger: Ledger) -> Any:
    def carry_out(cloud: Answers, *, enforce: bool = False, **desk: Any) -> Told:
        context = Desk(ledger, cloud)
        for name, value in desk.items():
            setattr(context, name, value)
        said: list[str] = []
        checking = BudgetCheck(cast("AppContext", context), said.append, offline=False, verbose=False)
        result = checking.carry_out(enforce=enforce)
        return Told(result.exit_code, " ".join(said), " ".join(context.reporter.notes), result)

    return carry_out


def test_machines_that_the_ledger_never_saw_are_counted_and_told(check: Any) -> None:
    told = check(Cloud(machine("s1", NOW - 4 * HOUR)))
    assert (told.code, told.err) == (80, "")
    assert told.out == ("all: $4.02 of $5.00 in all (80 %), crossed 80 %; $16.10 more under the cap of 1 open run.")
    gone = check(Cloud())
    assert (gone.code, gone.out) == (80, "")


def test_my_own_are_ended_and_others_named_with_the_command_that_ends_them(check: Any) -> None:
    mine, other = machine("s1", NOW - 40 * HOUR, owner="me@here"), machine("s2", NOW - HOUR, owner="bob@there")
    unknown = machine("s3", NOW - HOUR, owner="")
    cloud = Cloud(mine, other, unknown)
    looked = check(cloud)
    assert (looked.code, cloud.ended) == (81, [])
    told = check(cloud, enforce=True)
    assert (told.code, told.err, cloud.ended) == (81, "", ["i-s1"])
    assert told.out == (
        "ended: aws i-s1 in us-east-1, run s1 (train): the budget all is exceeded "
        "not ended, it is of bob@there: aws i-s2 in us-east-1; the budget all is exceeded. "
        "To end it: aws ec2 terminate-instances --region us-east-1 --instance-ids i-s2 "
        "not ended, it is of nobody known: aws i-s3 in us-east-1; the budget all is exceeded. "
        "To end it: aws ec2 terminate-instances --region us-east-1 --instance-ids i-s3"
    )


def damage_own_prices() -> None:
    prices_file().parent.mkdir(parents=True, exist_ok=True)
    prices_file().write_text("[")


def test_damaged_own_prices_keep_no_machine_beyond_a_budget(check: Any, ledger: Ledger) -> None:
    damage_own_prices()
    closed(ledger, "a1", NOW - 2 * HOUR, 1, "6")
    cloud = Cloud(machine("s1", NOW - HOUR, owner="me@here"))
    told = check(cloud, enforce=True)
    assert (told.code, cloud.ended) == (81, ["i-s1"])
    assert str(prices_file()) in told.err


def test_damaged_own_prices_keep_no_orphan(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    damage_own_prices()
    monkeypatch.setattr(reap, "collect_finished", lambda *_: None)
    cloud = Cloud(machine("s1", NOW - 40 * HOUR))
    desk = Desk(ledger, cloud)
    context = SimpleNamespace(**vars(desk), provider=desk.provider, providers=lambda: [cloud], tools=None, unusable={})
    found = reap.reap(cast("AppContext", context), NullObserver(), (), end=True, older_than=None, mine=False)
    assert cloud.ended == ["i-s1"]
    assert "price not known" in reap_text(found, NOW, done=True)
    (note,) = desk.reporter.notes
    assert note.startswith("What machines cost is not known: ")
    assert str(prices_file()) in note


def test_only_what_the_exceeded_budget_counts_is_ended(check: Any, ledger: Ledger) -> None:
    set_budget(ledger, replace(TOTAL, owner="carol"), NOW, replace=True)
    cloud = Cloud(machine("s1", NOW - 40 * HOUR, owner="me@here"))
    assert (check(cloud, enforce=True).code, cloud.ended) == (0, [])


def test_what_cannot_be_ended_is_the_worst_and_keeps_nothing_else_alive(check: Any, ledger: Ledger) -> None:
    class Partly(Cloud):
        def terminate(self, ref: InstanceRef) -> None:
            if ref.instance_id == "i-s1":
                raise AuthError("not allowed")
            super().terminate(ref)

    cloud = Partly(*(machine(run, NOW - 40 * HOUR, owner="me@here") for run in ("s1", "s2")))
    told = check(cloud, enforce=True)
    assert (told.code, cloud.ended) == (47, ["i-s2"])
    assert "NOT ENDED: aws i-s1 in us-east-1: i-s1 in us-east-1 could not be ended and may be billing" in told.out


def test_two_budgets_end_a_machine_once(check: Any, ledger: Ledger) -> None:
    set_budget(ledger, replace(TOTAL, name="too"), NOW)
    cloud = Cloud(machine("s1", NOW - 40 * HOUR, owner="me@here"))
    told = check(cloud, enforce=True)
    assert (told.code, cloud.ended, told.out.count("ended: ")) == (81, ["i-s1"], 1)


def test_the_result_says_the_same(check: Any) -> None:
    result = check(Cloud(machine("s1", NOW - 40 * HOUR, owner="me@here")), enforce=True).result
    assert result.enforced == ["ended: aws i-s1 in us-east-1, run s1 (train): the budget all is exceeded"]
    assert (result.exit_code, result.standings[0].new) == (81, (50, 80, 100))


def test_a_wrong_clock_ends_nothing(check: Any, ledger: Ledger) -> None:
    closed(ledger, "a1", NOW - 9 * HOUR, 9, "50")
    cloud = Cloud(machine("s1", NOW - 40 * HOUR, owner="me@here"))
    told = check(cloud, enforce=True, clock=ManualClock(NOW.replace(year=2020)))
    assert (told.code, cloud.ended) == (81, [])
    assert "says 2020-11-21" in told.err


def test_settings_that_cannot_be_read_are_a_failed_alert_and_end_nothing_of_others(check: Any) -> None:
    cloud = Cloud(machine("s1", NOW - 40 * HOUR, owner="me@here"))
    told = check(cloud, enforce=True, broken=CostGpuError("config.toml, line 3: nonsense."))
    assert told.code == 82
    assert "could not be delivered: config.toml, line 3: nonsense; the next check tries again." in told.out
    assert cloud.ended == []  # who I am is not known


def test_nobody_answers(check: Any, ledger: Ledger) -> None:
    opened(ledger, "b1", NOW - HOUR)
    cloud = Cloud()
    cloud.error = Unreachable("no network")
    assert check(cloud) == Told(46, "not asked: aws: no network", "")
    closed(ledger, "a1", NOW - 9 * HOUR, 9, "3")
    told = check(cloud)
    assert told.code == 80
    assert told.out.startswith("all: at least $4.00 of $5.00 in all (80 %), crossed 80 %;")


LATE = "all: crossed 80 % on 2026-11-26 12:00 with $4.50 of $5.00; this could not be delivered before."


@pytest.mark.parametrize("more", ["", "3.00"])
def test_what_was_not_told_last_month_is_told_with_what_is_new(check: Any, ledger: Ledger, more: str) -> None:
    set_budget(ledger, replace(TOTAL, every=Every.MONTHLY), NOW - 89 * HOUR, replace=True)
    closed(ledger, "a1", NOW - 30 * HOUR, 1, "4.50")
    broken, first = CostGpuError("No settings."), NOW.replace(month=12, day=1)
    assert check(Cloud(), clock=ManualClock(NOW.replace(day=26)), broken=broken).code == 82
    december = ManualClock(first)
    if more:
        closed(ledger, "a2", first - 2 * HOUR, 1, more)
    else:
        again = check(Cloud(), clock=december, broken=broken)
        assert (again.code, again.out.count("could not be delivered")) == (82, 1)
    told = check(Cloud(), clock=december)
    assert (told.code, told.err) == (80 if more else 0, "")
    assert (LATE in told.out, told.out == LATE, told.out.count("crossed 50 %")) == (True, not more, 1 if more else 0)
    assert check(Cloud(), clock=december) == Told(80 if more else 0, "", "")


def test_the_last_of_many_addresses_that_fail_is_not_lost(
    check: Any, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refused(urls: Sequence[str], *_: str) -> list[Delivery]:
        asked.append(len(urls))
        return [Delivery(url == "json://1", "webhook", "refused with many words " * 3) for url in urls]

    monkeypatch.setattr("costgpu.alert.notify.deliver", refused)
    closed(ledger, "a1", NOW - 30 * HOUR, 1, "3.00")
    urls = tuple(SecretStr(f"json://{n}") for n in range(1, 16))
    for _ in range(3):
        assert check(Cloud(), urls=urls).code == 82
    assert asked == [15, 14, 14]


def test_runs_of_others_and_of_other_computers_are_named_and_not_ended(
    check: Any, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(ledger, "b1", NOW - 9 * HOUR, owner="bob@there")
    opened(ledger, "b2", NOW - 9 * HOUR, owner="me@here")
    opened(ledger, "b3", NOW - 9 * HOUR, owner="me@here")
    (runs_folder() / "b2").mkdir()  # as costgpu cancel leaves one
    for run in ("b1", "b3"):
        (runs_folder() / run).mkdir()
        (runs_folder() / run / USER_KEY).touch()
    ended: list[str] = []
    monkeypatch.setattr("costgpu.workflows.spending.enforce.end_run", lambda _, run_id: ended.append(run_id))
    live = [machine(run, NOW - 9 * HOUR) for run in ("b1", "b2", "b3")]
    check(Cloud(*live))
    told = check(Cloud(*live), enforce=True)
    assert (told.code, ended) == (81, ["b3"])
    assert (
        "not ended, it is of bob@there: run b1 (train); the budget all is exceeded. To end it: "
        "costgpu cancel b1 where it was launched; elsewhere its outputs are lost "
        "not ended, it was launched from another computer: run b2 (train); the budget all is exceeded. "
    ) in told.out


@pytest.mark.parametrize("past", [False, True])
def test_a_driver_whose_job_cannot_be_asked_once_may_be_saving_outputs(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, past: bool
) -> None:
    opened(ledger, "b1", NOW - 9 * HOUR, lease=8 * HOUR if past else 20 * HOUR)
    asked: list[bool] = []

    def cancel(*_: object, now: bool) -> None:
        asked.append(now)
        if not now:
            raise HostUnreachable("No answer.")

    def busy(_: object) -> None:
        raise RunBusy("It is driven.")

    monkeypatch.setattr("costgpu.workflows.spending.enforce.cancel_driven", cancel)
    monkeypatch.setattr("costgpu.workflows.runs.cancel.lock_run", busy)
    parts = cast(
        "AppContext", SimpleNamespace(ledger=ledger, clock=ManualClock(NOW), tools=SimpleNamespace(folder=tmp_path))
    )
    if past:
        assert end_run(parts, "b1") is None
    else:
        with pytest.raises(RunBusy, match=r"not be asked to end: No answer; .* the next check tries again"):
            end_run(parts, "b1")
    assert asked == [False, True][: 1 + past]


def alert(delivered: bool | None, detail: str) -> Alert:
    return Alert(
        number=1,
        period_start=NOW,
        threshold=50,
        crossed_at=NOW,
        spent_usd=Decimal(1),
        delivered=delivered,
        detail=detail,
    )


@pytest.mark.parametrize(
    ("alerts", "positions"),
    [
        ([], [1, 2, 3]),
        ([alert(None, "")], [1, 2, 3]),
        ([alert(False, "1 of 3 delivered; failed: #2,#3; #2 Slack: no; #3 mail: refused; #1 is not meant")], [2, 3]),
        ([alert(False, "1 of 3 delivered; failed: #2,#3; #2 Sl")], [2, 3]),  # the ledger has cut it
        ([alert(False, "1 of 3 delivered; failed: #2,#")], [1, 2, 3]),
        (
            [
                alert(False, "2 of 3 delivered; failed: #2; #2 Slack: no"),
                alert(False, "2 of 3 delivered; failed: #3; #3 mail: no"),
            ],
            [2, 3],
        ),
        ([alert(False, "2 of 3 delivered; failed: #2; #2 Slack: no"), alert(None, "")], [1, 2, 3]),
        ([alert(False, "1 of 2 delivered; failed: #2; #2 Slack: no")], [1, 2, 3]),  # the addresses are others now
        ([alert(False, "1 of 3 delivered; failed: #2 Slack: no; #3 ma")], [1, 2, 3]),  # as older versions wrote it
        ([alert(False, "No settings.")], [1, 2, 3]),
        ([alert(False, "2 of 3 delivered; failed: #9; #9 mail: no")], [1, 2, 3]),
    ],
)
def test_only_addresses_that_a_message_has_not_reached_get_it_again(alerts: list[Alert], positions: list[int]) -> None:
    assert still_to_tell(alerts, 3) == positions
