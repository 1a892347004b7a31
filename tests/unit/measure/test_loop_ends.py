"""Ends of training loops as people write them, read from the live stack, against what the loops really do."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from costgpu.models.workload import TotalKind
from tests.properties import examples
from tests.unit.measure.live_stack import found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ends")


class Settings(dict[str, Any]):
    """As in many projects: `cfg.steps` is `cfg["steps"]`."""

    __getattr__ = dict.__getitem__


@dataclass
class Fields:
    steps: int
    debug: bool = False
    limit: int | None = None


# Where the limit comes from: the expression, and whether `cfg` is a dict, a namespace, ...
SOURCES: dict[str, Callable[[int], dict[str, Any]]] = {
    "args.steps": lambda n: {"args": SimpleNamespace(steps=n, debug=False, limit=None)},
    "cfg['steps']": lambda n: {"cfg": {"steps": n, "debug": False, "limit": None}},
    "cfg.steps": lambda n: {"cfg": Settings(steps=n, debug=False, limit=None)},
    "config.train.steps": lambda n: {"config": SimpleNamespace(train=Fields(n))},
    "hparams.get('steps', 3)": lambda n: {"hparams": {"steps": n}},
    "MAX_STEPS": lambda n: {"MAX_STEPS": n},
    "int(MAX_STEPS)": lambda n: {"MAX_STEPS": float(n)},
}
# Tests that end a loop after `n` has come to LIMIT; `n` is raised once per step, before the test.
TESTS = [
    "n >= LIMIT",
    "not n < LIMIT",
    "LIMIT <= n",
    "n + 1 > LIMIT",
    "LIMIT >= 0 and n >= LIMIT",
    "LIMIT is not None and n == LIMIT",
    "n >= LIMIT or debug",
    "debug and n >= 2 or LIMIT > 0 and n >= LIMIT",
    "not (n < LIMIT or debug)",
    "0 < LIMIT <= n",
    "limit is not None and n >= limit or n >= LIMIT",
]


@dataclass(frozen=True)
class Ends:
    """A nest of an outer and an inner loop, and how it ends."""

    outer: str = "for epoch in range(6):"  # empty for a single loop
    inner: str = "for x in loader:"
    items: int = 7  # of the loader
    source: str = "args.steps"
    limit: int = 20
    test: str = "n >= LIMIT"
    form: str = "break"  # how the test leaves; see `body`
    counter: str = "n"  # or an attribute of an object that outlives the function
    early: str = ""  # a test that cannot be read
    gate: str = ""  # around the step and what follows it
    where: str = "after"  # the increment and the test stand after the step, or before it

    @property
    def written(self) -> str:
        """The test, of the counter and the limit of this shape."""
        words = [word.replace("n", self.counter) if word.strip("()") == "n" else word for word in self.test.split(" ")]
        return " ".join(words).replace("LIMIT", self.source)


def leave(shape: Ends) -> list[str]:
    """The statements that end the inner loop, by the way that the shape takes."""
    test = shape.written
    ways = {
        "break": [f"if {test}:", "    break"],
        "return": [f"if {test}:", "    return"],
        "exit": [f"if {test}:", "    print()", "    sys.exit(0)"],
        "raise": [f"if {test}:", "    raise StopIteration"],
        "nested": ["if not debug:", f"    if {test}:", "        return"],
        "else": [f"if not ({test}):", "    pass", "else:", "    return"],
        "flag": [f"if {test}:", "    done = True", "if done:", "    break"],
        "flag and break": [f"if {test}:", "    done = True", "    break"],
        "flag only": [f"if {test}:", "    done = True"],
        "assigned flag": [f"done = {test}", "if done:", "    break"],
        "loop else": [f"if {test}:", "    break"],
        "": [],
    }
    return ways[shape.form]


def write(shape: Ends) -> str:
    lines = ["import itertools, sys", "def train(step, loader, state):"]
    lines += ["    debug, limit, done, n, epoch = False, None, False, 0, 0"]
    level = 1
    if shape.outer:
        lines.append("    " + shape.outer)
        level = 2
        lines += (
            ["        loader.laps += 1", "        epoch += 1"]
            if "while" in shape.outer
            else ["        loader.laps += 1"]
        )
    lines.append("    " * level + shape.inner)
    raised = f"{shape.counter} += 1"
    body = (
        ["step(locals())", raised, *leave(shape)]
        if shape.where == "after"
        else [raised, *leave(shape), "step(locals())"]
    )
    if shape.early:
        body += [f"if {shape.early}:", "    break" if not shape.outer else "    return"]
    if shape.gate:
        body = [f"if {shape.gate}:", *("    " + line for line in body)]
    lines += ["    " * (level + 1) + line for line in body]
    if (
        shape.outer
        and shape.form in ("flag", "flag and break", "flag only", "assigned flag")
        and "done" not in shape.outer
    ):
        lines += ["        if done:", "            break"]
    if shape.form == "loop else":
        lines += ["        else:", "            continue", "        break"]
    return "\n".join(lines) + "\n"


FORMS = {
    "alone": ["return", "exit", "raise", "nested", "else", "flag", "assigned flag", "break"],
    "nested": ["return", "exit", "raise", "nested", "else", "flag", "assigned flag", "flag and break", "flag only"],
}
ENDLESS = ("while True:", "for i in itertools.count():")


@st.composite
def ends(draw: st.DrawFn) -> Ends:
    """Nests whose end can be read."""
    outer = draw(st.sampled_from(["", "for epoch in range(6):", "while True:", "while epoch < 6:", "while not done:"]))
    inner = draw(st.sampled_from(["for x in loader:", "for i, x in enumerate(loader):", *ENDLESS]))
    forms = list(FORMS["nested" if outer else "alone"])
    if outer == "while not done:":
        forms = [form for form in forms if "flag" in form]
    elif outer and inner not in ENDLESS:
        forms.append("loop else")
    if inner in ENDLESS and outer:
        forms.remove("flag only")
    return Ends(
        outer=outer,
        inner=inner,
        items=draw(st.integers(1, 12)),
        source=draw(st.sampled_from(sorted(SOURCES))),
        limit=draw(st.integers(5, 60)),
        test=draw(st.sampled_from(TESTS)),
        form=draw(st.sampled_from(forms)),
        counter=draw(st.sampled_from(["n", "state.n"])),
        gate=draw(st.sampled_from(["", "", "not debug", "limit is None"])),
        where=draw(st.sampled_from(["after", "after", "before"])),
    )


@examples(600)
@given(ends(), st.floats(0, 1))
def test_an_end_that_can_be_read_is_exact(folder: Path, shape: Ends, share: float) -> None:
    text = write(shape)
    steps, total = found(text, folder, SOURCES[shape.source](shape.limit), shape.items, share)
    event(f"{shape.form} {total.kind.name}")
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), f"{total}\n{text}"


UNREADABLE = ["loss(n) < 0.1", "n % 3 == 0 and n > 4", "state.n % 5 == 4", "len(history) > 9", "next(noise) > 0.9"]


@examples(400)
@given(ends(), st.sampled_from(UNREADABLE), st.floats(0, 1))
def test_an_end_that_cannot_be_read_is_never_called_exact(folder: Path, shape: Ends, early: str, share: float) -> None:
    """Nor is an upper bound ever exceeded; a test that is only written as if it could come true may be seen through."""
    text = write(replace(shape, early=early))
    names: dict[str, Any] = {"loss": lambda n: 1 / (n + 1), "history": [], "noise": iter([0.1, 0.95] * 2000)}
    steps, total = found(text, folder, SOURCES[shape.source](shape.limit) | names, shape.items, share)
    event(total.kind.name)
    words = f"{steps}: {total}\n{text}"
    assert total.kind is not TotalKind.EXACT or total.steps == steps, words
    assert total.kind is TotalKind.APPROXIMATE or total.steps is None or total.steps >= steps, words
