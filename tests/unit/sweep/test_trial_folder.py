"""The folder of a trial: what is copied, what is shared, and what is left of it."""

from pathlib import Path

import pytest

from costgpu.sweep.tuner import trial_folder
from costgpu.sweep.tuner.trial_folder import LOG, TrialFolder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder as it was sent: a script, data, a result of before, a link, and what belongs to costgpu."""
    work = tmp_path / "work"
    for path, text in {
        "train.py": "print()",
        "results.csv": "old",
        "pack/net.py": "net",
        "data/many/a.bin": "a" * 100,
        "model.bin": "m" * 100,
        ".costgpu/tuner.pyz": "",
        "costgpu-runs/x/trial-01/log.txt": "",
    }.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    (work / "link.py").symlink_to("pack/net.py")
    return work


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as large."""
    monkeypatch.setattr(trial_folder, "LARGE_BYTES", 50)


def made(work: Path) -> TrialFolder:
    folder = TrialFolder(str(work), str(work / "costgpu-runs" / "x" / "trial-02"))
    folder.make()
    return folder


def test_scripts_are_copied_and_large_folders_are_shared(work: Path) -> None:
    folder = made(work)
    there = Path(folder.path)
    names = ["data", "link.py", "model.bin", "pack", "results.csv", "train.py"]
    assert sorted(entry.name for entry in there.iterdir()) == names
    assert (there / "model.bin").is_symlink()
    assert (there / "data").is_symlink()
    assert (there / "data/many/a.bin").read_text() == "a" * 100
    assert (there / "link.py").read_text() == "net"
    (there / "results.csv").write_text("new")
    assert (work / "results.csv").read_text() == "old"


def test_only_what_is_new_or_changed_is_left(work: Path) -> None:
    folder = made(work)
    there = Path(folder.path)
    (there / "results.csv").write_text("changed")
    (there / "checkpoints").mkdir()
    (there / "checkpoints/model.pt").write_text("weights")
    (there / "pack/__pycache__").mkdir()
    (there / "train.py").unlink()
    (there / LOG).write_text("said")
    assert folder.keep_outputs([]) == ["checkpoints/model.pt", LOG, "results.csv"]
    assert (work / "data/many/a.bin").exists(), "what is shared stays"
    assert (work / "model.bin").exists()
    assert not (there / "data").exists()
    assert (work / "train.py").exists()


def test_patterns_choose_what_is_kept(work: Path) -> None:
    folder = made(work)
    there = Path(folder.path)
    for path in ("out/a.pt", "out/b.log", "best.pt", LOG):
        (there / path).parent.mkdir(exist_ok=True)
        (there / path).write_text("x")
    assert folder.keep_outputs(["out/*.pt", "best.pt"]) == ["best.pt", LOG, "out/a.pt"]


def test_a_second_attempt_begins_afresh(work: Path) -> None:
    folder = made(work)
    Path(folder.path, "half.pt").write_text("x")
    again = made(work)
    assert "half.pt" not in {path.name for path in Path(again.path).iterdir()}
