"""The reaper's judgement, on the fake cloud: what is left over, what is left alone, and what is ended.

One file of more than 400 lines: each kind of thing is judged in the same account.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from costgpu.errors import AuthError, LedgerDamaged, ProviderError, Unreachable
from costgpu.job.reap import NEW_SECONDS, ReapFilter, end_orphans, find_orphans
from costgpu.job.state.states import replay
from costgpu.models.instance import Instance, InstanceRef, InstanceState, NodeGroup
from costgpu.models.reap import OrphanReason, ReapFindings
from costgpu.models.run import CreateCall, RunState, RunView
from costgpu.providers.base import TAG_LEASE, TAG_RUN, OwnedResources
from tests.contract.harness import RUN, FakeHarness
from tests.emulators.create_requests import offer_of
from tests.fake_cloud import FakeCloud, FakeProvider
from tests.job.examples import START, intent

HOUR = timedelta(hours=1)
HERE, THERE = "us-east-1", "us-west-2"


def nobody_knows(run_id: str) -> RunView | None:
    return None


def view_of(
    run_id: str,
    *,
    state: RunState = RunState.RUNNING,
    instance: InstanceRef | None = None,
    lease_until: datetime | None = None,
    owner: str = "me@here",
) -> RunView:
    """A run as a ledger tells it."""
    call = CreateCall(
        number=1, token=f"{run_id}-1", option=0, zone=None, at=START, lease_until=lease_until or START, allow_from=""
    )
    view = replay([intent(run_id, owner=owner)])
    return replace(view, state=state, instance=instance, create_call=call if lease_until else None)


class Account(FakeHarness):
    """The fake cloud, where watchdogs do not work: a reaper has something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.cloud.visible_after_seconds = 0.0
        self.cloud.watchdog_works = False
        self.cloud.agent_works = False
        self.provider: FakeProvider = self.cloud.provider()

    def now(self) -> datetime:
        return self.clock.now()

    def machine(self, run_id: str = RUN, region: str = HERE, hours: float = 1.0, **changes: Any) -> Instance:
        """A running one with a lease of so many hours from now on."""
        until = self.now().replace(microsecond=0) + hours * HOUR
        wanted = self.request(run_id, lease_until=until, offer=offer_of("fake", region, "m5.large"), **changes)
        return self.running(wanted)

    def look(
        self, known: Callable[[str], RunView | None] = nobody_knows, regions: list[str] | None = None, **more: Any
    ) -> ReapFindings:
        return find_orphans([self.provider], regions, self.now(), known, **more)

    def reap(self, known: Callable[[str], RunView | None] = nobody_knows, **more: Any) -> ReapFindings:
        found = self.look(known, **more)
        end_orphans(found, lambda _: self.provider, self.clock)
        return found

    def disk(self, run_id: str = RUN, region: str = HERE, **facts: Any) -> str:
        return self.cloud.resources.add("disk", region, run_id, **facts).resource_id

    def left(self) -> set[str]:
        return {each.resource_id for each in self.cloud.resources.of()}


@pytest.fixture
def account() -> Account:
    return Account()


def ids(found: ReapFindings) -> list[str]:
    return [orphan.instance.ref.instance_id for orphan in found.orphans]


def things(found: ReapFindings) -> set[str]:
    return {leftover.resource_id for leftover in found.leftovers}


class TestMachines:
    def test_within_its_lease_it_is_left_alone_with_all_that_it_has(self, account: Account) -> None:
        made = account.machine()
        account.disk(lease_until=account.now() - HOUR)  # of an earlier attempt
        account.disk()
        found = account.reap()
        assert not found.leaking
        assert [kept.ref for kept in found.kept] == [made.ref]
        assert account.provider.describe(made.ref).state is InstanceState.RUNNING  # type: ignore[union-attr]
        assert len(account.left()) == 3

    def test_past_its_lease_it_is_ended_and_confirmed_and_so_is_what_it_leaves(self, account: Account) -> None:
        account.cloud.disks_stay = True
        made = account.machine()
        account.clock.sleep(2 * 3600)
        looked = account.look()
        assert [(orphan.instance.ref, orphan.why) for orphan in looked.orphans] == [(made.ref, OrphanReason.PAST_LEASE)]
        assert account.cloud.instance(made.ref.instance_id).terminate_calls == 0
        found = account.reap()
        assert found.ended == [made.ref]
        assert not found.failed
        assert account.left() == set()
        assert not account.cloud.alive()
        assert [one.state for one in account.provider.list_owned().instances] == [InstanceState.TERMINATED]
        assert not account.look().leaking

    def test_a_stopped_one_is_billed_too(self, account: Account) -> None:
        made = account.machine()
        account.stop(made.ref)
        account.clock.sleep(2 * 3600)
        found = account.reap()
        assert found.orphans[0].instance.state is InstanceState.STOPPED
        assert found.ended == [made.ref]

    def test_without_a_lease_nobody_wants_it(self, account: Account) -> None:
        made = account.machine()
        for wrong in ("", "tomorrow", "9" * 40):
            account.cloud.instances[made.ref.instance_id].tags = {**made.tags, TAG_LEASE: wrong}
            assert [orphan.why for orphan in account.look().orphans] == [OrphanReason.NO_LEASE]

    def test_the_ledger_knows_the_lease_of_one_that_has_lost_its_tag(self, account: Account) -> None:
        made = account.machine()
        account.cloud.instances[made.ref.instance_id].tags = {TAG_RUN: RUN}
        until = account.now() + HOUR
        view = view_of(RUN, instance=made.ref, lease_until=until)
        assert not account.look(lambda _: view).orphans
        other = replace(made.ref, instance_id="i-00000000")
        assert account.look(lambda _: view_of(RUN, instance=other, lease_until=until)).orphans
        account.clock.sleep(3601)
        assert [orphan.why for orphan in account.look(lambda _: view).orphans] == [OrphanReason.PAST_LEASE]

    def test_the_machine_of_a_closed_run_is_not_waited_for(self, account: Account) -> None:
        made = account.machine()
        view = view_of(RUN, state=RunState.CLOSED, instance=made.ref, lease_until=made.lease_until)
        found = account.reap(lambda _: view)
        assert [orphan.why for orphan in found.orphans] == [OrphanReason.RUN_CLOSED]
        assert found.ended == [made.ref]

    def test_a_damaged_ledger_changes_nothing(self, account: Account) -> None:
        account.machine("fresh0000000", hours=9)
        made = account.machine()
        account.clock.sleep(2 * 3600)

        def broken(_: str) -> RunView | None:
            raise LedgerDamaged("not a database")

        found = account.reap(broken)
        assert found.ended == [made.ref]
        assert [kept.run_id for kept in found.kept] == ["fresh0000000"]

    def test_one_that_is_ending_is_no_leak_but_one_that_never_ends_is(self, account: Account) -> None:
        account.cloud.terminating_seconds = float("inf")
        made = account.machine()
        account.clock.sleep(3590)
        account.provider.terminate(made.ref)
        account.clock.sleep(100)
        assert not account.look().leaking
        account.clock.sleep(900)
        found = account.reap()
        assert ids(found) == [made.ref.instance_id]
        assert found.ended == []
        assert "TerminationUnconfirmed" in repr(found.failed[made.ref.instance_id])

    def test_one_that_cannot_be_ended_does_not_keep_the_others_alive(self, account: Account) -> None:
        made = [account.machine(run_id) for run_id in ("first0000000", "second000000", "third0000000")]
        account.clock.sleep(2 * 3600)
        protected = AuthError("it is protected")
        account.cloud.faults.next("terminate", error=protected, subject=made[1].ref.instance_id, times=99)
        found = account.reap()
        assert found.ended == [made[0].ref, made[2].ref]
        assert list(found.failed) == [made[1].ref.instance_id]
        assert [orphan.instance.ref for orphan in found.not_ended] == [made[1].ref]
        assert account.let_in(made[1]) == {"203.0.113.7/32"}

    def test_the_other_machine_of_the_same_run_keeps_what_it_needs(self, account: Account) -> None:
        account.machine(attempt=1)
        late = account.machine(attempt=2, hours=9)
        account.clock.sleep(2 * 3600)
        found = account.reap()
        assert len(found.ended) == 1
        assert not found.failed
        assert account.let_in(late) == {"203.0.113.7/32"}

    def test_another_machine_of_its_group_keeps_what_they_share(self, account: Account) -> None:
        """Also where node 0's run is closed, and its machine is gone."""
        group = NodeGroup(group_id=RUN, nodes=2, node=0, placement=True)
        first = account.machine(group=group)
        second = account.machine("node10000000", hours=9, group=replace(group, node=1))
        account.provider.terminate(first.ref)
        account.clock.sleep(2 * 3600)
        views = {RUN: view_of(RUN, state=RunState.CLOSED)}
        found = account.reap(views.get)
        assert (found.ended, found.failed, found.leaking) == ([], {}, False)
        assert {each.kind for each in account.cloud.resources.of(RUN)} >= {"group network", "placement group"}
        account.clock.sleep(8 * 3600)
        found = account.reap(views.get)
        assert (found.ended, found.failed) == ([second.ref], {})
        assert account.left() == set()

    def test_the_machines_of_an_orphaned_group_go_with_all_that_they_share(self, account: Account) -> None:
        group = NodeGroup(group_id=RUN, nodes=2, node=0, placement=True)
        made = [account.machine(run, group=replace(group, node=n)) for n, run in enumerate((RUN, "node10000000"))]
        account.clock.sleep(2 * 3600)
        found = account.reap()
        assert {ref.instance_id for ref in found.ended} == {one.ref.instance_id for one in made}
        assert (found.failed, account.left()) == ({}, set())

    def test_foreign_machines_are_not_even_listed(self, account: Account) -> None:
        for tags in ({}, {"Name": "costgpu-train"}, {"costgpu-runX": RUN, TAG_LEASE: "1"}, {"Costgpu-Run": RUN}):
            account.cloud.add_foreign(tags=tags)
        found = account.reap()
        assert not found.leaking
        assert not found.kept
        assert account.cloud.foreign_untouched()


class TestThings:
    def test_of_an_unknown_run_without_any_machine_they_are_removed_by_median(self, account: Account) -> None:
        account.cloud.add_foreign_resource(RUN)
        account.disk()
        account.disk("another00000", THERE)
        found = account.reap()
        assert {(leftover.run_id, leftover.region) for leftover in found.removed} == {
            (RUN, HERE),
            ("another00000", THERE),
        }
        assert not found.failed
        assert account.left() == set()
        assert account.cloud.foreign_untouched()

    def test_a_machine_in_any_region_keeps_them(self, account: Account) -> None:
        account.machine(region=THERE)
        kept = account.disk()
        for regions in (None, [HERE], [HERE, "eu-central-1"]):
            assert things(account.look(regions=regions)) == set()
        assert kept in account.left()

    @pytest.mark.parametrize("regions", [None, [HERE]])
    def test_a_region_that_does_not_say_might_have_that_machine(
        self, account: Account, regions: list[str] | None
    ) -> None:
        account.disk()
        past = account.disk("another00000", lease_until=account.now() - HOUR)
        account.cloud.unreachable_regions[THERE] = "timed out"
        assert things(account.look(regions=regions)) == {past}
        del account.cloud.unreachable_regions[THERE]
        assert len(things(account.look(regions=regions))) == 2

    def test_a_kind_that_cannot_be_listed_is_no_such_region(self, account: Account) -> None:
        account.disk()

        class Partly(FakeProvider):
            def list_owned(self, regions: Any = None) -> OwnedResources:
                return replace(super().list_owned(regions), unreachable=((f"{THERE} (snapshot)", "not allowed"),))

        account.provider = Partly(account.cloud)
        found = account.look()
        assert len(found.leftovers) == 1
        assert found.unreachable == {f"fake/{THERE} (snapshot)": "not allowed"}

    def test_within_its_lease_a_thing_may_belong_to_a_run_that_begins(self, account: Account) -> None:
        kept = account.disk(lease_until=account.now() + HOUR)
        assert things(account.look()) == set()
        closed = view_of(RUN, state=RunState.CLOSED)
        assert things(account.look(lambda _: closed)) == {kept}
        account.clock.sleep(3601)
        assert things(account.look()) == {kept}

    def test_an_open_run_in_the_ledger_keeps_them_until_its_lease(self, account: Account) -> None:
        kept = account.disk()
        view = view_of(RUN, lease_until=account.now() + HOUR)
        assert things(account.look(lambda _: view)) == set()
        account.clock.sleep(3601)
        assert things(account.look(lambda _: view)) == {kept}

    def test_a_new_thing_may_belong_to_a_machine_that_is_not_shown_yet(self, account: Account) -> None:
        kept = account.disk(created_at=account.now())
        account.clock.sleep(NEW_SECONDS - 1)
        assert things(account.look()) == set()
        account.clock.sleep(2)
        assert things(account.look()) == {kept}

    def test_a_terminating_machine_still_uses_them(self, account: Account) -> None:
        made = account.machine()
        account.disk(lease_until=account.now() - HOUR)
        account.provider.terminate(made.ref)
        assert not account.look().leaking

    def test_those_of_an_orphan_are_listed_with_it(self, account: Account) -> None:
        account.machine()
        disk = account.disk()
        account.clock.sleep(2 * 3600)
        found = account.reap()
        assert disk in things(found)
        assert {leftover.resource_id for leftover in found.removed} == things(found)
        assert account.left() == set()

    def test_what_is_in_use_gets_a_minute_and_is_then_said_to_be(
        self, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = account.disk()
        before = account.clock.monotonic()
        monkeypatch.setattr(account.cloud.resources, "take", lambda *_, **__: False)
        found = account.reap()
        assert 60 < account.clock.monotonic() - before < 100
        assert found.removed == []
        assert "still in use" in str(found.failed[disk])

    def test_one_that_cannot_be_removed_does_not_keep_the_others(self, account: Account) -> None:
        first, second = account.disk(), account.disk()
        account.cloud.faults.next("remove", error=AuthError("not allowed"), subject=first)
        found = account.reap()
        assert [leftover.resource_id for leftover in found.removed] == [second]
        assert list(found.failed) == [first]


class TestNarrowed:
    def test_to_what_is_old(self, account: Account) -> None:
        old = account.machine("old000000000", hours=0.5)
        account.clock.sleep(2 * 3600)
        young = account.machine("young0000000", hours=0.01)
        dated = account.disk("dated0000000", created_at=account.now() - 2 * HOUR)
        account.disk("fresh0000000", created_at=account.now() - HOUR / 2)
        leased = account.disk("leased000000", lease_until=account.now() - 2 * HOUR)
        account.disk("just00000000", lease_until=account.now() - HOUR / 2)
        account.disk("ageless00000")
        account.disk("young0000000", created_at=account.now() - 3 * HOUR)
        account.clock.sleep(1200)
        assert len(account.look().orphans) == 2
        found = account.look(only=ReapFilter(before=account.now() - HOUR))
        assert ids(found) == [old.ref.instance_id]
        assert [kept.ref for kept in found.kept] == [young.ref]
        assert things(found) - {each.resource_id for each in account.cloud.resources.of("old000000000")} == {
            dated,
            leased,
        }

    def test_to_what_is_mine(self, account: Account) -> None:
        account.machine("hers00000000", hours=0.5, owner="bob@desk")
        his = account.machine("mine00000000", hours=0.5, owner="ann@laptop")
        disks = {
            owner: account.disk(f"{name}00000000", owner=owner)
            for name, owner in (("ann0", "ann@laptop"), ("bob0", "bob@desk"), ("anna", "anna@laptop"), ("none", ""))
        }
        account.clock.sleep(3600)
        for me in ("ann@laptop", "ann"):
            found = account.look(only=ReapFilter(owner=me), regions=[HERE])
            assert ids(found) == [his.ref.instance_id]
            rules = {each.resource_id for each in account.cloud.resources.of("mine00000000")}
            assert things(found) - rules == {disks["ann@laptop"]}
        view = view_of("none00000000", state=RunState.CLOSED, owner="ann@laptop")
        found = account.look(lambda run_id: view if run_id == "none00000000" else None, only=ReapFilter(owner="ann"))
        assert disks[""] in things(found)
        assert next(item.owner for item in found.leftovers if item.resource_id == disks[""]) == "ann@laptop"

    def test_to_what_is_mine_where_only_a_label_says_so(self, account: Account) -> None:
        labelled = account.disk("ann000000000", owner="ann-laptop")
        account.disk("anna00000000", owner="anna-laptop")
        account.disk("ann200000000", owner="ann-laptop2")
        known = account.disk("kept00000000", owner="ann-laptop")
        view = view_of("kept00000000", state=RunState.CLOSED, owner="ann@laptop")
        ledger = {"kept00000000": view}
        found = account.look(ledger.get, only=ReapFilter(owner="ann@laptop"), regions=[HERE])
        assert things(found) == {labelled, known}
        assert things(account.look(ledger.get, only=ReapFilter(owner="ann"), regions=[HERE])) == {known}


class TestPlaces:
    def test_a_provider_that_fails_hides_no_other(self, account: Account) -> None:
        account.machine()
        account.clock.sleep(2 * 3600)
        other = FakeCloud(account.clock)
        other.faults.next("list_owned", error=ProviderError("broken"))
        found = find_orphans([other.provider(), account.provider], None, account.now(), nobody_knows)
        assert len(found.orphans) == 1
        assert found.unreachable == {"fake": "broken"}

    def test_a_region_that_fails_is_named(self, account: Account) -> None:
        account.machine()
        account.clock.sleep(2 * 3600)
        account.cloud.unreachable_regions["eu-central-1"] = "timed out"
        found = account.reap()
        assert len(found.ended) == 1
        assert found.unreachable == {"fake/eu-central-1": "timed out"}

    def test_a_provider_that_falls_silent_in_between_is_no_confirmation(self, account: Account) -> None:
        made = account.machine()
        account.clock.sleep(2 * 3600)
        account.cloud.faults.next("describe", error=Unreachable("no answer"), times=10_000)
        found = account.reap()
        assert found.ended == []
        assert made.ref.instance_id in found.failed


class TestPrices:
    def prices(self, machines: Sequence[Instance]) -> dict[InstanceRef, Decimal]:
        """One is known."""
        self.asked = [machine.run_id for machine in machines]
        return {machine.ref: Decimal("0.10") for machine in machines if machine.run_id == RUN}

    def test_a_machine_that_does_not_run_costs_its_disks_only(self, account: Account) -> None:
        for run_id in (RUN, "stopped00000", "unknown00000"):
            made = account.machine(run_id)
            if run_id.startswith("stopped"):
                account.stop(made.ref)
        account.machine("fresh0000000", hours=9)
        account.clock.sleep(2 * 3600)
        found = account.look(prices=self.prices)
        assert sorted(self.asked) == [RUN, "unknown00000"]
        rates = {orphan.instance.run_id: orphan.usd_per_hour for orphan in found.orphans}
        assert rates == {RUN: Decimal("0.10"), "stopped00000": 0, "unknown00000": None}
        assert (found.usd_per_hour, found.prices_known) == (Decimal("0.10"), False)

    def test_disks_and_the_address_are_added(self, account: Account) -> None:
        made = account.machine()
        account.disk("another00000", usd_per_hour=0.011, lease_until=account.now())
        account.clock.sleep(2 * 3600)

        class Attached(FakeProvider):
            def list_owned(self, regions: Any = None) -> OwnedResources:
                return replace(super().list_owned(regions), attached={made.ref.instance_id: 0.0125})

        account.provider = Attached(account.cloud)
        found = account.look(prices=self.prices)
        assert found.orphans[0].usd_per_hour == Decimal("0.1125")
        assert found.usd_per_hour == Decimal("0.1235")
        assert found.prices_known
        unknown = account.look(prices=lambda _: {})
        assert unknown.orphans[0].usd_per_hour is None
        assert (unknown.usd_per_hour, unknown.prices_known) == (Decimal("0.011"), False)
