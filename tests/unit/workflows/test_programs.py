"""Commands that are no Python scripts: what is started on the machine, and what is refused before there is one."""

from pathlib import Path

import pytest

from costgpu.errors import CostGpuError, NotPython, ScriptNotFound, UsageError
from costgpu.models.job import JobSpec, Launcher
from costgpu.workflows.estimate.measure import check_script
from costgpu.workflows.runs.request import check_program
from tests.unit.workflows.jobs import asked, job_of

FILES = {
    "launch.sh": b"#!/bin/bash -e\npython train.py\n",
    "plain.sh": b"python train.py\n",
    "tools/train": b"#!/usr/bin/env python3\nprint(1)\n",
    "train.py": b"print(1)\n",
    "latin.py": b'# coding: latin-1\nprint("\xe9")\n',
    "mark.py": b"\xef\xbb\xbfprint(1)\n",
    "bad.py": b"def f(:\n",
    "no_utf8.py": b'x = "\xe9"\n',
    "notes.txt": b"These are my notes.\n",
    "model.bin": b"\x00\x01\x02\x03",
    "package/__init__.py": b"",
    "package/broken.py": b"for\n",
    "runs/__init__.py": b"",
    "runs/__main__.py": b"print(1)\n",
    "spaces/x.py": b"import package\n",
    "later.py": b"pass\n",
    "empty.py": b"# to be written\n",
    "table.csv": b"1,2.5,3\n4,5,6\n",
    "columns.CSV": b"max(loss),min(loss)\n4,5\n",
    "settings.cfg": b"[train]\nlr = 0.1\nsteps: 30\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name in ("tool", "odd"):
        (tmp_path / name).write_bytes(b"\x7fELF\0" if name == "tool" else b"some words\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(*command: str, rented: bool = True, **options: object) -> JobSpec:
    """The job, after all that is checked before a machine is asked for."""
    request, script = asked(*command, **options)
    check_script(script, None)
    check_program(script.program, script.workdir, rented=rented)
    return job_of(request, script)


@pytest.mark.parametrize(
    ("command", "argv", "name"),
    [
        (("bash", "launch.sh", "a b"), ("bash", "launch.sh", "a b"), "launch"),
        (("launch.sh", "x"), ("/bin/bash", "-e", "./launch.sh", "x"), "launch"),
        (("plain.sh",), ("bash", "./plain.sh"), "plain"),
        (("./tool", "--fast"), ("./tool", "--fast"), "tool"),
        (("make", "train"), ("make", "train"), "make"),
        (("nohup", "make"), ("make",), "make"),
    ],
)
def test_a_program_is_started_as_it_is(command: tuple[str, ...], argv: tuple[str, ...], name: str) -> None:
    spec = planned(*command)
    assert (spec.program, spec.argv, spec.name, spec.processes) == (True, argv, name, 0)
    assert planned(*command, nodes=2).launcher is Launcher.NONE


def test_a_path_is_told_as_it_is_in_the_folder_that_is_sent(folder: Path) -> None:
    assert planned(str(folder / "launch.sh")).argv[-1] == "./launch.sh"
    (folder / "tools/run.sh").write_bytes(b"#!/bin/sh\n")
    assert planned("tools/run.sh", workdir="tools").argv == ("/bin/sh", "./run.sh")


def test_variables_in_front_of_a_program_are_not_in_its_command() -> None:
    spec = planned("TOKEN=secret", "env", "B=1", "bash", "launch.sh")
    assert (spec.argv, spec.env_names) == (("bash", "launch.sh"), ("B", "TOKEN"))
    assert "secret" not in repr(spec)


@pytest.mark.parametrize("script", ["train.py", "latin.py", "mark.py", "later.py", "tools/train"])
def test_python_is_python(script: str) -> None:
    spec = planned(script)
    assert (spec.program, spec.argv) == (False, (Path(script).name,))


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (("bad.py",), NotPython, "bad.py is not Python that"),
        (("no_utf8.py",), NotPython, "utf-8"),
        (("notes.txt",), NotPython, "invalid syntax"),
        (("model.bin",), NotPython, "null bytes"),
        (("odd",), NotPython, "odd is not Python that"),
        (("empty.py",), NotPython, "is empty or data"),
        (("table.csv",), NotPython, "is empty or data"),
        (("columns.CSV",), NotPython, "is empty or data"),
        (("nosuchprog", "a"), ScriptNotFound, "no program or script nosuchprog"),
        (("settings.cfg",), NotPython, "is empty or data"),
        (("",), ScriptNotFound, "is empty"),
        (("bash", "nope.sh"), ScriptNotFound, "no program"),
        (("./nope",), ScriptNotFound, "no script nope"),
        (("bash", "../launch.sh"), ScriptNotFound, "no program"),
        (("uv", "run", "make"), UsageError, "uv run starts it here"),
    ],
)
def test_what_cannot_run_is_refused(command: tuple[str, ...], error: type[CostGpuError], words: str) -> None:
    with pytest.raises(error, match=words):
        planned(*command)


@pytest.mark.parametrize(
    ("module", "error"),
    [("package", ScriptNotFound), ("package.nope", ScriptNotFound), ("spaces", ScriptNotFound)],
)
def test_a_module_of_the_folder_is_there_or_refused(module: str, error: type[CostGpuError]) -> None:
    with pytest.raises(error):
        planned(module=module)


def test_a_module_is_compiled_and_one_that_is_installed_is_not_looked_at() -> None:
    with pytest.raises(NotPython, match=r"broken\.py"):
        planned(module="package.broken")
    for module in ("runs", "spaces.x", "json.tool", "not_installed_here"):
        assert planned(module=module).argv == ("-m", module)


def test_a_program_outside_of_the_folder_is_for_this_machine_only(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tool = tmp_path_factory.mktemp("bin") / "tool"
    (folder / "tool").rename(tool)
    with pytest.raises(UsageError, match="not in the folder that is sent"):
        planned(str(tool))
    assert planned(str(tool), rented=False).argv == (str(tool),)
    assert planned("/bin/sh", "launch.sh").argv == ("/bin/sh", "launch.sh")


@pytest.mark.parametrize(("option", "value"), [("nproc", "2"), ("launcher", "torchrun")])
def test_what_starts_python_processes_is_not_for_programs(option: str, value: str) -> None:
    with pytest.raises(UsageError, match="is for a Python script"):
        planned("bash", "launch.sh", nodes=2, **{option: value})  # type: ignore[arg-type]
