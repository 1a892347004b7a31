"""`costgpu run --nodes 2` with two places of this machine as the machines, and real torch between their ranks."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from costgpu.models.job import EndReason
from costgpu.models.run import RunState
from tests import examples
from tests.cli.here import LOCAL, STEPS, Here, Result, side_by_side, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")

DDP, FSDP = (examples.source_for_gloo(name) for name in ("train_ddp.py", "train_fsdp.py"))
TWO = ("--nodes", "2", "--max-duration", "5m")
BARE = (*TWO, "--launcher", "none")
SMALL = ("--epochs", "1", "--steps", "4", "--samples", "1024", "--width", "64", "--batch-size")
ALONE = """
import os, runpy, sys, torch
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
path = sys.argv.pop()
runpy.run_path("train_ddp.py", run_name="__main__")
one, two = (torch.load(path) for path in ("model.pt", path))
assert all(torch.allclose(one[name], two[name], atol=1e-4) for name in one), (one, two)
"""
"""What one process makes of the same batches, compared with a model of two."""
RANKS = """
import os
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {world}")
open(f"seen-{rank}.txt", "w").write(os.environ["COSTGPU_NODE_RANK"])
"""
"""What needs no torch but torchrun's own."""
RANK_1_FAILS = """
import glob, os, sys, time
open("told.txt", "w").write(os.environ["RANK"])
if os.environ["RANK"] == "1":
    sys.exit(3)
others = os.path.join(os.path.dirname(os.environ["COSTGPU_HOME"]), "*", "exit.json")
while not glob.glob(others):
    time.sleep(0.05)
sys.exit(5)
"""
"""Both fail, rank 0 after the other."""


def over(here: Here) -> None:
    """All runs are closed, and nothing of them is left running."""
    here.quiet()
    assert {view.state for view in here.runs()} == {RunState.CLOSED}
    assert {view.receipt is not None for view in here.runs()} == {True}


@pytest.mark.slow
def test_ddp_on_two_machines_makes_the_weights_of_one(here: Here) -> None:
    here.write("train_ddp.py", DDP)
    result = here.run(*TWO, "train_ddp.py", *SMALL, "32")
    result.check(0, out="[rank0]:epoch 0: loss", err="2, 1 on each machine, started by torchrun")
    over(here)
    assert [view.reason for view in here.runs()] == [EndReason.SUCCEEDED] * 2
    here.write("alone/train_ddp.py", examples.source("train_ddp.py"))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *SMALL, "64", here.project / "model.pt"],
        cwd=here.project / "alone",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


JOBS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "fsdp": (
        {"train.py": FSDP},
        (*TWO, "train.py", "--steps", "3", "--layers", "2", "--width", "32", "--length", "16"),
    ),
    "ranks": ({"train.py": RANKS}, (*TWO, "--outputs-from", "all", "--nproc", "2", "train.py")),
    "failed": ({"train.py": RANK_1_FAILS}, (*BARE, "--outputs-from", "all", "train.py")),
}
Ran = dict[str, tuple[Here, Result]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    with side_by_side(JOBS, tmp_path_factory.mktemp("nodes"), 3) as found:
        yield found


@pytest.mark.slow
class TestTheJourney:
    def test_fsdp_shards_a_model_between_the_machines(self, ran: Ran) -> None:
        here, result = ran["fsdp"]
        result.check(0, out="step 0: loss")
        assert (here.project / "model.pt").stat().st_size > 50_000
        over(here)

    def test_outputs_of_all_machines(self, ran: Ran) -> None:
        here, result = ran["ranks"]
        result.check(0, out="rank 0 of 4")
        seen = {path.relative_to(here.project).as_posix(): path.read_text() for path in here.project.glob("*/seen-*")}
        assert seen == {
            "rank-0/seen-0.txt": "0",
            "rank-0/seen-1.txt": "0",
            "rank-2/seen-2.txt": "1",
            "rank-2/seen-3.txt": "1",
        }
        over(here)

    def test_logs_of_a_rank_and_of_all(self, ran: Ran) -> None:
        here, _ = ran["ranks"]
        first = here.runs()[-1].run_id
        for rank in range(4):
            assert here.told("logs", "--rank", str(rank), first).check(0).out == f"rank {rank} of 4\n"
        everything = here.told("logs", "--all", first).check(0)
        for words in [f"rank {rank} of 4" for rank in range(4)]:
            assert words in everything.out
        for words in ("machine 0, ranks 0-1", "machine 1, ranks 2-3"):
            assert words in everything.out + everything.err
        here.told("logs", "--rank", "4", first).check(2, err="no rank 4")

    def test_the_exit_code_is_that_of_the_first_that_failed(self, ran: Ran) -> None:
        here, result = ran["failed"]
        result.check(3, err="the job ended with exit code 3 on machine 1")
        assert [(here.project / f"rank-{rank}/told.txt").read_text() for rank in (0, 1)] == ["0", "1"]
        over(here)


@pytest.fixture
def steps(here: Here) -> Here:
    here.write("train.py", STEPS)
    return here


def both_began(here: Here) -> None:
    """Both jobs have written something."""

    def said() -> bool:
        found = list((here.data / "machines").glob("local-*/stdout.log"))
        return len(found) == 2 and all(b"step 2\n" in path.read_bytes() for path in found)

    until(said)


@pytest.mark.slow
class TestPeople:
    def test_ctrl_c_cancels_on_both(self, steps: Here) -> None:
        with steps.terminal(*LOCAL, *BARE, "train.py") as seat:
            seat.expect("step 3")
            both_began(steps)
            seat.interrupt()
            seat.expect("Ctrl-C again")
            assert "[d]etach" in seat.text
            seat.type("c\n")
            assert seat.end() == 64
        assert (steps.project / "checkpoint").read_text() == "kept"
        over(steps)
        assert [view.reason for view in steps.runs()] == [EndReason.CANCELLED] * 2

    def test_detached_and_attached_and_cancelled(self, steps: Here) -> None:
        run_id = steps.detached(*shlex.join(BARE).split(), "train.py")
        both_began(steps)
        assert [view.state for view in steps.runs()] == [RunState.RUNNING] * 2
        client = steps.start("attach", run_id)
        assert client.stdout is not None
        while b"step " not in client.stdout.readline():
            assert client.poll() is None
        client.send_signal(signal.SIGTERM)
        said = client.communicate(timeout=60)[1].decode()
        assert client.returncode == 128 + signal.SIGTERM, said
        assert all(view.detached for view in steps.runs())
        assert len(steps.living()) > 4
        second = next(view.run_id for view in steps.runs() if view.run_id != run_id)
        steps.told("cancel", second).check(0)  # by any of its runs
        assert (steps.project / "checkpoint").read_text() == "kept"
        over(steps)
