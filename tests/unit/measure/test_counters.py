"""Counters that are raised out of the loop that they end: in functions below it, and in loops beside the step.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

from pathlib import Path

import pytest

from costgpu.models.workload import Total, TotalKind
from tests.unit.measure.test_loop_ends import found, whole

SETTINGS = """
import itertools, random
TOTAL, N, E, MB = 200, 8, 2, 4
num_envs = 2
class Env:
    def __init__(self): self.num_envs = 4
env = Env()
class Trainer:
    def __init__(self, step, loader):
        self.step = step; self.loader = loader; self.epoch = 0; self.max = 5; self.stop = False; self.n = 0; self.limit = 12
"""
FIT = "def train(step, loader, state): T(step, loader).fit()\n"
EXACT = {
    "a counter in a method below": """
class T(Trainer):
    def fit(self):
        while self.epoch < self.max:
            self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.run_iter(x)
        self.epoch += 1
    def run_iter(self, x):
        self.step(0)
""",
    "raised before the epoch": """
class T(Trainer):
    def fit(self):
        while self.epoch < self.max:
            self.run_epoch()
    def run_epoch(self):
        self.epoch += 1
        for i, x in enumerate(self.loader):
            self.step(0)
""",
    "a counter of steps below": """
class T(Trainer):
    def fit(self):
        it = itertools.cycle(self.loader)
        while self.n < self.limit:
            self.run_iter(next(it))
    def run_iter(self, x):
        self.n += 1
        self.step(0)
""",
    "behind properties": """
class T(Trainer):
    @property
    def ep(self): return self.epoch
    @property
    def most(self):
        return self.max
    def fit(self):
        while self.ep < self.most:
            self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
        self.epoch += 1
""",
    "raised by a method that is called later": """
class T(Trainer):
    def fit(self):
        while self.epoch < self.max:
            self.run_epoch()
            self.after_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
    def after_epoch(self):
        print(end='')
        self.epoch += 1
""",
    "raised by a method of a method": """
class T(Trainer):
    def fit(self):
        while True:
            self.run_epoch()
            if self.epoch >= self.max: break
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
        self.end()
    def end(self):
        self.tick()
    def tick(self):
        self.epoch = self.epoch + 1
""",
    "an attribute of an attribute": """
class S: pass
def run_epoch(trainer, step, loader):
    for x in loader: step(0)
    trainer.state.epoch += 1
class T:
    def __init__(self): self.state = S(); self.state.epoch = 0
def train(step, loader, state):
    t = T()
    while t.state.epoch < 6:
        run_epoch(t, step, loader)
""",
    "another name of the same object": """
class S: pass
def run_epoch(s, step, loader):
    for x in loader: step(0)
    s.epoch += 1
def train(step, loader, state):
    st = S(); st.epoch = 0
    while not st.epoch >= 6:
        run_epoch(st, step, loader)
""",
    "a global": """
epoch = 0
def run_epoch(step, loader):
    global epoch
    for x in loader: step(0)
    epoch += 1
def train(step, loader, state):
    while epoch < 6:
        run_epoch(step, loader)
""",
    "steps counted two functions below": """
class T(Trainer):
    def fit(self):
        while self.n < self.limit:
            self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.it(x)
    def it(self, x):
        self.step(0)
        self.n += 1
""",
    "a return by steps counted below": """
class T(Trainer):
    def fit(self):
        for e in range(100):
            self.run_epoch()
            if self.n >= self.limit: return
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.it(x)
    def it(self, x):
        self.step(0)
        self.n += 1
""",
    "the same test in both functions": """
class T(Trainer):
    def fit(self):
        for e in range(100):
            self.run_epoch()
            if self.n >= self.limit: break
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.it(x)
            if self.n >= self.limit: return
    def it(self, x):
        self.step(0)
        self.n += 1
""",
    "raised with the step": """
class T(Trainer):
    def fit(self):
        while self.n < self.limit:
            self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            if (i + 1) % 2 == 0:
                self.step(0)
                self.n += 1
""",
    "counting down": """
class T(Trainer):
    def fit(self):
        self.left = 4
        while self.left > 0:
            self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
        self.left -= 1
""",
    "raised in two places": """
class T:
    def __init__(self, step, loader):
        self.step = step; self.loader = loader; self.epoch = 0; self.max = 11
    def fit(self):
        while self.epoch < self.max:
            self.run_epoch()
            self.epoch += 1
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
        self.epoch += 1
""",
    "raised by a base class": """
class B(Trainer):
    def run_epoch(self):
        for x in self.loader: self.step(0)
        self.epoch += 1
class T(B):
    def fit(self):
        while self.epoch < self.max:
            self.run_epoch()
    def run_epoch(self):
        super().run_epoch()
""",
    "started anew for each fold": """
class T(Trainer):
    def fit(self):
        for fold in range(3):
            self.epoch = 0
            while self.epoch < self.max:
                self.run_epoch()
    def run_epoch(self):
        for i, x in enumerate(self.loader):
            self.step(0)
        self.epoch += 1
""",
    "an item of a dictionary": """
def run(state_, step, loader):
    for x in loader: step(0)
    state_['epoch'] += 1
def train(step, loader, state):
    s = {'epoch': 0}
    while s['epoch'] < 5:
        run(s, step, loader)
""",
    "raised in a loop before the step": """
done = 0
while done < TOTAL:
    for _ in range(N):
        done += 1
    for _ in range(E):
        for i in range(MB): step(0)
""",
    "tested at the end": """
done = 0
while True:
    for _ in range(N):
        done += 1
    for _ in range(E):
        for i in range(MB): step(0)
    if done >= TOTAL: break
""",
    "grows by N": """
done = 0
while done < TOTAL:
    done += N
    for _ in range(E):
        for i in range(MB): step(0)
""",
    "grows by N after the steps": """
done = 0
while done < TOTAL:
    for _ in range(E):
        for i in range(MB): step(0)
    done += N
""",
    "grows by another number": """
done = 0
for u in range(1000):
    for _ in range(N):
        done += num_envs
    for _ in range(E):
        for i in range(MB): step(0)
    if done > TOTAL: break
""",
    "grows by an attribute": """
done = 0
while done < TOTAL:
    for _ in range(N):
        done += env.num_envs
    for _ in range(E):
        for i in range(MB): step(0)
""",
    "raised in nested loops": """
done = 0
while done < TOTAL:
    for _ in range(2):
        for t in range(N): done += 1
    for _ in range(E):
        for i in range(MB): step(0)
""",
    "raised in a loop of a method": """
class A:
    def __init__(self, step): self.t = 0; self.step = step
    def rollout(self):
        for i in range(N):
            self.t += 1
    def learn(self, total):
        while self.t < total:
            self.rollout()
            for _ in range(E):
                for i in range(MB): self.step(0)
def train(step, l, state):
    A(step).learn(TOTAL)
""",
    "steps that begin late": """
done = 0
while done < TOTAL:
    for _ in range(N):
        done += 1
    if done <= 3 * N: continue
    for _ in range(E):
        for i in range(MB): step(0)
""",
    "an item raised in a loop": """
s = {'n': 0}
while s['n'] < TOTAL:
    for _ in range(N): s['n'] += 1
    for i in range(MB): step(0)
""",
}
ABOUT = {
    "raised in a while of a method": """
class A:
    def __init__(self, step): self.num_timesteps = 0; self.step = step; self.env = env
    def collect_rollouts(self, env, n):
        n_steps = 0
        while n_steps < n:
            self.num_timesteps += env.num_envs
            n_steps += 1
        return True
    def train(self):
        for _ in range(E):
            for i in range(MB): self.step(0)
    def learn(self, total):
        while self.num_timesteps < total:
            more = self.collect_rollouts(self.env, N)
            if not more: break
            self.train()
def train(step, l, state):
    A(step).learn(TOTAL)
""",
    "grows by the length of a batch": """
total = 0
while total < 100:
    for x in [[1,2,3],[4,5,6]]:
        step(0)
        total += len(x)
""",
    "grows by what came back": """
def collect(n):
    return list(range(n))
def train(step, l, state):
    seen = 0
    while seen < TOTAL:
        buf = collect(N)
        seen += len(buf)
        for _ in range(E):
            for i in range(MB): step(0)
""",
    "assigned from another counter": """
class A:
    def __init__(self, step): self.epoch = 0; self.step = step
    def learn(self):
        e = 0
        while self.epoch < 9:
            for i in range(MB): self.step(0)
            e += 1
            self.epoch = e
def train(step, l, state):
    A(step).learn()
""",
    "set by name": """
class A:
    def __init__(self, step): self.epoch = 0; self.step = step
    def learn(self):
        while self.epoch < 9:
            for i in range(MB): self.step(0)
            setattr(self, 'epoch', self.epoch + 1)
def train(step, l, state):
    A(step).learn()
""",
    "episodes of different length": """
lengths, done = random.Random(0), 0
while done < 3000:
    for t in range(lengths.randint(15, 25)): done += 1
    for i in range(MB): step(0)
""",
}


def read(text: str, folder: Path, share: float) -> tuple[int, Total]:
    """The steps that a script makes, and the total that is read after a share of them."""
    text += FIT if ".fit()" not in text and "def fit" in text else ""
    return found(whole(text, SETTINGS), folder, {}, 7, share)


@pytest.mark.parametrize("share", [0.1, 0.8])
@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str, share: float, tmp_path: Path) -> None:
    steps, total = read(EXACT[name], tmp_path, share)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


@pytest.mark.parametrize("name", ABOUT)
def test_a_growth_that_was_only_seen_is_about(name: str, tmp_path: Path) -> None:
    steps, total = read(ABOUT[name], tmp_path, 0.5)
    assert total.kind is TotalKind.APPROXIMATE, total
    assert total.steps == pytest.approx(steps, rel=0.15)
    assert "as fast as it grew so far" in total.how


def test_a_test_that_may_stop_it_makes_it_an_upper_bound(tmp_path: Path) -> None:
    text = EXACT["a counter in a method below"].replace(
        "self.epoch < self.max", "self.epoch < self.max and not self.stop"
    )
    steps, total = read(text, tmp_path, 0.3)
    assert (total.kind, total.steps) == (TotalKind.UPPER_BOUND, steps)


def test_attributes_that_nothing_here_assigns_are_not_endless(tmp_path: Path) -> None:
    """Another file, or `setattr`, may raise them."""
    _, total = read(ABOUT["set by name"], tmp_path, 0.1)
    assert total.kind is TotalKind.UNKNOWN


def test_a_function_that_returns_before_it_counts_says_no_number(tmp_path: Path) -> None:
    text = EXACT["raised by a method that is called later"].replace(
        "self.epoch += 1", "if next(state): return\n        self.epoch += 1"
    )
    steps, total = read("state = itertools.cycle([True, False])\n" + text, tmp_path, 0.1)
    assert steps == 70
    assert total.kind is TotalKind.UNKNOWN
