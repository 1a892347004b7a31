"""The client of a job on two places of this machine is killed at its ledger writes: a sample, or with FULL=1 all of them."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from costgpu.models.run import RunState, RunView
from tests.cli.here import LOCAL, Here, until
from tests.emulated.journeys.journey import KILLABLE
from tests.emulated.journeys.kill_points import Case, sample
from tests.emulated.journeys.kill_setup import CRON_AHEAD

pytestmark = pytest.mark.slow

LATER_SECONDS = 7200.0  # all leases are over
KINDS = (
    *("intended", "attempted", "created", "reached", "synced", "started"),
    *("finished", "collected", "ending", "confirmed", "closed"),
)
JOB = """
import os, sys
open("model.bin", "w").write("weights")
open(os.path.join(sys.argv[1], "done-" + os.environ["RANK"]), "w").close()
"""


def killed_at_a_write(folder: Path, kind: str, when: str, *, nth: int) -> bool:
    """What is left of the job is ended by `reap` alone; whether its outputs came home."""
    here = Here.make(folder / f"{kind}-{when}-{nth}")
    here.write("train.py", JOB)
    here.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    told = here.data.parent.parent / "told"
    told.mkdir()
    words = (*LOCAL, "--nodes", "2", "--launcher", "none", "--max-duration", "5m", "train.py", str(told))
    try:
        client = here.start(*words, command=[*KILLABLE, "--at", f"{kind}:{when}:KILL:{nth}", "--"])
        said = client.communicate(timeout=120)[1]
        assert client.returncode == -9, said
        both_started = sum(view.started_at is not None for view in here.runs()) == 2
        if both_started:
            until(lambda: len(list(told.iterdir())) == 2)
            until(lambda: all_over(here))
        reap(here, CRON_AHEAD)
        if both_started:
            assert (here.project / "model.bin").read_text() == "weights"
        for _ in range(2):  # what one of them ends, the next one closes
            if open_runs(here):
                reap(here, LATER_SECONDS)
        assert not open_runs(here)
        here.quiet()
        machines = list((here.data / "machines").glob("local-*"))
        assert len(machines) <= 2, machines
        assert len({path.name.split("-")[1] for path in machines}) == len(machines), "two machines of one run"
        return both_started
    finally:
        here.close()


def all_over(here: Here) -> bool:
    """Every machine has recorded the end of its job, or is gone."""
    machines = (here.data / "machines").glob("local-*")
    return all((path / "exit.json").exists() or (path / "terminated.json").exists() for path in machines)


def open_runs(here: Here) -> list[RunView]:
    return [view for view in here.runs() if view.state is not RunState.CLOSED]


def reap(here: Here, ahead: float) -> None:
    """`reap --yes`, so many seconds later."""
    clock = here.data.parent / "clock"
    clock.parent.mkdir(parents=True, exist_ok=True)
    clock.write_text(str(ahead))
    client = here.start("reap", "--yes", command=[*KILLABLE, "--clock", str(clock), "--"])
    said = client.communicate(timeout=120)[1]
    assert b"Traceback" not in said, said


def cases() -> Iterator[Case]:
    for when in ("before", "after"):
        yield from (Case(killed_at_a_write, (kind, when), {"nth": nth}) for kind in KINDS for nth in (1, 2))


def test_nothing_is_left(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    chosen, choice = sample(cases())
    with ThreadPoolExecutor(3) as pool:
        found = [(case, pool.submit(case.kill, tmp_path, *case.arguments, **case.options)) for case in chosen]
    troubles = [f"{case}: {future.exception()}" for case, future in found if future.exception() is not None]
    assert troubles == [], "\n\n".join([choice, *troubles])
    homes = sum(bool(future.result()) for _, future in found)
    line = (
        f"{choice}: clients of jobs on two places of this machine killed {len(chosen)} times:"
        f" no process left, all runs closed, outputs of {homes} jobs home. {time.monotonic() - began:.0f} s"
    )
    record_property("said", line)
    print(line)
