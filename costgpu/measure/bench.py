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


def windows(work: Callable[[], object], amount: float, seconds: float) -> list[float]:
    """`amount` of one call of `work` over its time, in thousand millions per second, of several windows, sorted."""
    found: list[float] = []
    work()
    start = time.perf_counter()
    while len(found) < 5 or time.perf_counter() - start < seconds:
        repeats, begin = 0, time.perf_counter()
        while repeats == 0 or time.perf_counter() - begin < seconds / 12:
            work()
            repeats += 1
        found.append(amount * repeats / (time.perf_counter() - begin) / 1e9)
    return sorted(found)


def copy_windows(threads: int, seconds: float) -> list[float]:
    """Bytes read plus written by all threads together, GB/s; `memmove` runs without the interpreter's lock."""
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

    return windows(all_at_once, 2.0 * share * threads, seconds)


def bench(threads: int, seconds: float) -> dict[str, object]:
    """All figures; without NumPy `gemm_gflops` is empty.

    Args:
        threads: For the copy. Those of the GEMM are the BLAS library's, set by the environment.
        seconds: For each figure.
    """
    figures: dict[str, object] = {
        "copy_gbps": copy_windows(threads, seconds), "gemm_gflops": [], "op_seconds": None, "numpy": "",
    }  # fmt: skip
    try:
        import numpy as np  # noqa: PLC0415 - whether it is there is the question
    except Exception:  # noqa: BLE001 - a broken installation raises anything
        return figures
    left: Any = np.full((SIZE, SIZE), 1.25, dtype=np.float32)
    right, out = left.copy(), left.copy()
    tiny: Any = np.zeros(8, dtype=np.float32)
    figures["gemm_gflops"] = windows(lambda: np.dot(left, right, out=out), 2.0 * SIZE**3, seconds)
    figures["op_seconds"] = 1.0 / windows(lambda: np.add(tiny, 1.0, out=tiny), 1e9, seconds / 3)[-1]
    figures["numpy"] = np.__version__
    return figures


if __name__ == "__main__":
    sys.path.pop(0)  # nothing of ours shadows a module of theirs
    sys.stdout.write(json.dumps(bench(int(sys.argv[1]), float(sys.argv[2]))) + "\n")
