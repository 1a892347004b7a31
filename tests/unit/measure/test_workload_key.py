"""What is the same work, and what is not."""

from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.workload_key import WHOLE_BYTES, workload_key

TRAIN = """\
import numpy, torch
from models.net import Net
from . import nothing
import helpers as h
settings = "config.yaml"
with open("metrics.json", "w") as out:
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in {
        "train.py": TRAIN,
        "helpers.py": "import deeper.still\n",
        "deeper/still.py": "x = 1\n",
        "models/__init__.py": "",
        "models/net.py": "from .parts import layer\n",
        "models/parts.py": "layer = 1\n",
        "unused.py": "y = 1\n",
        "config.yaml": "lr: 1\n",
        "other.yaml": "lr: 1\n",
        "data.csv": "1,2\n",
        "pkg/__main__.py": "import helpers\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def key(project: Path, *arguments: str, **more: Any) -> str:
    facts: dict[str, Any] = {"script": project / "train.py", "module": None, "workdir": project, **more}
    return workload_key(arguments=arguments, **facts)


def test_it_is_stable_and_knows_no_places(project: Path, tmp_path: Path) -> None:
    first = key(project, "--lr", "1")
    assert len(first) == 32
    assert first == key(project, "--lr", "1")
    project.rename(tmp_path / "elsewhere")
    assert key(tmp_path / "elsewhere", "--lr", "1") == first


READ = "train.py helpers.py deeper/still.py models/__init__.py models/net.py models/parts.py config.yaml"
NOT_READ = "unused.py other.yaml data.csv metrics.json notes.txt"  # metrics.json is what it writes


@pytest.mark.parametrize("name", [*READ.split(), *NOT_READ.split()])
def test_a_changed_part_is_other_work_and_what_it_does_not_read_does_not_count(project: Path, name: str) -> None:
    before = key(project)
    with (project / name).open("a") as file:
        file.write("# changed\n")
    assert (key(project) != before) is (name in READ.split())


def test_arguments_processes_and_variables_count(project: Path) -> None:
    keys = [
        key(project),
        key(project, "--epochs", "1"),
        key(project, "--epochs", "2"),
        key(project, "--epochs 1"),
        key(project, processes=2),
        key(project, variables=["SEED"]),
        key(project, "SEED"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(project, variables=["WANDB_API_KEY", "HF_TOKEN"]) == key(project)
    assert key(project, variables=["B", "A"]) == key(project, variables=["A", "B"])


@pytest.mark.parametrize("word", ["other.yaml", "--config=other.yaml", "@other.yaml"])
def test_a_file_that_an_argument_names_counts(project: Path, word: str) -> None:
    before = key(project, word)
    (project / "other.yaml").write_text("lr: 2\n")
    assert key(project, word) != before


def test_large_files_count_by_their_size(project: Path) -> None:
    data = project / "data.csv"
    data.write_bytes(b"a" * (WHOLE_BYTES + 1))
    before = key(project, "data.csv")
    data.write_bytes(b"b" * (WHOLE_BYTES + 1))
    assert key(project, "data.csv") == before
    data.write_bytes(b"b" * (WHOLE_BYTES + 2))
    assert key(project, "data.csv") != before


def test_who_imports_by_name_may_mean_any_module(project: Path) -> None:
    (project / "helpers.py").write_text("import importlib\n")
    before = key(project)
    (project / "unused.py").write_text("y = 2\n")
    assert key(project) != before


def test_a_module(project: Path) -> None:
    first = key(project, script=None, module="pkg")
    assert first not in ("", key(project, script=None, module="installed.elsewhere"))
    (project / "deeper" / "still.py").write_text("x = 2\n")
    assert key(project, script=None, module="pkg") != first


def test_configurations_in_a_folder(project: Path) -> None:
    (project / "train.py").write_text("@hydra.main(config_path='conf')\ndef main(): ...\n")
    (project / "conf" / "model").mkdir(parents=True)
    (project / "conf" / "model" / "small.yaml").write_text("width: 1\n")
    before = key(project)
    (project / "conf" / "model" / "small.yaml").write_text("width: 2\n")
    assert key(project) != before


@pytest.mark.parametrize(
    "text", [b"def broken(:\n", b"\xff\xfe\x00", b"x = '" + b"a" * 600 + b"'\n", b"('\\0.yaml', '')\n"]
)
def test_whatever_the_script_holds(project: Path, text: bytes) -> None:
    (project / "train.py").write_bytes(text)
    assert len(key(project, "\udc80", "a\0b")) == 32


def test_what_cannot_be_read_has_no_key(project: Path) -> None:
    assert key(project, script=project / "gone.py") == ""


def test_circles_end(project: Path) -> None:
    (project / "helpers.py").write_text("import train\nimport helpers\n")
    (project / "loop").symlink_to(project)
    (project / "train.py").write_text("import helpers\nimport importlib\n")
    assert len(key(project)) == 32
