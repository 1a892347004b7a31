"""Every way in which a measurement can fail becomes an error that says what happened and what to do.

More than 400 lines: one table of endings, read from top to bottom.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import (
    KilledBySignal,
    MissingFiles,
    MissingImport,
    NeedsCuda,
    NoStandIn,
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
from costgpu.measure.cuda_errors import crashed_for_cuda, only_on_a_gpu, says_cuda, wants_launcher
from costgpu.measure.failures import explain, too_large
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.session import Outcome, Request
from tests.unit.measure.records import record

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
        record=record,
        returncode=returncode,
        timed_out=timed_out,
        log=log,
        scratch=log.parent,
        isolation=Isolation.COPY_ON_WRITE,
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
    return record("crash", **{"kind": kind, "message": message, "trail": trail, "bases": [kind, "Exception"]} | other)


HUB_FILES = [["other/one", "c.json"], ["a/b", "config.json"], ["a/b", "b.json"], ["a/b", "config.json"]]
IN_WORKER = (
    "Caught AttributeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    '  File "fetch.py", line 52, in fetch\n'
    + 9 * "    data = self.dataset[0]\n"
    + "AttributeError: no attribute 'in1d'\n"
)


def stepped(steps: int, status: str = "cut", **other: Any) -> Any:
    return {"status": status, "phases": [{"steps": steps, "trains": True}], "wall_seconds": 1.5, "torch": {}} | other


@pytest.mark.parametrize("status", ["cut", "ended"])
def test_a_single_step_that_took_long_is_an_answer(log: Path, status: str) -> None:
    seen = stepped(1, status, phases=[{"steps": 1, "trains": True, "first": [52.0, 0.0, 0.0, 0.0]}])
    assert explain(outcome(log, seen), SCRIPT, PYTHON) is None


ELSEWHERE = {"status": "ended", "phases": [], "wall_seconds": 60.0, "versions": {}, "cpu_seconds": 50.0}

NEVER_STEPPED = ELSEWHERE | {"status": "never_stepped", "children": 4, "children_cpu_seconds": 40.0, "torch": {}}


@pytest.mark.parametrize(
    ("seen", "programs", "words"),
    [
        (ELSEWHERE | {"children_cpu_seconds": 49.0}, ["/opt/py/bin/python train.py"], "python train.py"),
        (ELSEWHERE | {"status": "cut", "cpu_seconds": 1.0}, ["torchrun --nproc-per-node 4 train.py"], "torchrun"),
        (ELSEWHERE | {"children_cpu_seconds": 40.0, "torch": {}}, [], "child processes"),
        (NEVER_STEPPED, [], "child processes"),
        (NEVER_STEPPED | {"optimizers_made": 1, "where": ["a.py:9 in main: p.join()"]}, [], "child processes"),
        (NEVER_STEPPED | {"optimizers_made": 1, "where": ["a.py:9 in main: agent.run()"]}, [], "made an optimizer"),
    ],
)
def test_what_trains_in_other_processes_is_no_run_of_its_own(
    log: Path, seen: Any, programs: list[str], words: str
) -> None:
    error = error_of(replace(outcome(log, seen), programs=programs))
    assert type(error) is NoTrainingStep
    assert words in error.message


@pytest.mark.parametrize(
    ("seen", "programs"),
    [
        (ELSEWHERE | {"children_cpu_seconds": 49.0}, []),  # a pool of its own processes
        (ELSEWHERE | {"children_cpu_seconds": 1.0}, ["/opt/py/bin/python -c print(1)"]),
        (ELSEWHERE | {"children_cpu_seconds": 49.0}, ["git status"]),
    ],
)
def test_what_its_own_processes_compute_is_its_run(log: Path, seen: Any, programs: list[str]) -> None:
    assert explain(replace(outcome(log, seen), programs=programs), SCRIPT, PYTHON) is None


TOO_LARGE = {"status": "too_large", "what": "weights", "bytes_needed": 16 << 30, "phases": [], "wall_seconds": 9.0}
SLOW = NEVER_STEPPED | {"children": 0, "children_cpu_seconds": 0.0}


@pytest.mark.parametrize(
    ("seen", "returncode", "again"),
    [
        (TOO_LARGE, 0, True),
        (None, -9, True),  # by the system, for want of memory
        (None, -11, False),
        (crash("MemoryError", bases=["MemoryError"]), 0, True),
        (crash("RuntimeError", "another"), 0, False),
        (SLOW | {"model_bytes": 3 << 30}, 0, True),
        (SLOW | {"model_bytes": 1000}, 0, False),
    ],
)
def test_what_is_too_large_may_be_measured_without_weights(log: Path, seen: Any, returncode: int, again: bool) -> None:
    result = outcome(log, seen, returncode=returncode)
    error = explain(result, SCRIPT, PYTHON)
    assert error is not None
    assert too_large(result, error) is again
    if seen is TOO_LARGE:
        assert type(error) is OutOfMemory
        assert "--weights none" in error.hint


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
NOT_PYTHON = '  File "/w/train.py", line 1\n    GIF89a\n    ^\n{}: invalid syntax\n'
ASSERTS = f"Traceback (most recent call last):\n{FRAME}    assert torch.cuda.is_available()\n"
MARKED = ASSERTS + "           ~~~~~~~~~~~~~~~~~~~~~~~^^\n"  # Python 3.13 and newer
NO_SOURCE = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nAssertionError\n'

SCORED: Any = {"steps": 1, "trains": False, "seconds": [1.0], "trace_steps": 0}
DATA = "[Errno 2] No such file: 'data.csv'"
DIVIDED = crash("ZeroDivisionError", "division by zero")

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
    (stepped(1, "ended", phases=[SCORED]), NothingToMeasure, "run its model once, in 1.5 s", "items"),
    (stepped(1, phases=[SCORED]), NoTrainingStep, "ran its model once and not again", "--measure-for"),
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
    (crash("FileNotFoundError", DATA, "open('data.csv')"), ScriptCrashed, "data.csv", ""),
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
    (crash("WithoutStandIn", "weights quantized by gptq"), NoStandIn, "weights quantized by gptq", "--weights real"),
    (crash("OSError", "no", bases=["OSError"], missing_files=HUB_FILES), MissingFiles, "a/b, ", "hf download a/b"),
    (crash("OSError", "no", bases=["OSError"], missing_files=HUB_FILES), MissingFiles, ": config.json, b.json.", ""),
    (DIVIDED, ScriptCrashed, "ZeroDivisionError: division by zero", "output.log"),
    (crash("AttributeError", IN_WORKER), ScriptCrashed, "crashed with AttributeError: no attribute 'in1d'.", ""),
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


@pytest.mark.parametrize(("seen", "kind", "message", "hint"), CASES)
def test_each_failure_is_its_own_error(log: Path, seen: Any, kind: type[ScriptError], message: str, hint: str) -> None:
    error = error_of(outcome(log, seen))
    assert type(error) is kind
    assert message in error.message
    assert hint in error.hint


NO_SUCH_MODULE = crash("ModuleNotFoundError", NO_PACKAGE[21:-1], missing="pkg", trail=NO_PACKAGE)


@pytest.mark.parametrize(
    ("seen", "kind", "message"),
    [
        (NO_SUCH_MODULE, ScriptNotFound, "'pkg.train'"),
        (NO_TIMM, MissingImport, "'timm'"),
        (crash("ImportError", NO_MAIN), ScriptNotFound, "'pkg' is a package"),
    ],
)
def test_a_module_that_cannot_be_run(log: Path, seen: Any, kind: type[ScriptError], message: str) -> None:
    error = error_of(outcome(log, seen), MODULE)
    assert type(error) is kind
    assert message in error.message


@pytest.mark.parametrize(
    ("seen", "printed", "returncode", "kind", "message", "hint"),
    [
        (None, "os._exit was called\n", 3, ScriptCrashed, "status 3", "output.log"),
        (None, "Loading\n", -9, KilledBySignal, "SIGKILL", "memory"),
        (None, "double free or corruption\n", -11, KilledBySignal, "SIGSEGV", "output.log"),
        (None, "double free or corruption\n", -6, KilledBySignal, "SIGABRT", ""),
        (None, "double free or corruption\n", -63, KilledBySignal, "63", ""),
        (None, "double free or corruption\n", -99, KilledBySignal, "signal 99", ""),
        (ended(None), "accuracy 0.93\n", 0, NothingToMeasure, "never imported torch", ""),
        (exited(2), USAGE, 0, ScriptCrashed, "does not accept its arguments", ""),
        (exited(7), "no data in ./data\n", 0, ScriptCrashed, "status 7", ""),
        (exited(1, "There is no data in ./data"), REMARK, 0, ScriptCrashed, "status 1", ""),
    ],
)
def test_the_last_line_is_quoted(
    log: Path, seen: Any, printed: str, returncode: int, kind: type[ScriptError], message: str, hint: str
) -> None:
    error = error_of(outcome(log, seen, printed=printed, returncode=returncode))
    assert type(error) is kind
    assert message in error.message
    assert hint in error.hint
    assert error.message.endswith("    " + printed.splitlines()[-1])


def test_the_last_line_may_ask_for_a_gpu(log: Path) -> None:
    assert type(error_of(outcome(log, exited(1), printed="No GPU found!\n"))) is NeedsCuda


def test_it_hangs_in_native_code(log: Path) -> None:
    error = error_of(outcome(log, None, timed_out=True, returncode=-9))
    assert type(error) is NoTrainingStep, "costgpu itself ended it"
    assert str(log) in error.hint


def test_the_last_lines_are_quoted_and_no_more(log: Path) -> None:
    printed = "".join(f"line {n}\n\n" for n in range(100)) + "x" * 5000 + "\n"
    error = error_of(outcome(log, crash("ValueError", "odd"), printed=printed))
    quoted = error.message.splitlines()[1:]
    assert quoted == [f"    line {n}" for n in range(93, 100)] + ["    " + "x" * 200]


def test_output_that_is_no_text_or_not_there(log: Path) -> None:
    result = outcome(log, crash("ValueError", "odd"))
    log.write_bytes(b"caf\xe9\n")
    assert "    caf�" in error_of(result).message
    log.unlink()
    assert error_of(result).message.endswith("crashed with ValueError: odd.")


# ------------------------------------------------------------------------------------------- a wish for CUDA


@pytest.mark.parametrize(
    "words",
    [
        "Cannot get CUDA generator without ATen_cuda library. PyTorch splits its backend",
        "Tried to instantiate dummy base class Event",
        "torch.cuda.Stream requires CUDA support",
        "PyTorch was compiled without CUDA support",
        "NVTX functions not installed. Are you sure you have a CUDA build?",
        "Distributed package doesn't have NCCL built in",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "module 'torch._C' has no attribute '_cuda_setDevice'",
        "Cannot access accelerator device when none is available.",
        "`CUDAAccelerator` can not run on your system since the accelerator is not available.",
        "No supported gpu backend found!",
        "fp16 mixed precision requires a GPU (not 'cpu').",
        "Your setup doesn't support bf16/gpu.",
        "Requires at least 2 GPUs to run, but got 0",
        "You need at least one GPU",
        "No OpenCL device found",
        "CUDA Tree Learner was not enabled in this build.",
        "cuda_base.h:265: CUDA error 35: CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_libraries_refusals(words: str) -> None:
    assert says_cuda(words)


@pytest.mark.parametrize(
    "words",
    [
        "division by zero",
        "no such config: gpus.yaml",
        "Training on CPU",
        "Tried to instantiate dummy base class CUDAGraph",
        "unexpected keyword argument 'cuda'",
        "module 'torch' has no attribute 'frobnicate'",
    ],
)
def test_other_words_are_no_refusal(words: str) -> None:
    assert not says_cuda(words)


@pytest.mark.parametrize(
    ("path", "message", "wanted"),
    [
        ("torch/cuda/memory.py", "invalid argument to reset_peak_memory_stats", True),
        ("torch/cuda/__init__.py", "nvidia-ml-py does not seem to be installed or it can't be imported.", True),
        ("torch/accelerator/memory.py", "no such device", True),
        ("torch/backends/cuda/__init__.py", "invalid index", True),
        ("torch/nn/modules/linear.py", "Found no NVIDIA driver on your system.", True),
        ("torch/nn/modules/linear.py", "mat1 and mat2 shapes cannot be multiplied", False),
        ("torchcuda/memory.py", "invalid argument", False),
    ],
)
def test_a_crash_inside_of_torchs_cuda_modules_asks_for_cuda(path: str, message: str, wanted: bool) -> None:
    assert crashed_for_cuda(inside(path, "RuntimeError", message)) is wanted


def test_a_build_for_cuda_without_a_driver_is_refused_only_where_its_calls_land_on_the_cpu() -> None:
    seen = crash("AcceleratorError", "CUDA error: CUDA driver version is insufficient ... cudaErrorInsufficientDriver")
    assert only_on_a_gpu(seen) == ""
    assert crashed_for_cuda(seen)
    assert only_on_a_gpu(seen | {"torch": {"fake_cuda": True}}) == "the CUDA runtime"


@pytest.mark.parametrize(
    ("kind", "message", "wanted"),
    [
        ("KeyError", "'LOCAL_RANK'", True),
        ("KeyError", "'WORLD_SIZE'", True),
        ("ValueError", "Error initializing using env://: environment variable RANK expected, but not set", True),
        ("KeyError", "'DATA_DIR'", False),
        ("KeyError", "'RANKING'", False),
        ("ValueError", "RANK must be below 4", False),
    ],
)
def test_a_script_that_torchrun_starts(kind: str, message: str, wanted: bool) -> None:
    assert wants_launcher(crash(kind, message)) is wanted


def test_what_did_not_crash_wants_no_launcher() -> None:
    assert not wants_launcher(None)
    assert not wants_launcher(crash("KeyError", "'RANK'", status="ended"))


NO_CUDART, NO_CUBLAS, NO_GL = (
    f"lib{name}: cannot open shared object file" for name in ("cudart.so.12", "cublas.so.12", "GL.so.1")
)


def inside(path: str, kind: str, message: str) -> Any:
    """An exception in an installed package."""
    frame = f'  File "/opt/py/lib/python3.11/site-packages/{path}", line 3, in f\n'
    return crash(kind, message, trail=frame)


@pytest.mark.parametrize(
    ("seen", "thing"),
    [
        (crash("ModuleNotFoundError", "No module named 'cupy'", missing="cupy"), "CuPy"),
        (crash("ModuleNotFoundError", "No module named 'nvidia.dali'", missing="nvidia.dali"), "NVIDIA DALI"),
        (crash("ModuleNotFoundError", "No module named 'bitsandbytes'", missing="bitsandbytes"), "bitsandbytes"),
        (crash("ModuleNotFoundError", "...", missing="flash_attn.bert_padding"), "flash-attn"),
        (crash("RuntimeError", "0 active drivers ([]). There should only be one."), "Triton kernels"),
        (crash("OSError", "CUDA_HOME environment variable is not set."), "a CUDA extension that it compiles"),
        (inside("cupy/cuda/device.py", "CUDARuntimeError", "cudaErrorInsufficientDriver: CUDA driver"), "CuPy"),
        (inside("flash_attn/flash_attn_interface.py", "ImportError", NO_CUDART), "flash-attn"),
        (crash("ImportError", NO_CUBLAS), "a package that loads libcublas.so.12"),
        (inside("apex/optimizers/a.py", "AssertionError", "Torch not compiled with CUDA enabled"), "NVIDIA Apex"),
        (inside("triton/jit.py", "ValueError", "Pointer argument") | {"torch": {"fake_cuda": True}}, "Triton kernels"),
        # nothing of the kind
        (crash("ModuleNotFoundError", "No module named 'timm'", missing="timm"), ""),
        (crash("ModuleNotFoundError", "No module named 'cupyx_fake'", missing="cupyx_fake"), ""),
        (crash("ImportError", NO_GL), ""),
        (inside("triton/jit.py", "ValueError", "bad shape"), ""),
        (inside("triton/jit.py", "ValueError", "bad shape") | {"torch": {"fake_cuda": False}}, ""),
        (crash("AssertionError", "Torch not compiled with CUDA enabled"), ""),
    ],
)
def test_what_runs_on_a_gpu_only(seen: Any, thing: str) -> None:
    assert only_on_a_gpu(seen) == thing


@pytest.mark.parametrize("status", ["never_stepped", "ended", "cut"])
@pytest.mark.parametrize("program", ["/opt/py/bin/python -u train.py --lr 1", "python3 -m pkg.train", "torchrun t.py"])
def test_a_script_that_leaves_the_work_to_a_program_says_so(status: str, program: str, log: Path) -> None:
    seconds = {"wall_seconds": 9.0, "cpu_seconds": 8.0, "children_cpu_seconds": 7.0, "versions": {}}
    result = outcome(log, record("series_result", status=status, **seconds))
    error = error_of(replace(result, programs=["git status", program]))
    assert type(error) is NoTrainingStep
    assert program in error.message


@pytest.mark.parametrize("program", ["git status", "python -m pip list", "python -c 1", "pythonic train.py"])
def test_a_helper_does_not_do_the_work(program: str, log: Path) -> None:
    seconds = {"wall_seconds": 9.0, "cpu_seconds": 8.0, "children_cpu_seconds": 7.0}
    result = outcome(log, record("series_result", status="ended", **seconds))
    assert explain(replace(result, programs=[program]), SCRIPT, PYTHON) is None


def test_bars_that_were_seen_are_named(log: Path) -> None:
    facts = {"description": "Fetching", "total": 337}
    bar = record(
        "series", source="tqdm", unit="it", label="", steps=40, setup="it is hub's own", facts=facts, seconds=[]
    )
    result = outcome(log, record("series_result", status="never_stepped", series=[bar], versions={"torch": "2"}))
    error = error_of(result)
    assert type(error) is NoTrainingStep
    assert "the bar 'Fetching' at ?, 40 of 337 (it is hub's own)" in error.message


@pytest.mark.parametrize(
    ("path", "isolation", "kind"),
    [
        ("kept", Isolation.WRITE_PROTECTED, WouldHarmFiles),
        ("new", Isolation.WRITE_PROTECTED, WouldHarmFiles),
        ("kept", Isolation.COPY_ON_WRITE, ScriptCrashed),
        ("/proc/1/mem/x", Isolation.WRITE_PROTECTED, ScriptCrashed),  # nobody may write there
        (None, Isolation.WRITE_PROTECTED, ScriptCrashed),
    ],
)
def test_a_refused_write_that_ended_the_script_is_named(
    path: str | None, isolation: Isolation, kind: type[ScriptError], log: Path, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("before")
    place = path and str(tmp_path / path)
    result = outcome(log, crash("PermissionError", "[Errno 13] Permission denied", refused_path=place))
    error = error_of(replace(result, isolation=isolation))
    assert type(error) is kind
    assert error.message.endswith(str(place)) is (kind is WouldHarmFiles)


NO_SMI = "[Errno 2] No such file or directory: 'nvidia-smi'"
NO_NVML = "NVML Shared Library Not Found"


@pytest.mark.parametrize(
    ("seen", "program"),
    [
        (crash("FileNotFoundError", NO_SMI), ""),
        (crash("CalledProcessError", "Command 'nvidia-smi -L' returned non-zero exit status 127."), ""),
        (crash("IndexError", "list index out of range"), "/bin/sh -c nvidia-smi -L"),
        (inside("pynvml.py", "NVMLError_LibraryNotFound", NO_NVML), ""),
        (inside("GPUtil/GPUtil.py", "RuntimeError", "Could not find an available GPU after 1 attempts"), ""),
        (crash("SystemExit", "nvidia-smi is not installed") | {"status": "exited", "code": 1}, ""),
        (crash("", "", status="ended", torch=None, wall_seconds=0.1), "nvidia-smi"),
    ],
)
def test_a_script_that_lists_gpus_asks_for_one(seen: Any, program: str, log: Path) -> None:
    assert type(error_of(replace(outcome(log, seen), programs=[program]))) is NeedsCuda
    if seen["status"] == "crashed" and not program:
        assert only_on_a_gpu(seen | {"torch": {"fake_cuda": True}}) in ("nvidia-smi", "NVML", "pynvml", "GPUtil")


def test_a_crash_that_only_comes_after_a_list_of_gpus_is_told_as_it_is(log: Path) -> None:
    seen = crash("KeyError", "'lr'", torch={"fake_cuda": True})
    assert type(error_of(replace(outcome(log, seen), programs=["nvidia-smi -L"]))) is ScriptCrashed
