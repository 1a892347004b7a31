"""A command that names a launcher: what is measured here, and what a run starts on a rented machine."""

import shlex
from pathlib import Path

import pytest

from costgpu.errors import UsageError
from costgpu.measure.session import Request
from costgpu.models.job import JobSpec
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import LogReporter
from tests.unit.workflows.jobs import asked, job_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed: the scripts are in a folder below."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("parser.add_argument('--local_rank')\n")
    (tmp_path / "settings.yaml").write_text("mixed_precision: bf16\nnum_processes: 8\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def measured(line: str) -> Request:
    return script_request(EstimateRequest(command=tuple(shlex.split(line))), LogReporter())


def started(line: str, nproc: str | None = None) -> JobSpec:
    return job_of(*asked(*shlex.split(line), nproc=nproc))


def test_it_runs_where_it_is_typed(folder: Path) -> None:
    asked = measured("torchrun --nproc-per-node 4 src/train.py --lr 1")
    assert (asked.script, asked.workdir, asked.arguments) == (folder / "src" / "train.py", folder, ["--lr", "1"])
    assert measured("python src/train.py").workdir == folder
    assert measured("src/train.py").workdir == folder / "src"


def test_the_rank_as_an_argument_comes_first() -> None:
    assert measured("python -m torch.distributed.launch src/train.py --lr 1").arguments == [
        "--local_rank=0",
        "--lr",
        "1",
    ]
    assert measured("deepspeed src/train.py").arguments == ["--local_rank=0"]


def test_accelerates_settings_are_read() -> None:
    launch = measured("accelerate launch --config_file settings.yaml src/train.py").launch
    assert launch is not None
    assert launch.processes == 8
    launch = measured("accelerate launch src/train.py").launch
    assert launch is not None
    assert launch.processes is None
    with pytest.raises(UsageError):
        measured("accelerate launch --config_file none.yaml src/train.py")


def test_the_interpreter_beside_a_launcher_is_its_own(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "python").touch()
    assert measured(f"{folder}/bin/torchrun src/train.py").python == f"{folder}/bin/python"
    assert measured("torchrun src/train.py").python is None
    assert measured("python3.11 src/train.py").python == "python3.11"


@pytest.mark.parametrize(
    ("line", "argv", "processes"),
    [
        ("torchrun --nproc-per-node 4 src/train.py --lr 1", ("src/train.py", "--lr", "1"), -1),
        ("python -m torch.distributed.launch src/train.py", ("src/train.py",), -1),
        ("torchrun -m package", ("-m", "package"), -1),
        ("python -u src/train.py", ("src/train.py",), 0),
        (
            "accelerate launch --num_processes 4 --mixed_precision bf16 src/train.py a",
            ("-m", "accelerate.commands.launch", "--mixed_precision", "bf16", "src/train.py", "a"),
            0,
        ),
        ("deepspeed --num_gpus 2 src/train.py", ("-m", "deepspeed.launcher.runner", "src/train.py"), 0),
    ],
)
def test_a_run_starts_as_many_processes_as_there_are_gpus(line: str, argv: tuple[str, ...], processes: int) -> None:
    spec = started(line)
    assert (spec.argv, spec.processes) == (argv, processes)


def test_two_numbers_of_processes_are_one_too_many() -> None:
    with pytest.raises(UsageError):
        started("torchrun --nproc-per-node 4 src/train.py", nproc="2")
    assert started("python src/train.py", nproc="2").processes == 2


def test_what_stands_in_front_of_a_script_decides_on_its_variables(folder: Path) -> None:
    asked = measured("LR=0.1 nohup env SIZE=8 python -u src/train.py --lr 1")
    assert (asked.script, asked.workdir, asked.arguments) == (folder / "src" / "train.py", folder, ["--lr", "1"])
    assert asked.assigned == {"LR": "0.1", "SIZE": "8"}
    assert asked.environment is not None
    assert (asked.environment["LR"], asked.environment["SIZE"]) == ("0.1", "8")
    assert asked.python is not None
    assert Path(asked.python).is_absolute()
    assert measured("nohup nice -n 5 src/train.py").environment is None
    assert started("LR=0.1 nice torchrun --nproc-per-node 2 src/train.py").argv == ("src/train.py",)
