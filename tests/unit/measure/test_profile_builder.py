"""From a probe's record to a profile, and from a profile to disk and back.

One file of more than 400 lines: both halves share the record that they start from.
"""

from __future__ import annotations

import copy
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costgpu.errors import ProfileError
from costgpu.measure.profile.profile_builder import CALL_SECONDS, build_profile
from costgpu.measure.profile_file import FORMAT, VERSION, load_profile, save_profile, to_document
from costgpu.models.workload import (
    Autocast,
    DataLoading,
    Extra,
    ExtraKind,
    LaterPhase,
    Machine,
    Phase,
    Rhythm,
    StepTimes,
    Total,
    TotalKind,
    WorkloadProfile,
)

MACHINE = Machine(
    cpu_model="AMD EPYC 7R13",
    cores=4,
    threads=4,
    memory_gib=15.5,
    gemm_gflops=240.0,
    gemm_gflops_low=200.0,
    copy_gbps=20.0,
    op_seconds=2e-6,
)
CREATED = "2026-11-21T03:00:00+00:00"
TRACED = 5  # the interval that was traced


def row(op: str = "aten::mm", phase: str = "forward", **other: Any) -> dict[str, Any]:
    record = {
        "op": op,
        "phase": phase,
        "inputs": [[[32, 8], [8, 1], "float32"], [[8, 4], [4, 1], "float32"]],
        "outputs": [[[32, 4], [4, 1], "float32"]],
        "count": 2,
        "seconds": 0.25,
        "attributes": {},
    }
    return record | other


def raw_phase(**other: Any) -> dict[str, Any]:
    """Eleven steps of 0.1 s in one `for` of 50, of which one was traced."""
    loop = {
        "file": "train.py",
        "path": "/w/train.py",
        "line": 12,
        "kind": "for",
        "function": "<module>",
        "depth": 0,
        "library": False,
        "trips": 50,
        "why": "",
        "index": 0,
        "start": 0,
        "stride": 1,
        "bounds": [],
        "early_exit": [],
        "optimizers": False,
        "ragged": False,
        "varies": False,
        "source": "range(50)",
        "target": "i",
    }
    shots = [
        {"anchor": n, "batches": 0, "all_batches": 0, "backwards": n, "steps": n, "loops": [dict(loop, index=n - 1)]}
        for n in (1, 2, 3, 5, 9, 11)
    ]
    seconds = [0.1] * 10
    seconds[TRACED] = 1.5
    record = {
        "line": 14,
        "file": "train.py",
        "top_line": 12,
        "steps": 11,
        "seconds": seconds,
        "waits": [0.0] * 10,
        "iterations": 10,
        "total_seconds": sum(seconds),
        "special": {str(TRACED): {"traced": True}},
        "snapshots": shots,
        "ahead": {"later": [], "periodic": []},
        "gap": {"seconds": 2.0, "events": {}},
        "manual": False,
        "saved_tensor_bytes": 4096,
        "model": {"bytes": 1000, "frozen_bytes": 200},
        "micro_batches": 1,
        "batch": None,
        "trace_steps": 1,
        "ops": [row()],
        "op_seconds": 0.5,
        "calls": 100,
        "host_seconds": 0.7,
        "host_calls": 60,
        "loader": None,
        "optimizers": [
            {
                "name": "AdamW",
                "foreach": None,
                "fused": None,
                "momentum": False,
                "parameters": 200,
                "tensors": 4,
                "dtypes": {"float32": 200},
                "state_bytes": 1600,
                "steps": 11,
            }
        ],
    }
    return record | other


def raw(*phases: dict[str, Any], **other: Any) -> dict[str, Any]:
    """A result of the probe."""
    record = {
        "version": 1,
        "status": "cut",
        "python": "3.11.7",
        "wall_seconds": 9.5,
        "setup_seconds": 3.0,
        "peak_rss_bytes": 5 << 28,
        "before": {"validation": 0.5, "save": 0.25},
        "steps": 11,
        "phases": list(phases) or [raw_phase()],
        "torch": {
            "version": "2.13.0+cpu",
            "threads": 4,
            "cuda_build": None,
            "hip_build": None,
            "cuda_devices": [],
            "float32_matmul_precision": "high",
            "conv_tf32": True,
            "matmul_tf32": False,
            "compiled": 0,
            "autocast": [{"device": "cuda", "dtype": "float16", "enabled": True}],
        },
    }
    return record | other


def build(record: dict[str, Any]) -> WorkloadProfile:
    words = ["--lr", "0.1"]
    return build_profile(record, MACHINE, script="train.py", arguments=words, created=CREATED, version="0.1.0")


# ----------------------------------------------------------------------------------------------------------- build


def test_a_record_becomes_a_profile() -> None:
    profile = build(raw())
    assert (profile.script, profile.arguments, profile.machine) == ("train.py", ["--lr", "0.1"], MACHINE)
    assert (profile.created, profile.costgpu_version) == (CREATED, "0.1.0")
    assert (profile.ended, profile.wall_seconds, profile.peak_rss_bytes) == (False, 9.5, 5 << 28)
    assert profile.notes == []
    (phase,) = profile.phases
    assert phase.label == "train.py:14"
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, 50.0)
    assert phase.steps_observed == 11
    assert phase.step.median_seconds == pytest.approx(0.1)
    assert (phase.trace_steps, phase.calls_per_step, phase.op_seconds_per_step) == (1, 100.0, 0.5)
    assert (phase.saved_tensor_bytes, phase.model_bytes, phase.frozen_bytes) == (4096, 1000, 200)
    assert phase.extras == []


def test_the_framework_is_what_the_script_asked_for() -> None:
    framework = build(raw()).framework
    assert (framework.version, framework.python, framework.cuda_build) == ("2.13.0+cpu", "3.11.7", None)
    assert (framework.float32_matmul_precision, framework.matmul_tf32, framework.conv_tf32) == ("high", False, True)
    assert framework.autocast == [Autocast(device="cuda", dtype="float16", enabled=True)]


def test_ops_keep_their_tensors() -> None:
    (op,) = build(raw()).phases[0].ops
    assert (op.op, op.phase, op.count, op.seconds) == ("aten::mm", "forward", 2, 0.25)
    assert op.inputs == [([32, 8], [8, 1], "float32"), ([8, 4], [4, 1], "float32")]
    assert op.outputs == [([32, 4], [4, 1], "float32")]


def test_setup_is_what_comes_before_the_first_step_without_its_own_work() -> None:
    assert build(raw()).setup_seconds == pytest.approx(3.0 - 0.1 - 0.5 - 0.25)
    assert build(raw(setup_seconds=0.2)).setup_seconds == 0.0


def test_host_time_is_the_scripts_own() -> None:
    """0.7 s between ops, less 60 calls' way through Python; the tracer must not make it negative."""
    phase = build(raw()).phases[0]
    assert phase.host_seconds_per_step == pytest.approx(0.7 - 60 * CALL_SECONDS)
    assert 0 < 60 * CALL_SECONDS < 0.01
    calls = raw_phase(host_seconds=0.001, host_calls=1000)
    assert build(raw(calls)).phases[0].host_seconds_per_step == 0.0


def test_several_traced_steps_count_as_one_each() -> None:
    special = {str(i): {"traced": True} for i in (4, 5)}
    traced = raw_phase(trace_steps=2, special=special, micro_batches=8)
    phase = build(raw(traced)).phases[0]
    assert (phase.op_seconds_per_step, phase.calls_per_step, phase.micro_batches) == (0.25, 50.0, 4.0)
    assert phase.host_seconds_per_step == pytest.approx((0.7 - 60 * CALL_SECONDS) / 2)


def test_optimizers_that_replaced_each_other_are_one() -> None:
    one = raw_phase()["optimizers"][0]
    sgd = dict(one, name="SGD", momentum=True, parameters=50, steps=2)
    found = build(raw(raw_phase(optimizers=[dict(one, steps=5), sgd, dict(one, steps=6)]))).phases[0].optimizers
    assert [(o.name, o.momentum) for o in found] == [("AdamW", False), ("SGD", True)]
    assert [o.updates_per_step for o in found] == [1.0, pytest.approx(2 / 11)]


def test_a_script_that_ended_is_known() -> None:
    profile = build(raw(status="ended"))
    assert profile.ended
    assert (profile.phases[0].total.kind, profile.phases[0].total.steps) == (TotalKind.EXACT, 11.0)


def test_only_the_last_phase_is_open() -> None:
    profile = build(raw(raw_phase(), raw_phase(steps=0, seconds=[], snapshots=[]), raw_phase(line=30)))
    first, last = profile.phases
    assert (first.total.steps, last.total.steps) == (11.0, 50.0), "the first ran to its end"
    assert last.label == "train.py:30"


def test_the_pause_before_a_later_phase_happens_once() -> None:
    first, last = build(raw(raw_phase(), raw_phase())).phases
    assert first.extras == []
    (pause,) = last.extras
    assert (pause.kind, pause.rhythm) == (ExtraKind.OTHER, Rhythm.RUN)
    assert pause.seconds_each == pytest.approx(2.0 - 0.1)


def test_a_phase_too_short_to_time_borrows() -> None:
    short = raw_phase(
        steps=1, seconds=[], waits=[], special={}, ops=[], trace_steps=0, calls=0, op_seconds=0.0, host_seconds=0.0
    )
    first, last = build(raw(raw_phase(), short, status="ended")).phases
    assert last.steps_observed == 1
    assert (last.step, last.ops, last.trace_steps) == (first.step, first.ops, first.trace_steps)
    assert (last.calls_per_step, last.op_seconds_per_step) == (first.calls_per_step, first.op_seconds_per_step)


def test_training_that_was_not_reached() -> None:
    later = [
        {"file": "train.py", "line": 40, "source": "finetune(model)", "trips": 400, "per_call": None},
        {"file": "train.py", "line": 50, "source": "while improving:", "trips": None, "per_call": None},
    ]
    phase = raw_phase(ahead={"later": later, "periodic": []}, micro_batches=4)
    profile = build(raw(phase))
    assert profile.later_phases == [
        LaterPhase(label="train.py:40", source="finetune(model)", steps=100.0),
        LaterPhase(label="train.py:50", source="while improving:", steps=None),
    ]
    assert len(profile.notes) == 2
    assert "about 100 steps" in profile.notes[0]
    assert "unknown length" in profile.notes[1]
    assert build(raw(phase, status="ended")).later_phases == [], "what came is among the phases"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (raw(raw_phase(seconds=[0.1 * (1 + i / 20) for i in range(40)], waits=[0.0] * 40)), "grew by a factor of"),
        (raw(raw_phase(seconds=[0.1 * (5 - i / 20) for i in range(40)], waits=[0.0] * 40)), "fell by a factor of"),
        (raw(raw_phase(optimizers=[])), "backward passes were counted"),
        (raw(open={"seconds": 9.0, "validation": True}), "inside a validation pass"),
        (raw(torch=raw()["torch"] | {"compiled": 1}), "torch.compile"),
        (raw(probe_errors=["a", "b"]), "failed at some steps"),
        (raw(raw_phase(trace_steps=0, ops=[])), "No step could be traced"),
        (raw(raw_phase(seconds=[0.5], waits=[0.0], special={"0": {"traced": True}})), "Only traced steps"),
    ],
)
def test_notes_for_the_reader(record: dict[str, Any], words: str) -> None:
    notes = build(record).notes
    assert sum(words in note for note in notes) == 1, notes
    assert all(note.endswith(".") for note in notes)


def test_the_record_is_left_as_it_was() -> None:
    record = raw()
    before = copy.deepcopy(record)
    build(record)
    assert record == before


# -------------------------------------------------------------------------------------------------------- document


def profile() -> WorkloadProfile:
    extra = Extra(kind=ExtraKind.VALIDATION, seconds_each=0.5, rhythm=Rhythm.EPOCH, every=2.0, note="seen once")
    built = build(raw())
    return replace(built, phases=[replace(built.phases[0], extras=[extra])], notes=["a note — with ünicode"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    save_profile(profile(), path)
    return path


def test_what_is_saved_reads_back(saved: Path) -> None:
    assert load_profile(saved) == profile()
    assert list(saved.parent.iterdir()) == [saved], "nothing is left beside it"


reals = st.floats(0, allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**62)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reals, reals, reals, counts, counts, st.none() | counts, st.none() | reals, st.sampled_from(TotalKind), st.text()
)
def test_every_number_survives(
    tmp_path: Path,
    one: float,
    two: float,
    three: float,
    count: int,
    size: int,
    rss: int | None,
    steps: float | None,
    kind: TotalKind,
    text: str,
) -> None:
    measured = Phase(
        label=text,
        total=Total(kind=kind, steps=steps, steps_per_epoch=steps, how=text, loops=[text]),
        steps_observed=count + 1,
        step=StepTimes(
            count=count, median_seconds=one, mean_seconds=two, low_seconds=three, high_seconds=one, drift=two
        ),
        data=DataLoading(wait_seconds_per_step=one, fetch_seconds_per_batch=steps, batch_bytes=size),
        saved_tensor_bytes=size,
        micro_batches=three,
    )
    built = replace(
        profile(),
        phases=[measured],
        setup_seconds=one,
        wall_seconds=two,
        peak_rss_bytes=rss,
        arguments=[text],
        machine=replace(MACHINE, gemm_gflops=one, copy_gbps=two, op_seconds=three, cores=count),
    )
    path = tmp_path / "profile.json"
    save_profile(built, path)
    assert load_profile(path) == built


def edited(path: Path, *keys: str | int, value: Any = None, drop: bool = False) -> None:
    """Changes one value of a stored document."""
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    if drop:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    path.write_text(json.dumps(document))


def refused(path: Path) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


def test_the_document_says_what_it_is() -> None:
    document = to_document(profile())
    assert list(document)[:2] == ["format", "version"]
    assert (document["format"], document["version"]) == (FORMAT, VERSION)
    assert json.loads(json.dumps(document, allow_nan=False))["phases"][0]["total"]["kind"] == "exact"


@pytest.mark.parametrize(
    "keys", [("new",), ("machine", "new"), ("phases", 0, "new"), ("phases", 0, "ops", 0, "new"), ("framework", "new")]
)
def test_unknown_keys_are_ignored(saved: Path, keys: tuple[str | int, ...]) -> None:
    edited(saved, *keys, value={"a": [1]})
    assert load_profile(saved) == profile()


def test_a_key_that_has_a_default_may_be_missing(saved: Path) -> None:
    edited(saved, "phases", 0, "frozen_bytes", drop=True)
    assert load_profile(saved).phases[0].frozen_bytes == 0


@pytest.mark.parametrize(
    "keys",
    [("machine",), ("machine", "cores"), ("phases", 0, "step"), ("phases", 0, "total", "kind"), ("setup_seconds",)],
)
def test_a_missing_value(saved: Path, keys: tuple[str | int, ...]) -> None:
    edited(saved, *keys, drop=True)
    error = refused(saved)
    assert f"damaged at {'.'.join(map(str, keys))}" in error.message
    assert "--save" in error.hint


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("setup_seconds",), "soon"),
        (("machine", "cores"), 2.5),
        (("phases",), {}),
        (("phases", 0, "total", "kind"), "endless"),
        (("phases", 0, "extras", 0, "rhythm"), 3),
        (("phases", 0, "ops", 0, "inputs", 0), [[1], [1]]),
        (("phases", 0, "step", "mean_seconds"), math.nan),
        (("phases", 0, "step", "mean_seconds"), math.inf),
    ],
)
def test_a_mistyped_value(saved: Path, keys: tuple[str | int, ...], value: Any) -> None:
    edited(saved, *keys, value=value)
    refused(saved)


@pytest.mark.parametrize(("keys", "value"), [(("phases",), []), (("phases", 0, "steps_observed"), 0)])
def test_a_profile_without_a_measurement(saved: Path, keys: tuple[str | int, ...], value: Any) -> None:
    edited(saved, *keys, value=value)
    assert "no measured training phase" in refused(saved).message


@pytest.mark.parametrize("version", [VERSION + 1, 0, -1, None, "1", 1.5])
def test_another_version(saved: Path, version: Any) -> None:
    edited(saved, "version", value=version)
    error = refused(saved)
    assert repr(version) in error.message
    assert "Upgrade" in error.hint


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 0.9999))
def test_a_truncated_file(saved: Path, tmp_path: Path, share: float) -> None:
    text = saved.read_text().rstrip()
    cut = tmp_path / "cut.json"
    cut.write_text(text[: int(share * len(text))])
    assert "not JSON" in refused(cut).message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"import torch\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a costgpu workload profile"),
        (b"3", "not a costgpu workload profile"),
        (b'{"format": "costgpu.verdict", "version": 1}', "not a costgpu workload profile"),
        (b'{"version": 1}', "not a costgpu workload profile"),
    ],
    ids=["empty", "binary", "a script", "too deep", "a list", "a number", "another format", "no format"],
)
def test_a_file_that_is_no_profile(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    assert words in refused(path).message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "Cannot read" in refused(tmp_path / "none.json").message
    assert "Cannot read" in refused(tmp_path).message


def test_a_save_that_fails_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProfileError, match="No space left on device") as caught:
        save_profile(replace(profile(), script="other.py"), saved)
    assert "--save" in caught.value.hint
    assert saved.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/profile.json", "file/profile.json", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="Cannot write"):
        save_profile(profile(), tmp_path / place)
    assert {p.name for p in tmp_path.iterdir()} == {"file", "folder"}, "nothing is left behind"
