"""Checkpoints in the bucket: a whole one is there from the first on, whatever gets lost on the way."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.job.agent.outputs import checkpoint_upload
from costgpu.job.agent.outputs.checkpoint_upload import (
    ARCHIVE,
    LIST,
    CheckpointUploads,
    upload_checkpoint,
    upload_last_checkpoint,
    uploaded,
)
from costgpu.job.agent.outputs.checkpoints import PATIENCE_SECONDS
from costgpu.job.agent.outputs.upload import UploadFailed
from costgpu.job.agent.state_files import Home
from costgpu.portable.processes import process
from tests.properties import examples
from tests.unit.agent.simulation import SimulatedClock

URLS = {name: name for name in (ARCHIVE, "outputs", "logs")}


class World:
    """A machine with a job that makes checkpoints, and a bucket. What the next uploads come to is in `fates`."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(str(folder))
        (folder / "work/c").mkdir(parents=True)
        ours = process(os.getpid())
        assert ours is not None
        self.order = {
            "checkpoints": ["c"],
            "outputs": [],
            "supervisor": {"pid": ours.pid, "started": ours.started},
        }
        self.bucket: dict[str, dict[str, str]] = {}  # address -> name -> text
        self.fates: list[str] = []
        self.puts: list[str] = []
        self.saved = 0

    def put(self, url: str, files: Sequence[tuple[str, str, int, int]], *_: Any) -> None:
        self.puts.append(url)
        fate = self.fates.pop(0) if self.fates else "arrives"
        if fate != "refused":
            self.bucket[url] = {name: Path(path).read_text() for name, path, _, _ in files}
        self.verify()
        if fate != "arrives":
            raise UploadFailed(fate)

    def save(self) -> None:
        """The job makes a checkpoint."""
        self.saved += 1
        self.write("c/model", f"step {self.saved}")

    def write(self, path: str, text: str) -> None:
        file = Path(self.home.work, path)
        file.write_text(text)
        os.utime(file, (1_000_000_000 + self.saved, 1_000_000_000 + self.saved))

    def upload(self, give_up: bool = False) -> bool:
        return upload_checkpoint(self.home, self.order, URLS, lambda: give_up, SimulatedClock())

    def upload_last(self, alone: bool = True) -> list[str]:
        """Addresses that were used; the last item is what is left to upload."""
        self.puts.clear()
        left = upload_last_checkpoint(self.home, self.order, URLS, lambda: False, SimulatedClock(), alone)
        return [*self.puts, "and outputs" if "outputs" in left else "and no outputs"]

    def listed(self) -> dict[str, str]:
        """What the bucket's archive has by its list: path -> text."""
        held = self.bucket.get(ARCHIVE, {LIST: '{"files": []}'})
        return {file[0]: held[file[2]] for file in json.loads(held[LIST])["files"]}

    def verify(self) -> None:
        """All that the list names is there, and nothing else."""
        names = {hashlib.sha256(text.encode()).hexdigest() for text in self.listed().values()}
        assert names | {LIST} == self.bucket.get(ARCHIVE, {LIST: ""}).keys()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(checkpoint_upload, "upload_archive", made.put)
    return made


@examples(400)
@given(fates=st.lists(st.lists(st.sampled_from(["arrives", "lost", "refused"]), max_size=3), max_size=8))
def test_a_whole_one_is_there_ever_after(tmp_path_factory: pytest.TempPathFactory, fates: list[list[str]]) -> None:
    """`World.verify` looks at every moment: the machine may be gone after it."""
    world = World(tmp_path_factory.mktemp("world"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_upload, "upload_archive", world.put)
        was_there = False
        for round_ in fates:
            world.save()
            world.fates = list(round_)
            world.upload()
            was_there = was_there or bool(world.listed())
            assert bool(world.listed()) == was_there
        world.fates = []
        world.save()
        world.upload()
        assert world.listed() == {"c/model": f"step {world.saved}"}
        assert uploaded(world.home)["files"][0][0] == "c/model"


def test_a_folder_that_is_never_quiet_travels_while_another_one_has_news(world: World) -> None:
    clock = SimulatedClock()
    world.order["checkpoints"] = ["c", "busy"]
    Path(world.home.work, "busy").mkdir()
    world.write("busy/whole", "whole")
    for _ in range(3):
        world.write("busy/growing", "half")
        os.utime(Path(world.home.work, "busy/growing"), (clock.time(), clock.time()))
        world.save()
        assert upload_checkpoint(world.home, world.order, URLS, lambda: False, clock)
        clock.sleep(PATIENCE_SECONDS / 2)
    assert {"c/model", "busy/whole"} == world.listed().keys()


def test_the_newest_takes_the_place_of_the_one_before(world: World) -> None:
    world.save()
    assert world.upload()
    assert not world.upload()  # no news
    world.save()
    assert world.upload()
    assert world.listed() == {"c/model": "step 2"}
    assert uploaded(world.home)["number"] == 2


def test_one_whose_arrival_nobody_knows_of_is_sent_again(world: World) -> None:
    world.save()
    world.fates = ["lost"]
    assert not world.upload()
    assert uploaded(world.home)["number"] == 0
    assert world.upload()
    assert (len(world.puts), uploaded(world.home)["number"]) == (2, 1)


def test_after_the_notice_the_same_does_not_travel_again(world: World) -> None:
    world.save()
    world.upload()
    assert world.upload_last() == ["and no outputs"]


def test_after_the_notice_the_checkpoint_comes_first_and_all_else_with_it_after_that(world: World) -> None:
    world.save()
    world.write("log", "text")
    assert world.upload_last() == [ARCHIVE, ARCHIVE, "and no outputs"]
    assert world.listed().keys() == {"c/model", "log"}


def test_outputs_that_the_checkpoint_does_not_have_still_travel(world: World) -> None:
    world.save()
    world.write("log", "text")
    world.fates = ["arrives", "refused"]  # the checkpoint, and then all else
    assert world.upload_last()[-1] == "and outputs"
    assert world.listed().keys() == {"c/model"}


def test_outputs_travel_where_an_older_checkpoint_may_still_arrive(world: World) -> None:
    world.save()
    assert world.upload_last(alone=False)[-1] == "and outputs"


def test_who_has_to_give_up_notes_nothing_any_more(world: World) -> None:
    """Another upload may have begun in its place."""
    world.save()
    world.upload()
    before = world.home.read(checkpoint_upload.UPLOADED)
    world.save()
    world.upload(give_up=True)
    assert world.home.read(checkpoint_upload.UPLOADED) == before


def test_an_upload_that_waits_for_an_answer_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = CheckpointUploads(world.home, world.order, URLS, SimulatedClock())
    waits: list[float | None] = []
    monkeypatch.setattr(uploads, "is_alive", lambda: True)
    monkeypatch.setattr(uploads, "join", waits.append)
    assert not uploads.stop()
    assert waits == [2.0]
