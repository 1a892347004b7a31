"""Loops that a clock ends: after how many seconds, and what is told of their steps.

A file of some 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

from pathlib import Path

import pytest

from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import Total, TotalKind
from tests.unit.measure.records import phase
from tests.unit.measure.test_loop_ends import run, told, whole

SETUP = """
import datetime, itertools, time
from time import perf_counter, time as now_
from datetime import timedelta
from timeit import default_timer as timer
budget, hours = 3600, 2
"""
STEPS = 6


class CutError(Exception):
    """The measurement is over."""


def total_of(text: str, folder: Path) -> Total:
    """What is told of loops after some steps; of the body of `train`, or of a whole script."""
    _, shots = run(whole(text, SETUP), folder, {}, 7, STEPS, cut=CutError)
    return total_steps(phase(*shots), ended=False)


# The first line says the seconds, and the steps where they are known besides.
CLOCKS = {
    "while": """# seconds=7200
begin = time.time()
while time.time() - begin < 2 * 3600:
    step(0)
""",
    "deadline": """# seconds=3600
deadline = time.time() + budget
while time.time() < deadline:
    step(0)
""",
    "deadline monotonic": """# seconds=3600
deadline = time.monotonic() + budget
while True:
    step(0)
    if time.monotonic() > deadline: break
""",
    "break": """# seconds=3600
t0 = time.time()
while True:
    step(0)
    if time.time() - t0 > budget: break
""",
    "for return nested": """# seconds=3600, steps=700
t0 = time.time()
for e in range(100):
    for x in loader:
        step(0)
        if time.time() - t0 > budget: return
""",
    "two breaks": """# seconds=3600, steps=700
t0 = time.time()
for e in range(100):
    for x in loader:
        step(0)
        if time.time() - t0 > budget: break
    if time.time() - t0 > budget: break
""",
    "flag": """# seconds=3600, steps=700
t0 = time.time(); stop = False
for e in range(100):
    for x in loader:
        step(0)
        if time.time() - t0 > budget:
            stop = True
            break
    if stop: break
""",
    "perf_counter": """# seconds=7200
begin = perf_counter()
while (perf_counter() - begin) / 3600 < hours:
    step(0)
""",
    "minutes": """# seconds=7200
begin = now_()
while True:
    step(0)
    minutes = (now_() - begin) / 60
    if minutes >= 120: break
""",
    "datetime": """# seconds=7200
start = datetime.datetime.now()
while datetime.datetime.now() - start < timedelta(hours=2):
    step(0)
""",
    "datetime total": """# seconds=600
start = datetime.datetime.now()
while True:
    step(0)
    now = datetime.datetime.now()
    if (now - start).total_seconds() > 600: break
""",
    "datetime end": """# seconds=7200
end = datetime.datetime.now() + timedelta(hours=2)
while datetime.datetime.now() < end:
    step(0)
""",
    "and not done": """# seconds=3600
end = time.time() + budget; done = False
while not done and time.time() < end:
    step(0)
""",
    "fold": """# seconds=18000
for fold in range(5):
    t0 = time.time()
    while time.time() - t0 < budget:
        step(0)
""",
    "fold function": """# seconds=18000
def fit(step):
    t0 = time.time()
    while time.time() - t0 < budget:
        step(0)
def train(step, loader, state):
    for fold in range(5):
        fit(step)
""",
    "self": """# seconds=3600
class T:
    def __init__(self): self.start = time.time(); self.limit = budget
    def fit(self, step):
        while time.time() - self.start < self.limit:
            step(0)
def train(step, loader, state):
    T().fit(step)
""",
    "a method that tests it": """# seconds=3600, steps=1000000
class T:
    def __init__(self): self.start = time.time(); self.limit = budget
    def up(self):
        return time.time() - self.start > self.limit
    def fit(self, step):
        for i in range(10**6):
            step(0)
            if self.up(): break
def train(step, loader, state):
    T().fit(step)
""",
    "self property": """# seconds=3600
class T:
    def __init__(self): self.start = time.time(); self.limit = budget
    @property
    def out_of_time(self): return not time.time() - self.start < self.limit
    def fit(self, step):
        while not self.out_of_time:
            step(0)
def train(step, loader, state):
    T().fit(step)
""",
    "ns": """# seconds=30
t0 = time.time_ns()
while (time.time_ns() - t0) / 1e9 < 30:
    step(0)
""",
    "periodic": """# seconds=3600
t0 = time.time(); i = 0
while True:
    step(0); i += 1
    if i % 100 == 0 and time.time() - t0 > budget: break
""",
    "margin": """# seconds=3540
end = time.time() + budget
while time.time() < end - 60:
    step(0)
""",
    "bounded too": """# seconds=3600, steps=500
t0 = time.time(); n = 0
while n < 500 and time.time() - t0 < budget:
    step(0)
    n += 1
""",
    "walrus": """# seconds=3600
t0 = time.time()
while (el := time.time() - t0) < budget:
    step(0)
""",
    "global": """# seconds=3600
START = time.time()
def over(): return time.time() - START > budget
def train(step, loader, state):
    for e in itertools.count():
        step(0)
        if over(): return
""",
    "hours of a setting": """# seconds=5400
class C: pass
cfg = C(); cfg.max_hours = 1.5
def train(step, loader, state):
    t0 = time.time()
    while True:
        for x in loader:
            step(0)
        if (time.time() - t0) / 3600 > cfg.max_hours: break
""",
}
UNREAD = {
    "inner only": """
t0 = time.time()
for e in range(100):
    for x in loader:
        step(0)
        if time.time() - t0 > budget: break
""",
    "fold unknown": """
for fold in (i for i in loader if i):
    t0 = time.time()
    while time.time() - t0 < budget:
        step(0)
""",
    "accumulated": """
spent = 0.
while spent < budget:
    tic = time.time()
    step(0)
    spent += time.time() - tic
""",
    "from the last report": """
last = time.time()
while True:
    step(0)
    if time.time() - last > 60: break
    last = time.time()
""",
    "process_time": """
t0 = time.process_time()
while time.process_time() - t0 < budget:
    step(0)
""",
    "unknown timer": """
class Timer:
    def elapsed(self):
        x = 1
        return x
def train(step, loader, state):
    t = Timer()
    while True:
        step(0)
        if t.elapsed() > 5: break
""",
    "past": """
end = time.time() - 5
while True:
    step(0)
    if time.time() < end: break
""",
    "modulus 0": """
t0 = 0
while time.time() % t0 < 5 if t0 else True:
    step(0)
""",
    "bad object": """
class B:
    def __getattr__(self, n): raise RuntimeError(n)
    def __gt__(self, o): return False
    def __rsub__(self, o): return self
def train(step, loader, state):
    b = B()
    while True:
        step(0)
        if time.time() - b > 5: break
""",
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_ends_a_loop(name: str, tmp_path: Path) -> None:
    says, total = told(CLOCKS[name]), total_of(CLOCKS[name], tmp_path)
    steps = says.get("steps")
    assert total.seconds == pytest.approx(says["seconds"])
    assert (total.kind, total.steps) == (TotalKind.UPPER_BOUND if steps else TotalKind.TIMED, steps)
    assert "by its clock" in total.how


@pytest.mark.parametrize("name", UNREAD)
def test_a_clock_that_cannot_be_read_is_only_named(name: str, tmp_path: Path) -> None:
    total = total_of(UNREAD[name], tmp_path)
    assert total.seconds is None
    assert total.kind in (TotalKind.UNKNOWN, TotalKind.UPPER_BOUND, TotalKind.UNBOUNDED)


def test_a_clock_for_each_fold_counts_as_often(tmp_path: Path) -> None:
    assert "5 × 60 min by its clock" in total_of(CLOCKS["fold"], tmp_path).how


def test_another_test_makes_it_at_most(tmp_path: Path) -> None:
    text = "\nloss = [1.0]" + CLOCKS["while"].replace("2 * 3600:", "2 * 3600 and loss[-1] > 0.1:")
    assert total_of(text, tmp_path).how.startswith("it runs for at most 2.0 h by its clock")


def test_a_counter_that_adds_up_a_clock_says_no_steps(tmp_path: Path) -> None:
    """Though it grows evenly: another machine takes other steps."""
    total = total_of(UNREAD["accumulated"].replace("time.time() - tic", "1 + 0 * (time.time() - tic)"), tmp_path)
    assert total.steps is None
