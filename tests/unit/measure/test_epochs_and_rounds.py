"""Epochs, accumulation, late begins and rounds of unknown length, as they are written, against what the loops make.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.models.workload import Total, TotalKind
from tests.unit.measure.test_loop_ends import found, whole

EXACT, ABOUT = TotalKind.EXACT, TotalKind.APPROXIMATE
ARGS = SimpleNamespace(epochs=6, limit=5, acc=4, warmup=3, folds=3)


def read(body: str, folder: Path, items: int, share: float) -> tuple[int, Total]:
    """The steps that the statements make, and the total that is read after a share of them."""
    names: dict[str, Any] = {"args": ARGS, "random": random.Random(3)}
    return found(whole(body), folder, names, items, share)


# Statements, items of the loader, and steps of an epoch.
EPOCHS: dict[str, tuple[str, int, float]] = {
    "a part of a loader": (
        """
for epoch in range(6):
    for x in itertools.islice(loader, 12):
        step(0)
""",
        50,
        12,
    ),
    "a break at an index": (
        """
for epoch in range(args.epochs):
    for i, x in enumerate(loader):
        if i >= 12:
            break
        step(0)
""",
        50,
        12,
    ),
    "steps of an epoch, of an iterator that is longer": (
        """
it = itertools.cycle(loader)
for epoch in range(6):
    for _ in range(15):
        x = next(it)
        step(0)
""",
        50,
        15,
    ),
    "steps of an epoch, of a loader that is shorter": (
        """
it = itertools.cycle(loader)
for epoch in range(6):
    for _ in range(15):
        x = next(it)
        step(0)
""",
        4,
        15,
    ),
    "few steps in what is named an epoch": (
        """
for epoch in range(30):
    for i in range(4):
        step(0)
""",
        4,
        4,
    ),
    "a critic": (
        """
for _ in range(3):
    for x in loader:
        for k in range(5):
            step(0)
""",
        20,
        100,
    ),
    "folds": (
        """
for fold in range(args.folds):
    for epoch in range(args.epochs):
        for x in loader:
            step(0)
""",
        7,
        7,
    ),
    "shards of an epoch": (
        """
for epoch in range(5):
    for shard in range(4):
        for x in loader:
            step(0)
""",
        11,
        44,
    ),
    "epochs that nothing names": (
        """
for e in range(5):
    for i in range(40):
        step(0)
""",
        4,
        40,
    ),
    "zip of two": (
        """
for ep in range(6):
    for x, y in zip(range(13), loader):
        step(0)
""",
        50,
        13,
    ),
    "while epoch": (
        """
epoch = 0
while epoch < args.epochs:
    for i, x in enumerate(loader):
        if i == args.limit: break
        step(0)
    epoch += 1
""",
        9,
        5,
    ),
}


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("name", EPOCHS)
def test_an_epoch_is_what_its_loop_makes(name: str, share: float, tmp_path: Path) -> None:
    body, items, each = EPOCHS[name]
    steps, total = read(body, tmp_path, items, share)
    assert (total.kind, total.steps, total.steps_per_epoch) == (EXACT, steps, each), total


# Statements and items of the loader.
ACCUMULATION: dict[str, tuple[str, int]] = {
    "or the last": (
        """
for epoch in range(50):
    for i, x in enumerate(loader, 1):
        if i % 32 == 0 or i == len(loader):
            step(0)
""",
        40,
    ),
    "or the last, from 0": (
        """
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % 8 == 0 or (i + 1) == len(loader):
            step(0)
""",
        101,
    ),
    "a flag": (
        """
acc = 8
for epoch in range(30):
    for i, x in enumerate(loader):
        ready = (i + 1) % acc == 0 or i + 1 == len(loader)
        if ready:
            step(0)
""",
        21,
    ),
    "continue unless": (
        """
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % args.acc != 0 and i + 1 < len(loader):
            continue
        step(0)
""",
        21,
    ),
    "not remainder": (
        """
for epoch in range(30):
    for i, x in enumerate(loader):
        if not (i + 1) % args.acc or i == len(loader) - 1:
            step(0)
""",
        21,
    ),
    "a rest is dropped": (
        """
for epoch in range(30):
    for i, x in enumerate(loader):
        if (i + 1) % args.acc == 0:
            step(0)
""",
        21,
    ),
    "from the first on": (
        """
for epoch in range(30):
    for i, x in enumerate(loader):
        if i % args.acc == 0:
            step(0)
""",
        21,
    ),
    "a counter over all epochs": (
        """
n = 0
for epoch in range(30):
    for x in loader:
        n += 1
        if n % args.acc == 0:
            step(0)
""",
        21,
    ),
    "a counter over all epochs, longer than one": (
        """
n = 0
for epoch in range(60):
    for x in loader:
        n += 1
        if n % 12 == 0:
            step(0)
""",
        5,
    ),
    "a counter that the step sets back": (
        """
n = 0
for epoch in range(30):
    for x in loader:
        n += 1
        if n == args.acc:
            step(0)
            n = 0
""",
        21,
    ),
    "a counter of an epoch": (
        """
for epoch in range(30):
    n = 0
    for x in loader:
        n += 1
        if n % args.acc == 0:
            step(0)
""",
        21,
    ),
    "every fourth round of a loop": (
        """
for update in range(200):
    if (update + 1) % 4 == 0:
        for k in range(3):
            step(0)
""",
        4,
    ),
    "in a function": (
        """
def once(i):
    if (i + 1) % args.acc == 0 or i + 1 == len(loader):
        step(0)
for epoch in range(30):
    for i, x in enumerate(loader):
        once(i)
""",
        21,
    ),
}


@pytest.mark.parametrize("share", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("name", ACCUMULATION)
def test_accumulation_as_the_source_says_it(name: str, share: float, tmp_path: Path) -> None:
    body, items = ACCUMULATION[name]
    steps, total = read(body, tmp_path, items, share)
    assert (total.kind, total.steps) == (EXACT, steps), total


# What cannot be exact: statements, items, and by how much the number may be off.
ROUGHLY: dict[str, tuple[str, int, float]] = {
    "accumulation that grows": (
        """
for epoch in range(30):
    acc = 1 if epoch < 10 else 4 if epoch < 20 else 10
    for i, x in enumerate(loader):
        if (i + 1) % acc == 0 or i + 1 == len(loader):
            step(0)
""",
        40,
        3.0,
    ),
    "accumulation by a table": (
        """
acc = {0: 1, 5: 4}
every = 1
for epoch in range(10):
    every = acc.get(epoch, every)
    for i, x in enumerate(loader):
        if (i + 1) % every == 0:
            step(0)
""",
        40,
        2.0,
    ),
    "a buffer that fills up": (
        """
memory = []
for n in range(300):
    memory.append(n)
    if len(memory) > 60:
        for i in range(5):
            step(0)
""",
        4,
        0.01,
    ),
    "a buffer that fills up, in a function": (
        """
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
        4,
        0.01,
    ),
    "a buffer that fills up inside": (
        """
memory = []
for n in range(40):
    for t in range(25):
        memory.append(t)
        if len(memory) > 260:
            step(0)
""",
        4,
        0.01,
    ),
    "episodes": (
        """
for n in range(150):
    done = False
    while not done:
        done = random.random() < 0.5
        for k in range(3):
            step(0)
""",
        4,
        0.2,
    ),
    "episodes that break": (
        """
for n in range(300):
    while True:
        step(0)
        if random.random() < 0.3:
            break
""",
        4,
        0.2,
    ),
    "folds of epochs of unknown length": (
        """
for fold in range(5):
    for epoch in range(30):
        for x in filter(lambda x: x % 3, loader):
            step(0)
""",
        14,
        0.1,
    ),
    "a while over episodes": (
        """
n = 0
while n < 300:
    done = False
    while not done:
        step(0)
        done = random.random() < 0.3
    n += 1
""",
        4,
        0.2,
    ),
    "called twice in each round": (
        """
def update():
    for i in range(5):
        step(0)
for n in range(100):
    update()
    update()
""",
        4,
        0.05,
    ),
    "a guard that closes again": (
        """
for n in range(200):
    if random.random() < 0.5:
        for i in range(5):
            step(0)
""",
        4,
        0.25,
    ),
}


@pytest.mark.parametrize("share", [0.2, 0.8])
@pytest.mark.parametrize("name", ROUGHLY)
def test_about(name: str, share: float, tmp_path: Path) -> None:
    body, items, off = ROUGHLY[name]
    steps, total = read(body, tmp_path, items, share)
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
    steps, total = read(LATE[name], tmp_path, 7, 0.4)
    assert (total.kind, total.steps) == (EXACT, steps), total
    assert "made none" in total.how


def test_what_is_known_beside_a_loop_without_a_length_is_told(tmp_path: Path) -> None:
    body = """
for item in filter(None, [1, 1]):
    for epoch in range(30):
        for x in range(20):
            step(0)
"""
    _, total = read(body, tmp_path, 4, 0.3)
    assert total.kind is TotalKind.UNKNOWN
    assert "30 (" in total.how
    assert "× 20 (" in total.how
    assert "for each item of the loop at" in total.how
    assert total.steps_per_epoch == 20
