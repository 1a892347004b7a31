"""Which optimizer steps end an interval: of several optimizers at one place, in rounds, in runs, and made anew."""

from typing import Any

import pytest

from costgpu.measure.probe import phase as probe_phase
from costgpu.measure.probe import training

new_phase: Any = training.Training
ROUNDS = 20


class Optimizer:
    """Stands for one of torch's."""


class Script:
    """Makes the calls that a script's steps lead to, and counts those that end an interval."""

    def __init__(self) -> None:
        self.phase = new_phase(None, probe_phase.ANYWHERE)
        self.backwards, self.counted, self.made = 0, 0, set[int]()

    def make(self) -> Optimizer:
        made = Optimizer()
        self.made.add(id(made))
        return made

    def backward(self) -> None:
        self.backwards += 1

    def step(self, optimizer: Optimizer | None, place: str = "train.py:9") -> None:
        if self.phase.is_anchor(place, optimizer, self.backwards, id(optimizer) in self.made):
            self.counted += 1
            self.made.clear()

    def update(self, optimizer: Optimizer) -> None:
        """Go backward and step, as a helper for several optimizers does."""
        self.backward()
        self.step(optimizer)


@pytest.mark.parametrize("number", [2, 3, 4, 50])
def test_optimizers_of_one_backward_pass_make_one_step(number: int) -> None:
    script = Script()
    optimizers = [script.make() for _ in range(number)]
    for turn in range(ROUNDS):
        script.backward()
        for n in range(number):
            script.step(optimizers[(n + turn) % number])  # in whatever order
    assert script.counted == ROUNDS


def test_optimizers_that_are_made_when_they_are_needed_are_one_step() -> None:
    script = Script()
    optimizers: list[Optimizer] = []
    for turn in range(ROUNDS):
        script.backward()
        if not turn:
            script.step(None, "train.py:5")  # until an optimizer is made, backward passes count
        for n in range(4 if turn < 5 else 6):
            if n == len(optimizers):
                optimizers.append(script.make())
            script.step(optimizers[n])
    assert script.counted == ROUNDS


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("agents", [2, 3, 5])
def test_agents_that_learn_in_turns_are_one_step(agents: int, lazily: bool) -> None:
    script = Script()
    optimizers: list[Optimizer] = [] if lazily else [script.make() for _ in range(agents)]
    for _ in range(ROUNDS):
        for n in range(agents):
            if n == len(optimizers):
                optimizers.append(script.make())
            script.update(optimizers[n])
    assert script.counted == ROUNDS


def test_a_critic_steps_more_often_than_what_it_judges() -> None:
    script = Script()
    critic, generator = script.make(), script.make()
    for _ in range(ROUNDS):
        script.update(generator)
        for _ in range(5):
            script.update(critic)
    assert script.counted == ROUNDS


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_an_optimizer_that_is_made_anew_goes_on(steps: int) -> None:
    script = Script()
    for _ in range(ROUNDS):
        optimizer = script.make()
        for _ in range(steps):
            script.update(optimizer)
    assert script.counted == ROUNDS * steps


def test_optimizers_that_are_kept_and_made_anew_go_on() -> None:
    script, kept = Script(), []
    for _ in range(ROUNDS):
        kept.append(script.make())
        for _ in range(5):
            script.update(kept[-1])
    assert script.counted == ROUNDS * 5


def test_clients_that_each_train_for_some_steps() -> None:
    script = Script()
    clients = [script.make() for _ in range(4)]
    for _ in range(ROUNDS):
        for client in clients:
            for _ in range(5):
                script.update(client)
    assert ROUNDS * 20 - 4 < script.counted <= ROUNDS * 20


def test_an_optimizer_that_is_never_used_again_gives_its_place_up() -> None:
    script = Script()
    first, second = script.make(), script.make()
    script.update(first)
    for _ in range(200):
        script.update(second)
    assert script.counted > 100


VARIABLES = [
    ({("a.py", 1): [7], ("a.py", 2): [9]}, {("a.py", 2)}),
    ({("a.py", 1): [7], ("a.py", 2): [8]}, set()),
    ({("a.py", 1): [7], ("a.py", 3): [9]}, set()),
]


@pytest.mark.parametrize(("variables", "members"), VARIABLES)
def test_the_loop_over_the_optimizers_of_a_step_is_told(
    variables: dict[tuple[str, int], list[int]], members: set[tuple[str, int]]
) -> None:
    phase = new_phase(None, probe_phase.ANYWHERE)
    phase.special = {0: {"opened": 1}, 1: {"opened": 1, "traced": True}}  # the step's loop was taken for the epochs'
    phase.look_around({("a.py", 1): [7], ("a.py", 2): [8]}, counts=True)
    phase.snapshots = [{"loops": [{"path": "a.py", "line": n, "optimizers": False} for n in (1, 2)]}]
    phase.look_around(variables, counts=False)
    told = [loop["optimizers"] for loop in phase.counted_snapshots()[0]["loops"]]
    assert (phase.members, told) == (members, [False, bool(members)])
    assert (phase.special == {1: {"traced": True}}) is bool(members)


def test_an_interval_that_is_being_noted_is_left_out() -> None:
    """The watchdog writes the result from its own thread, whenever the time is up."""
    phase = new_phase(None, probe_phase.ANYWHERE)
    for interval in ((1.0, 0.25, 0.125, 0.0), (2.0, 0.5, 0.25, 0.125)):
        phase.add_interval(interval)
    phase.seconds.append(3.0)
    phase.waits.append(0.75)
    assert phase.whole_intervals(9) == [[1.0, 2.0], [0.25, 0.5], [0.125, 0.25], [0.0, 0.125]]
    assert phase.whole_intervals(1) == [[1.0], [0.25], [0.125], [0.0]]
