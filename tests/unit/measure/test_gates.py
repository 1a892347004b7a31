"""Gates beside the steps as projects write them (gates.toml): when they are read to open, and when they do."""

import contextlib
import itertools
import math
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops.upcoming_work import UpcomingWork
from costgpu.measure.profile.accumulation import accumulation
from costgpu.measure.profile.rhythms import NamedWork, works_of
from costgpu.models.workload import ExtraKind, Rhythm, Total, TotalKind
from tests.unit.measure.live_stack import Loader, stack_of
from tests.unit.measure.records import phase, shot

ITEMS, MEASURED, MOST_STEPS = 7, 30, 500
ARGS = SimpleNamespace(every=9, off=-1, none=None, zero=0, on=True, no=False, steps=100, epochs=12, milestones=(5, 40))


class DataLoader(Loader):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.dataset = object()


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
    utils=SimpleNamespace(data=SimpleNamespace(DataLoader=DataLoader)),
)


class Run:
    """A script that is run to its end: what was read at one of its steps, and the steps made when each work came."""

    def __init__(self, text: str, folder: Path, at: int, library: str = "") -> None:
        self.loader, self.came, self.shots, self.opened = DataLoader(ITEMS), list[int](), list[Any](), dict[int, Any]()
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
            "val_loader": DataLoader(3),
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

    def works(self) -> list[NamedWork]:
        record = phase(
            *self.shots,
            seconds=[0.1] * (min(MEASURED, self.steps) - 1),
            special=self.opened,
            upcoming={"later": [], "periodic": self.periodic, "applied": []},
        )
        total = Total(kind=TotalKind.EXACT, steps=float(self.steps), steps_per_epoch=float(ITEMS), how="")
        return works_of(record, total, accumulation(self.shots).per_step)


TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("gates.toml").read_text())
GATES: dict[str, str] = TABLE["written"] | {
    f"{frame}, {gate}": TABLE["frames"][frame].replace("GATE", gate)
    for frame, gates in TABLE["in"].items()
    for gate in gates
}
ONLY_OFTEN = "if epoch % 5 == 0 and i == 0:"  # where the intervals are not told, only how often


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


AT_MOST = {"only what is better", "what is better in one way or another", "only if there is any"}
BESIDE: str = TABLE["around"]["beside"]
WITHOUT_LOADER = BESIDE[: BESIDE.index("for it in")] + TABLE["around"]["models"]


def known(row: Any) -> Any:
    return None if row == "?" else row


@pytest.mark.parametrize("name", TABLE["beside"])
def test_what_stands_beside_the_step(name: str, folder: Path) -> None:
    text, expected = TABLE["beside"][name]
    works = Run(BESIDE.replace("GATE", text), folder, 1).works()
    assert [work.raw["at_most"] for work in works] == [name in AT_MOST] * len(works)
    assert [(work.raw["kind"], work.every) for work in works] == [(kind, known(every)) for kind, every in expected]


@pytest.mark.parametrize("name", TABLE["models"])
def test_models_that_run_without_a_loader(name: str, folder: Path) -> None:
    text, expected = TABLE["models"][name]
    epochs = f"for epoch in range(9):\n    for it in range(9999): step()\n    {text}\n"
    found = Run(WITHOUT_LOADER + epochs, folder, 1).works()
    assert [(work.raw["kind"], work.raw["batches"]) for work in found] == [(kind, known(n)) for kind, n in expected]


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
