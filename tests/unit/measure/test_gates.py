"""Gates beside the steps as projects write them: when they are read to open, and when they do.

One file of more than 400 lines: most of it is the loops themselves, which are read best beside each other.
"""

import contextlib
import itertools
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops.upcoming_work import UpcomingWork
from costgpu.measure.profile.accumulation import accumulation
from costgpu.measure.profile.rhythms import Work, works_of
from costgpu.models.workload import ExtraKind, Rhythm, Total, TotalKind
from tests.unit.measure.live_stack import stack_of
from tests.unit.measure.records import phase, shot

ITEMS, MEASURED, MOST_STEPS = 7, 30, 500
ARGS = SimpleNamespace(every=9, off=-1, none=None, zero=0, on=True, no=False, steps=100, epochs=12, milestones=(5, 40))


class Loader:
    """Stands for a DataLoader."""

    def __init__(self, length: int) -> None:
        self.length, self.opened, self.dataset = length, 0, object()

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        self.opened += 1
        yield from range(self.length)


class Module:
    """Stands for `torch.nn.Module`."""

    loss = SimpleNamespace(backward=lambda: None)
    eval = None

    def __call__(self, value: Any) -> Any:
        return value


TORCH: Any = SimpleNamespace(
    __file__="/lib/torch/__init__.py",
    optim=SimpleNamespace(),
    nn=SimpleNamespace(Module=Module),
    utils=SimpleNamespace(data=SimpleNamespace(DataLoader=Loader)),
)


class Run:
    """A script that is run to its end: what was read at one of its steps, and the steps made when each work came."""

    def __init__(self, text: str, folder: Path, at: int, library: str = "") -> None:
        self.loader, self.came, self.shots, self.opened = Loader(ITEMS), list[int](), list[Any](), dict[int, Any]()
        self.steps, self.at, self.periodic, self.later = 0, at, list[Any](), list[Any]()
        path = folder / f"{abs(hash(text))}.py"
        installed = folder / "installed" / path.name
        installed.parent.mkdir(exist_ok=True)
        path.write_text(text)
        installed.write_text(library)
        self.stack = stack_of(path, installed, torch=TORCH, libraries=(str(installed.parent),))
        make_reader: Any = UpcomingWork
        self.reader = make_reader(TORCH, self.stack)
        space: Any = {
            "args": ARGS,
            "itertools": itertools,
            "loader": self.loader,
            "val_loader": Loader(3),
            "model": Module(),
            "step": self.step,
            "save_checkpoint": self.save_checkpoint,
            "__file__": str(path),
        }
        with contextlib.suppress(StopIteration):
            for file in (installed, path):
                exec(compile(file.read_text(), str(file), "exec"), space)

    def step(self) -> None:
        if self.loader.opened != getattr(self, "seen_opened", self.loader.opened) and 2 <= self.steps + 1 <= MEASURED:
            self.opened[self.steps - 1] = {"opened": 1}
        self.seen_opened = self.loader.opened
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise StopIteration
        if self.steps <= MEASURED and (self.steps in (1, 2, 3, 5, 9, 17) or self.steps == MEASURED):
            self.shots.append(shot(self.steps, *self.stack.snapshot(sys._getframe(1)), batches=self.steps))
        if self.steps == self.at:
            self.later, self.periodic, _ = self.reader.read(sys._getframe(1), self.loader, self.steps)

    def save_checkpoint(self) -> None:
        self.came.append(self.steps)

    def works(self) -> list[Work]:
        record = phase(
            *self.shots,
            seconds=[0.1] * (min(MEASURED, self.steps) - 1),
            special=self.opened,
            upcoming={"later": [], "periodic": self.periodic, "applied": []},
        )
        total = Total(kind=TotalKind.EXACT, steps=float(self.steps), steps_per_epoch=float(ITEMS), how="")
        return works_of(record, total, accumulation(self.shots).per_step)


FLAT = """
for it in range(args.steps):
    step()
    {gate}
        save_checkpoint()
"""
BEFORE = """
it = 0
while True:
    {gate}
        save_checkpoint()
    step()
    it += 1
    if it >= args.steps:
        break
"""
GATES = {
    name: FLAT.format(gate=name)
    for name in (
        "if it % args.every == 0:",
        "if (it + 1) % args.every == 0:",
        "if not it % args.every:",
        "if it % args.every < 1:",
        "if it % args.every == args.every - 1:",
        "if it > 0 and it % args.every == 0:",
        "if it and it % args.every == 0 and args.on:",
        "if it % args.every == 0 or it == args.steps - 1:",
        "if args.every > 0 and (it + 1) % args.every == 0:",
        "if bool(it % args.every == 0):",
        "if it % 1000 == 0:",
        "if (1 + it) % 45 == 0:",
        "if 0 == it % args.every:",
        "if it % (2 * args.every) == 3:",
        "if it in (2, 50):",
        "if it in args.milestones:",
        "if it == 60:",
        "if it + 1 == args.steps:",
        "if it >= 20 and it % 4 == 0:",
        "if it % 4 == 0 and it % 6 == 0:",
        "if it % 5 != 0:",
        "if args.off > 0 and it % args.off == 0 or it % 11 == 0:",
        "if it % args.every == 0 if args.every else False:",
        "if it % -args.every == 0:",
    )
}
GATES |= {
    "before, " + name: BEFORE.format(gate=name)
    for name in (
        "if it % args.every == 0:",
        "if it % 50 == 49:",
        "if it > 0 and not it % 40:",
        "if (it + 1) % 50 == 0:",
    )
}
IN_EPOCHS = """
for epoch in range(args.epochs):
    for i, x in enumerate(loader):
        step()
        {gate}
            save_checkpoint()
"""
AFTER_EPOCHS = """
for epoch in range(args.epochs):
    for x in loader:
        step()
    {gate}
        save_checkpoint()
"""
# Where the intervals are not told, only how often.
ONLY_OFTEN = "if epoch % 5 == 0 and i == 0:"
IN_EPOCH = ("if i % 5 == 0:", "if i % 5000 == 4999:", "if i == len(loader) - 1:", ONLY_OFTEN)
GATES |= {"in an epoch, " + gate: IN_EPOCHS.format(gate=gate) for gate in IN_EPOCH}
GATES |= {
    "after an epoch, " + gate: AFTER_EPOCHS.format(gate=gate)
    for gate in ("if epoch % 10 == 0:", "if args.on:", "if epoch >= 8:")
}
GATES |= {
    "a flag": """
for it in range(args.steps):
    step()
    should_save = args.every > 0 and it % args.every == 0
    if should_save:
        save_checkpoint()
""",
    "a flag of a flag": """
for it in range(args.steps):
    last = it == args.steps - 1
    due = last or (it + 1) % args.every == 0
    step()
    if due and not args.no:
        save_checkpoint()
""",
    "a flag that is raised": """
for it in range(args.steps):
    due = False
    if it % args.every == 0:
        due = True
    step()
    if due:
        save_checkpoint()
""",
    "nested": """
for it in range(args.steps):
    step()
    if args.on:
        if it % args.every == 0:
            save_checkpoint()
""",
    "continue": """
for it in range(args.steps):
    step()
    if it % args.every != 0:
        continue
    save_checkpoint()
""",
    "counted by hand, after": """
n = 0
for x in range(args.steps):
    step()
    n += 1
    if n % args.every == 0:
        save_checkpoint()
""",
    "counted by hand, raised at the end": """
n = 1
while n <= args.steps:
    step()
    if n % args.every == 0:
        save_checkpoint()
    n = n + 1
""",
    "counted in samples": """
samples = 0
for x in range(args.steps):
    step()
    samples += 8
    if samples % 64 == 0:
        save_checkpoint()
""",
    "a global step made of two": """
for epoch in range(args.epochs):
    for i, x in enumerate(loader):
        step()
        global_step = epoch * len(loader) + i
        if global_step % 25 == 0:
            save_checkpoint()
""",
    "a counter over epochs": """
n = 0
for epoch in range(args.epochs):
    for x in loader:
        step()
        n += 1
        if n % 25 == 0:
            save_checkpoint()
""",
    "epochs from one": """
for epoch in range(1, args.epochs + 1):
    for x in loader:
        step()
    if epoch % 3 == 0:
        save_checkpoint()
""",
    "in a function for an epoch": """
def train_one_epoch(epoch, every):
    for x in loader:
        step()
    if epoch % every == 0:
        save_checkpoint()
for epoch in range(args.epochs):
    train_one_epoch(epoch, 5)
""",
    "in a method for a step": """
class Agent:
    def __init__(self):
        self.n = 0
    def train(self):
        self.n += 1
        step()
        if self.n % args.every == 0:
            save_checkpoint()
def main():
    agent = Agent()
    for t in range(args.steps):
        agent.train()
main()
""",
    "passed by name": """
def update(data, it=0):
    step()
    if it % args.every == 0:
        save_checkpoint()
for n in range(args.steps):
    update(3, it=n + 1)
""",
    "a flag that is passed": """
def update(save):
    step()
    if save:
        save_checkpoint()
for n in range(args.steps):
    update(save=(n % args.every == 0))
""",
    "accumulated": """
for i in range(args.steps):
    if (i + 1) % 4 == 0:
        step()
    if i % 36 == 0:
        save_checkpoint()
""",
    "steps of an accumulation": """
n = 0
for i in range(4 * args.steps):
    if (i + 1) % 4 == 0:
        step()
        n += 1
        if n % args.every == 0:
            save_checkpoint()
""",
    "a function says so": """
def due(n, every): return every > 0 and n % every == 0
class T:
    def __init__(self): self.every = 20
    def is_due(self, n):
        "Whether it is."
        return due(n, self.every)
    def run(self):
        for it in range(args.steps):
            step()
            if self.is_due(it + 1):
                save_checkpoint()
T().run()
""",
    "no range": """
for it in itertools.count():
    step()
    if it % 25 == 24:
        save_checkpoint()
    if it == 90:
        break
""",
    "a resumed counter": """
for it in range(37, 37 + args.steps):
    step()
    if it % 25 == 0:
        save_checkpoint()
""",
    "in a with": """
class Bar:
    def __enter__(self): return self
    def __exit__(self, *_): return None
for epoch in range(args.epochs):
    with Bar() as bar:
        for x in loader:
            step()
        if epoch % 4 == 3:
            save_checkpoint()
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gates")


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("name", GATES)
def test_a_gate_opens_when_it_was_read_to(name: str, at: int, folder: Path) -> None:
    run = Run(GATES[name], folder, at)
    works = run.works()
    if not run.came:
        assert not works or works[0].every == math.inf
        return
    (work,) = works
    epochs = run.steps / ITEMS
    assert work.every is not None
    extra = work.as_extra(ExtraKind.CHECKPOINT, 1.0, measured=True, note="")
    told = extra.count(run.steps, epochs, whole=True) * extra.seconds_each
    if extra.first is not None or extra.rhythm is Rhythm.RUN:
        assert told == len(run.came)
    else:
        assert told == pytest.approx(len(run.came), abs=1.01)
    if name.endswith(ONLY_OFTEN):
        return
    expected = {max(-1, made - 1) for made in run.came if made - 1 < min(MEASURED, run.steps) - 1}
    assert work.due is not None
    assert set(work.due) == expected


AGENT = """
class Agent:
    def __init__(self):
        self.n = 0
    def train(self):
        self.n += 1
        step()
        if self.n % 2 == 0:
            model.loss.backward()
def main():
    agent = Agent()
    for t in range(args.steps):
        agent.train()
main()
"""
CRITICS = """
class Gan:
    def train(self):
        for _ in range(5):
            step()
        model.loss.backward()
        for _ in range(self.more()):
            model.loss.backward()
    def more(self):
        return 2
gan = Gan()
while args.steps:
    gan.train()
    {end}
"""
LATER = """
def update():
    step()
    model.loss.backward()
def run():
    for t in range(args.steps):
        update()
run()
for t in range(9):
    model.loss.backward()
"""


@pytest.mark.parametrize(("text", "later"), [(AGENT, []), (CRITICS.format(end="gan.more()"), []), (LATER, [9])])
def test_a_second_update_of_the_same_loop_is_no_later_phase(text: str, later: list[int], folder: Path) -> None:
    for at in (1, 3):
        assert [one["trips"] for one in Run(text, folder, at).later] == later


SPELLINGS = {  # of what stands beside the step: kind, and what it is, with its rhythm
    "switched off": ("if args.no: evaluate(model, val_loader)", []),
    "a frequency of -1": ("due = args.off > 0 and it % args.off == 0\n    if due: evaluate(model, val_loader)", []),
    "a frequency of None": ("if args.none and it % args.none == 0: evaluate(model, val_loader)", []),
    "a frequency of 0": ("if args.zero > 0 and it % args.zero == 0: evaluate(model, val_loader)", []),
    "nobody knows": ("if due(it): evaluate(model, val_loader)", [("validation", None)]),
    "a list that is filled": (
        "asked.append(it)\n    if it in asked: evaluate(model, val_loader)",
        [("validation", None)],
    ),
    "a list that is not": ("if it in args.milestones: evaluate(model, val_loader)", [("validation", math.inf)]),
    "switched on": ("if args.on: evaluate(model, val_loader)", [("validation", 1.0)]),
    "in a condition": ("if it % 9 == 0 and evaluate(model, val_loader): pass", [("validation", 9.0)]),
    "a loader of its own": ("if it % 9 == 0: print(accuracy())", [("validation", 9.0)]),
    "only if there is one": (
        "if val_loader is not None:\n        if it % 9 == 0: evaluate(model, val_loader)",
        [("validation", 9.0)],
    ),
    "if there is one": ("if val_loader is not None: evaluate(model, val_loader)", [("validation", 1.0)]),
    "only if there is any": (
        "if val_loader:\n        if val_loader and not it % 9: evaluate(model, val_loader)",
        [("validation", 9.0)],
    ),
    "both": ("if it % 9 == 0:\n        evaluate(model, val_loader)\n        save_checkpoint()", None),
    "only what is better": (
        "if it % 9 == 0:\n        now = len(asked)\n        if now < best:\n            best = now; save_checkpoint()",
        [("checkpoint", 9.0)],
    ),
    "what is better in one way or another": (
        "if it % 20 == 0:\n        now = evaluated(it)\n        if now[0] > best or now[1] > best: save_checkpoint()",
        [("checkpoint", 20.0)],
    ),
    "its length alone": ("if it % 9 == 0: print(len(val_loader), val_loader.length)", []),
    "a loader whose length is not told": ("if it % 9 == 0: evaluate(model, broken)", [("work", 9.0)]),
    "rare, in a loop": ("if it % 50 == 9:\n        for k in range(40): model(k)", [("work", 50.0)]),
    "rare, in a function": ("if it % 50 == 9: images = render(40)", [("work", 50.0)]),
    "a report": ("if it % 50 == 9: report(it)", []),
    "a message": ("if it % 50 == 9: print(it)", []),
    "a soft update": ("if it % 50 == 9: soft_update([], [])", []),
}
AT_MOST = {"only what is better", "what is better in one way or another", "only if there is any"}
HELPERS = """
class Broken(type(val_loader)):
    def __len__(self): raise RuntimeError
broken = Broken(3)
asked = []
best = 10**9
def evaluated(it): return it, 2 * it
def due(it):
    asked.append(it)
    return False
def evaluate(net, values): return [net(value) for value in values]
def accuracy(): return sum(model(value) for value in val_loader)
def render(count): return [model(k) for k in range(count)]
def report(it):
    for name in ("a", "b"): print(name, it)
def soft_update(ones, others):
    for one, other in zip(ones, others): one.data.copy_(other.data)
for it in range(args.steps):
    step()
    """


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_stands_beside_the_step(name: str, folder: Path) -> None:
    text, expected = SPELLINGS[name]
    works = Run(HELPERS + text + "\n", folder, 1).works()
    found = [(work.raw["kind"], work.every) for work in works]
    assert [work.raw["at_most"] for work in works] == [name in AT_MOST] * len(works)
    assert found == ([("validation", 9.0), ("checkpoint", 9.0)] if expected is None else expected)


PASSES = {  # of what runs a model without a DataLoader: kind and forward passes
    "by hand": ("score(net)", [("validation", 25)]),
    "two of them": ("print(score(net), score(net))", [("validation", 50)]),
    "its length is not known": ("score(net, endless=True)", [("validation", None)]),
    "with gradients, into a picture": ("draw(net)", [("work", 8)]),
    "in place": ("for k in range(6):\n        for one in (1, 2): net(one)", [("work", 12)]),
    "a while loop": ("play()", [("work", None)]),
    "a helper that calls itself": ("flat(score(net))", [("validation", 25)]),
    "it calls itself": ("again(net)", [("work", None)]),
    "it trains": ("learn()", []),
    "once": ("print(net(3))", []),
    "a function of it": ("names = [(lambda: net(k)) for k in range(9)]", []),
    "it saves in a function of a function": ("keep()", [("checkpoint", None)]),
    "it saves where there is a path": ("save_model(net, 'model.pt')", [("checkpoint", None)]),
    "it saves where there is none": ("save_model(net, None)", []),
}
WITHOUT_LOADER = """
net, rows = model, list(range(100))
def score(one, endless=False):
    one.eval()
    if endless:
        return [one(k) for k in iter(input, "")]
    return sum(one(rows[k : k + 4]) for k in range(0, len(rows), 4))
def draw(one):
    for k in range(8): one(k)
def play():
    while not due(0): net(1)
def flat(one): return [flat(part) for part in one] if isinstance(one, list) else one
def again(one):
    for k in range(2): one(k), again(one)
def learn():
    for k in range(9): net(k).backward()
def keep(): save_latest("latest.pth")
def save_latest(path): torch.save(net, path)
def save_model(one, path):
    "Saves it, if there is a path."
    if not path: return
    with open(path, "wb") as file: file.write(one)
"""


@pytest.mark.parametrize("name", PASSES)
def test_models_that_run_without_a_loader(name: str, folder: Path) -> None:
    text, expected = PASSES[name]
    epochs = f"for epoch in range(9):\n    for it in range(9999): step()\n    {text}\n"
    found = Run(HELPERS[: HELPERS.index("for it in")] + WITHOUT_LOADER + epochs, folder, 1).works()
    assert [(work.raw["kind"], work.raw["batches"]) for work in found] == expected


TRAINER = """
class Trainer:
    def fit(self, step, loader, held_out, again):
        for epoch in range(5):
            for x in loader: step()
            self.run(loader)
            self.run(again)
            if held_out is not None:
                self.run(held_out)
    def run(self, values): return [model(value) for value in values]
"""


@pytest.mark.parametrize(("held_out", "expected"), [("val_loader", [("validation", 1.0)]), ("None", [])])
def test_what_a_trainer_that_nobody_knows_reads_beside_its_steps(held_out: str, expected: Any, folder: Path) -> None:
    again = "again = type(loader)(7)\nagain.dataset = loader.dataset\n"
    run = Run(f"{again}Trainer().fit(step, loader, {held_out}, again)\n", folder, 1, TRAINER)
    assert [(work.raw["kind"], work.every) for work in run.works()] == expected
