"""Which of the files that a measured script has made are left where they are."""

import tempfile
from pathlib import Path

import pytest

from costgpu.measure.scratch import left_behind


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("__autograph_generated_filec7v5l_j0.py", False),
        ("__autograph_generated_filec7v5l_j0.txt", True),
        ("tmpc7v5l_j0.csv", True),  # it may be what the user wants
        ("model.pt", True),
    ],
)
def test_only_what_tensorflow_would_have_removed_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, stays: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = tmp_path / name
    made.write_text("x")
    assert left_behind(made, tmp_path / "scratch") is stays
    assert made.exists() is stays


def test_the_same_name_elsewhere_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    made = tmp_path / "__autograph_generated_filec7v5l_j0.py"
    made.write_text("x")
    assert left_behind(made, tmp_path / "scratch")
    assert made.exists()
