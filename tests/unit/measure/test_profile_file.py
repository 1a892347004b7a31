"""Workload profiles on disk."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from costgpu.errors import ProfileError
from costgpu.measure.profile_file import FORMAT, VERSION, load_profile, save_profile, to_document
from costgpu.models.workload import (
    DataLoading,
    Extra,
    ExtraKind,
    MeasuredMemory,
    MemoryKind,
    MemoryPeak,
    Phase,
    Rhythm,
    StepTimes,
    Total,
    TotalKind,
    Unit,
    WorkloadProfile,
)
from tests.properties import examples
from tests.unit.measure.records import MACHINE, build, loop, phase, record, result, shot


def profile() -> WorkloadProfile:
    extra = Extra(kind=ExtraKind.VALIDATION, seconds_each=0.5, rhythm=Rhythm.EPOCH, every=2.0, note="seen once")
    shots = [shot(n, loop(12, 50, index=n - 1)) for n in (1, 2, 3)]
    built = build(result(phase(*shots, seconds=[0.1] * 10, ops=[record("op")])))
    return replace(built, phases=[replace(built.phases[0], extras=[extra])], notes=["a note — with ünicode"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    save_profile(profile(), path)
    return path


def test_what_is_saved_reads_back(saved: Path) -> None:
    assert load_profile(saved) == profile()
    assert list(saved.parent.iterdir()) == [saved], "nothing is left beside it"


def test_a_profile_of_the_first_release_still_reads(saved: Path) -> None:
    """It named a phase's unit, and kept apart what inference makes."""
    document = json.loads(saved.read_text())
    training, made = document["phases"][0], {"items_per_step": 8.0, "item": "image", "independent": True}
    scoring = {**training, "unit": "batch", "inference": made}
    saved.write_text(json.dumps({**document, "version": 1, "phases": [{**training, "unit": "round"}, scoring]}))
    first, second = load_profile(saved).phases
    assert first.unit == Unit(name="round")
    assert second.unit == Unit(name="batch", trains=False, items=8.0, item="image", independent=True)
    for damaged in (
        [1],
        "no list",
        *([{**training, "unit": "step", "inference": made}] for made in ("abc", [1], 0, 7)),
    ):
        saved.write_text(json.dumps({**document, "version": 1, "phases": damaged}))
        with pytest.raises(ProfileError, match="damaged"):
            load_profile(saved)


def test_measured_memory_reads_back(tmp_path: Path) -> None:
    kinds = {kind.value: 3 * 2**30 for kind in MemoryKind}
    measured = MeasuredMemory(
        peaks=[
            MemoryPeak(phase="forward", bytes=7, kinds={}),
            MemoryPeak(phase="backward", bytes=21 * 2**30, kinds=kinds),
        ],
        reserved_bytes=23 * 2**30,
        steady_bytes=9 * 2**30,
    )
    written = replace(profile(), memory=measured, without_weights=True, weights_bytes=16 * 10**9)
    save_profile(written, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == written
    assert measured.peak_bytes == 21 * 2**30
    assert replace(measured, peaks=[]).peak_bytes == 0


def test_a_profile_from_before_memory_was_measured_still_reads(saved: Path) -> None:
    document = json.loads(saved.read_text())
    for key in ("memory", "without_weights", "weights_bytes"):
        del document[key]
    saved.write_text(json.dumps(document))
    assert load_profile(saved) == profile()


LEAST, MOST = 1e-30, 1e18
reals = st.just(0.0) | st.floats(LEAST, MOST)
counts = st.integers(0, 2**62)


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        machine=replace(MACHINE, gemm_gflops=one or LEAST, copy_gbps=two or MOST, op_seconds=three, cores=count + 1),
    )
    path = tmp_path / "profile.json"
    save_profile(built, path)
    assert load_profile(path) == built


DROPPED = object()


def edited(path: Path, *keys: str | int, value: Any) -> None:
    """Changes one value of a stored document."""
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    if value is DROPPED:
        del place[keys[-1]]
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


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("phases", 0, "frozen_bytes"), 0),
        (("phases", 0, "step", "by_median"), False),
        (("machine", "conv_gflops"), 0),
        (("machine", "disturbed_share"), 0),
        (("footprint",), None),
    ],
)
def test_a_key_that_has_a_default_may_be_missing(saved: Path, keys: tuple[Any, ...], value: Any) -> None:
    edited(saved, *keys, value=DROPPED)
    found: Any = load_profile(saved)
    for key in keys:
        found = found[key] if isinstance(key, int) else getattr(found, key)
    assert found == value


def test_the_steps_of_a_profile_without_by_median_count_by_their_mean(saved: Path) -> None:
    edited(saved, "phases", 0, "step", "by_median", value=DROPPED)
    step = load_profile(saved).phases[0].step
    assert step.seconds == step.mean_seconds


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("machine",), DROPPED, "damaged at machine:"),
        (("machine", "cores"), DROPPED, "damaged at machine.cores:"),
        (("phases", 0, "step"), DROPPED, "damaged at phases.0.step:"),
        (("phases", 0, "total", "kind"), DROPPED, "damaged at phases.0.total.kind:"),
        (("setup_seconds",), DROPPED, "damaged at setup_seconds:"),
        (("setup_seconds",), "soon", "damaged at setup_seconds:"),
        (("machine", "cores"), 2.5, "damaged at machine.cores:"),
        (("machine", "cores"), 0, "damaged at machine.cores:"),
        (("machine", "gemm_gflops"), 0.0, "damaged at machine.gemm_gflops:"),
        (("machine", "copy_gbps"), -1.0, "damaged at machine.copy_gbps:"),
        (("phases",), {}, "damaged at phases:"),
        (("phases", 0, "total", "kind"), "endless", "damaged at phases.0.total.kind:"),
        (("phases", 0, "extras", 0, "rhythm"), 3, "damaged at phases.0.extras.0.rhythm:"),
        (("phases", 0, "ops", 0, "inputs", 0), [[1], [1]], "damaged at phases.0.ops.0.inputs.0"),
        (("phases", 0, "step", "mean_seconds"), math.nan, "not JSON"),
        (("phases", 0, "step", "mean_seconds"), math.inf, "not JSON"),
        (("phases",), [], "no measured training phase"),
        (("phases", 0, "steps_observed"), 0, "no measured training phase"),
    ],
)
def test_a_damaged_value(saved: Path, keys: tuple[str | int, ...], value: Any, words: str) -> None:
    edited(saved, *keys, value=value)
    error = refused(saved)
    assert words in error.message
    assert "--save" in error.hint


@pytest.mark.parametrize("version", [VERSION + 1, 0, -1, None, "1", 1.5])
def test_another_version(saved: Path, version: Any) -> None:
    edited(saved, "version", value=version)
    error = refused(saved)
    assert repr(version) in error.message
    assert "Upgrade" in error.hint


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
