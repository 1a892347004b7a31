"""This machine's speed: fp32 matrix multiply, memory copy, the smallest call, and one thread of plain code.

The first three are measured through torch or through NumPy. The probe measures with torch in the user's interpreter. For
programs that are measured from outside, this file runs as a script in whatever Python there is (3.8 or newer) and takes
NumPy where there is one. Rates are sorted, slowest first. On one Zen 3 core NumPy's OpenBLAS reached 1.04 times the
matrix-multiply rate of torch and 0.94 times its copy rate (NumPy 2.4, torch 2.13, CPU time, 2026-11-21): the two may
stand for one another.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import threading
import time

SIZE = 1024  # of the square matrices
COPY_BYTES = 1 << 26  # far more than the caches hold
LEAST_WINDOWS = 5
TORCH_SECONDS = 1.5  # for each of the three figures
# One thread is timed on bzip2: libbz2 has been the same for years, whatever the Python, and its branches and look-ups are
# more like an interpreter's than arithmetic is.
TEXT_WORDS, TEXT_WINDOWS = 9000, 40


def window(work, amount, seconds):
    """`amount` of one call of `work` over its time, in thousand millions per second."""
    work()  # what the others have left in the caches
    repeats, begin = 0, time.perf_counter()
    while repeats == 0 or time.perf_counter() - begin < seconds:
        work()
        repeats += 1
    return amount * repeats / (time.perf_counter() - begin) / 1e9


def by_turns(works, seconds):
    """Sorted rates of every work: a neighbour who comes for a moment slows some windows of each and all of none.

    Args:
        works: Name -> what to call, and how much of it one call is.
    """
    found = {name: [] for name in works}
    start = time.perf_counter()
    while min(map(len, found.values())) < LEAST_WINDOWS or time.perf_counter() - start < seconds * len(works):
        for name, (work, amount) in works.items():
            found[name].append(window(work, amount, seconds / 12))
    return {name: sorted(rates) for name, rates in found.items()}


def copier(threads):
    """Copies `COPY_BYTES` with all threads; `memmove` runs without the interpreter's lock."""
    share = COPY_BYTES // threads
    pairs = [(ctypes.create_string_buffer(share), ctypes.create_string_buffer(share)) for _ in range(threads)]

    def copy():
        workers = [
            threading.Thread(target=ctypes.memmove, args=(target, source, share)) for target, source in pairs[1:]
        ]
        for worker in workers:
            worker.start()
        ctypes.memmove(pairs[0][0], pairs[0][1], share)
        for worker in workers:
            worker.join()

    return copy


def plain_text():
    """59 kB of words of a small vocabulary, common ones more often, the same each time."""
    draw = random.Random(1).random
    letters = "etaoinshrdlucmfw"
    words = ["".join(letters[int(16 * draw() * draw())] for _ in range(2 + int(8 * draw()))) for _ in range(500)]
    return " ".join(words[int(500 * draw() * draw())] for _ in range(TEXT_WORDS)).encode()


def single_thread_mbps():
    """MB/s of bzip2 -9 on one thread, the best of several windows of CPU time; 0 for a Python without bzip2."""
    try:
        import bz2
    except ImportError:
        return 0.0
    text, best = plain_text(), 0.0
    for _ in range(TEXT_WINDOWS):
        begin = time.thread_time()
        bz2.compress(text, 9)
        best = max(best, len(text) / 1e6 / max(time.thread_time() - begin, 1e-9))
    return best


def measure_with_torch():
    """All figures, with as many threads as torch takes by itself."""
    import torch

    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8).view(torch.float32)
    target = torch.empty_like(source)
    tiny = torch.zeros(8)
    works = {
        "gemm_gflops": (lambda: torch.mm(left, right), 2.0 * SIZE**3),
        "copy_gbps": (lambda: target.copy_(source), 2.0 * COPY_BYTES),
        "calls": (lambda: tiny.add_(1.0), 1e9),
    }
    found = by_turns(works, TORCH_SECONDS)
    op_seconds = 1.0 / found.pop("calls")[-1]
    threads = torch.get_num_threads()
    return {**found, "op_seconds": op_seconds, "threads": threads, "single_thread_mbps": single_thread_mbps()}


def measure_without_torch(threads, seconds):
    """All figures; without NumPy `gemm_gflops` is empty and `op_seconds` is None.

    Args:
        threads: For the copy. Those of the matrix multiply are the BLAS library's, set by the environment.
    """
    thread = {"single_thread_mbps": single_thread_mbps()}
    works = {"copy_gbps": (copier(threads), 2.0 * (COPY_BYTES // threads) * threads)}
    try:
        import numpy as np
    except Exception:  # noqa: BLE001 - a broken installation raises anything
        return {**by_turns(works, seconds), **thread, "gemm_gflops": [], "op_seconds": None, "numpy": ""}
    left = np.full((SIZE, SIZE), 1.25, dtype=np.float32)
    right, out = left.copy(), left.copy()
    tiny = np.zeros(8, dtype=np.float32)
    works["gemm_gflops"] = (lambda: np.dot(left, right, out=out), 2.0 * SIZE**3)
    works["calls"] = (lambda: np.add(tiny, 1.0, out=tiny), 1e9)
    found = by_turns(works, seconds)
    op_seconds = 1.0 / found.pop("calls")[-1]
    return {**found, **thread, "op_seconds": op_seconds, "numpy": np.__version__}


if __name__ == "__main__":
    sys.path.pop(0)  # nothing of ours shadows a module of theirs
    sys.stdout.write(json.dumps(measure_without_torch(int(sys.argv[1]), float(sys.argv[2]))) + "\n")
