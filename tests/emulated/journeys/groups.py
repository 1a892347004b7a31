"""What journeys of jobs on two machines share in any cloud."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from tests import examples
from tests.emulated.journeys.journey import Client, Person

TWO = ("--nodes", "2")
BARE = (*TWO, "--launcher", "none")
GOES_ON = ("--spot", "--recover", "2", "--checkpoint", "checkpoints/**", "--resume-args", "--resume {latest}")
TOGETHER = {
    "    torch.manual_seed(0)": """
    import os, time

    distributed = torch.distributed
    distributed.init_process_group("gloo")
    torch.manual_seed(0)""",
    "        optimizer.step()": """
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
            parameter.grad /= 2
        optimizer.step()""",
    "        if done % options.save_every == 0:": """
        if done % options.save_every == 0 and distributed.get_rank() == 0:""",
    '            print(f"step': """
            if done == 10 * int(os.environ["COSTGPU_ATTEMPT"]) < options.steps:
                quiet = time.time() - 6  # what is younger than 5 s is not taken
                os.utime("checkpoints/last.pt", (quiet, quiet))
                print(f"waits at step {done}", flush=True)
                while True:
                    time.sleep(0.1)
            print(f"step""",
}
"""How lines of the example begin, and what is put in their place."""


def source_with_gates() -> str:
    """Return the example as a job of two ranks that need each other, of which the first alone saves.

    It waits to be interrupted at step 10 of the first attempt, at step 20 of the second, and so on, but for the last step.
    """
    text = examples.source_for_gloo("train_resume.py")
    for before, after in TOGETHER.items():
        assert text.count(f"\n{before}") == 1, before
        text = text.replace(f"\n{before}", after)
    return text


def script(steps: int) -> str:
    """Return the command of a job of so many steps."""
    return f"train.py --steps {steps} --save-every 5"


def waits_at(client: Client, step: int) -> None:
    """Wait until the job has come to the step at which it waits."""
    client.until(lambda: f"waits at step {step}".encode() in client.out, 180, f"it waits at step {step}")


def machine(person: Person, number: int) -> str:
    """Return the id of a machine of the newest attempt."""
    return str(person.machine_of(person.run_ids()[number - 2])["id"])


def went_on(person: Person, *, attempts: int) -> None:
    """Check a job that was interrupted: what it has made, what its receipts say, and that nothing is left."""
    for path in person.work.glob("**/model.pt"):
        assert _has_weights_of_undisturbed(path, person.folder / "undisturbed", steps=10 * attempts)
    for run_id in person.run_ids()[-2:]:
        said = person.do("logs", run_id)
        assert f"going on from step {10 * (attempts - 1)}".encode() in said.out, str(said)
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    ends = [(each["attempt"]["number"], each["reason"]) for each in reversed(listed)]
    interrupted = [(number, "interrupted") for number in range(1, attempts) for _ in range(2)]
    assert ends == [*interrupted, *[(attempts, "succeeded")] * 2]
    person.ended(instances=2 * attempts)


def _has_weights_of_undisturbed(model: Path, alone: Path, steps: int) -> bool:
    """Return whether a model is that of an undisturbed run on one machine, which is made if it was not yet.

    To rounding: now and then torch rounds this example differently when it resumes, without any cloud, too (2 of 29
    processes, by 3e-7). A lost step, batch or optimizer state moves weights by a learning rate, 1e-3.
    """
    if not alone.exists():
        alone.mkdir()
        (alone / "train.py").write_text(examples.source("train_resume.py"))
        subprocess.run([sys.executable, *script(steps).split()], cwd=alone, check=True, capture_output=True)
    ours, other = torch.load(model), torch.load(alone / "model.pt")
    same = (torch.allclose(ours[name], other[name], rtol=0, atol=1e-5) for name in other)
    return ours.keys() == other.keys() and all(same)
