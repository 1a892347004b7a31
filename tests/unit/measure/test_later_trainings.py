"""Training after the steps that are measured, in functions of whatever file: which calls train, and which do not."""

import importlib.util
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops.upcoming_work import UpcomingWork
from tests.unit.measure.live_stack import stack_of

NUMBERS = itertools.count()
OTHER = """
import functools
class Loss:
    def backward(self): pass
def plain(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
class Net:
    def train(self, data):
        for x in data:
            step()
            Loss().backward()
class Strategy:
    def __init__(self):
        self.net, self.known = Net(), 3
    def more(self):
        self.known += 2
    def train(self):
        self.net.train(range(self.known))
class Careful(Strategy):
    def train(self):
        super().train()
class Critic:
    def improve(self):
        Loss().backward()
    def update(self):
        self.improve()
class Meter:
    def update(self, value): pass
    def train(self, mode=True): pass
@plain
def show(): pass
def fit(epochs):
    for _ in range(epochs):
        step()
        Loss().backward()
def polish(args):
    if args.finetune:
        fit(7)
"""
SCRIPT = """
from {other} import *
def update(loss):
    loss.backward()
strategy, meter, critic, summary = Strategy(), Meter(), Critic(), {{}}
wrapped = plain(fit)
{first}
{then}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


LIBRARY = """
class Model:
    def fit(self, data, epochs=1, **others): step()
    def learn(self, total_timesteps): step()
class Trainer:
    def __init__(self, max_epochs): pass
    def fit(self, data): step()
"""


@pytest.mark.parametrize(
    ("first", "then", "times"),
    [
        ("Model().fit(x, epochs=10)", "Model().fit(x, epochs=20)", 2),
        ("model.fit(x, epochs=10)", "model.fit(x, epochs=5)", 0.5),
        ("model.fit(x, epochs=10)", "model.fit(y, epochs=20)", None),
        ("model.fit(x, epochs=10)", "x = y\nmodel.fit(x, epochs=20)", None),
        ("model.fit(x, epochs=10)", "model.fit(x)", None),
        ("model.fit(x, epochs=10)", "for _ in range(3): model.fit(x, epochs=20)", None),
        ("Trainer(max_epochs=10).fit(x)", "trainer = Trainer(max_epochs=30)\ntrainer.fit(x)", 3),
        ("trainer = Trainer(max_epochs=10)\ntrainer.fit(x)", "trainer.fit(x)", None),
        ("Model().learn(total_timesteps=10)", "Model().learn(total_timesteps=10)", 1),
        ("Model().learn(total_timesteps=10)", "Model().learn(total_timesteps=20)", None),
        ("Model().learn(total_timesteps=10)", "Model().fit(x, epochs=20)", None),
    ],
)
def test_a_fit_that_is_written_like_the_one_before_tells_its_length(
    first: str, then: str, times: float | None, folder: Path
) -> None:
    library = folder / "site-packages" / "keras"
    library.mkdir(parents=True)
    name = f"models_{next(NUMBERS)}"
    (library / f"{name}.py").write_text(LIBRARY)
    sys.path.insert(0, str(library))
    try:
        later, _, _ = look(folder, f"from {name} import *\nx, y, model = [1], [2], Model()\n{first}", then, name)
    finally:
        sys.path.remove(str(library))
    assert [one["trips"] for one in later[-1:]] == [None]
    assert [one.get("times") for one in later] == [times]


def read(folder: Path, first: str, then: str) -> tuple[list[float | None], int]:
    """Trips of the later trainings that are read at the first step, and how many places run a model."""
    later, _, applied = look(folder, first, then)
    return [one["trips"] for one in later], len(applied)


def look(folder: Path, first: str, then: str, library: str = "") -> Any:
    """What is read at the first step; `library` is another module that steps."""
    other, found = f"other_{next(NUMBERS)}", list[Any]()

    class Module:
        def __call__(self) -> None: ...

        def train(self) -> None: ...

    torch: Any = SimpleNamespace(
        __file__="/lib/torch/__init__.py",
        optim=SimpleNamespace(),
        nn=SimpleNamespace(Module=Module),
        utils=SimpleNamespace(data=SimpleNamespace(DataLoader=type("DataLoader", (), {}))),
    )
    make_reader: Any = UpcomingWork
    reader = make_reader(torch, stack_of(folder, torch=torch))

    def step() -> None:
        found.extend(reader.read(sys._getframe(1), None))
        raise StopIteration  # what follows is only read

    (folder / f"{other}.py").write_text(OTHER)
    path = folder / f"{other}_script.py"
    path.write_text(SCRIPT.format(other=other, first=first, then=then))
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    script: Any = importlib.util.module_from_spec(spec)
    for name in (other, library) if library else (other,):
        __import__(name)
        vars(sys.modules[name])["step"] = step
    args = SimpleNamespace(finetune=False, on=True, none=0)
    vars(script).update(model=Module(), args=args)
    with pytest.raises(StopIteration):
        spec.loader.exec_module(script)
    return found


@pytest.mark.parametrize(
    ("first", "then", "trips"),
    [
        ("strategy.train()", "strategy.train()", [None]),
        ("strategy.train()", "for r in range(5):\n    strategy.more()\n    strategy.train()", [None]),
        ("strategy.train()", "again = Careful()\nagain.train()", [None]),
        ("strategy.train()", "Careful().train()", [None]),
        ("strategy.train()", "critic.update()", [1]),
        ("strategy.train()", "Net().train(range(4))", [None]),
        ("fit(3)", "fit(5)", [5]),
        ("fit(3)", "run = fit\nrun(5)", []),
        ("wrapped(3)", "wrapped(3)", [None]),
        ("fit(3)", "wrapped(3)", [None]),
        ("wrapped(3)", "show()", []),
        ("strategy.train()", "summary.update(loss=1)", []),
        ("strategy.train()", "meter.update(1)", []),
        ("strategy.train()", "bar = make(3)\nbar.update(1)", []),
        ("strategy.train()", "meter.train(False)\nmodel.train()", []),
        ("fit(3)", "if args.finetune: fit(5)", []),
        ("fit(3)", "if args.on: fit(5)", [5]),
        ("fit(3)", "args.finetune and fit(5)", []),
        ("fit(3)", "fit(5) if args.finetune else print()", []),
        ("fit(3)", "for _ in range(args.none): fit(5)", []),
        ("fit(3)", "while args.finetune: fit(5)", []),
        ("fit(3)", "polish(args)", []),
        ("fit(3)", "if not args.finetune: raise SystemExit\nfit(5)", []),
        ("fit(3)", "best = 0\nif best > 1: fit(5)", [None]),
    ],
)
def test_what_leads_to_a_step_trains_again(first: str, then: str, trips: list[float | None], folder: Path) -> None:
    assert read(folder, first, then) == (trips, 0)


@pytest.mark.parametrize(
    ("then", "places"),
    [
        ("for _ in range(3): model()", 1),
        ("if args.finetune:\n    for _ in range(3): model()", 0),
        ("if args.on:\n    for _ in range(3): model()", 1),
        ("if not args.on and args.unheard_of:\n    for _ in range(3): model()", 0),
    ],
)
def test_what_a_switch_leaves_out_runs_no_model(then: str, places: int, folder: Path) -> None:
    assert read(folder, "fit(3)", then) == ([], places)
