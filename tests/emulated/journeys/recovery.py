"""Spot machines that are taken back in any cloud: each function is the journey of a person in it."""

from __future__ import annotations

import subprocess
import sys

import torch

from tests import examples
from tests.emulated.journeys.journey import Client, Person

GOES_ON = ("--recover", "5", "--checkpoint", "checkpoints/**", "--resume-args", "--resume {latest}")
STEPS = "train.py --steps 40 --save-every 5"
_SAVED = '            print(f"step'
_GATE = """
            import os, time

            if done == {"1": 10, "2": 20, "3": 30}.get(os.environ["COSTGPU_ATTEMPT"]):
                time.sleep(6)  # what is younger than 5 s is not taken
                print(f"waits at step {done}", flush=True)
                while True:
                    time.sleep(0.1)
"""


def source_with_gates() -> str:
    """The example, which waits to be interrupted at step 10 of the first attempt, at step 20 of the second, and so on."""
    text = examples.source("train_resume.py")
    line = next(each for each in text.splitlines() if each.startswith(_SAVED))
    return text.replace(line, line + _GATE)


def waits_at(client: Client, step: int) -> None:
    """Until the job has come to the step at which it waits."""
    client.until(lambda: f"waits at step {step}".encode() in client.out, 180, f"it waits at step {step}")


def same_weights(person: Person) -> bool:
    """Whether the person's model is that of an undisturbed run.

    To rounding: now and then torch rounds this example differently when it resumes, without any cloud, too (2 of 29
    processes, by 3e-7). A lost step, batch or optimizer state moves weights by a learning rate, 1e-3.
    """
    alone = person.folder / "undisturbed"
    alone.mkdir()
    (alone / "train.py").write_text(examples.source("train_resume.py"))
    subprocess.run([sys.executable, *STEPS.split()], cwd=alone, check=True, capture_output=True)
    ours, other = (torch.load(folder / "model.pt") for folder in (person.work, alone))
    same = (torch.allclose(ours[name], other[name], rtol=0, atol=1e-5) for name in other)
    return ours.keys() == other.keys() and all(same)
