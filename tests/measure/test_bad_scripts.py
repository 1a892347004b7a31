"""What can be wrong with a script: each its own error, with a hint."""

from dataclasses import replace
from pathlib import Path

import pytest

from costgpu import errors
from costgpu.measure import measure_script
from costgpu.measure.failures import explain
from tests.measure.harness import HERE, request, run

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

TRAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
CASES: list[tuple[str, type[errors.ScriptError], str]] = [
    ("for x in range(3)\n    pass\n", errors.NotPython, "expected ':'"),
    ("\0\0\0\n", errors.NotPython, "null bytes"),
    ("raise ValueError('no config')\n", errors.ScriptCrashed, "no config"),
    (TRAIN + "for n in range(9):\n    step()\n    assert n < 3, 'loss is NaN'\n", errors.ScriptCrashed, "loss is NaN"),
    ("import sys\nsys.exit('give me a config')\n", errors.ScriptCrashed, "exited with status 1"),
    ("import sys\nsys.exit('give me a config')\n", errors.ScriptCrashed, "    give me a config"),
    ("import sys\nsys.exit(10 ** 100 + 3)\n", errors.ScriptCrashed, "exited with status 3"),
    ("import sys\nsys.exit(-1)\n", errors.ScriptCrashed, "exited with status 255"),
    ("raise EOFError\n", errors.ScriptCrashed, "crashed with EOFError. Its last"),
    ("import getpass\ngetpass.getpass()\n", errors.WaitsForInput, "stdin"),
    (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n",
        errors.ScriptCrashed,
        "does not accept its arguments",
    ),
    ("import no_such_package.inner\n", errors.MissingImport, "no_such_package"),
    (TRAIN + "model.cuda()\n", errors.NeedsCuda, "CUDA"),
    ("import torch\nassert torch.cuda.is_available()\n", errors.NeedsCuda, "is_available"),
    (
        "import sys\nimport torch\nif not torch.cuda.is_available():\n    sys.exit('CUDA is required')\n",
        errors.NeedsCuda,
        "CUDA is required",
    ),
    ("name = input('run name: ')\n", errors.WaitsForInput, "stdin"),
    (TRAIN + "while True:\n    pass\n", errors.NoTrainingStep, "no step with it"),
    ("import time\nimport torch\ntime.sleep(100)\n", errors.NoTrainingStep, "did not reach a training step"),
    ("print(1)\n", errors.NothingToMeasure, "never imported torch"),
    ("import torch\ntorch.empty(10**15)\n", errors.OutOfMemory, "out of memory"),
    (TRAIN + "import os, signal\nstep()\nos.kill(os.getpid(), signal.SIGKILL)\n", errors.KilledBySignal, "SIGKILL"),
    (TRAIN + "import ctypes\nstep()\nctypes.string_at(0)\n", errors.KilledBySignal, "SIGSEGV"),
    (TRAIN + "import os\nstep()\nos._exit(0)\n", errors.ScriptCrashed, "ended itself"),
]


@pytest.mark.parametrize(("source", "kind", "words"), CASES, ids=[f"{k.__name__}-{w[:20]}" for _, k, w in CASES])
def test_each_failure_has_its_own_error_and_a_hint(
    source: str, kind: type[errors.ScriptError], words: str, tmp_path: Path
) -> None:
    limit = 30.0 if kind is errors.NoTrainingStep else 300.0  # only the first kind waits for it
    asked = request(source, limit=limit, workdir=tmp_path)
    error = explain(run(asked, tmp_path), asked, HERE)
    assert type(error) is kind, error
    assert words in error.message
    assert error.hint


def test_a_module_and_relative_imports(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(TRAIN)
    (package / "__main__.py").write_text("from .parts import step\nfor _ in range(100000):\n    step()\n")
    asked = replace(request("", workdir=tmp_path), script=None, module="package")
    assert explain(run(asked, tmp_path), asked, HERE) is None
    absent = replace(asked, module="no_such_module")
    assert isinstance(explain(run(absent, tmp_path), absent, HERE), errors.ScriptNotFound)


def test_code_that_forbids_saved_tensor_hooks_is_measured_without_them(tmp_path: Path) -> None:
    loop = "for _ in range(100000):\n    grad(lambda x: (x ** 2).sum())(torch.randn(3))\n    step()\n"
    asked = request(TRAIN + "from torch.func import grad\n" + loop, workdir=tmp_path)
    profile, _ = measure_script(asked, HERE, tmp_path, lambda seconds, stepping: None)
    assert profile.phases[-1].total.steps == 100000


def test_a_script_with_the_longest_name(tmp_path: Path) -> None:
    script = tmp_path / f"{'n' * 252}.py"
    script.write_text("raise ValueError('reached')\n")
    asked = replace(request("", workdir=tmp_path), script=script)
    error = explain(run(asked, tmp_path), asked, HERE)
    assert error is not None
    assert "reached" in error.message
