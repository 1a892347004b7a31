"""Records as the probe writes them, with defaults (records.json) for everything that a test is not about."""

import copy
import json
from pathlib import Path
from typing import Any

from costgpu.measure.profile.profile_builder import build_profile
from costgpu.models.workload import Machine, WorkloadProfile

DEFAULTS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
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


def record(of: str, **other: Any) -> Any:
    """A record of one of the kinds in records.json, with other values for some of its keys."""
    return copy.deepcopy(DEFAULTS[of]) | other


def loop(line: int, trips: Any = None, kind: str = "for", **other: Any) -> Any:
    """One loop of a snapshot."""
    return record("loop", line=line, trips=trips, kind=kind, **{"source": f"range({trips})"} | other)


def counter(text: str, **other: Any) -> Any:
    """One side of a comparison."""
    return record("counter", text=text, **other)


def bound(how: str, line: int, counts: Any, operator: str, value: float, limit: float, step_line: int) -> Any:
    """A comparison of a counter with a limit that ends a loop."""
    place = {"home": counts["loop_line"] or 0, "everywhere": False, "latched": False, "loose": False}
    sides = {"left": value, "right": limit, "counters": [counts, counter(str(limit))]}
    test = f"{counts['text']} {operator} {limit}"
    return {"how": how, "line": line, "test": test, "operator": operator, "step_line": step_line} | sides | place


def shot(anchor: int, *loops: Any, batches: int = 0) -> Any:
    """The loops around one step."""
    return {"anchor": anchor, "batches": batches, "all_batches": batches, "loops": list(loops)}


def phase(*shots: Any, seconds: Any = (), special: Any = None, **other: Any) -> Any:
    """One training phase; `special` by the number of its interval."""
    steps = shots[-1]["anchor"] if shots else len(seconds) + 1
    nothing = {name: [0.0] * len(seconds) for name in ("waits", "blocked", "run_delay")}
    timed = {"steps": steps, "seconds": list(seconds), "snapshots": list(shots)} | nothing
    events = {str(i): event for i, event in (special or {}).items()}
    return record("phase", **timed | {"special": events} | other)


def result(*phases: Any, torch: Any = None, **other: Any) -> Any:
    """The whole record of a script that trains with torch; `torch` changes what that says of itself."""
    return record("result", phases=list(phases), torch=record("torch", **torch or {}), **other)


def build(record: Any) -> WorkloadProfile:
    """The profile of a record."""
    words = ["--lr", "0.1"]
    return build_profile(record, MACHINE, script="train.py", arguments=words, created=CREATED, version="0.1.0")
