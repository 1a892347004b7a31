"""Runs by whatever a person calls them, and what a launch promises."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.errors import LedgerDamaged, LedgerError, ProviderError, RunNotFound
from costgpu.job.adopt import adopt_job, collect_finished, job_status, log_tail
from costgpu.job.drive.context import Detached
from costgpu.job.find_run import load_run, resolve_run
from costgpu.job.launch import current_owner, job_name, launch, new_run_id
from costgpu.job.state.observer import NullObserver
from costgpu.models.instance import Instance
from costgpu.models.job import JobPhase, JobStatus
from costgpu.models.run import EventKind, RunEvent, RunState, RunView
from costgpu.providers.base import Provider
from tests.fake_cloud import FakeCloud, JobScript, MachineScript
from tests.job import world as world_module
from tests.job.examples import START, facts_of, intent
from tests.job.world import MemoryBook, plan


class Shelf(MemoryBook):
    """A ledger that finds by the beginning of an id or by name, as the real one does."""

    def resolve(self, text: str) -> tuple[str, ...]:
        if text in self.rows:
            return (text,)
        names = {run_id: rows[0].data["name"] for run_id, rows in self.rows.items()}
        return tuple(i for i in reversed(self.rows) if text and (i.startswith(text) or names[i] == text))

    def put(self, run_id: str, name: str = "train", *, closed: bool = False) -> None:
        self.append(intent(run_id, name=name))
        if closed:
            data = facts_of(EventKind.CLOSED)
            at = START + timedelta(seconds=1)
            self.append(RunEvent(run_id=run_id, sequence=1, at=at, kind=EventKind.CLOSED, data=data))


class Damaged(Shelf):
    """A ledger that cannot be read."""

    def resolve(self, text: str) -> tuple[str, ...]:
        raise LedgerDamaged("ledger.sqlite: the file is damaged.")

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        raise LedgerDamaged("ledger.sqlite: the file is damaged.")


def nobody() -> Sequence[Provider]:
    return ()


class World(world_module.World):
    """A cloud with runs that go on without a client."""

    def __init__(self, folder: Path) -> None:
        script = JobScript(seconds=600, outputs={"model.pt": b"w"})
        super().__init__(folder, script, MachineScript(), book=Shelf())

    def detached(self, run_id: str, **changes: Any) -> None:
        with pytest.raises(Detached):
            self.launch(run_id=run_id, detach=True, **changes)

    def providers(self) -> Sequence[Provider]:
        return [self.cloud.provider()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_run_ids_fit_everywhere() -> None:
    ids = {new_run_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(re.fullmatch(r"[a-z][a-z0-9]{11}", run_id) for run_id in ids)


@given(st.text())
def test_job_names_fit_in_tags(text: str) -> None:
    name = job_name(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-?", name)
    assert 0 < len(name) <= 40
    assert job_name("Train ResNet_50.v2!") == "train-resnet-50-v2"


def test_an_owner_is_always_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid")

    assert "@" in current_owner()
    monkeypatch.setattr("getpass.getuser", nameless)
    assert current_owner().startswith("unknown@")


class TestFind:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("abc1", "abc1"),
            ("abd", "abd2"),
            ("xyz", "xyz"),  # a whole id is meant also if another begins with it
            ("resnet", "b"),  # by name the open one
            ("other", "e"),  # or else the newest
            ("ab", "could be 2 runs: abd2, abc1"),
            ("twice", "could be 2 runs"),  # open ones are never guessed between
        ],
    )
    def test_in_the_ledger(self, text: str, found: str) -> None:
        book = Shelf()
        for run_id in ("abc1", "abd2", "xyz", "xyzt"):
            book.put(run_id)
        for run_id, name, closed in (
            ("a", "resnet", True),
            ("b", "resnet", False),
            ("c", "resnet", True),
            ("d", "other", True),
            ("e", "other", True),
            ("f", "twice", False),
            ("g", "twice", False),
        ):
            book.put(run_id, name, closed=closed)
        if found.startswith("could"):
            with pytest.raises(RunNotFound, match=found):
                resolve_run(text, book, nobody)
            return
        view = resolve_run(text, book, nobody)
        assert isinstance(view, RunView)
        assert view.run_id == found

    @pytest.mark.parametrize("text", ["", " ", "nope"])
    def test_nothing_is_meant_by_nothing(self, world: World, text: str) -> None:
        world.detached("abc")
        with pytest.raises(RunNotFound) as caught:
            resolve_run(text, world.book, world.providers)
        assert "costgpu jobs" in caught.value.hint

    def test_by_instance_id_with_all_that_the_ledger_knows(self, world: World) -> None:
        world.detached("abc")
        (instance,) = world.cloud.instances_of("abc")
        found = resolve_run(instance.ref.instance_id, world.book, world.providers)
        assert isinstance(found, RunView)
        assert found.run_id == "abc"

    @pytest.mark.parametrize("text", ["abc", "ab", "train", None])
    @pytest.mark.parametrize("book", [Shelf(), Damaged()])
    def test_by_tag_alone(self, world: World, text: str | None, book: Shelf) -> None:
        world.cloud.add_foreign(tags={"Name": "train"})
        world.detached("abc")
        (instance,) = world.cloud.instances_of("abc")
        found = resolve_run(text or instance.ref.instance_id, book, world.providers, owner=lambda: "me")
        assert isinstance(found, Instance)
        assert found.ref == instance.ref

    @pytest.mark.parametrize("text", ["ab", "train"])
    def test_by_tag_a_colleagues_machine_is_never_guessed(self, world: World, text: str) -> None:
        world.detached("abc")
        (instance,) = world.cloud.instances_of("abc")
        machine = instance.ref.instance_id
        with pytest.raises(RunNotFound, match=rf"no run of you@here.* abc \({machine}\) of me@here") as caught:
            resolve_run(text, Shelf(), world.providers, owner=lambda: "you@here")
        assert "whole run id" in caught.value.hint
        for whole in ("abc", machine):
            assert isinstance(resolve_run(whole, Shelf(), world.providers, owner=lambda: "you@here"), Instance)

    def test_several_machines_are_no_answer_either(self, world: World) -> None:
        world.detached("abc")
        world.detached("abd")
        with pytest.raises(RunNotFound, match="could be 2 machines"):
            resolve_run("train", Shelf(), world.providers, owner=lambda: "me@here")

    def test_a_machine_that_is_gone_is_nobodys(self, world: World) -> None:
        world.detached("abc")
        world.cloud.terminate_by_somebody(world.cloud.alive()[0].ref.instance_id)
        world.cloud.clock.sleep(60)
        with pytest.raises(RunNotFound):
            resolve_run("abc", Shelf(), world.providers)

    def test_a_damaged_ledger_is_told(self, world: World) -> None:
        with pytest.raises(LedgerDamaged, match=r"the file is damaged\. No machine bears the tag of a run 'abc'"):
            resolve_run("abc", Damaged(), world.providers)

    def test_a_provider_that_fails_does_not_hide_the_others(self, world: World) -> None:
        world.detached("abc")
        broken = FakeCloud(ManualClock())
        broken.faults.next("list_owned", error=ProviderError("broken"), times=9)
        found = resolve_run("abc", Shelf(), lambda: [broken.provider(), world.cloud.provider()])
        assert isinstance(found, Instance)


class TestLaunch:
    def test_nothing_is_created_that_could_not_be_recorded(self, world: World) -> None:
        class Full(Shelf):
            def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
                raise LedgerError("The disk is full.")

        with pytest.raises(LedgerError):
            launch(plan(world.work), Full(), world.tools, NullObserver(), owner="me", environment={}, run_id="abc")
        assert not world.cloud.instances_of("abc")
        assert not [call for call in world.cloud.calls if call.method == "create"]

    def test_the_intent_has_names_of_variables_and_no_values(self, world: World) -> None:
        work = plan(world.work, env_names=("TOKEN",))
        secret = {"TOKEN": "s3cr3t-value"}
        driver = launch(work, world.book, world.tools, NullObserver(), owner="me", environment=secret, run_id="abc")
        assert driver.view.state is RunState.CLOSED
        assert "TOKEN" in repr(world.book.rows)
        assert "s3cr3t" not in repr(world.book.rows)
        assert not any(b"s3cr3t" in path.read_bytes() for path in world.folder.rglob("*") if path.is_file())


class TestComingBack:
    def test_an_unknown_run(self) -> None:
        with pytest.raises(RunNotFound):
            load_run(Shelf(), "abc")

    def test_the_status_of_a_run(self, world: World) -> None:
        world.detached("abc")
        view = load_run(world.book, "abc")
        status = job_status(view, world.tools)
        assert status is not None
        assert status.phase is JobPhase.RUNNING
        world.cloud.cut_network(10)
        assert job_status(view, world.tools) is None
        assert job_status(replace(view, state=RunState.BOOTING), world.tools) is None
        assert world.book.rows["abc"][-1].kind is EventKind.DETACHED  # looking writes nothing

    def test_the_end_of_a_long_log_is_enough(self) -> None:
        status = JobStatus(phase=JobPhase.RUNNING, stdout_bytes=10_000, stderr_bytes=10)
        position = log_tail(status)
        assert (position.stdout, position.stderr) == (10_000 - 4096, 0)


class TestCollectFinished:
    def test_a_run_of_another_computer_is_left_alone(self, world: World) -> None:
        world.book.append(intent("elsewhere"))
        assert collect_finished(world.book, world.tools, NullObserver()) == []
        assert load_run(world.book, "elsewhere").state is RunState.INTENT

    def test_a_machine_that_was_kept_on_purpose_is_kept(self, world: World) -> None:
        world.detached("abc", auto_shutdown=False)
        world.cloud.clock.sleep(700)
        driver = adopt_job(load_run(world.book, "abc"), world.book, world.tools, NullObserver(), {})
        with pytest.raises(Detached):
            driver.drive()
        assert (world.work / "model.pt").exists()
        assert collect_finished(world.book, world.tools, NullObserver()) == []
        assert world.cloud.alive()
        adopt_job(load_run(world.book, "abc"), world.book, world.tools, NullObserver(), {}).cancel()
        assert not world.cloud.alive()

    def test_the_slow_end_of_one_keeps_neither_outputs_nor_ends_of_others(self, world: World) -> None:
        world.cloud.terminating_seconds = 600.0
        world.detached("abc")
        world.detached("abd")
        world.cloud.clock.sleep(700)
        assert collect_finished(world.book, world.tools, NullObserver()) == ["abc", "abd"]
        rows = [row for run_id in ("abc", "abd") for row in world.book.events(run_id)]
        home = [row.at for row in rows if row.kind is EventKind.COLLECTED]
        ended = [row.at for row in rows if row.kind is EventKind.CONFIRMED]
        assert max(home) < min(ended)
        assert max(ended) - min(ended) < timedelta(seconds=60)

    def test_one_failure_does_not_keep_the_others(self, world: World) -> None:
        world.detached("abc")
        world.detached("abd")
        world.cloud.clock.sleep(700)
        world.cloud.damage_transfers("model.pt", times=1)
        assert collect_finished(world.book, world.tools, NullObserver()) == ["abd"]
        assert [one.tags["costgpu-run"] for one in world.cloud.alive()] == ["abc"]
