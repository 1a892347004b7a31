"""This machine's speed without a deep-learning framework: fp32 GEMM by NumPy where there is one, and memory copy.

Runs as a script in whatever Python there is (3.8 or newer), prints one JSON line, and imports nothing of ours.
Windows are sorted, slowest first, as in the probe's own micro-benchmark. On one Zen 3 core NumPy's OpenBLAS reached
1.04 times the GEMM rate of torch and 0.94 times its copy rate (NumPy 2.4, torch 2.13, CPU time, 2026-11-21): the two
may stand for one another.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SIZE = 1024  # of the square matrices, as with torch
COPY_BYTES = 1 << 26  # far more than the caches hold


def window(work: Callable[[], object], amount: float, seconds: float) -> float:
    """`amount` of one call of `work` over its time, in thousand millions per second."""
    work()  # what the others have left in the caches
    repeats, begin = 0, time.perf_counter()
    while repeats == 0 or time.perf_counter() - begin < seconds:
        work()
        repeats += 1
    return amount * repeats / (time.perf_counter() - begin) / 1e9


def by_turns(works: dict[str, tuple[Callable[[], object], float]], seconds: float) -> dict[str, list[float]]:
    """Windows of every work, sorted: a neighbour who comes for a moment slows some of each and all of none.

    Args:
        works: What to call, and how much of it one call is.
        seconds: For each, together.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    start = time.perf_counter()
    while min(map(len, found.values())) < 5 or time.perf_counter() - start < seconds * len(works):
        for name, (work, amount) in works.items():
            found[name].append(window(work, amount, seconds / 12))
    return {name: sorted(rates) for name, rates in found.items()}


def copier(threads: int) -> Callable[[], None]:
    """Copies `COPY_BYTES` with all threads; `memmove` runs without the interpreter's lock."""
    share = COPY_BYTES // threads
    pairs = [(ctypes.create_string_buffer(share), ctypes.create_string_buffer(share)) for _ in range(threads)]

    def all_at_once() -> None:
        workers = [
            threading.Thread(target=ctypes.memmove, args=(target, source, share)) for target, source in pairs[1:]
        ]
        for worker in workers:
            worker.start()
        ctypes.memmove(pairs[0][0], pairs[0][1], share)
        for worker in workers:
            worker.join()

    return all_at_once


def bench(threads: int, seconds: float) -> dict[str, object]:
    """All figures; without NumPy `gemm_gflops` is empty.

    Args:
        threads: For the copy. Those of the GEMM are the BLAS library's, set by the environment.
        seconds: For each figure.
    """
    copied = 2.0 * (COPY_BYTES // threads) * threads
    works: dict[str, tuple[Callable[[], object], float]] = {"copy_gbps": (copier(threads), copied)}
    try:
        import numpy as np  # noqa: PLC0415 - whether it is there is the question
    except Exception:  # noqa: BLE001 - a broken installation raises anything
        return {**by_turns(works, seconds), "gemm_gflops": [], "op_seconds": None, "numpy": ""}
    left: Any = np.full((SIZE, SIZE), 1.25, dtype=np.float32)
    right, out = left.copy(), left.copy()
    tiny: Any = np.zeros(8, dtype=np.float32)
    works["gemm_gflops"] = (lambda: np.dot(left, right, out=out), 2.0 * SIZE**3)
    works["calls"] = (lambda: np.add(tiny, 1.0, out=tiny), 1e9)
    found = by_turns(works, seconds)
    op_seconds = 1.0 / found.pop("calls")[-1]
    return {**found, "op_seconds": op_seconds, "numpy": np.__version__}


if __name__ == "__main__":
    sys.path.pop(0)  # nothing of ours shadows a module of theirs
    sys.stdout.write(json.dumps(bench(int(sys.argv[1]), float(sys.argv[2]))) + "\n")
