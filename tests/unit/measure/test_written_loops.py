"""Training loops as they are written in projects, and what is read of their ends while they run.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

from costgpu.models.workload import TotalKind
from tests.unit.measure.test_loop_ends import found, whole

ARGS = SimpleNamespace(
    steps=37, limit=None, debug=False, on=True, batches=3, epochs=6, start=2, samples=400, batch=16, tokens=20000
)
ITEMS = 7

# In each, `step` is one step; the loader has ITEMS items.
EXACT = {
    "a flag ends an episode": """
total = 0
for episode in itertools.count(1):
    done, n = False, 0
    while not done:
        step(0)
        total += 1; n += 1
        done = n == 7
    if total > args.steps:
        break
""",
    "two functions, return": """
class Trainer:
    def __init__(self): self.n=0
    def epoch(self, step, loader):
        for x in loader:
            step(0)
            self.n += 1
            if args.steps > 0 and self.n >= args.steps:
                return
t=Trainer()
def train(step, loader, state):
    for epoch in range(10):
        t.epoch(step, loader)
        if t.n >= args.steps:
            break
""",
    "two functions, goes on": """
def epoch(step, loader, state):
    for x in loader:
        step(0)
        state.n += 1
        if state.n >= args.steps:
            return
def train(step, loader, state):
    for e in range(10):
        epoch(step, loader, state)
""",
    "while and": """
n, done = 0, False
while n < args.steps and not done:
    step(0)
    n += 1
""",
    "while walrus": """
n = 0
while (n := n + 1) <= args.steps:
    step(0)
""",
    "walrus break": """
n = 0
while True:
    step(0)
    if (n := n + 1) >= args.steps:
        break
""",
    "islice cycle": """
for x in itertools.islice(itertools.cycle(loader), args.steps):
    step(0)
""",
    "zip range cycle": """
for i, x in zip(range(args.steps), itertools.cycle(loader)):
    step(0)
""",
    "next stopiteration restart": """
it = iter(loader)
for i in range(args.steps):
    try:
        x = next(it)
    except StopIteration:
        it = iter(loader)
        x = next(it)
    step(0)
""",
    "next stopiteration break": """
for e in range(4):
    it = iter(loader)
    while True:
        try:
            x = next(it)
        except StopIteration:
            break
        step(0)
""",
    "unconditional break": """
for e in range(9):
    for x in loader:
        step(0)
        break
""",
    "countdown while n": """
left = args.steps
while left:
    step(0)
    left -= 1
""",
    "accumulate with and": """
n = 0
for e in range(20):
    for i, x in enumerate(loader):
        if (i + 1) % 2 == 0:
            step(0)
            n += 1
            if args.steps is not None and n >= args.steps:
                break
    if args.steps is not None and n >= args.steps:
        break
""",
    "max_train_batches": """
for e in range(4):
    for i, x in enumerate(loader):
        if args.limit and i >= args.limit:
            break
        if args.batches > 0 and i >= args.batches:
            break
        step(0)
""",
    "debug off": """
for e in range(4):
    for i, x in enumerate(loader):
        step(0)
        if args.debug and i > 2:
            break
""",
    "debug on": """
for e in range(4):
    for i, x in enumerate(loader):
        step(0)
        if args.on and i >= 2:
            break
""",
    "outer check at bottom": """
n = 0
for e in range(1000):
    for x in loader:
        step(0); n += 1
    if n > args.steps:
        print(); break
""",
    "continue gate": """
n = 0
for e in itertools.count(1):
    for i, x in enumerate(loader):
        if (i + 1) % 2 != 0:
            continue
        step(0)
        n += 1
        if n >= args.steps:
            return
""",
    "done in while with samples": """
seen = 0
while seen < args.samples:
    step(0)
    seen += args.batch
""",
    "tokens": """
tokens = 0
done = False
while not done:
    for x in loader:
        step(0)
        tokens += 128 * 4
        if tokens >= args.tokens:
            done = True
            break
""",
    "generator of data": """
def infinite(loader):
    while True:
        yield from loader
def train(step, loader, state):
    data = infinite(loader)
    for n in range(args.steps):
        x = next(data)
        step(0)
""",
    "for over infinite gen": """
def infinite(loader):
    while True:
        yield from loader
def train(step, loader, state):
    for n, x in enumerate(infinite(loader)):
        if n == args.steps:
            break
        step(0)
""",
    "pbar while": """
n = 0
while n < args.steps:
    for x in loader:
        if n >= args.steps:
            break
        step(0)
        n += 1
""",
    "property": """
class Conf:
    def __init__(self): self.total = 640
    @property
    def max_steps(self):
        return self.total // 16
conf = Conf()
def train(step, loader, state):
    n = 0
    while True:
        step(0)
        n += 1
        if n >= conf.max_steps:
            break
""",
    "ternary limit": """
limit = args.steps if args.steps is not None else 10**9
for e in range(1000):
    for x in loader:
        step(0)
        state.n += 1
        if state.n >= limit: break
    else:
        continue
    break
""",
    "the step and its count on one line": """
n = 0
for e in range(100):
    step(0); n += 1
    if n >= args.steps: break
""",
    "the count and then the step on one line": """
n = 0
for e in range(100):
    n += 1; step(0)
    if n > args.steps: break
""",
    "an exit of a function that is an error": """
def once(step, loader):
    if not loader: sys.exit("no data")
    if args.batch < 1: sys.exit(1)
    step(0)
def train(step, loader, state):
    for e in range(args.steps):
        once(step, loader)
""",
    "max of epochs or steps": """
n, e = 0, 0
while e < args.epochs and n < args.steps:
    for x in loader:
        step(0)
        n += 1
    e += 1
""",
}
PATIENCE = """
best, bad = 1e9, 0
for e in range(40):
    for x in loader:
        step(0)
    loss = 5.0 if e else 1.0
    BAD
    best = min(best, loss)
    if bad > 30:
        break
"""
# What may end earlier, or later, than can be read.
AT_MOST = {
    "two functions, bool result": """
def epoch(step, loader, state):
    for x in loader:
        step(0)
        state.n += 1
        if state.n >= args.steps:
            return True
    return False
def train(step, loader, state):
    for e in range(10):
        if epoch(step, loader, state):
            break
""",
    "should_stop flag on self": """
class Trainer:
    def __init__(self): self.n=0; self.should_stop=False
    def epoch(self, step, loader):
        for x in loader:
            step(0)
            self.n += 1
            if self.n >= args.steps:
                self.should_stop = True
                break
    def fit(self, step, loader):
        while not self.should_stop:
            self.epoch(step, loader)
t=Trainer()
def train(step, loader, state):
    t.fit(step, loader)
""",
    "patience": """
best, bad = 1e9, 0
for e in range(40):
    for x in loader:
        step(0)
    loss = 5.0 if e else 1.0
    if loss < best:
        best, bad = loss, 0
    else:
        bad += 1
        if bad >= 8:
            break
""",
    "patience 2": """
best, bad = 1e9, 0
for e in range(40):
    for x in loader:
        step(0)
    loss = 5.0 if e else 1.0
    if loss < best:
        best = loss
        bad = 0
    else:
        bad += 1
    if bad >= 8:
        break
""",
    "patience in one expression": PATIENCE.replace("BAD", "bad = bad + 1 if loss > best else 0"),
    "patience in one expression, the other way round": PATIENCE.replace("BAD", "bad = 0 if loss <= best else bad + 1"),
    "patience and the best in one": PATIENCE.replace(
        "BAD", "bad, best = (bad + 1, best) if loss > best else (0, loss)"
    ),
    "patience in a method": """
import functools
def logged(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner
class Stopper:
    def __init__(self): self.best, self.bad = 1e9, 0
    @logged
    def __call__(self, loss):
        if loss < self.best:
            self.best = loss
            self.bad = 0
        else:
            self.bad += 1
def train(step, loader, state):
    stop = Stopper()
    for e in range(40):
        for x in loader:
            step(0)
        stop(5.0 if e else 1.0)
        if stop.bad > 30:
            break
""",
    "patience in a method, in one expression": """
class Stopper:
    def __init__(self): self.best, self.bad = 1e9, 0
    def update(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
def train(step, loader, state):
    stop = Stopper()
    for e in range(40):
        for x in loader:
            step(0)
        stop.update(5.0 if e else 1.0)
        if stop.bad > 30:
            break
""",
    "an exit of a function that makes the step": """
def once(step, state):
    step(0)
    state.n += 1
    if state.n >= args.steps:
        sys.exit()
def train(step, loader, state):
    for e in range(400):
        once(step, state)
""",
    "an exit of a function that is called after the step": """
class Done(Exception): pass
def watch(state):
    state.n += 1
    if state.n >= args.steps:
        raise SystemExit
def train(step, loader, state):
    for e in range(400):
        step(0)
        watch(state)
""",
    "items that are passed by": """
for e in range(20):
    for name in ["a.png", "b.txt", "c.png", "d.txt", "e.png"]:
        if not name.endswith(".png"):
            continue
        step(0)
""",
    "patience times a test": PATIENCE.replace("BAD", "bad = (bad + 1) * (loss > best)"),
}
ABOUT = {
    "a test after episodes of unknown length": """
n = 0
for episode in itertools.count(1):
    left = [1] * (5 + episode % 3)
    while left:
        step(0)
        n += 1
        left.pop()
    if n > args.steps:
        break
""",
    "modulo stop": """
n = 0
while True:
    step(0)
    n += 1
    if n % 10 == 0:
        if n >= args.steps:
            break
""",
}


@pytest.mark.parametrize("share", [0.05, 0.9])
@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str, share: float, tmp_path: Path) -> None:
    steps, total = found(whole(EXACT[name]), tmp_path, {"args": ARGS}, ITEMS, share)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total


ENDLESS = {
    "an exit of a function": """
def once(step, state):
    step(0)
    state.n += 1
    if state.n >= args.steps:
        sys.exit()
def train(step, loader, state):
    while True:
        once(step, state)
""",
    "a flag that another file may raise": """
class Trainer:
    def __init__(self): self.n=0; self.should_stop=False
    def fit(self, step, loader, callback):
        while not self.should_stop:
            step(0)
            self.n += 1
            callback(self)
def watch(t):
    if t.n >= args.steps: setattr(t, "should_stop", True)
def train(step, loader, state):
    Trainer().fit(step, loader, watch)
""",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_loop_that_something_out_of_sight_ends_is_not_called_endless(name: str, tmp_path: Path) -> None:
    _, total = found(whole(ENDLESS[name]), tmp_path, {"args": ARGS}, ITEMS, 0.5)
    assert (total.kind, total.steps) == (TotalKind.UNKNOWN, None), total


@pytest.mark.parametrize("share", [0.05, 0.9])
@pytest.mark.parametrize("name", AT_MOST | ABOUT)
def test_not_exact(name: str, share: float, tmp_path: Path) -> None:
    steps, total = found(whole((AT_MOST | ABOUT)[name]), tmp_path, {"args": ARGS}, ITEMS, share)
    assert total.kind is (TotalKind.UPPER_BOUND if name in AT_MOST else TotalKind.APPROXIMATE), total
    assert total.steps is not None
    assert name in ABOUT or total.steps >= steps
