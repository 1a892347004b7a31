"""Runs scripts in this process, and reads their loops while they run: no frames but theirs are seen."""

import ast
import contextlib
import re
import sys
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

from hypothesis import assume

from costgpu.measure.probe.loops.loop_stack import LoopStack
from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import Total
from tests.unit.measure.records import phase, shot

PLAIN: Any = SimpleNamespace(__file__="/lib/torch/__init__.py", optim=SimpleNamespace())
SNAPSHOT_AT = frozenset({1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025})
MOST_STEPS = 3000


def stack_of(*paths: Path, torch: Any = PLAIN, libraries: tuple[str, ...] = ("/lib/",)) -> Any:
    """A reader of the frames whose files are these, or are in these folders."""
    make_stack: Any = LoopStack
    stack, own = make_stack(torch, libraries, {}), tuple(map(str, paths))
    frames = stack.frames
    stack.frames = lambda frame: [live for live in frames(frame) if live.f_code.co_filename.startswith(own)]
    return stack


class Loader:
    """Counts what it hands out, how often it is opened, and the laps of the outer loop."""

    def __init__(self, length: int) -> None:
        self.length, self.drawn, self.opened, self.laps, self.at = length, 0, 0, 0, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        self.opened += 1
        for item in range(self.length):
            self.at, self.drawn = item + 1, self.drawn + 1
            yield item


class TooLong(BaseException):
    """The script does not end."""


def whole(text: str, setup: str = "import itertools, sys\n") -> str:
    """A script of a text, which may be no more than the body of its `train`."""
    return setup + (text if "def train" in text else "def train(step, loader, state):\n" + indent(text, "    "))


def told(text: str) -> dict[str, Any]:
    """What a script says of itself in its first line: `# items=50, each=12`."""
    first = text.lstrip("\n").partition("\n")[0]
    return {name: ast.literal_eval(value) for name, value in re.findall(r"(\w+)=([\w.]+)", first) if first[0] == "#"}


def run(
    text: str, folder: Path, names: dict[str, Any], items: int, observed: int = 0, cut: type[Exception] | None = None
) -> tuple[list[Any], list[Any]]:
    """The variables at each step of a script, and snapshots at some of the first `observed`.

    It runs to its end, or is cut after these, if an exception is given to do so.
    """
    loader, seen, shots = Loader(items), list[Any](), list[Any]()
    path = folder / f"{abs(hash(text))}.py"
    path.write_text(text)
    stack = stack_of(path)

    def step(variables: Any) -> None:
        epoch = variables.get("epoch") if isinstance(variables, dict) else None
        seen.append({"opened": loader.opened, "laps": loader.laps, "epoch": epoch})
        count = len(seen)
        if count > MOST_STEPS:
            raise TooLong
        if count == observed or (count < observed and count in SNAPSHOT_AT):
            shots.append(shot(count, *stack.snapshot(sys._getframe(1)), batches=loader.drawn))
        if count == observed and cut is not None:
            raise cut

    space: Any = {"state": SimpleNamespace(n=0), **names}
    exec(compile(text, str(path), "exec"), space)
    with contextlib.suppress(StopIteration, SystemExit, *([cut] if cut else [])):
        space["train"](step, loader, space["state"])
    return seen, shots


def found(text: str, folder: Path, names: dict[str, Any], items: int, share: float) -> tuple[int, Total]:
    """The steps that a script makes, and the total that is read after a share of them."""
    try:
        seen, _ = run(text, folder, names, items)
    except TooLong:
        assume(False)
    steps = len(seen)
    if steps < 4:
        assume(False)
    observed = max(3, min(steps - 1, round(share * steps)))
    seen, shots = run(text, folder, names, items, observed)
    special = {n - 1: {"opened": 1} for n in range(1, observed) if seen[n]["opened"] != seen[n - 1]["opened"]}
    loader = {"length": items} if seen[0]["opened"] else None
    return steps, total_steps(phase(*shots, loader=loader, special=special), ended=False)
