"""Every way in which a measurement can fail becomes an error that says what happened and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import (
    KilledBySignal,
    MissingImport,
    NeedsCuda,
    NothingToMeasure,
    NotPython,
    NoTrainingStep,
    OutOfMemory,
    ScriptCrashed,
    ScriptError,
    ScriptNotFound,
    WaitsForInput,
    WouldHarmFiles,
)
from costgpu.measure.failures import explain
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.session import Outcome, Request

PYTHON = Interpreter("/opt/py/bin/python", "3.11.7", "--python")
SCRIPT = Request(script=Path("/w/train.py"), module=None, arguments=[], workdir=Path("/w"))
MODULE = Request(script=None, module="pkg.train", arguments=[], workdir=Path("/w"))
FRAME = '  File "/w/train.py", line 3, in <module>\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "output.log"
    path.write_text("")
    return path


def outcome(log: Path, record: Any, *, printed: str = "", returncode: int = 0, timed_out: bool = False) -> Outcome:
    log.write_text(printed)
    return Outcome(
        record=record, returncode=returncode, timed_out=timed_out, log=log, scratch=log.parent, probe=log.parent
    )


def outcome_without_log(record: Any) -> Outcome:
    missing = Path("/nowhere/output.log")
    return Outcome(
        record=record, returncode=0, timed_out=False, log=missing, scratch=missing.parent, probe=missing.parent
    )


def error_of(result: Outcome, request: Request = SCRIPT) -> ScriptError:
    """The error, which always says what happened, to what, and what to do."""
    error = explain(result, request, PYTHON)
    assert error is not None
    assert error.message.strip()
    assert error.hint.strip()
    return error


def crash(kind: str, message: str = "", code: str = "main()", **other: Any) -> Any:
    """The record of an exception that left the script at `code`."""
    last = f"{kind}: {message}" if message else kind
    trail = f"Traceback (most recent call last):\n{FRAME}    {code}\n{last}\n"
    record = {
        "status": "crashed",
        "kind": kind,
        "message": message,
        "missing": None,
        "no_module": False,
        "trail": trail,
    }
    return record | {"bases": [kind, "Exception"]} | other


def stepped(steps: int, status: str = "cut", **other: Any) -> Any:
    return {"status": status, "phases": [{"steps": steps}], "wall_seconds": 1.5, "torch": {}} | other


# ------------------------------------------------------------------------------------------------------ no failure


@pytest.mark.parametrize("status", ["cut", "ended"])
def test_a_run_that_stepped_is_no_failure(log: Path, status: str) -> None:
    assert explain(outcome(log, stepped(2, status)), SCRIPT, PYTHON) is None


# ------------------------------------------------------------------------------------------------- it did not step


def test_one_step_and_no_second() -> None:
    where = "/w/train.py:9 in main: loss.backward()"
    error = error_of(outcome_without_log(stepped(1, where=["outer", where])))
    assert type(error) is NoTrainingStep
    assert "one step" in error.message
    assert where in error.hint
    assert "--measure-for" in error.hint


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"manual": 12, "optimizers_made": 1}, "12 backward passes but no optimizer step"),
        ({"manual": 0, "optimizers_made": 1}, "made an optimizer but no step"),
        ({"manual": 0, "optimizers_made": 0, "versions": {"torch": "2.13.0"}}, "did not reach a training step"),
        ({"versions": {"jax": "0.10.2"}}, "did not reach a training step"),
    ],
)
def test_no_step_within_the_limit(log: Path, facts: Any, words: str) -> None:
    where = "/w/data.py:40 in download: sleep(1)"
    error = error_of(outcome(log, {"status": "never_stepped", "phases": [], "where": [where]} | facts))
    assert type(error) is NoTrainingStep
    assert words in error.message
    assert "180 s" in error.message
    assert where in error.hint
    assert "--start-limit" in error.hint


def test_a_script_that_trains_nothing_is_told_what_could_be_counted(log: Path) -> None:
    error = error_of(outcome(log, {"status": "never_stepped", "phases": [], "where": [], "versions": {}}))
    assert type(error) is NoTrainingStep
    assert "did nothing in 180 s that can be counted" in error.message
    assert "tqdm" in error.hint
    assert "--step-pattern" in error.hint


def test_it_hangs_in_native_code(log: Path) -> None:
    error = error_of(outcome(log, None, timed_out=True, returncode=-9))
    assert type(error) is NoTrainingStep, "costgpu itself ended it"
    assert str(log) in error.hint


def test_it_ended_after_one_step(log: Path) -> None:
    error = error_of(outcome(log, stepped(1, "ended")))
    assert type(error) is NothingToMeasure
    assert "single training step in 1.5 s" in error.message


@pytest.mark.parametrize(
    ("torch", "words"), [(None, "never imported torch"), ({"processes_for_no_gpu": False}, "without an optimizer step")]
)
def test_it_ended_without_training(log: Path, torch: Any, words: str) -> None:
    record = {"status": "ended", "phases": [], "wall_seconds": 0.25, "torch": torch}
    error = error_of(outcome(log, record, printed="accuracy 0.93\n"))
    assert type(error) is NothingToMeasure
    assert words in error.message
    assert "    accuracy 0.93" in error.message


# ------------------------------------------------------------------------------------------------- it was ended


def test_killed_by_the_system(log: Path) -> None:
    error = error_of(outcome(log, None, returncode=-9))
    assert type(error) is KilledBySignal
    assert "SIGKILL" in error.message
    assert "memory" in error.hint


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (63, "63"), (99, "signal 99")])
def test_killed_by_another_signal(log: Path, number: int, name: str) -> None:
    error = error_of(outcome(log, None, returncode=-number, printed="double free or corruption\n"))
    assert type(error) is KilledBySignal
    assert name in error.message
    assert "    double free or corruption" in error.message


def test_it_ended_past_the_probe(log: Path) -> None:
    error = error_of(outcome(log, None, returncode=3, printed="os._exit was called\n"))
    assert type(error) is ScriptCrashed
    assert "status 3" in error.message
    assert "    os._exit was called" in error.message
    assert str(log) in error.hint


# ---------------------------------------------------------------------------------------------------- it exited


def test_it_does_not_accept_its_arguments(log: Path) -> None:
    printed = "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n"
    error = error_of(outcome(log, {"status": "exited", "code": 2, "message": ""}, printed=printed))
    assert type(error) is ScriptCrashed
    assert "does not accept its arguments" in error.message
    assert "    train.py: error: the following arguments are required: --data" in error.message


def test_it_exited_with_a_status(log: Path) -> None:
    error = error_of(outcome(log, {"status": "exited", "code": 7, "message": ""}, printed="no data in ./data\n"))
    assert type(error) is ScriptCrashed
    assert "status 7" in error.message
    assert "    no data in ./data" in error.message


def test_it_exited_for_want_of_a_gpu(log: Path) -> None:
    said = error_of(outcome(log, {"status": "exited", "code": 1, "message": "CUDA is not available"}))
    assert type(said) is NeedsCuda
    assert "CUDA is not available" in said.message
    printed = error_of(outcome(log, {"status": "exited", "code": 1, "message": ""}, printed="No GPU found!\n"))
    assert type(printed) is NeedsCuda


def test_a_remark_about_the_gpu_is_not_the_reason_to_exit(log: Path) -> None:
    record = {"status": "exited", "code": 1, "message": "There is no data in ./data"}
    error = error_of(outcome(log, record, printed="No GPU found, training on the CPU\nThere is no data in ./data\n"))
    assert type(error) is ScriptCrashed


# ---------------------------------------------------------------------------------------------------- it crashed


@pytest.mark.parametrize(
    "message",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "No CUDA GPUs are available",
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        "CUDA is required for training",
        "This script requires a GPU",
        "This script needs a GPU",
        "GPU is not available",
        "Invalid device string: 'cuda:O'",
    ],
)
def test_it_needs_cuda(log: Path, message: str) -> None:
    error = error_of(outcome(log, crash("RuntimeError", message)))
    assert type(error) is NeedsCuda
    assert message[:150] in error.message
    assert "torch.cuda.is_available()" in error.hint


@pytest.mark.parametrize(
    "lines",
    [
        "    assert torch.cuda.is_available()\n",
        "    assert torch.cuda.is_available()\n           ~~~~~~~~~~~~~~~~~~~~~~~^^\n",  # Python 3.13 and newer
    ],
    ids=["plain", "marked"],
)
def test_it_asserts_cuda(log: Path, lines: str) -> None:
    trail = f"Traceback (most recent call last):\n{FRAME}{lines}AssertionError\n"
    error = error_of(outcome(log, crash("AssertionError", trail=trail)))
    assert type(error) is NeedsCuda
    assert "assert torch.cuda.is_available()" in error.message


def test_an_assertion_without_source(log: Path) -> None:
    trail = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nAssertionError\n'
    assert type(error_of(outcome(log, crash("AssertionError", trail=trail)))) is ScriptCrashed


def test_an_import_is_missing(log: Path) -> None:
    record = crash("ModuleNotFoundError", "No module named 'timm'", "import timm", missing="timm", no_module=True)
    error = error_of(outcome(log, record))
    assert type(error) is MissingImport
    assert "'timm'" in error.message
    assert PYTHON.path in error.message
    assert "pip install" in error.hint
    assert "--python" in error.hint


def test_a_name_that_a_package_lacks_is_not_a_missing_package(log: Path) -> None:
    message = "cannot import name 'foo' from 'torch' (/opt/py/lib/torch/__init__.py)"
    error = error_of(outcome(log, crash("ImportError", message, "from torch import foo", missing="torch")))
    assert "'torch', which" not in error.message, "torch is there"
    assert "cannot import name 'foo'" in error.message


def test_there_is_no_such_module(log: Path) -> None:
    record = crash("ModuleNotFoundError", "No module named 'pkg'", missing="pkg", no_module=True)
    record["trail"] = "ModuleNotFoundError: No module named 'pkg'\n"
    error = error_of(outcome(log, record), MODULE)
    assert type(error) is ScriptNotFound
    assert "'pkg.train'" in error.message


def test_a_module_of_the_users_lacks_an_import(log: Path) -> None:
    record = crash("ModuleNotFoundError", "No module named 'timm'", missing="timm", no_module=True)
    assert type(error_of(outcome(log, record), MODULE)) is MissingImport


def test_a_package_without_main(log: Path) -> None:
    message = "No module named pkg.__main__; 'pkg' is a package and cannot be directly executed"
    error = error_of(outcome(log, crash("ImportError", message)), MODULE)
    assert type(error) is ScriptNotFound
    assert "__main__.py" in error.hint


def test_the_script_vanished(log: Path) -> None:
    message = "[Errno 2] No such file or directory: '/w/train.py'"
    record = crash("FileNotFoundError", message, trail=f"FileNotFoundError: {message}\n")
    error = error_of(outcome(log, record))
    assert type(error) is ScriptNotFound
    assert "/w/train.py" in error.message


def test_a_file_that_the_script_wants_is_not_the_script(log: Path) -> None:
    record = crash("FileNotFoundError", "[Errno 2] No such file or directory: 'data.csv'", "open('data.csv')")
    assert type(error_of(outcome(log, record))) is ScriptCrashed


@pytest.mark.parametrize("kind", ["SyntaxError", "IndentationError", "TabError"])
def test_it_is_not_python(log: Path, kind: str) -> None:
    trail = f'  File "/w/train.py", line 1\n    GIF89a\n    ^\n{kind}: invalid syntax\n'
    error = error_of(outcome(log, crash(kind, "invalid syntax (train.py, line 1)", trail=trail)))
    assert type(error) is NotPython
    assert "train.py, line 1" in error.message
    assert PYTHON.version in error.message


def test_a_data_file_in_another_encoding_is_not_the_script(log: Path) -> None:
    message = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    error = error_of(outcome(log, crash("UnicodeDecodeError", message, "text = open('data.txt').read()")))
    assert type(error) is ScriptCrashed


def test_it_waits_for_input(log: Path) -> None:
    error = error_of(outcome(log, crash("EOFError", "EOF when reading a line", "name = input('run name? ')")))
    assert type(error) is WaitsForInput
    assert "stdin" in error.message


def test_a_truncated_pickle_is_not_input(log: Path) -> None:
    error = error_of(outcome(log, crash("EOFError", "Ran out of input", "pickle.load(stream)")))
    assert type(error) is ScriptCrashed


@pytest.mark.parametrize(
    ("kind", "message", "bases"),
    [
        ("MemoryError", "", ["MemoryError", "Exception"]),
        ("_ArrayMemoryError", "Unable to allocate 93.1 GiB for an array", ["_ArrayMemoryError", "MemoryError"]),
        (
            "RuntimeError",
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes",
            ["RuntimeError"],
        ),
        ("OSError", "[Errno 12] Cannot allocate memory", ["OSError"]),
    ],
)
def test_it_runs_out_of_memory(log: Path, kind: str, message: str, bases: list[str]) -> None:
    error = error_of(outcome(log, crash(kind, message, bases=bases)))
    assert type(error) is OutOfMemory
    assert (message or kind) in error.message


def test_it_would_harm_files(log: Path) -> None:
    message = "costgpu: the script opens /w/data.bin for change; it is too large to copy"
    error = error_of(outcome(log, crash("HarmError", message)))
    assert type(error) is WouldHarmFiles
    assert error.message == message
    assert "mode='r'" in error.hint


def test_any_other_exception(log: Path) -> None:
    error = error_of(outcome(log, crash("ZeroDivisionError", "division by zero"), printed="epoch 1\nTraceback ...\n"))
    assert type(error) is ScriptCrashed
    assert "ZeroDivisionError: division by zero" in error.message
    assert str(log) in error.hint


# ---------------------------------------------------------------------------------------------------- its last lines


def test_the_last_lines_are_quoted_and_no_more(log: Path) -> None:
    printed = "".join(f"line {n}\n\n" for n in range(100)) + "x" * 5000 + "\n"
    error = error_of(outcome(log, crash("ValueError", "odd"), printed=printed))
    quoted = error.message.splitlines()[1:]
    assert quoted == [f"    line {n}" for n in range(93, 100)] + ["    " + "x" * 200]


def test_output_that_is_no_text(log: Path) -> None:
    result = outcome(log, crash("ValueError", "odd"))
    log.write_bytes(b"caf\xe9\n")
    assert "    caf�" in error_of(result).message


def test_no_output_no_quote() -> None:
    error = error_of(outcome_without_log(crash("ValueError", "odd")))
    assert error.message.endswith("crashed with ValueError: odd.")
