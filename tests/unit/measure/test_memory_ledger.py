"""Peaks by phase, and what becomes of what each phase makes."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.record import MemoryRecord
from costgpu.measure.probe.sandbox import fake_cuda_api
from costgpu.measure.probe.without_weights.memory_ledger import (
    BACKWARD,
    FORWARD,
    LOAD,
    LOGITS,
    OPTIMIZER,
    PREPARATION,
    MemoryLedger,
)
from costgpu.measure.profile.without_weights import measured_memory

PHASES = (LOAD, FORWARD, BACKWARD, OPTIMIZER)


def record_of(ledger: MemoryLedger) -> MemoryRecord:
    told: dict[str, Any] = {**ledger.record(), "pretrained": 0, "steered": [], "computed": [], "skipped": 0}
    return cast("MemoryRecord", told)


class Steps:
    """A training of one weight, as a ledger sees it."""

    def __init__(self) -> None:
        self.phase = LOAD
        self.ledger = MemoryLedger(lambda: self.phase)

    def step(self, first: bool) -> None:
        ledger = self.ledger
        self.phase = FORWARD
        ledger.add("activation", 300)
        ledger.add("temporary", 50)
        ledger.add("logits", 70, LOGITS)
        ledger.drop("temporary")
        self.phase = BACKWARD
        ledger.add("gradient", 100)
        ledger.add("temporary", 40)
        ledger.drop("temporary")
        ledger.drop("logits")
        ledger.drop("activation")
        self.phase = OPTIMIZER
        ledger.add("temporary", 10)
        if first:
            ledger.add("state", 200)
        ledger.drop("temporary")
        ledger.drop("gradient")
        ledger.step_made()


def test_peaks_are_told_by_phase_and_by_kind() -> None:
    steps = Steps()
    steps.ledger.add("weight", 100)
    steps.step(first=True)
    steps.step(first=False)
    memory = measured_memory(record_of(steps.ledger))
    assert {peak.phase: peak.bytes for peak in memory.peaks} == {LOAD: 100, FORWARD: 720, BACKWARD: 810, OPTIMIZER: 410}
    kinds = {peak.phase: peak.kinds for peak in memory.peaks}
    assert kinds[FORWARD] == {"weights": 100, "states": 200, "activations": 300, "temporaries": 50, "logits": 70}
    assert kinds[BACKWARD] == {
        "weights": 100,
        "states": 200,
        "activations": 300,
        "temporaries": 40,
        "logits": 70,
        "gradients": 100,
    }
    assert kinds[OPTIMIZER] == {"weights": 100, "states": 200, "gradients": 100, "temporaries": 10}
    assert (memory.steady_bytes, memory.peak_bytes) == (300, 810)


def test_gradients_outlive_the_backward_pass_where_the_optimizer_takes_nothing() -> None:
    """Its states were there before, and the next thing that happens is that gradients are dropped."""
    steps = Steps()
    steps.ledger.add("weight", 100)
    steps.phase = BACKWARD
    steps.ledger.add("gradient", 100)
    steps.phase = OPTIMIZER
    steps.ledger.drop("gradient")
    memory = measured_memory(record_of(steps.ledger))
    assert {peak.phase: peak.kinds for peak in memory.peaks}[BACKWARD] == {"weights": 100, "gradients": 100}


def test_an_emptied_cache_is_reserved_anew_as_it_is_needed() -> None:
    """Blocks of short sequences hold no long one, and are given back."""
    steps = Steps()
    for size, empties in ((30, False), (40, True), (50, False)):
        steps.phase = FORWARD
        steps.ledger.add("activation", size * 2**20)
        steps.ledger.drop("activation")
        figures = fake_cuda_api.MemoryFigures()
        figures.are_of(steps.ledger)
        if empties:
            figures.empty()
            assert figures.reserved() == 0
    assert steps.ledger.reserved == 70 * 2**20


def test_what_is_loaded_counts_when_that_is_over() -> None:
    """It comes by way of the host, where it may have been larger."""
    steps = Steps()
    steps.ledger.add("whole", 100 * 2**20)
    steps.ledger.add("cast", 50 * 2**20)
    steps.ledger.drop("whole")
    steps.step(first=True)
    memory = measured_memory(record_of(steps.ledger))
    assert {peak.phase: peak.kinds for peak in memory.peaks}[LOAD] == {"weights": 50 * 2**20}
    assert memory.reserved_bytes == 52 * 2**20


def test_what_a_library_takes_while_it_loads_leaves_no_peak() -> None:
    steps = Steps()
    steps.phase = PREPARATION
    with steps.ledger.unnoticed():
        steps.ledger.add("whole", 1000)
        steps.ledger.add("cast", 500)
        steps.ledger.drop("whole")
    assert steps.ledger.peak == 500


@given(
    st.lists(st.tuples(st.sampled_from(PHASES), st.integers(1, 9), st.booleans(), st.integers(1, 10**9)), max_size=60)
)
def test_kinds_always_add_up(steps: list[tuple[str, int, bool, int]]) -> None:
    phase = LOAD
    ledger = MemoryLedger(lambda: phase)
    for now, key, comes, size in steps:
        phase = now
        ledger.drop(key)
        if comes:
            ledger.add(key, size)
    assert ledger.live == sum(size for size, *_ in ledger.known.values()) == sum(ledger.births.values())
    memory = measured_memory(record_of(ledger))
    for peak in memory.peaks:
        assert sum(peak.kinds.values()) == peak.bytes <= memory.peak_bytes <= memory.reserved_bytes
