"""What of a job's checkpoints is whole: while it runs, and when it has ended in the middle of a save."""

import hashlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from costgpu.job.agent.outputs import checkpoints
from costgpu.job.agent.outputs.checkpoints import take_checkpoint
from costgpu.job.agent.state_files import Home
from costgpu.portable.clock import MachineClock

LONG_AGO = 1_000_000_000
Look = Callable[..., dict[str, Any]]


class LateClock(MachineClock):
    """So many seconds ahead."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(str(tmp_path))
    for name in ("whole", "half", "c"):
        Path(made.work, name).mkdir(parents=True)
    return made


@pytest.fixture
def look(home: Home) -> Look:
    """Takes a checkpoint of all files in folders, so many seconds from now."""

    def taken(ahead: float = 0.0, everything: bool = False) -> dict[str, Any]:
        return take_checkpoint(home, {"checkpoints": ["*/*"], "outputs": []}, LateClock(ahead), everything)

    return taken


def put(home: Home, text: str, *names: str, aged: bool = True) -> None:
    """Writes files; `aged` ones as if nobody had touched them for long."""
    for name in names:
        path = Path(home.work, name)
        path.write_text(text)
        if aged:
            os.utime(path, (LONG_AGO, LONG_AGO))


def paths(taken: dict[str, Any]) -> list[str]:
    return [row[0] for row in taken["files"]]


def texts(home: Home, taken: dict[str, Any]) -> dict[str, str]:
    return {row[0]: (Path(home.file(checkpoints.STORE)) / row[2]).read_text() for row in taken["files"]}


def test_what_has_just_been_written_is_not_taken(home: Home, look: Look) -> None:
    put(home, "a", "whole/a.pt", "half/a.pt")
    put(home, "a", "half/b.pt", aged=False)
    assert paths(look()) == ["whole/a.pt"]
    late = checkpoints.PATIENCE_SECONDS
    os.utime(Path(home.work, "half/b.pt"), (time.time() + late, time.time() + late))  # it is never quiet
    assert paths(look(late)) == ["half/a.pt", "whole/a.pt"]


def test_a_folder_stays_as_it_was_until_all_of_it_is_quiet(home: Home, look: Look) -> None:
    put(home, "old", "c/a", "c/b")
    before = look()
    assert paths(before) == ["c/a", "c/b"]
    put(home, "new", "c/a", aged=False)
    assert look() == before
    after = look(checkpoints.QUIET_SECONDS)
    assert (after["number"], texts(home, after)) == (2, {"c/a": "new", "c/b": "old"})
    copies = {path.name for path in Path(home.file(checkpoints.STORE)).iterdir()}
    assert copies == {row[2] for row in (*before["files"], *after["files"])}
    assert len(copies) == 2


@pytest.mark.parametrize("signalled", [False, True])
@pytest.mark.parametrize("code", [1, 137])
def test_a_job_that_is_killed_or_fails_while_it_saves_leaves_nothing_new(
    home: Home, look: Look, code: int, signalled: bool
) -> None:
    """Nobody has looked at it in the moment of its death: out of memory, its supervisor killed, the grace over."""
    put(home, "whole", "c/1", "c/2")
    put(home, "whole", "whole/1")
    before = look()
    put(home, "ha", "c/1", aged=False)
    put(home, "more", "whole/1")
    os.utime(Path(home.work, "whole/1"), (1, 1))
    ended = {"exit_code": code, "finished_epoch": time.time(), "signalled": signalled}
    home.write("exit.json", ended)
    assert look() == before
    last = look(everything=True)
    assert texts(home, last) == {"c/1": "whole", "c/2": "whole", "whole/1": "more"}, (
        "it was written long before the end"
    )


def test_several_looks_at_once_do_not_disturb_each_other(home: Home, look: Look) -> None:
    for number in range(9):
        put(home, str(number) * 1_000_000, f"c/{number}.pt")
    with ThreadPoolExecutor(4) as pool:
        looks = list(pool.map(lambda _: look(), range(8)))
    assert [one["number"] for one in looks] == [1] * 8
    copies = list(Path(home.file(checkpoints.STORE)).iterdir())
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in copies)
    assert len(copies) == 9
