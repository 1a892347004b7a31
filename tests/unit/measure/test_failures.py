"""Every way in which a measurement can fail becomes an error that says what happened and what to do."""

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


@pytest.mark.parametrize("status", ["cut", "ended"])
def test_a_run_that_stepped_is_no_failure(log: Path, status: str) -> None:
    assert explain(outcome(log, stepped(2, status)), SCRIPT, PYTHON) is None


def never_stepped(**facts: Any) -> Any:
    return {"status": "never_stepped", "phases": [], "where": ["outer", WHERE], **facts}


def exited(code: int, message: str = "") -> Any:
    return {"status": "exited", "code": code, "message": message}


def ended(torch: Any) -> Any:
    return {"status": "ended", "phases": [], "wall_seconds": 0.25, "torch": torch}


WHERE = "/w/data.py:40 in download: sleep(1)"
USAGE = "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n"
REMARK = "No GPU found, training on the CPU\nThere is no data in ./data\n"
NO_TIMM = crash("ModuleNotFoundError", "No module named 'timm'", "import timm", missing="timm", no_module=True)
NO_NAME = "cannot import name 'foo' from 'torch' (/opt/py/lib/torch/__init__.py)"
NO_PACKAGE = "ModuleNotFoundError: No module named 'pkg'\n"
NO_MAIN = "No module named pkg.__main__; 'pkg' is a package and cannot be directly executed"
NO_SCRIPT = "[Errno 2] No such file or directory: '/w/train.py'"
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes"
HARM = "costgpu: the script opens /w/data.bin for change; it is too large to copy"
NOT_PYTHON = '  File "/w/train.py", line 1\n    GIF89a\n    ^\n{}: invalid syntax\n'
ASSERTS = f"Traceback (most recent call last):\n{FRAME}    assert torch.cuda.is_available()\n"
MARKED = ASSERTS + "           ~~~~~~~~~~~~~~~~~~~~~~~^^\n"  # Python 3.13 and newer
NO_SOURCE = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nAssertionError\n'

Case = tuple[Any, type[ScriptError], str, str]  # record, error, words of its message, words of its hint
CASES: list[Case] = [
    # it did not step
    (stepped(1, where=[WHERE]), NoTrainingStep, "one step", WHERE),
    (stepped(1), NoTrainingStep, "one step", "--measure-for"),
    (never_stepped(manual=12, optimizers_made=1), NoTrainingStep, "12 backward passes but no optimizer step", WHERE),
    (never_stepped(optimizers_made=1), NoTrainingStep, "made an optimizer but no step", "--start-limit"),
    (never_stepped(versions={"torch": "2"}), NoTrainingStep, "not reach a training step in 180 s", "--start-limit"),
    (never_stepped(versions={"jax": "0.10.2"}), NoTrainingStep, "did not reach a training step", WHERE),
    (never_stepped(versions={}), NoTrainingStep, "did nothing in 180 s that can be counted", "tqdm"),
    (never_stepped(versions={}), NoTrainingStep, "did nothing in 180 s that can be counted", "--step-pattern"),
    (stepped(1, "ended"), NothingToMeasure, "single training step in 1.5 s", ""),
    (ended(None), NothingToMeasure, "never imported torch", ""),
    (ended({"processes_for_no_gpu": False}), NothingToMeasure, "without an optimizer step", ""),
    (ended({"processes_for_no_gpu": True, "fake_cuda": False}), NeedsCuda, "one process for each", ""),
    # it exited
    (exited(7), ScriptCrashed, "status 7", "output.log"),
    (exited(1, "CUDA is not available"), NeedsCuda, "CUDA is not available", ""),
    # it crashed
    (crash("AssertionError", trail=ASSERTS + "AssertionError\n"), NeedsCuda, "assert torch.cuda.is_available()", ""),
    (crash("AssertionError", trail=MARKED + "AssertionError\n"), NeedsCuda, "assert torch.cuda.is_available()", ""),
    (crash("AssertionError", trail=NO_SOURCE), ScriptCrashed, "AssertionError", ""),
    (NO_TIMM, MissingImport, "'timm'", "pip install"),
    (NO_TIMM, MissingImport, PYTHON.path, "--python"),
    (crash("ImportError", NO_NAME, "from torch import foo", missing="torch"), ScriptCrashed, NO_NAME[:20], ""),
    (crash("FileNotFoundError", NO_SCRIPT, trail="..."), ScriptNotFound, "/w/train.py", ""),
    (
        crash("FileNotFoundError", "[Errno 2] No such file: 'data.csv'", "open('data.csv')"),
        ScriptCrashed,
        "data.csv",
        "",
    ),
    *[
        (crash(kind, "bad (train.py, line 1)", trail=NOT_PYTHON.format(kind)), NotPython, f"({PYTHON.version})", "")
        for kind in ("SyntaxError", "IndentationError", "TabError")
    ],
    (crash("UnicodeDecodeError", "'utf-8' codec can't decode byte 0xff", "read()"), ScriptCrashed, "0xff", ""),
    (crash("EOFError", "EOF when reading a line", "name = input('run name? ')"), WaitsForInput, "stdin", ""),
    (crash("EOFError", "Ran out of input", "pickle.load(stream)"), ScriptCrashed, "Ran out of input", ""),
    (crash("MemoryError", bases=["MemoryError"]), OutOfMemory, "MemoryError", ""),
    (crash("_ArrayMemoryError", "Unable to allocate 9 GiB", bases=["MemoryError"]), OutOfMemory, "9 GiB", ""),
    (crash("RuntimeError", NO_MEMORY), OutOfMemory, NO_MEMORY, ""),
    (crash("OSError", "[Errno 12] Cannot allocate memory"), OutOfMemory, "Cannot allocate memory", ""),
    (crash("HarmError", HARM), WouldHarmFiles, HARM, "mode='r'"),
    (
        crash("ZeroDivisionError", "division by zero"),
        ScriptCrashed,
        "ZeroDivisionError: division by zero",
        "output.log",
    ),
    *[
        (crash("RuntimeError", message), NeedsCuda, message, "torch.cuda.is_available()")
        for message in (
            "Torch not compiled with CUDA enabled",
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
            "No CUDA GPUs are available",
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
            "CUDA is required for training",
            "This script requires a GPU",
            "This script needs a GPU",
            "GPU is not available",
            "Invalid device string: 'cuda:O'",
        )
    ],
]


@pytest.mark.parametrize(("record", "kind", "message", "hint"), CASES)
def test_each_failure_is_its_own_error(
    log: Path, record: Any, kind: type[ScriptError], message: str, hint: str
) -> None:
    error = error_of(outcome(log, record))
    assert type(error) is kind
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        (
            crash("ModuleNotFoundError", NO_PACKAGE[21:-1], missing="pkg", trail=NO_PACKAGE),
            ScriptNotFound,
            "'pkg.train'",
        ),
        (NO_TIMM, MissingImport, "'timm'"),
        (crash("ImportError", NO_MAIN), ScriptNotFound, "'pkg' is a package"),
    ],
)
def test_a_module_that_cannot_be_run(log: Path, record: Any, kind: type[ScriptError], message: str) -> None:
    error = error_of(outcome(log, record), MODULE)
    assert type(error) is kind
    assert message in error.message


@pytest.mark.parametrize(
    ("record", "printed", "returncode", "kind", "message"),
    [
        (None, "os._exit was called\n", 3, ScriptCrashed, "status 3"),
        (None, "double free or corruption\n", -11, KilledBySignal, "SIGSEGV"),
        (None, "double free or corruption\n", -6, KilledBySignal, "SIGABRT"),
        (None, "double free or corruption\n", -63, KilledBySignal, "63"),
        (None, "double free or corruption\n", -99, KilledBySignal, "signal 99"),
        (ended(None), "accuracy 0.93\n", 0, NothingToMeasure, "never imported torch"),
        (exited(2), USAGE, 0, ScriptCrashed, "does not accept its arguments"),
        (exited(7), "no data in ./data\n", 0, ScriptCrashed, "status 7"),
        (exited(1, "There is no data in ./data"), REMARK, 0, ScriptCrashed, "status 1"),
    ],
)
def test_the_last_line_is_quoted(
    log: Path, record: Any, printed: str, returncode: int, kind: type[ScriptError], message: str
) -> None:
    error = error_of(outcome(log, record, printed=printed, returncode=returncode))
    assert type(error) is kind
    assert message in error.message
    assert error.message.endswith("    " + printed.splitlines()[-1])


def test_the_last_line_may_ask_for_a_gpu(log: Path) -> None:
    assert type(error_of(outcome(log, exited(1), printed="No GPU found!\n"))) is NeedsCuda


def test_killed_by_the_system(log: Path) -> None:
    error = error_of(outcome(log, None, returncode=-9))
    assert type(error) is KilledBySignal
    assert "SIGKILL" in error.message
    assert "memory" in error.hint


def test_it_hangs_in_native_code(log: Path) -> None:
    error = error_of(outcome(log, None, timed_out=True, returncode=-9))
    assert type(error) is NoTrainingStep, "costgpu itself ended it"
    assert str(log) in error.hint


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
    missing = Path("/nowhere/output.log")
    result = Outcome(
        record=crash("ValueError", "odd"), returncode=0, timed_out=False, log=missing, scratch=missing, probe=missing
    )
    error = error_of(result)
    assert error.message.endswith("crashed with ValueError: odd.")
