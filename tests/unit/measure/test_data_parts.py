"""What of a script's source says that a batch, or the data, is divided by the number of ranks."""

import types
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.probe.ranks import data_parts

probe: Any = data_parts  # for Python 3.8, without types


def read(source: str, folder: Path, **values: Any) -> Any:
    """What is found in a function with these lines, none of which is run, for these values of its variables."""
    path = folder / "train.py"
    names = ", ".join(["look", *values])
    lines = [f"def train({names}):", "    look()", "    return", *(f"    {line}" for line in source.splitlines())]
    path.write_text("\n".join(lines))
    recorder = types.SimpleNamespace(
        loop_stack=types.SimpleNamespace(is_library=lambda file: file != str(path)), schemes=None
    )
    parts = probe.DataParts(recorder)
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    space["train"](parts.look, **values)
    return parts


@pytest.mark.parametrize(
    "line",
    [
        "batch_size = 64 // world_size",
        "batch_size //= world",
        "args.batch_size = int(args.batch_size / args.ngpus_per_node)",
        "gradient_accumulation_steps //= ddp_world_size",
        "grad_accum_steps = total_batch_size // (B * T * ddp_world_size)",
        "loader = Loader(data, batch_size=cfg.global_batch // dist.get_world_size())",
        "micro = cfg.bs // int(os.environ['WORLD_SIZE'])",
    ],
)
def test_a_batch_that_is_divided(line: str, tmp_path: Path) -> None:
    parts = read(f"if flag:\n    {line}", tmp_path, flag=True)
    assert parts.batch_divided.startswith("train.py:5 ("), parts.batch_divided


@pytest.mark.parametrize(
    "line",
    [
        "steps = len(data) // (batch_size * world_size)",
        "loss = loss / world_size",
        "param.grad.data /= world_size",
        "accuracy = correct / (batch_size * world_size)",
        "batch_time = batch_time / world_size",
        "global_batch = batch_size * world_size",
        "lr = base * batch_size * world_size / 256",
        "half = batch_size // 2",
    ],
)
def test_other_divisions(line: str, tmp_path: Path) -> None:
    parts = read(f"if flag:\n    {line}", tmp_path, flag=True)
    assert (parts.batch_divided, parts.data_divided) == ("", "")


@pytest.mark.parametrize(
    "line",
    ["data = data[rank::world_size]", "data = data.shard(world_size, rank)", "share = samples // world_size"],
)
def test_data_of_which_a_rank_takes_its_part(line: str, tmp_path: Path) -> None:
    parts = read(f"if flag:\n    {line}", tmp_path, flag=True)
    assert parts.data_divided.startswith("train.py:5")
    assert not parts.batch_divided


@pytest.mark.parametrize(("strong", "found"), [(True, True), (False, False)])
def test_branches_that_are_not_taken_do_not_count(strong: bool, found: bool, tmp_path: Path) -> None:
    source = "if strong:\n    batch = 64 // world\nelse:\n    batch = 64"
    assert bool(read(source, tmp_path, strong=strong, world=4).batch_divided) is found
