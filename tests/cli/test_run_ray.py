"""`costgpu run --launcher ray` with places of this computer as the machines, and a real Ray between them.

Ray Data and Ray Train run on guests: tests/emulated/journeys/test_ray.py.
"""

import re
import sys

import pytest

from costgpu.models.job import EndReason
from costgpu.models.run import RunState
from tests import examples
from tests.cli.here import LOCAL, Here, until

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux"),
]
RAY = ("--launcher", "ray", "--max-duration", "5m")
TWO = (*RAY, "--nodes", "2")
FAILS = """
import os, sys, ray
ray.init()
@ray.remote
def place():
    return os.getcwd(), helper.TEXT
import helper
print(ray.get(place.remote())[1], len(ray.nodes()))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import threading, ray
ray.init()
@ray.remote
def works():
    return sum(range(1000))
print("begun", ray.get(works.remote()), flush=True)
threading.Event().wait()
"""


def over(here: Here) -> None:
    """All runs are closed, and nothing of them and of Ray is left running."""
    here.quiet()
    assert {view.state for view in here.runs()} == {RunState.CLOSED}


@pytest.mark.parametrize(
    ("name", "arguments", "said", "made"),
    [
        ("ray_tune.py", ("--trials", "3", "--steps", "20"), r"3 trials, best learning rate 0\.\d+", "trials.csv"),
        ("ray_xgboost.py", ("--rows", "2000", "--rounds", "5"), r"2 workers: error 0\.\d+", "model.ubj"),
    ],
)
def test_an_example(here: Here, name: str, arguments: tuple[str, ...], said: str, made: str) -> None:
    if name == "ray_xgboost.py":
        pytest.importorskip("xgboost")
    here.write(name, examples.source(name))
    result = here.run(*TWO, name, *arguments).check(0, err="Ray on 2 machines")
    assert re.search(said, result.out), result
    assert (here.project / made).stat().st_size > 0
    assert [view.reason for view in here.runs()] == [EndReason.SUCCEEDED] * 2
    over(here)


def test_exit_code_streams_and_modules_are_the_scripts_own(here: Here) -> None:
    here.write("helper.py", "TEXT = 'helped'\n")
    here.write("train.py", FAILS)
    result = here.run(*RAY, "train.py").check(3, out="helped 1\n", err=["to stderr", "Ray on one machine"])
    assert "to stderr" not in result.out
    over(here)


def test_cancelled_from_another_terminal(here: Here) -> None:
    here.write("train.py", WAITS)
    with here.terminal(*LOCAL, *TWO, "--grace", "2s", "train.py") as seat:
        seat.expect("begun", 120)
        until(lambda: any("raylet" in each for each in here.living()))
        here.told("cancel", here.runs()[0].run_id).check(0)
        seat.end()
    over(here)
    assert {view.reason for view in here.runs()} == {EndReason.CANCELLED}
