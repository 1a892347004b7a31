"""Command lines of launchers, read as the launchers themselves read them."""

import shlex
from typing import Any

import pytest

from costgpu.errors import UsageError
from costgpu.measure.launcher import Launch, find_launch, local_rank_argument, with_settings

CASES: list[tuple[str, dict[str, Any]]] = [
    ("torchrun --nproc-per-node 4 train.py --lr 1", {"processes": 4, "arguments": ("--lr", "1"), "ranked": True}),
    ("torchrun --nproc_per_node=8 --nnodes 2 --rdzv-endpoint h:1 train.py", {"processes": 16, "machines": 2}),
    ("torchrun --nnodes 1:4 --nproc_per_node=2 train.py", {"processes": 8, "machines": 4}),
    ("torchrun --standalone --nproc-per-node=gpu train.py", {"processes": None}),
    ("torchrun --standalone --nproc 2 train.py -m x", {"processes": 2, "arguments": ("-m", "x")}),
    ("torchrun -t 3 -r 0:1 train.py", {"processes": 1, "arguments": ()}),
    ("/venv/bin/torchrun -m pkg.train a", {"script": None, "module": "pkg.train", "arguments": ("a",)}),
    (
        "python -m torch.distributed.launch --nproc_per_node=4 train.py x",
        {"processes": 4, "local_rank": True, "python": "python", "arguments": ("x",)},
    ),
    ("python3 -u -m torch.distributed.launch --use_env --nproc_per_node 2 train.py", {"local_rank": False}),
    ("python3.11 -u -W ignore -Xdev train.py -c 1", {"python": "python3.11", "arguments": ("-c", "1")}),
    ("python -m package.train --lr 1", {"script": None, "module": "package.train", "launcher": "python"}),
    (
        "accelerate launch --multi_gpu --num_processes 4 --mixed_precision bf16 train.py --num_processes 9",
        {
            "processes": 4,
            "kept": ("--mixed_precision", "bf16"),
            "arguments": ("--num_processes", "9"),
            "ranked": False,
        },
    ),
    ("accelerate launch --use-deepspeed train.py", {"processes": None, "config": "", "kept": ("--use-deepspeed",)}),
    ("accelerate launch --config_file a.yaml train.py", {"config": "a.yaml"}),
    ("accelerate launch --cpu -m pkg", {"processes": 1, "script": None, "module": "pkg"}),
    (
        "deepspeed --num_gpus=2 --num_nodes 2 train.py --deepspeed ds.json",
        {"processes": 4, "machines": 2, "ranked": True, "local_rank": True, "arguments": ("--deepspeed", "ds.json")},
    ),
    ("deepspeed --include localhost:0,1@other:2 --master_port 1 train.py", {"processes": 3, "machines": 2}),
    ("deepspeed --no_local_rank train.py", {"processes": None, "local_rank": False}),
]


@pytest.mark.parametrize(("line", "facts"), CASES, ids=[line for line, _ in CASES])
def test_a_launch_is_read(line: str, facts: dict[str, Any]) -> None:
    launch = find_launch(tuple(shlex.split(line)))
    assert launch is not None
    expected = {"script": "train.py", "module": None} | facts
    assert {name: getattr(launch, name) for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    ["", "train.py --nproc 2", "python", "python -c 'import torch'", "python -", "accelerate config", "caffe train"],
)
def test_what_launches_no_script_is_none(line: str) -> None:
    assert find_launch(tuple(shlex.split(line))) is None


def test_modules_that_launch() -> None:
    launch = find_launch(("--nproc-per-node", "4", "train.py"), "torch.distributed.run")
    assert (launch.script, launch.processes, launch.local_rank) == ("train.py", 4, False)
    launch = find_launch(("launch", "--num_processes", "2", "train.py"), "accelerate.commands.accelerate_cli")
    assert launch.processes == 2
    assert find_launch(("x",), "package.train") is None
    assert find_launch(("config",), "accelerate.commands.accelerate_cli") is None


@pytest.mark.parametrize("line", ["torchrun", "torchrun --nproc-per-node 4", "torchrun --no-python train.sh"])
def test_a_launcher_without_a_python_script_is_an_error(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_launch(line.split())
    assert caught.value.hint


@pytest.mark.parametrize("number", ["0", "-4", "", "nan", "1e308", "٣", "1:", "9" * 6000])
@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node={} train.py",
        "torchrun --nnodes={} train.py",
        "accelerate launch --num_processes={} train.py",
        "deepspeed --num_gpus={} train.py",
    ],
)
def test_what_is_no_number_of_processes_is_an_error(line: str, number: str) -> None:
    with pytest.raises(UsageError, match="is not a number of processes") as caught:
        find_launch(line.format(number).split())
    assert caught.value.hint


SETTINGS = """
compute_environment: LOCAL_MACHINE
fsdp_config:
  num_processes: 99
num_machines: '2'  # of ours
num_processes: 8
"""


def test_accelerates_settings_fill_in_what_the_command_line_leaves_open() -> None:
    launch = with_settings(Launch(launcher="accelerate launch", processes=None), SETTINGS)
    assert (launch.processes, launch.machines) == (8, 2)
    given = Launch(launcher="accelerate launch", processes=4, machines=3)
    assert with_settings(given, SETTINGS) == given


def test_what_is_asked_for_is_said() -> None:
    assert Launch(launcher="torchrun").asked == ""
    assert Launch(launcher="torchrun", processes=4).asked == "4 processes (torchrun)"
    assert Launch(launcher="torchrun", processes=8, machines=2).asked == "8 processes on 2 machines (torchrun)"
    assert Launch(launcher="deepspeed", processes=None).asked == "one process per GPU (deepspeed)"


def test_what_torchrun_is_told_besides_sizes_and_meeting_places_is_kept() -> None:
    line = "torchrun --nnodes 2:4 --nproc-per-node 8 --rdzv-backend c10d --rdzv_endpoint=h:1 --max-restarts 3 -t 3 a.py"
    launch = find_launch(line.split())
    assert launch.kept == ("--max-restarts", "3", "-t", "3")
    assert (launch.least_machines, launch.machines, launch.max_restarts) == (2, 4, 3)
    assert launch.elastic
    steady = find_launch(["torchrun", "--nnodes", "4", "a.py"])
    assert (steady.least_machines, steady.machines, steady.elastic) == (4, 4, False)


@pytest.mark.parametrize(
    ("source", "argument"),
    [
        ("p.add_argument('--local_rank', type=int)", "--local_rank=0"),
        ("p.add_argument('--local-rank', '--local_rank')", "--local-rank=0"),
        ("rank = os.environ['LOCAL_RANK']", ""),
    ],
)
def test_the_rank_is_told_as_the_script_asks_for_it(source: str, argument: str) -> None:
    assert local_rank_argument(source) == argument
