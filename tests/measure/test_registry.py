"""A framework that costgpu has never heard of, added by one file and its entry in the registry."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import costgpu

HOOKS = """
from ..patching import observe
from ..record import Saves, TrainerLength, Validation
from .registry import GADGET


def length_of(trainer):
    told = TrainerLength(trainer="Gadget Trainer", total=trainer.steps, per_epoch=50, may_stop=[], how="as it says")
    told["validation"] = Validation(batches=30, batch_size=4, rhythm="epoch", every=1.0)
    told["saves"] = Saves(rhythm="steps", every=100.0)
    return told


def hooks(recorder):
    def attach(module):
        progress = recorder.progress

        def step(model):
            begun = progress.keyed.get("gadget")
            progress.step(begun or progress.open(GADGET, "stage", model.stages, key="gadget", around=[], may_stop=False))

        observe(module.Model, "update", step)
        recorder.saving.time(module.Trainer, "save")

    return {"gadget": attach}
"""
ENTRY = """
GADGET = FrameworkSpec(
    name="gadget",
    label="Gadget",
    hooks="gadget_hooks",
    trainers={"Trainer": "length_of"},
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


class Trainer:
    def __init__(self, steps):
        self.steps = steps

    def fit(self, model, optimizer, batch):
        for step in range(self.steps):
            model(batch).sum().backward()
            optimizer.step()
            if step == 10:
                self.save()

    def save(self):
        time.sleep(0.02)
"""
SERIES = """
import gadget

model = gadget.Model(40)
while model.stages:
    model.update()
"""


TRAINING = """
import gadget
import torch

model = torch.nn.Linear(8, 8)
gadget.Trainer(700).fit(model, torch.optim.SGD(model.parameters(), 0.1), torch.ones(4, 8))
"""


def measured(script: str, folder: Path) -> Any:
    """The profile of a script that a costgpu with this framework measures."""
    package = shutil.copytree(Path(costgpu.__file__).parent, folder / "lib" / "costgpu")
    room = package / "measure" / "probe" / "frameworks"
    (room / "gadget_hooks.py").write_text(HOOKS)
    registry = room / "registry.py"
    registry.write_text(registry.read_text().replace("\nFRAMEWORKS = (", ENTRY))
    (folder / "train.py").write_text(script)
    (folder / "gadget.py").write_text(GADGET)
    command = [sys.executable, "-m", "costgpu", "estimate", "--python", sys.executable]
    command += ["--steps", "20", "--save", "profile.json", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "lib"), "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "profile.json").read_text())


@pytest.mark.slow
def test_one_file_and_one_entry(tmp_path: Path) -> None:
    profile = measured(SERIES, tmp_path)
    (phase,) = profile["phases"]
    assert (profile["framework"]["name"], profile["framework"]["version"]) == ("Gadget", "7.1")
    assert (phase["total"]["steps"], phase["kind"], phase["gpu_reason"]) == (
        40,
        "gradient-boosted-trees",
        "on a GPU it takes a crank",
    )
    assert phase["step"]["median_seconds"] == pytest.approx(0.01, rel=1.0)


@pytest.mark.slow
@pytest.mark.torch
def test_what_a_trainer_says_of_itself(tmp_path: Path) -> None:
    (phase,) = measured(TRAINING, tmp_path)["phases"]
    told = phase["total"]
    assert (told["kind"], told["steps"], told["steps_per_epoch"]) == ("exact", 700, 50)
    assert told["how"] == "Gadget Trainer: as it says"
    extras = {extra["kind"]: (extra["rhythm"], extra["every"]) for extra in phase["extras"]}
    assert extras == {"validation": ("epoch", 1), "checkpoint": ("steps", 100)}
