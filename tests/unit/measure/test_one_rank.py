"""Which of a script's processes train, told from their code without running it."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.frameworks import one_rank

probe: Any = one_rank  # for Python 3.8, without types


def epoch(model: Any) -> None:
    for loss in model:
        loss.backward()


def train(rank: int, model: Any) -> None:
    for _ in range(rank):
        epoch(model)


def act(rank: int, model: Any) -> None:
    model(rank)


class Learner:
    def run(self) -> None:
        self.learn()

    def learn(self) -> None:
        train(0, self)


class Actor:
    def run(self) -> None:
        act(0, self)


@pytest.fixture
def rank() -> Any:
    return probe.OneRank()


@pytest.mark.parametrize(
    "target",
    [train, functools.partial(train, 0), Learner().run, lambda: epoch(None)],
    ids=["function", "partial", "method", "lambda"],
)
def test_what_reaches_a_backward_pass_trains(rank: Any, target: Any) -> None:
    assert rank.trains(target)


@pytest.mark.parametrize("target", [act, Actor().run, print, None, functools.partial(act, 0)])
def test_what_does_not_is_left_alone(rank: Any, target: Any) -> None:
    assert not rank.trains(target)


class Process:
    """As much of `multiprocessing.Process` as counts."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.ran = 0

    def run(self) -> None:
        self.ran += 1


def test_the_first_process_that_trains_runs_here_and_its_like_not_at_all(rank: Any) -> None:
    started: list[Process] = []
    processes = [Process(act), Process(train), Process(train), Process(train)]
    for process in processes:
        rank.start(started.append, process)
    assert started == processes[:1]
    assert [process.ran for process in processes] == [0, 1, 0, 0]
    assert (rank.processes, rank.started) == (3, 1)


def test_spawned_functions_run_once_for_rank_0(rank: Any) -> None:
    ranks: list[int] = []
    assert rank.spawn(pytest.fail, lambda number, word: ranks.append(number), ("a",), 4) is None
    assert rank.spawn(pytest.fail, ranks.append, nprocs=2, join=False).join()
    assert (ranks, rank.processes) == ([0, 0], 4)
    rank.spawn(lambda *_: None, pytest.fail, (), 0)
    assert rank.for_no_gpu


settings = SimpleNamespace(train=True)


def feed(queue: Any) -> None:
    while settings.train:
        queue.put(0)


class Trainer:
    """Its own process only feeds it."""

    def feed(self) -> None:
        while self.steps:
            act(0, self)

    steps = 3

    def train(self) -> None:
        train(0, self)


@pytest.mark.parametrize("target", [feed, Trainer().feed], ids=["that reads a setting called train", "of a trainer"])
def test_a_process_that_feeds_the_training_is_not_run_here(rank: Any, target: Any) -> None:
    assert not rank.trains(target)
    assert rank.trains(Trainer().train)
