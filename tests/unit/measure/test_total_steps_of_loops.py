"""The number of steps, against loops that really run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import TotalKind
from tests.properties import examples
from tests.unit.measure.live_stack import TooLong
from tests.unit.measure.live_stack import run as run_script
from tests.unit.measure.records import phase

MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


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


def write(shape: Shape) -> str:
    """The script of a shape."""
    lines = ["def train(step, loader, state):", f"    c = {shape.start}", "    epoch = 0"]
    raised = f"c {'-' if shape.by < 0 else '+'}= {abs(shape.by)}"

    def put(indent: int, text: str) -> None:
        lines.append("    " * indent + text)

    level = 1
    if shape.outer:
        heads = {"for": f"for epoch in range({shape.epochs}):", "while epochs": f"while epoch < {shape.epochs}:"}
        put(1, heads.get(shape.outer, f"while {shape.test}:"))
        level = 2
        put(2, "loader.laps += 1")
        if shape.resets:
            put(2, f"c = {shape.start}")
        if shape.outer == "while epochs":
            put(2, "epoch += 1")
    heads = {
        "range": f"for i in range({shape.trips}):",
        "enumerate": "for i, x in enumerate(loader):",
        "loader": "for x in loader:",
        "while": f"while {shape.test}:",
        "forever": "while True:",
    }
    put(level, heads[shape.inner])
    inside = level + 1
    counted = {"loader": "loader.at", "while": "c", "forever": "c"}.get(shape.inner, "(i + 1)")
    due = f"{counted} % {shape.accumulate} == 0"
    if shape.inner == "loader" and shape.accumulate > 1:
        put(inside, f"ready = {due}")
        due = "ready"
    for part in shape.order:
        if part == "inc" and not shape.gated:
            put(inside, raised)
        elif part == "check":
            put(inside, f"if {shape.test}:")
            put(inside + 1, shape.leave)
        elif part == "step":
            deep = inside
            if shape.accumulate > 1:
                put(inside, f"if {due}:")
                deep = inside + 1
            together = [part for part in shape.order if part == "step" or (part == "inc" and shape.gated)]
            for statement in together:
                put(deep, raised if statement == "inc" else "step(locals())")
    return "\n".join(lines) + "\n"


def run(shape: Shape, folder: Path, observed: int = 0) -> tuple[list[Any], list[Any]]:
    """What its script was at each of its steps, and the loops at some of the first `observed`."""
    return run_script(write(shape), folder, {}, shape.trips, observed)


def measured(shape: Shape, folder: Path, observed: int) -> Any:
    """The phase that the probe would have recorded of the first `observed` steps."""
    seen, shots = run(shape, folder, observed)
    uses_loader = shape.inner in ("enumerate", "loader")
    mark = "opened" if uses_loader else "epoch" if shape.outer == "for" else ""
    special = {n - 1: {"opened": 1} for n in range(1, observed) if mark and seen[n][mark] != seen[n - 1][mark]}
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


@examples(800)
@given(shapes(accumulation=False) | shapes(accumulation=True), st.floats(0, 1))
def test_the_total_is_the_number_of_steps_that_the_loops_make(folder: Path, shape: Shape, share: float) -> None:
    try:
        seen, _ = run(shape, folder)
    except TooLong:
        assume(False)
    steps = len(seen)
    assume(steps >= 4)
    assume(shape.accumulate == 1 or seen[0]["laps"] == seen[1]["laps"])  # else see the test below
    event(f"{shape.outer or 'alone'} / {shape.inner}")
    found = total_steps(measured(shape, folder, max(3, min(steps - 1, round(share * steps)))), ended=False)
    words = f"{found}\n{write(shape)}"
    assert found.steps is not None, words
    if shape.gated and shape.resets and found.kind is TotalKind.UPPER_BOUND:
        assert found.steps >= steps, words  # a counter out of sight that starts anew is followed with difficulty
        return
    assert found.kind is TotalKind.EXACT, words
    assert abs(found.steps - steps) <= out_of_sight(shape), words


def out_of_sight(shape: Shape) -> int:
    """Steps by which the total may be off where a counter is raised out of sight: before the step, or after it?"""
    if not shape.gated:
        return 0
    if shape.outer == "while steps":  # then the last epoch may be one too many
        return shape.trips // shape.accumulate
    return shape.epochs if shape.resets else 1


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
        # three epochs of 9 micro-batches: 2 steps each, and what is left over belongs to none
        (
            replace(
                STEPS_BY_COUNTER, inner="loader", trips=9, order=("inc", "step"), operator="<=", limit=26, accumulate=4
            ),
            6,
        ),
        # all of an epoch is one step
        (ONE_STEP_PER_EPOCH, 5),
        (replace(ONE_STEP_PER_EPOCH, trips=5), 5),
        (replace(ONE_STEP_PER_EPOCH, inner="enumerate"), 5),
        (replace(ONE_STEP_PER_EPOCH, inner="loader"), 5),
    ],
)
def test_accumulation_that_is_easily_miscounted(folder: Path, shape: Shape, steps: int) -> None:
    exactly(shape, folder, 3, steps)


@pytest.mark.parametrize(("order", "steps"), [(("check", "step", "inc"), 50), (("step", "inc", "check"), 57)])
def test_a_break_leaves_its_own_loop_only(folder: Path, order: tuple[str, ...], steps: int) -> None:
    """Each of the seven epochs after the third begins: above the step it breaks at once, below it after one more."""
    shape = Shape(outer="for", epochs=10, inner="range", trips=20, order=order, limit=50, inner_only=True)
    exactly(shape, folder, 9, steps)


def exactly(shape: Shape, folder: Path, observed: int, steps: int) -> None:
    """The shape makes so many steps, and the first of them tell that."""
    assert len(run(shape, folder)[0]) == steps, write(shape)
    total = total_steps(measured(shape, folder, observed), ended=False)
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), f"{total}\n{write(shape)}"


def test_a_snapshot_cites_the_test_that_ends_a_loop(folder: Path) -> None:
    shape = Shape(inner="forever", order=("step", "inc", "check"), limit=5)
    lines = write(shape).splitlines()
    (loop,) = run(shape, folder, 1)[1][0]["loops"]
    (bound,) = loop["bounds"]
    cited = [loop["line"], bound["step_line"], bound["counters"][0]["increment_line"], bound["line"]]
    assert [lines[line - 1].strip() for line in cited] == ["while True:", "step(locals())", "c += 1", "if c >= 5:"]
    assert (bound["test"], bound["left"], bound["right"]) == ("c >= 5", 0, 5)
