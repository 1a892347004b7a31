"""Fine-tunes of language models against what their authors measured: GPU memory, and seconds of an optimizer step.

    python -m benchmarks.finetune FOLDER --python INTERPRETER [--only TEXT]

Each row of finetune_rows.csv is measured without weights, as `costgpu estimate --weights none` measures any script, by
finetune_script.py in the given Python; its profile is kept in FOLDER and not made again. Rows with GPTQ weights and with
several GPUs are not told: the one has no stand-in, the other is in accuracy_multi.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.rows import find_spec
from costgpu.estimator.gpu import execution_of
from costgpu.estimator.gpu_interval import gpu_interval
from costgpu.estimator.unit_work import unit_of, unit_terms
from costgpu.measure.profile_file import load_profile
from costgpu.models.workload import WorkloadProfile

HERE = Path(__file__).parent
ROWS, SCRIPT = HERE / "finetune_rows.csv", HERE / "finetune_script.py"
NOT_TOLD = {"GPTQ": "weights without a stand-in", "FSDP": "several GPUs"}
CONTEXT_GIB = 1.0  # of CUDA and its libraries, which a device shows and PyTorch does not count


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a row, and what was published."""

    row: Mapping[str, str]
    seconds: float  # of one optimizer step
    low: float  # ends of the 80 % interval around it
    high: float
    memory_gib: float | None  # of the kind that was published; None if it was not measured

    @property
    def seconds_error(self) -> float | None:
        """Return the relative error of the step; None if none was published, or of a compiled one."""
        published = self.row["step_seconds"]
        return self.seconds / float(published) - 1 if published and not is_compiled(self.row) else None

    @property
    def memory_error(self) -> float | None:
        """Return the relative error of the memory; None if it was not measured, or of a compiled step."""
        if self.memory_gib is None or is_compiled(self.row):
            return None
        return self.memory_gib / float(self.row["memory_gib"]) - 1


def is_compiled(row: Mapping[str, str]) -> bool:
    """Return whether the row is of a compiled step, which is told as an eager one."""
    return "compiled" in row["software"] + row["note"]


def rows(path: Path = ROWS) -> list[dict[str, str]]:
    """Return the published rows."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def measured(row: Mapping[str, str], folder: Path, python: str) -> WorkloadProfile | None:
    """Return the profile of the row's script, measured without weights; None if that failed."""
    path = folder / f"{row['id']}.json"
    if not path.exists():
        options = ["--weights", "none", "--python", python, "--save", str(path)]
        command = [sys.executable, "-m", "costgpu", "estimate", *options, str(SCRIPT), row["id"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{row['id']}: exit {done.returncode}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
    return load_profile(path)


def told(row: Mapping[str, str], profile: WorkloadProfile) -> Told:
    """Return what costgpu tells of a measured row on the row's GPU."""
    spec, execution = find_spec(row["gpu"]), execution_of(profile.framework)
    terms = unit_terms(unit_of(profile.phases[0]), spec, execution)
    found = re.search(r"20\d\d", row["software"])
    interval, _ = gpu_interval(terms, spec, execution, trains=True, year=int(found.group()) if found else 2023)
    memory = asdict(profile).get("memory")
    kind, gib = row["memory_kind"], None
    if memory:
        reserved, peak = memory["reserved_bytes"], max(one["bytes"] for one in memory["peaks"])
        on_device = "device" in kind or "nvidia-smi" in kind
        gib = (reserved if on_device or "reserved" in kind else peak) / 2**30 + on_device * CONTEXT_GIB
    return Told(row, terms.seconds, interval.low, interval.high, gib)


def summary(name: str, errors: Sequence[float]) -> str:
    """Return one line on the errors."""
    if not errors:
        return f"{name}: none"
    sizes = sorted(abs(error) for error in errors)
    p90 = sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)]
    bias = sorted(errors)[len(errors) // 2]
    return f"{name}: {len(errors)} rows, median {sizes[len(sizes) // 2]:.1%}, p90 {p90:.1%}, bias {bias:+.1%}"


def line(one: Told) -> str:
    """Return a row of the table."""

    def cell(value: float | None, published: str, error: float | None) -> str:
        told = f"{value:9.3f}" if value is not None else f"{'-':>9}"
        return f"{told}{published or '-':>9}" + (f"{error:+8.0%}" if error is not None else f"{'':8}")

    return (
        f"{one.row['id']:44}{one.row['gpu']:16}"
        + cell(one.memory_gib, one.row["memory_gib"], one.memory_error)
        + cell(one.seconds, one.row["step_seconds"], one.seconds_error)
        + (" compiled" if is_compiled(one.row) else "")
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the profiles")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the rows' libraries")
    parser.add_argument("--only", default="", help="only rows whose name has this text in it")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(f"{'':44}{'':16}{'GiB told':>9}{'real':>9}{'':8}{'s told':>9}{'real':>9}")
    found = []
    for row in rows():
        if arguments.only not in row["id"]:
            continue
        reason = next((why for word, why in NOT_TOLD.items() if word in row["method"]), "")
        profile = None if reason else measured(row, arguments.folder, arguments.python)
        if profile is None:
            print(f"{row['id']:44}{row['gpu']:16} not told: {reason or 'it was not measured'}")
            continue
        found.append(told(row, profile))
        print(line(found[-1]))
    timed = [one for one in found if one.seconds_error is not None]
    print(summary("memory", [one.memory_error for one in found if one.memory_error is not None]))
    print(summary("step seconds", [one.seconds_error for one in timed if one.seconds_error is not None]))
    held = sum(one.low <= float(one.row["step_seconds"]) / one.seconds <= one.high for one in timed)
    print(f"80 % intervals hold {held} of {len(timed)}")


if __name__ == "__main__":
    main()
