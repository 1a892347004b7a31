"""What trials may cost together, and what a watch sees of a machine beside its run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.cli import doctor
from costgpu.clock import ManualClock
from costgpu.errors import (
    BootFailed,
    CapTooSmall,
    CostGpuError,
    HostKeyMismatch,
    HostUnreachable,
    ProviderError,
    QuotaExceeded,
    RunCancelled,
    TerminationUnconfirmed,
)
from costgpu.job.state.observer import NullObserver
from costgpu.models.diagnostics import Check, failed, ok, unknown, warning
from costgpu.models.instance import Identity, Instance, InstanceRef, InstanceState
from costgpu.models.job import LogStream
from costgpu.providers.base import HostMaintenance
from costgpu.render.text.doctor import PlaceReport
from costgpu.workflows.first_run import trial
from costgpu.workflows.first_run.redact import Redactor
from costgpu.workflows.first_run.trial import Allowance, carry_out
from costgpu.workflows.first_run.trial_job import LAST_WORDS
from costgpu.workflows.first_run.watch import BOOT_WORDS, LATE_CONSOLE_SECONDS, MachineWatch
from tests.properties import examples
from tests.unit.estimator import builders

REF = InstanceRef(provider="fake", region="here", instance_id="m1")
MONEY = st.decimals(0, 5, places=6)


@examples(400)
@given(MONEY, st.lists(MONEY, max_size=12))
def test_the_worst_costs_never_add_up_to_more_than_is_allowed(most: Decimal, worst: list[Decimal]) -> None:
    allowance, taken = Allowance(most), Decimal(0)
    for each in worst:
        left = allowance.left_usd
        try:
            allowance.take(each)
        except CapTooSmall:
            assert each > left == allowance.left_usd
        else:
            taken += each
    assert taken + allowance.left_usd == most
    assert taken <= most


def test_a_trial_that_could_cost_more_than_is_left_asks_nobody() -> None:
    class Dear:
        worst_usd = Decimal("0.30")
        context = None  # whatever is asked of it raises

    trial: Any = Dear()
    allowance = Allowance(Decimal("0.50"))
    allowance.take(Decimal("0.21"))
    with pytest.raises(CapTooSmall, match=r"could cost \$0.30, and \$0.29 are left"):
        carry_out(trial, allowance, NullObserver())
    assert allowance.left_usd == Decimal("0.29")


@dataclass
class Cloud:
    """A provider of one machine, which does what the clock says."""

    clock: ManualClock
    console_at: Callable[[float], str] = lambda _: ""
    state_at: Callable[[float], InstanceState | None] = lambda _: InstanceState.RUNNING
    consoles: int = 0

    def console(self, _: InstanceRef) -> str:
        self.consoles += 1
        return self.console_at(self.clock.monotonic())

    def describe(self, ref: InstanceRef) -> Instance | None:
        state = self.state_at(self.clock.monotonic())
        if state is None:
            return None
        born = datetime(2026, 1, 1, tzinfo=UTC)
        return Instance(
            ref=ref, zone=None, instance_type="small", state=state, reason=str(state), launched_at=born, endpoint=None
        )


@dataclass
class Maintaining(Cloud):
    """One that can maintain the host."""

    asked_at: list[float] = field(default_factory=list)
    refusal: str = ""

    def simulate_maintenance(self, _: InstanceRef) -> None:
        if self.refusal:
            raise ProviderError(self.refusal)
        self.asked_at.append(self.clock.monotonic())

    def maintained(self, _: InstanceRef) -> HostMaintenance:
        if not self.asked_at:
            return HostMaintenance(events=("insert",), time_limit=self.clock.now())
        over = self.clock.monotonic() - self.asked_at[0] >= 60
        return HostMaintenance(events=("insert", "asked", *(("moved",) if over else ())), over=over)


def watch_of(cloud: Any) -> MachineWatch:
    return MachineWatch(cloud, cloud.clock, NullObserver(), ask_to_end=lambda _: None)


class View:
    """As much of a closed run as is looked at."""

    instance = REF


def finished(watch: MachineWatch) -> MachineWatch:
    view: Any = View()
    watch.finish(view)
    return watch


def test_another_key_before_that_of_the_run_is_noted_with_its_time() -> None:
    clock = ManualClock()
    answers = [HostUnreachable("no answer"), HostKeyMismatch("another key"), HostKeyMismatch("another key"), None]
    watch = watch_of(Cloud(clock))

    def connect(*_: object) -> Any:
        clock.sleep(10)
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "host"

    attempt: Any = watch.connector(connect)
    for expected in (HostUnreachable, HostKeyMismatch, HostKeyMismatch):
        with pytest.raises(expected):
            attempt(None, None)
    assert attempt(None, None) == "host"
    assert watch.answered_at is not None
    assert watch.key_at is not None
    assert (watch.key_at - watch.answered_at).total_seconds() == 20
    assert watch.foreign_key


def test_the_delay_of_the_console_after_the_last_words() -> None:
    clock = ManualClock()
    watch = watch_of(Cloud(clock, console_at=lambda now: BOOT_WORDS + (LAST_WORDS if now >= 101 else "")))
    watch.boot_words_at = clock.now()
    watch.output(LogStream.STDOUT, b"python 3\ncostgpu: first run: pow")
    half: list[object] = [watch.last_words_at]
    watch.output(LogStream.STDOUT, b"ering off\n")
    assert [*half, watch.last_words_at] == [None, clock.now()]
    finished(watch)
    assert watch.console_end_at is not None
    assert watch.last_words_at is not None
    assert (watch.console_end_at - watch.last_words_at).total_seconds() == 102


def test_a_console_that_never_tells_is_not_waited_for_for_ever() -> None:
    cloud = Cloud(ManualClock(), console_at=lambda _: BOOT_WORDS)
    watch = watch_of(cloud)
    watch.output(LogStream.STDOUT, LAST_WORDS.encode())
    assert finished(watch).console_end_at is None
    assert LATE_CONSOLE_SECONDS <= cloud.clock.monotonic() <= LATE_CONSOLE_SECONDS + 10


def test_a_console_that_is_gone_with_the_machine_is_not_waited_for() -> None:
    cloud = Cloud(ManualClock())
    watch = watch_of(cloud)
    watch.boot_words_at = cloud.clock.now()
    watch.output(LogStream.STDOUT, LAST_WORDS.encode())
    assert finished(watch).console_end_at is None
    assert (cloud.consoles, cloud.clock.monotonic()) == (1, 0)


def test_a_machine_is_noted_when_it_is_described_differently() -> None:
    clock = ManualClock()
    words = [InstanceState.RUNNING, InstanceState.RUNNING, InstanceState.STOPPING, None, None]
    watch = watch_of(Cloud(clock, state_at=lambda _: words.pop(0)))
    while words:
        watch._look(REF)
        clock.sleep(5)
    assert [(each.state, (at - ManualClock().now()).total_seconds()) for at, each in watch.seen] == [
        ("running", 0),
        ("stopping", 10),
        ("unknown", 15),
    ]


def test_what_comes_of_a_maintenance() -> None:
    cloud = Maintaining(ManualClock())
    found = watch_of(cloud)._maintain(cloud, REF)
    assert found.events == ("asked", "moved")
    assert (found.time_limit_before, found.time_limit_after, found.refusal) == (True, False, "")
    assert cloud.clock.monotonic() == 60


def test_a_maintenance_that_is_refused() -> None:
    cloud = Maintaining(ManualClock(), refusal="not allowed")
    found = watch_of(cloud)._maintain(cloud, REF)
    assert (found.events, found.refusal, found.time_limit_after) == ((), "not allowed", True)


@pytest.mark.parametrize("gravest", [TerminationUnconfirmed("may bill", hint="end it"), RunCancelled("cancelled")])
def test_no_machine_follows_one_that_may_still_be_billing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], gravest: CostGpuError
) -> None:
    ends: dict[str, CostGpuError | None] = {"a": BootFailed("no boot"), "b": gravest, "c": None}
    created = []

    def create(place: PlaceReport, *_: object, **__: object) -> CostGpuError | None:
        created.append(place.name)
        return ends[place.name]

    monkeypatch.setattr(doctor, "_try", create)
    places = [PlaceReport(name=name, checks=(), offer=builders.offer("1")) for name in ends]
    monkeypatch.setattr(trial, "redactor_for", lambda *_: Redactor(()))
    context: Any = SimpleNamespace(clock=ManualClock())
    error = doctor._live(context, places, Allowance(Decimal(1)), tmp_path / "r.json", force=False, yes=True)
    assert (created, error) == (["a", "b"], gravest)
    assert "no boot" in capsys.readouterr().err  # the other one is told, too


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (ok("credentials", "ann"), ""),
        (warning("credentials", "the root user", "use a role"), ""),
        (unknown("credentials", "none here"), "no credentials"),
        (failed("quota", QuotaExceeded("0 vCPUs")), "FAIL"),
    ],
)
def test_where_no_machine_is_created(check: Check, why: str) -> None:
    said = doctor._why_not(
        PlaceReport(name="a", checks=(check, unknown("organisation", "?")), offer=builders.offer("1"))
    )
    assert (why in said, bool(said)) == (True, bool(why))


def test_parts_of_the_settings_are_private_too() -> None:
    """A message names the project of an image, or one of network and subnet, alone."""
    given = {"network": "acme-vpc/acme-subnet", "image": "projects/acme-images/global/images/acme-golden"}
    who = Identity(provider="x", account="123456789012", principal="ann@example.org")
    context: Any = SimpleNamespace(
        settings=SimpleNamespace(bucket=None, owner=None, caller_address=None),
        provider=lambda _: SimpleNamespace(identity=lambda: who),
        provider_config=lambda _: SimpleNamespace(settings=given),
    )
    clean = trial.redactor_for(context, ["x"], ()).text
    assert clean("image acme-golden of acme-images") == "image <private> of <private>"
    assert clean("no network acme-vpc with acme-subnet") == "no network <private> with <private>"
    assert clean("global images and costgpu.first_run") == "global images and costgpu.first_run"
