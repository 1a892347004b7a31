"""A framework that costgpu has never heard of, added by one file and its entry in the registry."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import costgpu

HOOKS = """
from ..patching import observe
from .registry import GADGET


def hooks(recorder):
    def attach(module):
        progress = recorder.progress

        def step(model):
            begun = progress.keyed.get("gadget")
            progress.step(begun or progress.open(GADGET, "stage", model.stages, key="gadget", around=[], may_stop=False))

        observe(module.Model, "update", step)

    return {"gadget": attach}
"""
ENTRY = """
GADGET = FrameworkSpec(
    name="gadget",
    label="Gadget",
    hooks="gadget_hooks",
    computes=True,
    rank=3,
    family=BOOSTED_TREES,
    gpu_option="a crank",
)
FRAMEWORKS = (
    GADGET,"""
GADGET = """
import time

__version__ = "7.1"


class Model:
    def __init__(self, stages):
        self.stages = stages

    def update(self):
        time.sleep(0.01)
"""
SCRIPT = """
import gadget

model = gadget.Model(40)
while model.stages:
    model.update()
"""


@pytest.mark.slow
def test_one_file_and_one_entry(tmp_path: Path) -> None:
    package = shutil.copytree(Path(costgpu.__file__).parent, tmp_path / "lib" / "costgpu")
    room = package / "measure" / "probe" / "frameworks"
    (room / "gadget_hooks.py").write_text(HOOKS)
    registry = room / "registry.py"
    registry.write_text(registry.read_text().replace("\nFRAMEWORKS = (", ENTRY))
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "gadget.py").write_text(GADGET)
    command = [sys.executable, "-m", "costgpu", "estimate", "--steps", "20", "--save", "profile.json", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "profile.json").read_text())
    (phase,) = profile["phases"]
    assert (profile["framework"]["name"], profile["framework"]["version"]) == ("Gadget", "7.1")
    assert (phase["total"]["steps"], phase["kind"], phase["gpu_reason"]) == (
        40,
        "gradient-boosted-trees",
        "on a GPU it takes a crank",
    )
    assert phase["step"]["median_seconds"] == pytest.approx(0.01, rel=1.0)
