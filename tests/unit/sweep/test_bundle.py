"""What travels with a sweep: the tuner as one file, and what it is to do."""

import json
from pathlib import Path

import pytest

from costgpu.errors import SyncRefused
from costgpu.job.files.selection import FileSelection
from costgpu.job.files.tar import tar_stream
from costgpu.models.job import FileEntry
from costgpu.portable.bundle import bundle
from costgpu.sweep.asha import Asha
from costgpu.sweep.bundle import (
    PROGRAM,
    SPEC,
    Sweep,
    sweep_of,
    tuner_argv,
    tuner_spec,
)
from costgpu.sweep.metric import parse_metric
from costgpu.sweep.space import parse_space
from costgpu.sweep.tuner.main import per_trial
from costgpu.workflows.sweep.bundle import read_spec, with_bundle, write_bundle

SWEEP = Sweep(
    space=parse_space(["lr=1e-4,3e-4", "seed=1,2"], [], None, 0),
    metric=parse_metric("loss=([0-9.]+)", "max"),
    asha=Asha(),
    concurrent=4,
)


def test_the_spec_has_the_space() -> None:
    spec = tuner_spec(SWEEP, "x-1", ["train.py", "--fast"], python="", grace_seconds=30.0)
    assert spec["space"] == {"lr": ["grid_search", ["1e-4", "3e-4"]], "seed": ["grid_search", ["1", "2"]]}
    assert (spec["concurrent"], spec["trials"], spec["grace"], spec["folder"]) == (4, 4, 10.0, "costgpu-runs/x-1")
    assert json.loads(json.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("concurrent", "gpus", "nodes", "expected"),
    [
        (1, 0.0, [{"CPU": 8.0}], {"cpu": 8.0}),
        (3, 0.0, [{"CPU": 2.0}], {"cpu": 0.6666}),
        (3, 0.0, [{"CPU": 2.0}, {"CPU": 4.0}], {"cpu": 1.0}),
        (4, 0.5, [{"CPU": 16.0, "GPU": 2.0}], {"cpu": 4.0, "gpu": 0.5}),
        (2, 1.0, [{"CPU": 16.0}], {"cpu": 8.0}),
    ],
)
def test_a_trial_gets_its_share_of_a_machine(
    concurrent: int, gpus: float, nodes: list[dict[str, float]], expected: dict[str, float]
) -> None:
    shares = per_trial({"concurrent": concurrent, "gpus": gpus}, nodes)
    assert shares == expected
    slots = -(-concurrent // len(nodes))
    assert shares["cpu"] * slots <= min(node["CPU"] for node in nodes)


def test_a_run_of_the_tuner_sends_it_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "train.py").write_text("print()")
    selection = FileSelection(root=tmp_path, files=(FileEntry(path="train.py", size=7, sha256="0" * 64),))
    assert with_bundle(selection, ["train.py"]) is selection
    argv = tuner_argv("x-1")
    with pytest.raises(SyncRefused, match=r"tuner\.pyz cannot be read"):
        with_bundle(selection, argv)
    assert read_spec(argv) is None
    write_bundle("x-1", {"folder": "f"})
    sent = with_bundle(selection, argv)
    assert [entry.path for entry in sent.files] == [SPEC, PROGRAM, "train.py"]
    archive = b"".join(tar_stream(sent.root, sent.files, sent.added))
    assert bundle("sweep.tuner", "main") in archive
    assert read_spec(argv) == {"folder": "f"}
    assert sweep_of(argv) == "x-1"
    assert sweep_of(("train.py", "a", "b")) is None
