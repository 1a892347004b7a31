"""Whether a script's own sources say that it has yet to train, and who drives a progress bar."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from costgpu.measure.probe.frameworks.registry import FRAMEWORKS
from costgpu.measure.probe.loops import prospects, script_frames

probe: Any = prospects  # for Python 3.8, without types
frames: Any = script_frames

TRAINS = "import torch\nfrom torch import nn\nmodel = nn.Linear(1, 1)\nmodel(x).backward()"


def awaits(monkeypatch: pytest.MonkeyPatch, folder: Path, *loaded: str, **files: str) -> bool:
    """What the sources of a script (``main``) and of its local modules say, with these frameworks imported."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    main = ModuleType("__main__")
    main.__file__ = str(folder / "main.py")
    modules = {"__main__": main, **{name: ModuleType(name) for name in loaded}}
    monkeypatch.setattr(probe, "sys", type("Sys", (), {"modules": modules}))
    return bool(probe.Prospects(FRAMEWORKS).await_training())


@pytest.mark.parametrize(
    ("source", "loaded", "expected"),
    [
        (TRAINS, ["torch"], True),
        (f"def train():\n    {TRAINS.replace(chr(10), chr(10) + '    ')}", [], True),  # not imported yet
        ("import torch\nx = torch.arange(9).numpy()\nfor i in x: print(i)", ["torch"], False),
        ("import numpy as np\nfor i in range(9): np.dot(i, i)", [], False),
        ("import nltk\nfor i in range(9): nltk.word_tokenize(i)", ["sklearn"], False),
        ("import whisper\nmodel = whisper.load_model('tiny')\nmodel.transcribe(f)", ["torch"], True),
        ("from sklearn.datasets import load_iris\nclass Net:\n    def fit(self): ...\nNet().fit()", ["sklearn"], False),
        ("from sklearn.svm import SVC\nSVC().fit(x, y)", ["sklearn"], True),
        ("import sklearn\nsklearn.svm.SVC().fit(x, y)", ["sklearn"], True),
        ("from sklearn import metrics\nmetrics.accuracy_score(a, b)", ["sklearn"], False),
        ("from sklearn.model_selection import cross_val_score\ncross_val_score(a, b, c)", ["sklearn"], True),
        ("import xgboost as xgb\nxgb.train({}, data)", ["xgboost"], True),
    ],
)
def test_what_a_script_says_of_itself(
    source: str, loaded: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert awaits(monkeypatch, tmp_path, *loaded, main=source) is expected


def test_local_modules_are_read_before_they_are_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = "def go():\n    import later\n    later.run()"
    assert awaits(monkeypatch, tmp_path, main=main, later=TRAINS)
    assert not awaits(monkeypatch, tmp_path / "other", main=main, later="import numpy")


class LoadedWhenUsed(ModuleType):
    """A module whose attributes are looked up by loading something that is not installed."""

    def __getattribute__(self, name: str) -> Any:
        raise ImportError(name)


def test_modules_that_are_loaded_when_used_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "main.py")
    (tmp_path / "main.py").write_text(TRAINS)
    modules = {"__main__": main, "lazy": LoadedWhenUsed("lazy"), "none": None, "odd": object()}
    monkeypatch.setattr(probe, "sys", type("Sys", (), {"modules": modules}))
    assert probe.Prospects(FRAMEWORKS).imported == {"torch"}


def test_the_driver_of_a_call(tmp_path: Path) -> None:
    """The user's frame through what only carries it; the library where it is the library's own call, or a transfer."""
    standard = Path(sys.modules["os"].__file__ or "").parent

    def inside(path: Path) -> Any:
        space: Any = {}
        exec(compile("def call(function, *rest):\n    return function(*rest)\n", str(path), "exec"), space)
        return space["call"]

    own, tqdm = inside(tmp_path / "train.py"), inside(tmp_path / "site-packages/tqdm/std.py")
    compiler = inside(tmp_path / "site-packages/torch/_inductor/x.py")
    urllib, pool = inside(standard / "urllib/request.py"), inside(standard / "concurrent/futures/x.py")

    def driven(*by: Any) -> tuple[str, str]:
        frame, library = by[0](*by[1:], seen)
        return (Path(frame.f_code.co_filename).name if frame is not None else "", library)

    def seen() -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frames.driver(frame)

    assert driven(own, pool, tqdm) == ("train.py", "")
    assert driven(own, compiler, tqdm) == ("", "torch")
    assert driven(compiler, own, tqdm) == ("train.py", "")
    assert driven(own, urllib, own, tqdm) == ("", "urllib")
