"""Records as the probe writes them, with defaults for everything that a test is not about."""

from typing import Any

from costgpu.measure.profile.profile_builder import build_profile
from costgpu.models.workload import Machine, WorkloadProfile

PATH = "/w/train.py"
CREATED = "2026-11-21T03:00:00+00:00"
MACHINE = Machine(
    cpu_model="AMD EPYC 7R13",
    cores=4,
    threads=4,
    memory_gib=15.5,
    gemm_gflops=240.0,
    gemm_gflops_low=200.0,
    copy_gbps=20.0,
    op_seconds=2e-6,
)


def loop(line: int, trips: Any = None, kind: str = "for", **other: Any) -> Any:
    """One loop of a snapshot."""
    record = {
        "file": "train.py",
        "path": PATH,
        "line": line,
        "kind": kind,
        "function": "<module>",
        "depth": 0,
        "library": False,
        "trips": trips,
        "why": "",
        "index": None,
        "start": 0,
        "stride": 1,
        "bounds": [],
        "early_exit": [],
        "optimizers": False,
        "ragged": False,
        "varies": False,
        "source": f"range({trips})",
    }
    return record | other


def counter(text: str, **other: Any) -> Any:
    """One side of a comparison."""
    places = dict.fromkeys(("increment", "increment_line", "loop_line", "reset_line"))
    return {"text": text, **places, "targets": [], **other}


def bound(how: str, line: int, operator: str, left: float, right: float, sides: Any, step_line: int) -> Any:
    """A comparison that ends a loop."""
    return {
        "how": how,
        "line": line,
        "test": f"{sides[0]['text']} {operator} {sides[1]['text']}",
        "operator": operator,
        "left": left,
        "right": right,
        "counters": list(sides),
        "step_line": step_line,
    }


def shot(anchor: int, *loops: Any, batches: int = 0) -> Any:
    """The loops around one step."""
    return {"anchor": anchor, "batches": batches, "all_batches": batches, "loops": list(loops)}


def phase(*shots: Any, seconds: Any = (), special: Any = None, **other: Any) -> Any:
    """One training phase; `special` by the number of its interval."""
    record: dict[str, Any] = {
        "line": 14,
        "file": "train.py",
        "told": None,
        "device": "cpu",
        "steps": shots[-1]["anchor"] if shots else len(seconds) + 1,
        "seconds": list(seconds),
        "waits": [0.0] * len(seconds),
        "special": {str(i): event for i, event in (special or {}).items()},
        "snapshots": list(shots),
        "upcoming": {"later": [], "periodic": []},
        "gap_seconds": 2.0,
        "saved_tensor_bytes": 4096,
        "model": {"bytes": 1000, "frozen_bytes": 200},
        "micro_batches": 1,
        "batch": None,
        "loader": None,
        "trace_steps": 1,
        "ops": [],
        "op_seconds": 0.5,
        "calls": 100,
        "host_seconds": 0.7,
        "host_calls": 60,
        "optimizers": [],
    }
    return record | other


def result(*phases: Any, torch: Any = None, **other: Any) -> Any:
    """The whole record of a script that trains with torch; `torch` changes what that says of itself."""
    facts = {
        "version": "2.13.0+cpu",
        "threads": 4,
        "cuda_build": None,
        "cuda_devices": [],
        "float32_matmul_precision": "high",
        "conv_tf32": True,
        "matmul_tf32": False,
        "compiled": 0,
        "autocast": [{"device": "cuda", "dtype": "float16", "enabled": True}],
        "fake_cuda": False,
        "fake_cuda_devices": 0,
        "fake_cuda_failures": [],
        "attention": [],
        "cudnn_benchmark": False,
        "processes_for_no_gpu": False,
    }
    record = {
        "status": "cut",
        "python": "3.11.7",
        "wall_seconds": 9.5,
        "setup_seconds": 3.0,
        "peak_rss_bytes": 5 << 28,
        "before": {"validation": 0.5, "save": 0.25},
        "phases": list(phases),
        "torch": facts | (torch or {}),
    }
    return record | other


def build(record: Any) -> WorkloadProfile:
    """The profile of a record."""
    words = ["--lr", "0.1"]
    return build_profile(record, MACHINE, script="train.py", arguments=words, created=CREATED, version="0.1.0")
