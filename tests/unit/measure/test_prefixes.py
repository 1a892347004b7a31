"""Words in front of a command, read as the programs that they name read them."""

import shlex

import pytest

from costgpu.measure.launcher import find_launch
from costgpu.measure.prefixes import split_prefixes

CASES = [  # a line, what of it is asked for the interpreter, and what is behind it
    ("uv run train.py --lr 1", "uv run", "train.py --lr 1"),
    ("uv run python -u train.py", "uv run", "python -u train.py"),
    (
        "uv run --with tqdm -p 3.12 --extra=gpu -qn train.py -m x",
        "uv run --with tqdm -p 3.12 --extra=gpu -qn",
        "train.py -m x",
    ),
    ("uv --project a run --no-sync -- python train.py", "uv --project a run --no-sync --", "python train.py"),
    ("uv run --script train.py", "uv run --script", "train.py"),
    ("uv run -m pkg.train --lr 1", "uv run", "python -m pkg.train --lr 1"),
    ("uv run --with a --module pkg", "uv run --with a", "python -m pkg"),
    ("uvx --from torch python train.py", "uvx --from torch", "python train.py"),
    ("uv pip install torch", "", "uv pip install torch"),
    ("uv", "", "uv"),
    ("/opt/bin/uv run train.py", "/opt/bin/uv run", "train.py"),
    ("poetry -C sub run python train.py", "poetry -C sub run", "python train.py"),
    ("pdm run -s train.py", "pdm run -s", "train.py"),
    ("pipenv run python train.py", "pipenv run", "python train.py"),
    ("hatch -e cuda run python train.py", "hatch -e cuda run", "python train.py"),
    ("hatch run cuda:python train.py", "hatch -e cuda run", "python train.py"),
    ("rye run python train.py", "rye run", "python train.py"),
    ("pixi run -e cuda python train.py", "pixi run -e cuda", "python train.py"),
    ("conda run -n E --no-capture-output python train.py", "conda run -n E --no-capture-output", "python train.py"),
    ("micromamba run -p /e python train.py", "micromamba run -p /e", "python train.py"),
    ("env A=1 B=2 python train.py", "env env A=1 env B=2", "python train.py"),
    ("env -u X -i A=1 python train.py", "env -u X -i env A=1", "python train.py"),
    ("CUDA_VISIBLE_DEVICES=0 python train.py x=1", "env CUDA_VISIBLE_DEVICES=0", "python train.py x=1"),
    ("nohup python train.py", "", "python train.py"),
    ("time -p nice -n 5 ionice -c 3 stdbuf -oL -e 0 setsid -w python train.py", "", "python train.py"),
    ("nice -5 /usr/bin/time -v python train.py", "", "python train.py"),
    ("taskset -c 0-3 python train.py", "", "python train.py"),
    ("taskset 0x3 numactl --cpunodebind=0 -m 0 python train.py", "", "python train.py"),
    ("timeout -k 10 2h python train.py", "", "python train.py"),
    (
        "nohup env A=1 uv run torchrun --nproc-per-node 2 train.py",
        "env env A=1 uv run",
        "torchrun --nproc-per-node 2 train.py",
    ),
    ("train.py A=1 uv run", "", "train.py A=1 uv run"),
    ("./time.py env", "", "./time.py env"),
    ("", "", ""),
]


@pytest.mark.parametrize(("line", "asked", "behind"), CASES, ids=[line for line, _, _ in CASES])
def test_prefixes_are_split_from_what_they_start(line: str, asked: str, behind: str) -> None:
    prefixes, rest = split_prefixes(shlex.split(line))
    assert (" ".join(prefixes.asked), " ".join(rest)) == (asked, behind)


def test_what_a_prefix_does_is_known() -> None:
    prefixes, _ = split_prefixes(
        shlex.split("A=1 nohup taskset -c 0 env -u X B=a=b timeout 2h conda run -n E uv run train.py")
    )
    assert prefixes.assigned == {"A": "1", "B": "a=b"}
    assert prefixes.deciding == ("conda run", "uv run")
    assert prefixes.left_out == ("taskset", "timeout")


def test_a_launch_behind_prefixes() -> None:
    launch = find_launch(shlex.split("nohup env A=1 uv run torchrun --nproc-per-node 2 train.py --lr 1"))
    assert (launch.launcher, launch.processes, launch.script, launch.arguments) == (
        "torchrun",
        2,
        "train.py",
        ("--lr", "1"),
    )
    assert launch.prefixes.assigned == {"A": "1"}
    alone = find_launch(("uv", "run", "train.py", "-c", "1"))
    assert (alone.launcher, alone.script, alone.arguments, alone.python) == ("python", "train.py", ("-c", "1"), None)


@pytest.mark.parametrize(
    "line", ["nohup caffe train", "uv run", "uv run pytest", "env", "env A=1", "time python -c 1", "nice"]
)
def test_prefixes_of_what_is_no_script(line: str) -> None:
    assert find_launch(shlex.split(line)) is None
