"""Epochs, accumulation, late begins and rounds of unknown length, as they are written, against what the loops make.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.models.workload import Total, TotalKind
from tests.unit.measure.test_loop_ends import found, told, whole

EXACT, ABOUT = TotalKind.EXACT, TotalKind.APPROXIMATE
ARGS = SimpleNamespace(epochs=6, limit=5, acc=4, warmup=3, folds=3)


def read(body: str, folder: Path, share: float) -> tuple[int, Total]:
    """The steps that the statements make, and the total that is read after a share of them."""
    names: dict[str, Any] = {"args": ARGS, "random": random.Random(3)}
    return found(whole(body), folder, names, told(body).get("items", 7), share)


# The first line says the items of the loader and the steps of an epoch.
EPOCHS = {
    "a part of a loader": """# items=50, each=12
for epoch in range(6):
    for x in itertools.islice(loader, 12):
        step(0)
""",
    "a break at an index": """# items=50, each=12
for epoch in range(args.epochs):
    for i, x in enumerate(loader):
        if i >= 12:
            break
        step(0)
""",
    "steps of an epoch, of an iterator that is longer": """# items=50, each=15
it = itertools.cycle(loader)
for epoch in range(6):
    for _ in range(15):
        x = next(it)
        step(0)
""",
    "steps of an epoch, of a loader that is shorter": """# items=4, each=15
it = itertools.cycle(loader)
for epoch in range(6):
    for _ in range(15):
        x = next(it)
        step(0)
""",
    "few steps in what is named an epoch": """# items=4, each=4
for epoch in range(30):
    for i in range(4):
        step(0)
""",
    "a critic": """# items=20, each=100
for _ in range(3):
    for x in loader:
        for k in range(5):
            step(0)
""",
    "folds": """# items=7, each=7
for fold in range(args.folds):
    for epoch in range(args.epochs):
        for x in loader:
            step(0)
""",
    "shards of an epoch": """# items=11, each=44
for epoch in range(5):
    for shard in range(4):
        for x in loader:
            step(0)
""",
    "epochs that nothing names": """# items=4, each=40
for e in range(5):
    for i in range(40):
        step(0)
""",
    "zip of two": """# items=50, each=13
for ep in range(6):
    for x, y in zip(range(13), loader):
        step(0)
""",
    "while epoch": """# items=9, each=5
epoch = 0
while epoch < args.epochs:
    for i, x in enumerate(loader):
        if i == args.limit: break
        step(0)
    epoch += 1
""",
}


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("name", EPOCHS)
def test_an_epoch_is_what_its_loop_makes(name: str, share: float, tmp_path: Path) -> None:
    steps, total = read(EPOCHS[name], tmp_path, share)
    assert (total.kind, total.steps, total.steps_per_epoch) == (EXACT, steps, told(EPOCHS[name])["each"]), total


ACCUMULATION = {
    "or the last": """# items=40
for epoch in range(50):
    for i, x in enumerate(loader, 1):
        if i % 32 == 0 or i == len(loader):
            step(0)
""",
    "or the last, from 0": """# items=101
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % 8 == 0 or (i + 1) == len(loader):
            step(0)
""",
    "a flag": """# items=21
acc = 8
for epoch in range(30):
    for i, x in enumerate(loader):
        ready = (i + 1) % acc == 0 or i + 1 == len(loader)
        if ready:
            step(0)
""",
    "continue unless": """# items=21
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % args.acc != 0 and i + 1 < len(loader):
            continue
        step(0)
""",
    "not remainder": """# items=21
for epoch in range(30):
    for i, x in enumerate(loader):
        if not (i + 1) % args.acc or i == len(loader) - 1:
            step(0)
""",
    "a rest is dropped": """# items=21
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % args.acc == 0:
            step(0)
""",
    "from the first on": """# items=21
for epoch in range(30):
    for i, x in enumerate(loader):
        if i % args.acc == 0:
            step(0)
""",
    "a counter over all epochs": """# items=21
n = 0
for epoch in range(30):
    for x in loader:
        n += 1
        if n % args.acc == 0:
            step(0)
""",
    "a counter over all epochs, longer than one": """# items=5
n = 0
for epoch in range(60):
    for x in loader:
        n += 1
        if n % 12 == 0:
            step(0)
""",
    "a counter that the step sets back": """# items=21
n = 0
for epoch in range(30):
    for x in loader:
        n += 1
        if n == args.acc:
            step(0)
            n = 0
""",
    "a counter of an epoch": """# items=21
for epoch in range(30):
    n = 0
    for x in loader:
        n += 1
        if n % args.acc == 0:
            step(0)
""",
    "every fourth round of a loop": """# items=4
for update in range(200):
    if (update + 1) % 4 == 0:
        for k in range(3):
            step(0)
""",
    "in a function": """# items=21
def once(i):
    if (i + 1) % args.acc == 0 or i + 1 == len(loader):
        step(0)
for epoch in range(30):
    for i, x in enumerate(loader):
        once(i)
""",
}


@pytest.mark.parametrize("share", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("name", ACCUMULATION)
def test_accumulation_as_the_source_says_it(name: str, share: float, tmp_path: Path) -> None:
    steps, total = read(ACCUMULATION[name], tmp_path, share)
    assert (total.kind, total.steps) == (EXACT, steps), total


# What cannot be exact, and by how much the number may be off.
ROUGHLY = {
    "accumulation that grows": """# items=40, off=3.0
for epoch in range(30):
    acc = 1 if epoch < 10 else 4 if epoch < 20 else 10
    for i, x in enumerate(loader):
        if (i + 1) % acc == 0 or i + 1 == len(loader):
            step(0)
""",
    "accumulation by a table": """# items=40, off=2.0
acc = {0: 1, 5: 4}
every = 1
for epoch in range(10):
    every = acc.get(epoch, every)
    for i, x in enumerate(loader):
        if (i + 1) % every == 0:
            step(0)
""",
    "a buffer that fills up": """# items=4, off=0.01
memory = []
for n in range(300):
    memory.append(n)
    if len(memory) > 60:
        for i in range(5):
            step(0)
""",
    "a buffer that fills up, in a function": """# items=4, off=0.01
def update():
    for i in range(5):
        step(0)
memory = []
for n in range(300):
    for t in range(3):
        memory.append(n)
    if len(memory) > 60:
        update()
""",
    "a buffer that fills up inside": """# items=4, off=0.01
memory = []
for n in range(40):
    for t in range(25):
        memory.append(t)
        if len(memory) > 260:
            step(0)
""",
    "episodes": """# items=4, off=0.2
for n in range(150):
    done = False
    while not done:
        done = random.random() < 0.5
        for k in range(3):
            step(0)
""",
    "episodes that break": """# items=4, off=0.2
for n in range(300):
    while True:
        step(0)
        if random.random() < 0.3:
            break
""",
    "folds of epochs of unknown length": """# items=14, off=0.1
for fold in range(5):
    for epoch in range(30):
        for x in filter(lambda x: x % 3, loader):
            step(0)
""",
    "a while over episodes": """# items=4, off=0.2
n = 0
while n < 300:
    done = False
    while not done:
        step(0)
        done = random.random() < 0.3
    n += 1
""",
    "called twice in each round": """# items=4, off=0.05
def update():
    for i in range(5):
        step(0)
for n in range(100):
    update()
    update()
""",
    "a guard that closes again": """# items=4, off=0.25
for n in range(200):
    if random.random() < 0.5:
        for i in range(5):
            step(0)
""",
}


@pytest.mark.parametrize("share", [0.2, 0.8])
@pytest.mark.parametrize("name", ROUGHLY)
def test_about(name: str, share: float, tmp_path: Path) -> None:
    off = told(ROUGHLY[name])["off"]
    steps, total = read(ROUGHLY[name], tmp_path, share)
    assert total.kind is ABOUT, total
    assert total.steps is not None
    assert steps * (1 - off) <= total.steps <= steps * (1 + off), (steps, total)


LATE = {
    "epochs that only warm up": """
for epoch in range(20):
    if epoch < args.warmup:
        continue
    for x in loader:
        step(0)
""",
    "from an epoch on": """
for epoch in range(20):
    if epoch >= 3:
        for x in loader:
            step(0)
""",
    "from a step on": """
n = 0
for epoch in range(20):
    for x in loader:
        n += 1
        if n > 17:
            step(0)
""",
    "else": """
for i in range(200):
    if i < 30:
        x = i
    else:
        step(0)
""",
}


@pytest.mark.parametrize("name", LATE)
def test_a_begin_that_is_late_by_what_only_grows_is_known(name: str, tmp_path: Path) -> None:
    steps, total = read(LATE[name], tmp_path, 0.4)
    assert (total.kind, total.steps) == (EXACT, steps), total
    assert "made none" in total.how


def test_what_is_known_beside_a_loop_without_a_length_is_told(tmp_path: Path) -> None:
    body = """
for item in filter(None, [1, 1]):
    for epoch in range(30):
        for x in range(20):
            step(0)
"""
    _, total = read(body, tmp_path, 0.3)
    assert total.kind is TotalKind.UNKNOWN
    assert "30 (" in total.how
    assert "× 20 (" in total.how
    assert "for each item of the loop at" in total.how
    assert total.steps_per_epoch == 20
