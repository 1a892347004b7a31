"""From a probe's record to a profile."""

import copy
from typing import Any

import pytest

from costgpu.measure.profile.profile_builder import CALL_SECONDS
from costgpu.models.workload import Autocast, ExtraKind, Framework, LaterPhase, Rhythm, TotalKind
from tests.unit.measure.records import CREATED, MACHINE, build, loop, phase, record, result, shot

TRACED = 5  # the interval that was traced


def raw_phase(**other: Any) -> Any:
    """Eleven steps of 0.1 s in one `for` of 50, of which one was traced."""
    shots = [shot(n, loop(12, 50, index=n - 1, target="i")) for n in (1, 2, 3, 5, 9, 11)]
    seconds = [0.1] * 10
    seconds[TRACED] = 1.5
    defaults = {"seconds": seconds, "special": {TRACED: {"traced": True}}, "steps": 11}
    return phase(*shots, **{**defaults, "ops": [record("op")], "optimizers": [record("optimizer")], **other})


def raw(*phases: Any, **other: Any) -> Any:
    """A result of the probe."""
    return result(*(phases or [raw_phase()]), **other)


def test_a_record_becomes_a_profile() -> None:
    profile = build(raw())
    assert (profile.script, profile.arguments, profile.machine) == ("train.py", ["--lr", "0.1"], MACHINE)
    assert (profile.created, profile.costgpu_version) == (CREATED, "0.1.0")
    assert (profile.ended, profile.wall_seconds, profile.peak_rss_bytes) == (False, 9.5, 5 << 28)
    assert profile.notes == []
    framework = profile.framework
    assert (framework.version, framework.python, framework.cuda_build) == ("2.13.0+cpu", "3.11.7", None)
    assert (framework.float32_matmul_precision, framework.matmul_tf32, framework.conv_tf32) == ("high", False, True)
    assert framework.autocast == [Autocast(device="cuda", dtype="float16", enabled=True)]
    (built,) = profile.phases
    assert built.label == "train.py:14"
    assert (built.total.kind, built.total.steps, built.steps_observed) == (TotalKind.EXACT, 50.0, 11)
    assert built.step.median_seconds == pytest.approx(0.1)
    assert (built.trace_steps, built.calls_per_step, built.op_seconds_per_step) == (1, 100.0, 0.5)
    assert (built.saved_tensor_bytes, built.model_bytes, built.frozen_bytes) == (4096, 1000, 200)
    assert built.extras == []
    (op,) = built.ops
    assert (op.op, op.phase, op.count, op.seconds) == ("aten::mm", "forward", 2, 0.25)
    assert op.inputs == [([32, 8], [8, 1], "float32"), ([8, 4], [4, 1], "float32")]
    assert op.outputs == [([32, 4], [4, 1], "float32")]


def test_setup_is_what_comes_before_the_first_step_without_its_own_work() -> None:
    assert build(raw()).setup_seconds == pytest.approx(3.0 - 0.1 - 0.5 - 0.25)
    assert build(raw(setup_seconds=0.2)).setup_seconds == 0.0


def test_host_time_is_the_scripts_own() -> None:
    """0.7 s between ops, less 60 calls' way through Python; the tracer must not make it negative."""
    assert build(raw()).phases[0].host_seconds_per_step == pytest.approx(0.7 - 60 * CALL_SECONDS)
    assert 0 < 60 * CALL_SECONDS < 0.01
    calls = raw_phase(host_seconds=0.001, host_calls=1000)
    assert build(raw(calls)).phases[0].host_seconds_per_step == 0.0


def test_several_traced_steps_count_as_one_each() -> None:
    special = {i: {"traced": True} for i in (4, 5)}
    traced = raw_phase(trace_steps=2, special=special, micro_batches=8)
    built = build(raw(traced)).phases[0]
    assert (built.op_seconds_per_step, built.calls_per_step, built.micro_batches) == (0.25, 50.0, 4.0)
    assert built.host_seconds_per_step == pytest.approx((0.7 - 60 * CALL_SECONDS) / 2)


def test_optimizers_that_replaced_each_other_are_one() -> None:
    sgd = record("optimizer", name="SGD", momentum=True, parameters=50, steps=2)
    optimizers = [record("optimizer", steps=5), sgd, record("optimizer", steps=6)]
    found = build(raw(raw_phase(optimizers=optimizers))).phases[0].optimizers
    assert [(o.name, o.momentum) for o in found] == [("AdamW", False), ("SGD", True)]
    assert [o.updates_per_step for o in found] == [1.0, pytest.approx(2 / 11)]


def test_a_script_that_ended_is_known() -> None:
    profile = build(raw(status="ended"))
    assert profile.ended
    assert (profile.phases[0].total.kind, profile.phases[0].total.steps) == (TotalKind.EXACT, 11.0)


def test_only_the_last_phase_is_open_and_the_pause_before_it_happens_once() -> None:
    profile = build(raw(raw_phase(), raw_phase(steps=0, seconds=[], snapshots=[]), raw_phase(line=30)))
    first, last = profile.phases
    assert (first.total.steps, last.total.steps) == (11.0, 50.0), "the first ran to its end"
    assert last.label == "train.py:30"
    assert first.extras == []
    (pause,) = last.extras
    assert (pause.kind, pause.rhythm) == (ExtraKind.OTHER, Rhythm.RUN)
    assert pause.seconds_each == pytest.approx(2.0 - 0.1)


def test_a_phase_too_short_to_time_borrows() -> None:
    short = raw_phase(steps=1, seconds=[], special={}, ops=[], trace_steps=0, calls=0, op_seconds=0.0, host_seconds=0.0)
    first, last = build(raw(raw_phase(), short, status="ended")).phases
    assert last.steps_observed == 1
    assert (last.step, last.ops, last.trace_steps) == (first.step, first.ops, first.trace_steps)
    assert (last.calls_per_step, last.op_seconds_per_step) == (first.calls_per_step, first.op_seconds_per_step)


def test_training_that_was_not_reached() -> None:
    later = [
        {"file": "train.py", "line": 40, "source": "finetune(model)", "trips": 400},
        {"file": "train.py", "line": 50, "source": "while improving:", "trips": None},
    ]
    stopped = raw_phase(upcoming={"later": later, "periodic": [], "applied": []}, micro_batches=4)
    profile = build(raw(stopped))
    assert profile.later_phases == [
        LaterPhase(label="train.py:40", source="finetune(model)", steps=100.0),
        LaterPhase(label="train.py:50", source="while improving:", steps=None),
    ]
    assert len(profile.notes) == 2
    assert "about 100 steps" in profile.notes[0]
    assert "unknown length" in profile.notes[1]
    assert build(raw(stopped, status="ended")).later_phases == [], "what came is among the phases"


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (raw(raw_phase(seconds=[0.1 * (1 + i / 20) for i in range(40)])), "grew by a factor of"),
        (raw(raw_phase(seconds=[0.1 * (5 - i / 20) for i in range(40)])), "fell by a factor of"),
        (raw(raw_phase(optimizers=[])), "backward passes were counted"),
        (raw(cut_in_validation=True), "inside a validation pass"),
        (raw(torch={"compiled": 1}), "torch.compile"),
        (raw(probe_errors=["a", "b"]), "failed at some steps"),
        (raw(raw_phase(trace_steps=0, ops=[])), "No step could be traced"),
        (raw(raw_phase(seconds=[0.5], special={0: {"traced": True}})), "Only traced steps"),
    ],
)
def test_notes_for_the_reader(measured: Any, words: str) -> None:
    notes = build(measured).notes
    assert sum(words in note for note in notes) == 1, notes
    assert all(note.endswith(".") for note in notes)


def test_the_record_is_left_as_it_was() -> None:
    measured = raw()
    before = copy.deepcopy(measured)
    build(measured)
    assert measured == before


# ---------------------------------------------------------------------------------------- what only matters on a GPU


def convolution(shape: list[int], strides: list[int]) -> Any:
    return record(
        "op", op="aten::convolution", inputs=[[shape, strides, "float32"], [[8, shape[1], 3, 3], [1] * 4, "float32"]]
    )


def framework_with(ops: list[Any], **torch: Any) -> Framework:
    return build(raw(raw_phase(ops=ops), torch=torch)).framework


@pytest.mark.parametrize(
    ("op", "last"),
    [
        (convolution([2, 3, 8, 8], [192, 1, 24, 3]), True),
        (convolution([2, 3, 4, 8, 8], [768, 1, 192, 24, 3]), True),
        (convolution([2, 3, 8, 8], [192, 64, 8, 1]), False),
        (convolution([2, 1, 8, 8], [64, 1, 8, 1]), False),  # one channel: any order is both
        (convolution([2, 3, 1, 1], [3, 1, 1, 1]), False),
        (record("op", op="aten::addmm", inputs=[[[8, 8], [1, 8], "float32"]]), False),
    ],
)
def test_channels_last_shows_in_the_strides(op: Any, last: bool) -> None:
    assert framework_with([op]).channels_last is last


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_device_that_measured(device: str) -> None:
    assert build(raw(raw_phase(device=device))).framework.device == device


def test_the_notes_of_a_measurement_on_a_fake_gpu() -> None:
    notes = build(raw(torch={"fake_cuda": True, "fake_cuda_devices": 4})).notes
    for words in ("measured on the CPU", "mixed precision", "4 CUDA devices"):
        assert sum(words in note for note in notes) == 1, notes
    alone = build(raw(torch={"fake_cuda": True, "fake_cuda_devices": 1, "autocast": []})).notes
    assert len(alone) == len(notes) - 2


def only_step(**other: Any) -> Any:
    """One step of 52 s and eight micro-batches, in a `for` of 80 that it had to itself so far."""
    first = {"first": [52.0, 2.0, 0.0, 0.0], "micro_batches": 8, "steps": 1}
    one = shot(1, loop(12, 80, index=7, target="i"), batches=8)
    return phase(one, ops=[record("op")], optimizers=[record("optimizer")], **first | other)


def test_the_only_step_that_was_seen_is_timed_and_traced() -> None:
    profile = build(raw(only_step()))
    (built,) = profile.phases
    assert (built.step.count, built.step.mean_seconds, built.step.traced_only) == (1, 52.0, True)
    assert (built.trace_steps, len(built.ops), built.micro_batches) == (1, 1, 8)
    assert (built.total.kind, built.total.steps) == (TotalKind.EXACT, 10.0)
    assert (built.data.wait_seconds_per_step, built.data.batches_per_step) == (2.0, 8)
    (note,) = profile.notes
    assert "Only its first step was seen, which took 52 s" in note


@pytest.mark.parametrize(("source", "name"), [("tqdm", "torch"), ("xgboost", "xgboost")])
def test_a_step_beside_a_fit_is_no_training_but_one_beside_a_bar_is(source: str, name: str) -> None:
    other = record("series", source=source, seconds=[0.1] * 12)
    profile = build(raw(only_step(), series=[other], versions={}))
    assert profile.framework.name == name
