"""The number of steps, from hand-made snapshots, against loops that really run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from costgpu.measure.total import iterations_per_step, observed_epoch, total_steps
from costgpu.workload import TotalKind

SNAPSHOT_AT = frozenset({1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025})
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


# ------------------------------------------------------------------------------------------- what the probe writes


def loop(line: int, kind: str = "for", trips: float | str | None = None, **other: Any) -> dict[str, Any]:
    """One loop of a snapshot, as the probe records it."""
    record: dict[str, Any] = {
        "file": "train.py", "path": "/home/me/train.py", "line": line, "kind": kind, "function": "<module>", "depth": 0,
        "library": False, "trips": trips, "why": "", "index": None, "start": 0, "stride": 1, "bounds": [],
        "early_exit": [], "optimizers": False, "ragged": False, "source": f"range({trips})",
    }  # fmt: skip
    return record | other


def counter(text: str, **other: Any) -> dict[str, Any]:
    """One side of a comparison, as the probe records it."""
    info: dict[str, Any] = {
        "text": text, "increment": None, "increment_line": None, "loop_line": None, "reset_line": None, "targets": [],
    }  # fmt: skip
    return info | other


def bound(
    how: str, line: int, operator: str, left: float, right: float, sides: tuple[dict[str, Any], dict[str, Any]], step_line: int
) -> dict[str, Any]:
    """A comparison that ends a loop, as the probe records it."""
    return {
        "how": how, "line": line, "test": f"{sides[0]['text']} {operator} {sides[1]['text']}", "operator": operator,
        "left": left, "right": right, "counters": list(sides), "step_line": step_line,
    }  # fmt: skip


def shot(anchor: int, *loops: dict[str, Any], batches: int = 0) -> dict[str, Any]:
    return {"anchor": anchor, "batches": batches, "backwards": anchor, "loops": list(loops), "steps": anchor}


def phase(
    *shots: dict[str, Any],
    loader: dict[str, Any] | None = None,
    special: dict[str, dict[str, Any]] | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    made = shots[-1]["anchor"] if shots else 2
    return {
        "snapshots": list(shots), "steps": made if steps is None else steps, "loader": loader, "special": special or {},
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------- loops that really run


@dataclass(frozen=True)
class Shape:
    """A training script's loops.

    Attributes:
        outer: Around the inner loop: nothing, ``for`` over epochs, ``while epoch < N``, or ``while c < limit``.
        epochs: Of the outer loop.
        inner: ``range``, ``enumerate``, ``loader``, ``while`` (on the counter), ``forever`` or nothing.
        trips: Of an inner ``for``.
        order: Of the statements of the inner body: ``inc``, ``check``, ``step``.
        operator: Of the test that ends the loop.
        start: Of the counter, and `by` its increment.
        limit: Of the counter.
        flipped: Written with the limit on the left.
        accumulate: Micro-batches per step.
        gated: The counter is raised with the step, not with every micro-batch.
        resets: The counter starts anew in every epoch.
    """

    outer: str = ""
    epochs: int = 1
    inner: str = "range"
    trips: int = 1
    order: tuple[str, ...] = ("step",)
    operator: str = ">="
    start: int = 0
    by: int = 1
    limit: int = 0
    flipped: bool = False
    accumulate: int = 1
    gated: bool = False
    resets: bool = False

    @property
    def leave(self) -> str:
        """A counter of one epoch leaves the epoch, one of the whole run leaves the function."""
        return "return" if self.outer == "for" and not self.resets else "break"

    @property
    def test(self) -> str:
        sides = (str(self.limit), MIRROR[self.operator], "c") if self.flipped else ("c", self.operator, str(self.limit))
        return " ".join(sides)


def write(shape: Shape) -> tuple[str, dict[str, int]]:
    """The script of a shape, and on which line each part of it is."""
    lines, at = ["def train(step, loader):"], dict[str, int]()
    raised = f"c {'-' if shape.by < 0 else '+'}= {abs(shape.by)}"

    def put(indent: int, text: str, name: str = "") -> None:
        lines.append("    " * indent + text)
        if name:
            at[name] = len(lines)

    put(1, f"c = {shape.start}")
    put(1, "epoch = 0")
    level = 1
    if shape.outer:
        heads = {"for": f"for epoch in range({shape.epochs}):", "while epochs": f"while epoch < {shape.epochs}:"}
        put(1, heads.get(shape.outer, f"while {shape.test}:"), "outer")
        level = 2
        if shape.resets:
            put(2, f"c = {shape.start}", "reset")
        if shape.outer == "while epochs":
            put(2, "epoch += 1", "epoch")
    heads = {
        "range": f"for i in range({shape.trips}):", "enumerate": "for i, x in enumerate(loader):",
        "loader": "for x in loader:", "while": f"while {shape.test}:", "forever": "while True:",
    }  # fmt: skip
    put(level, heads[shape.inner], "inner")
    inside = level + 1
    if shape.inner == "loader" and shape.accumulate > 1:
        put(inside, f"ready = ((loader.drawn - 1) % {shape.trips} + 1) % {shape.accumulate} == 0")
    for part in shape.order:
        if part == "inc" and not shape.gated:
            put(inside, raised, "inc")
        elif part == "check":
            put(inside, f"if {shape.test}:", "check")
            put(inside + 1, shape.leave)
        elif part == "step":
            deep = inside
            if shape.accumulate > 1:
                micro = {"loader": "ready", "while": f"c % {shape.accumulate} == 0", "forever": f"c % {shape.accumulate} == 0"}
                put(inside, f"if {micro.get(shape.inner, f'(i + 1) % {shape.accumulate} == 0')}:")
                deep = inside + 1
            if shape.gated and shape.order.index("inc") < shape.order.index("step"):
                put(deep, raised)
            put(deep, "step(locals())", "step")
            if shape.gated and shape.order.index("inc") > shape.order.index("step"):
                put(deep, raised)
    return "\n".join(lines) + "\n", at


class Loader:
    """Counts what it hands out, and when it is opened."""

    def __init__(self, length: int) -> None:
        self.length, self.drawn, self.opened = length, 0, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        self.opened += 1
        for item in range(self.length):
            self.drawn += 1
            yield item


class TooLong(Exception):
    """The shape does not end."""


@dataclass
class Run:
    """What a run of a shape did: all of its steps, and for each the variables at that moment."""

    steps: int
    seen: list[dict[str, Any]]


def run(shape: Shape, most: int = 3000) -> Run:
    """Runs the shape's script to its end."""
    loader, seen = Loader(shape.trips), list[dict[str, Any]]()

    def step(variables: dict[str, Any]) -> None:
        seen.append({k: variables.get(k) for k in ("c", "epoch", "i")} | {"drawn": loader.drawn, "opened": loader.opened})
        if len(seen) > most:
            raise TooLong

    space: dict[str, Any] = {}
    exec(write(shape)[0], space)
    space["train"](step, loader)
    return Run(len(seen), seen)


def snapshot(shape: Shape, at: dict[str, int], variables: dict[str, Any], anchor: int) -> dict[str, Any]:
    """What the probe would write at that step."""

    def limit_of(how: str, line: int) -> dict[str, Any]:
        raised = "inc" in at
        left = counter(
            "c", increment=shape.by if raised else None, increment_line=at.get("inc"),
            loop_line=at["inner"] if raised else None, reset_line=at["outer"] if shape.resets else None,
        )  # fmt: skip
        right = counter(str(shape.limit))
        values = (variables["c"], shape.limit)
        if shape.flipped:
            left, right, values = right, left, values[::-1]
        operator = MIRROR[shape.operator] if shape.flipped else shape.operator
        return bound(how, line, operator, *values, (left, right), at["step"])

    loops = []
    if shape.outer == "for":
        loops.append(loop(at["outer"], trips=shape.epochs, index=variables["epoch"], target="epoch"))
    elif shape.outer == "while epochs":
        epochs = counter("epoch", increment=1, increment_line=at["epoch"], loop_line=at["outer"])
        ends = bound("while", at["outer"], "<", variables["epoch"], shape.epochs, (epochs, counter(str(shape.epochs))), at["step"])
        loops.append(loop(at["outer"], "while", bounds=[ends], source=ends["test"]))
    elif shape.outer == "while steps":
        loops.append(loop(at["outer"], "while", bounds=[limit_of("while", at["outer"])], source=shape.test))
    checks = [limit_of(shape.leave, at["check"])] if "check" in at else []
    if shape.outer and shape.leave == "return":
        loops[0]["bounds"] += checks  # a return leaves every loop of the function
    if shape.inner in ("range", "enumerate"):
        inner = loop(at["inner"], trips=shape.trips, index=variables["i"], target="i", bounds=list(checks))
    elif shape.inner == "loader":
        inner = loop(at["inner"], trips=shape.trips, bounds=list(checks), source="loader")
    elif shape.inner == "while":
        inner = loop(at["inner"], "while", bounds=[limit_of("while", at["inner"]), *checks], source=shape.test)
    else:
        inner = loop(at["inner"], "while", "inf", bounds=list(checks), source="True")
    return shot(anchor, *loops, inner, batches=variables["drawn"])


def measured(shape: Shape, whole: Run, observed: int) -> dict[str, Any]:
    """The phase that the probe would have recorded of the first `observed` steps."""
    at = write(shape)[1]
    taken = [n for n in range(1, observed + 1) if n in SNAPSHOT_AT] + [observed]
    shots = [snapshot(shape, at, whole.seen[n - 1], n) for n in taken]
    opened = [(n, whole.seen[n]["opened"] - whole.seen[n - 1]["opened"]) for n in range(1, observed)]
    special = {str(n - 1): {"opened": times} for n, times in opened if times}
    uses_loader = shape.inner in ("enumerate", "loader")
    return phase(*shots, loader={"length": shape.trips} if uses_loader else None, special=special)


@st.composite
def shapes(draw: st.DrawFn, *, accumulation: bool) -> Shape:
    """Loops as people write them; every one ends by itself."""
    inner = draw(st.sampled_from(["range", "enumerate", "loader", "while", "forever"]))
    outer = draw(st.sampled_from(["", "for", "while epochs", "while steps"]))
    counted = inner in ("while", "forever") or outer == "while steps" or draw(st.booleans())
    if outer == "while steps":
        assume(inner not in ("while", "forever"))
        order = draw(st.permutations(["inc", "step"]))
        ends = "while"
    elif inner == "while":
        order, ends = draw(st.permutations(["inc", "step"])), "while"
    elif counted:
        order, ends = draw(st.permutations(["inc", "check", "step"])), "check"
    else:
        order, ends = ["step"], ""
    resets = bool(counted and outer in ("for", "while epochs") and (outer == "while epochs" or draw(st.booleans())))
    many = draw(st.integers(2, 40))
    by, start = draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, -2]))
    down = draw(st.booleans())
    operator = draw(st.sampled_from(["<", "<=", "!="] if ends == "while" else [">=", ">", "=="]))
    exact = operator in ("!=", "==")
    assume(not (exact and outer == "while steps"))  # the test would be jumped over inside the inner loop
    limit = start + by * many + (0 if exact else draw(st.integers(0, by - 1)))
    trips = draw(st.integers(1, 30))
    accumulate, gated = 1, False
    if accumulation:
        accumulate = draw(st.integers(2, 4))
        assume(inner not in ("range", "enumerate", "loader") or trips >= 2 * accumulate)
        if inner in ("while", "forever"):
            assume(by == 1)
        elif counted:
            gated = draw(st.booleans())
    if down:  # counts down to the mirrored limit
        start, limit, by, operator = -start, -limit, -by, MIRROR[operator]
    return Shape(
        outer=outer, epochs=draw(st.integers(1, 5)), inner=inner, trips=trips, order=tuple(order), operator=operator,
        start=start, by=by, limit=limit, flipped=draw(st.booleans()), accumulate=accumulate, gated=gated, resets=resets,
    )  # fmt: skip


def check(shape: Shape, share: float) -> None:
    try:
        whole = run(shape)
    except TooLong:
        assume(False)
    assume(whole.steps >= 4)
    observed = max(3, min(whole.steps - 1, round(share * whole.steps)))
    event(f"{shape.outer or 'alone'} / {shape.inner}")
    found = total_steps(measured(shape, whole, observed), ended=False)
    assert found.kind is TotalKind.EXACT, found
    assert found.steps == whole.steps, f"{found}\n{write(shape)[0]}"


@settings(max_examples=400, deadline=None)
@given(shapes(accumulation=False), st.floats(0, 1))
def test_the_total_is_the_number_of_steps_that_the_loops_make(shape: Shape, share: float) -> None:
    check(shape, share)


@settings(max_examples=400, deadline=None)
@given(shapes(accumulation=True), st.floats(0, 1))
def test_the_total_with_gradient_accumulation(shape: Shape, share: float) -> None:
    check(shape, share)
