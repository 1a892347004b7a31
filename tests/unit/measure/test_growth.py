"""Steps whose tensors grow: from the traces of an early and of a late step, and from the loop's variable."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.probe.loops.growing_sizes import elements_of, followed, sides_of, sizes_at
from costgpu.measure.probe.loops.loop_stack import LoopStack
from costgpu.measure.probe.loops.script_loops import NO_TORCH
from tests.unit.measure.records import build, loop, phase, result, shot


def row(*shapes: list[int], of: str = "forward", count: int = 1) -> Any:
    tensors: list[Any] = [(shape, [], "float32") for shape in shapes]
    return {"op": "aten::mm", "phase": of, "inputs": tensors[:-1], "outputs": tensors[-1:], "count": count}


def test_what_forward_ops_make_is_counted() -> None:
    rows = [row([4, 16], [4, 32], count=3), row([4, 8], [4, 64], of="backward")]
    assert elements_of(rows) == 3 * 4 * 32  # type: ignore[no-untyped-call]
    assert sides_of([row([8, 3, 64, 64], [8, 64])]) == {8: 1, 3: 1, 64: 2}  # type: ignore[no-untyped-call]


LOOPS = {
    "for it in range(2, 4000):\n    length = min(2048, 8 + it // 2)\n    step({})": (9, 1100),
    "for it in range(2, 4000):\n    step(min(2048, 8 + it // 2))": (9, 1100),
    "for length in (16, 32, 64):\n    for _ in range(5):\n        step({})": (16, 112 / 3),
    "sizes = [16] * 10 + [64] * 10\nfor epoch in range(20):\n    for _ in range(3):\n        step(sizes[epoch])": (
        16,
        40,
    ),
    "for epoch in range(30):\n    size = 16 if epoch < 10 else 64\n    step(size)": (16, 48),
    "for i, length in enumerate([32, 16, 8]):\n    step(length)": None,  # the counter is not what is followed
    "for epoch in range(30):\n    step(16)": None,
    "for epoch in something():\n    step(16)": None,
}


@pytest.mark.parametrize("text", LOOPS)
def test_a_size_follows_a_loop(text: str, tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(text.format("length"))
    libraries = (sys.prefix, sys.base_prefix, str(Path(ast.__file__).parent))
    stack, found = LoopStack(NO_TORCH, libraries, {}), []  # type: ignore[no-untyped-call]

    class Seen(Exception):
        pass

    def step(size: int) -> None:
        found.append(sizes_at(stack, sys._getframe(1), [row([8, 3, size, size], [1, 1])]))  # type: ignore[no-untyped-call]
        raise Seen

    names: dict[str, Any] = {"step": step, "something": lambda: iter([1, 2])}
    with pytest.raises(Seen):
        exec(compile(script.read_text(), str(script), "exec"), names)
    expected = LOOPS[text]
    if expected is None:
        assert found == [{}]
        return
    (size,) = found[0].values()
    assert size["now"] == expected[0]
    assert size["mean"] == pytest.approx(expected[1], rel=0.3)
    assert size["sides"] == 2


def test_only_what_was_a_side_at_both_moments_is_followed() -> None:
    one: Any = {"line": 1, "text": "n", "now": 8, "mean": 50.0, "sides": 1, "values": 50.0}
    found = followed({"a": one, "b": one}, {"a": {**one, "now": 16}})  # type: ignore[no-untyped-call]
    assert found == [{**one, "now": 16, "before": 8}]


def profile(**facts: Any) -> Any:
    return build(result(phase(shot(1, loop(4, 100)), shot(31, loop(4, 100)), seconds=[0.1] * 30, **facts)))


def test_the_interval_reaches_to_what_later_steps_compute() -> None:
    found = profile(growth=10.0)
    assert found.phases[0].step.drift == 10
    assert "computes 10.0 times the values" in found.notes[0]
    assert profile(growth=0.5).phases[0].step.drift == 0.5
    assert profile(growth=1.05).phases[0].step.drift == 1.0
    size = {"line": 4, "text": "size", "before": 16, "now": 16, "mean": 40.0, "sides": 2, "values": 1600.0}
    found = profile(followed=[size])
    assert found.phases[0].step.drift == pytest.approx(2.5**2)
    assert "size (line 4) is a side of its tensors: 16 now, 40 on average" in found.notes[0]


def test_a_busy_computer_does_not_make_steps_that_shrink_grow() -> None:
    slower = [0.1 + n / 300 for n in range(30)]
    found = build(result(phase(shot(1, loop(4, 100)), shot(31, loop(4, 100)), seconds=slower, growth=0.5)))
    assert found.phases[0].step.drift == 0.5
    assert not any("grew" in note for note in found.notes)
