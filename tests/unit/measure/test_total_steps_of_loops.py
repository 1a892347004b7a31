"""The number of steps, against loops that really run."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given
from hypothesis import strategies as st

from costgpu.measure.probe.loops.loop_stack import LoopStack
from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import TotalKind
from tests.properties import examples
from tests.unit.measure.records import bound, counter, loop, phase, shot

SNAPSHOT_AT = frozenset({1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025})
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


# ----------------------------------------------------------------------------------------------- loops that really run


@dataclass(frozen=True)
class Shape:
    """A training script's loops."""

    outer: str = ""  # around the inner loop: nothing, ``for`` over epochs, ``while epoch < N``, or ``while c < limit``
    epochs: int = 1  # of the outer loop
    inner: str = "range"  # ``range``, ``enumerate``, ``loader``, ``while`` (on the counter), ``forever`` or nothing
    trips: int = 1  # of an inner ``for``
    order: tuple[str, ...] = ("step",)  # of the statements of the inner body: ``inc``, ``check``, ``step``
    operator: str = ">="  # of the test that ends the loop
    start: int = 0  # of the counter, and `by` its increment
    by: int = 1
    limit: int = 0  # of the counter
    flipped: bool = False  # written with the limit on the left
    accumulate: int = 1  # micro-batches per step
    gated: bool = False  # the counter is raised with the step, not with every micro-batch
    resets: bool = False  # the counter starts anew in every epoch
    inner_only: bool = False  # the test leaves the inner loop only, although the counter lives on

    @property
    def leave(self) -> str:
        """A counter of one epoch leaves the epoch, one of the whole run leaves the function."""
        return "return" if self.outer == "for" and not self.resets and not self.inner_only else "break"

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
        put(2, "loader.laps += 1")
        if shape.resets:
            put(2, f"c = {shape.start}", "reset")
        if shape.outer == "while epochs":
            put(2, "epoch += 1", "epoch")
    heads = {
        "range": f"for i in range({shape.trips}):",
        "enumerate": "for i, x in enumerate(loader):",
        "loader": "for x in loader:",
        "while": f"while {shape.test}:",
        "forever": "while True:",
    }
    put(level, heads[shape.inner], "inner")
    inside = level + 1
    if shape.inner == "loader" and shape.accumulate > 1:
        put(inside, f"ready = loader.at % {shape.accumulate} == 0")
    for part in shape.order:
        if part == "inc" and not shape.gated:
            put(inside, raised, "inc")
        elif part == "check":
            put(inside, f"if {shape.test}:", "check")
            put(inside + 1, shape.leave)
        elif part == "step":
            deep = inside
            if shape.accumulate > 1:
                micro = {
                    "loader": "ready",
                    "while": f"c % {shape.accumulate} == 0",
                    "forever": f"c % {shape.accumulate} == 0",
                }
                put(inside, f"if {micro.get(shape.inner, f'(i + 1) % {shape.accumulate} == 0')}:")
                deep = inside + 1
            if shape.gated and shape.order.index("inc") < shape.order.index("step"):
                put(deep, raised)
            put(deep, "step(locals())", "step")
            if shape.gated and shape.order.index("inc") > shape.order.index("step"):
                put(deep, raised)
    return "\n".join(lines) + "\n", at


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


class TooLong(Exception):
    """The shape does not end."""


@dataclass
class Run:
    """What a run of a shape did: all of its steps, and for each the variables at that moment."""

    steps: int
    seen: list[Any]


def run(shape: Shape, most: int = 3000) -> Run:
    """Runs the shape's script to its end."""
    loader, seen = Loader(shape.trips), list[Any]()

    def step(variables: Any) -> None:
        counts = {"drawn": loader.drawn, "opened": loader.opened, "laps": loader.laps}
        seen.append({k: variables.get(k) for k in ("c", "epoch", "i")} | counts)
        if len(seen) > most:
            raise TooLong

    space: Any = {}
    exec(write(shape)[0], space)
    space["train"](step, loader)
    return Run(len(seen), seen)


def snapshot(shape: Shape, at: dict[str, int], variables: Any, anchor: int) -> Any:
    """What the probe would write at that step."""

    def limit_of(how: str, line: int) -> Any:
        raised = "inc" in at
        left = counter(
            "c",
            increment=shape.by if raised else None,
            increment_line=at.get("inc"),
            loop_line=at["inner"] if raised else None,
            reset_line=at["outer"] if shape.resets else None,
        )
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
        ends = bound(
            "while",
            at["outer"],
            "<",
            variables["epoch"],
            shape.epochs,
            (epochs, counter(str(shape.epochs))),
            at["step"],
        )
        loops.append(loop(at["outer"], None, "while", bounds=[ends], source=ends["test"]))
    elif shape.outer == "while steps":
        loops.append(loop(at["outer"], None, "while", bounds=[limit_of("while", at["outer"])], source=shape.test))
    checks = [limit_of(shape.leave, at["check"])] if "check" in at else []
    if shape.outer and shape.leave == "return":
        loops[0]["bounds"] += checks  # a return leaves every loop of the function
    if shape.inner in ("range", "enumerate"):
        inner = loop(at["inner"], trips=shape.trips, index=variables["i"], target="i", bounds=list(checks))
    elif shape.inner == "loader":
        inner = loop(at["inner"], trips=shape.trips, bounds=list(checks), source="loader")
    elif shape.inner == "while":
        inner = loop(at["inner"], None, "while", bounds=[limit_of("while", at["inner"]), *checks], source=shape.test)
    else:
        inner = loop(at["inner"], "inf", "while", bounds=list(checks), source="True")
    return shot(anchor, *loops, inner, batches=variables["drawn"])


def measured(shape: Shape, whole: Run, observed: int) -> Any:
    """The phase that the probe would have recorded of the first `observed` steps."""
    at = write(shape)[1]
    taken = [n for n in range(1, observed + 1) if n in SNAPSHOT_AT] + [observed]
    shots = [snapshot(shape, at, whole.seen[n - 1], n) for n in taken]
    uses_loader = shape.inner in ("enumerate", "loader")
    mark = "opened" if uses_loader else "epoch" if shape.outer == "for" else ""
    special = {
        str(n - 1): {"opened": 1} for n in range(1, observed) if mark and whole.seen[n][mark] != whole.seen[n - 1][mark]
    }
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
        outer=outer,
        epochs=draw(st.integers(1, 5)),
        inner=inner,
        trips=trips,
        order=tuple(order),
        operator=operator,
        start=start,
        by=by,
        limit=limit,
        flipped=draw(st.booleans()),
        accumulate=accumulate,
        gated=gated,
        resets=resets,
    )


def check(shape: Shape, share: float) -> None:
    try:
        whole = run(shape)
    except TooLong:
        assume(False)
    assume(whole.steps >= 4)
    assume(shape.accumulate == 1 or whole.seen[0]["laps"] == whole.seen[1]["laps"])  # else see the test below
    observed = max(3, min(whole.steps - 1, round(share * whole.steps)))
    event(f"{shape.outer or 'alone'} / {shape.inner}")
    found = total_steps(measured(shape, whole, observed), ended=False)
    words = f"{found}\n{write(shape)[0]}"
    assert found.steps is not None, words
    if shape.gated and shape.resets and found.kind is TotalKind.UPPER_BOUND:
        assert found.steps >= whole.steps, words  # a counter out of sight that starts anew is followed with difficulty
        return
    assert found.kind is TotalKind.EXACT, words
    assert abs(found.steps - whole.steps) <= out_of_sight(shape), words


def out_of_sight(shape: Shape) -> int:
    """Steps by which the total may be off where a counter is raised out of sight: before the step, or after it?"""
    if not shape.gated:
        return 0
    if shape.outer == "while steps":  # then the last epoch may be one too many
        return shape.trips // shape.accumulate
    return shape.epochs if shape.resets else 1


@examples(400)
@given(shapes(accumulation=False), st.floats(0, 1))
def test_the_total_is_the_number_of_steps_that_the_loops_make(shape: Shape, share: float) -> None:
    check(shape, share)


@examples(400)
@given(shapes(accumulation=True), st.floats(0, 1))
def test_the_total_with_gradient_accumulation(shape: Shape, share: float) -> None:
    check(shape, share)


def read_by_the_probe(shape: Shape, folder: Path, most: int = 40) -> Any:
    """The loops that the probe itself sees at each step of the shape's script."""
    text, loader = write(shape)[0], Loader(shape.trips)
    path = folder / f"{abs(hash(text))}.py"
    path.write_text(text)
    make_stack: Any = LoopStack
    stack = make_stack(SimpleNamespace(__file__="/lib/torch/__init__.py", optim=SimpleNamespace()), ("/lib/",), {})

    def only_the_script(frame: FrameType) -> list[FrameType]:
        return [frame]

    stack.frames = only_the_script
    shots: Any = []

    def step(variables: Any) -> None:
        if len(shots) < most:
            shots.append(shot(len(shots) + 1, *stack.snapshot(sys._getframe(1)), batches=loader.drawn))

    space: Any = {}
    exec(compile(text, str(path), "exec"), space)
    space["train"](step, loader)
    return shots


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=shapes(accumulation=False) | shapes(accumulation=True))
def test_the_snapshots_are_those_of_the_probe(shape: Shape, tmp_path: Path) -> None:
    try:
        whole = run(shape)
    except TooLong:
        assume(False)
    at = write(shape)[1]
    mine = [snapshot(shape, at, seen, n) for n, seen in enumerate(whole.seen[:40], 1)]
    place = (
        "file",
        "path",
        "function",
        "depth",
        "library",
        "why",
        "source",
    )  # where the script is, and how it is cited
    for taken in (mine, theirs := read_by_the_probe(shape, tmp_path)):
        for record in (record for one in taken for record in one["loops"]):
            for key in place:
                record.pop(key)
    assert mine == theirs, write(shape)[0]


STEPS_BY_COUNTER = Shape(outer="while steps", inner="enumerate", trips=12, operator="<", accumulate=3)
EPOCHS_BY_COUNTER = Shape(outer="for", epochs=5, inner="range", trips=12, operator=">=", accumulate=3)
ONE_STEP_PER_EPOCH = Shape(outer="for", epochs=5, inner="range", trips=4, accumulate=4)


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        # a global step, raised with the optimizer's, ends the run: the test is made between whole epochs of 4 steps
        (replace(STEPS_BY_COUNTER, order=("step", "inc"), limit=18, gated=True), 20),
        # the same with a count of micro-batches: 50 of them are a whole fifth epoch
        (replace(STEPS_BY_COUNTER, order=("step", "inc"), limit=50), 20),
        # at most five of eight steps in each of five epochs, counted from 0 in each
        (replace(EPOCHS_BY_COUNTER, order=("inc", "step", "check"), trips=24, limit=5, gated=True, resets=True), 25),
        # 31 micro-batches in epochs of 12: 4 + 4 steps, and 7 that make 2
        (replace(EPOCHS_BY_COUNTER, order=("step", "inc", "check"), limit=31, trips=12), 10),
        # 17 micro-batches in epochs of 11: 3 steps (2 are left over), and 6 that make 2
        (replace(EPOCHS_BY_COUNTER, order=("step", "inc", "check"), limit=17, trips=11), 5),
        # all of an epoch is one step
        (ONE_STEP_PER_EPOCH, 5),
        (replace(ONE_STEP_PER_EPOCH, trips=5), 5),
        (replace(ONE_STEP_PER_EPOCH, inner="enumerate"), 5),
        (replace(ONE_STEP_PER_EPOCH, inner="loader"), 5),
    ],
)
def test_accumulation_that_is_easily_miscounted(shape: Shape, steps: int) -> None:
    whole = run(shape)
    assert whole.steps == steps, write(shape)[0]
    found = total_steps(measured(shape, whole, 3), ended=False)
    assert (found.kind, found.steps) == (TotalKind.EXACT, steps), f"{found}\n{write(shape)[0]}"


@pytest.mark.parametrize(("order", "steps"), [(("check", "step", "inc"), 50), (("step", "inc", "check"), 57)])
def test_a_break_leaves_its_own_loop_only(order: tuple[str, ...], steps: int) -> None:
    """Each of the seven epochs after the third begins: above the step it breaks at once, below it after one more."""
    shape = Shape(outer="for", epochs=10, inner="range", trips=20, order=order, limit=50, inner_only=True)
    whole = run(shape)
    assert whole.steps == steps, write(shape)[0]
    total = total_steps(measured(shape, whole, 9), ended=False)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), f"{total}\n{write(shape)[0]}"
