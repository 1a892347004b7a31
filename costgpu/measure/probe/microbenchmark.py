"""This machine's speed: fp32 matrix multiply and convolution, memory copy, the smallest call, and one thread of plain code.

All but the last are measured through torch, or, without the convolution, through NumPy. This file runs as a script in
whatever Python there is (3.8 or newer). Rates are sorted, slowest first. What a busy machine takes from a window is
taken off its time (`schedstat`). On one Zen 3 core NumPy's OpenBLAS reached 1.04 times the matrix-multiply rate of
torch and 0.94 times its copy rate (NumPy 2.4, torch 2.13, CPU time, 2026-11-21): the two may stand for one another.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import threading
import time
from importlib import import_module

if __package__:
    schedstat = import_module(".schedstat", __package__)
else:  # as a script; its folder need not be on the path, and nothing of ours shadows a module of theirs
    HERE = os.path.dirname(os.path.abspath(__file__))
    OTHERS = [path for path in sys.path if path != HERE]
    sys.path[:] = [HERE]
    schedstat = import_module("schedstat")
    sys.path[:] = OTHERS

SIZE = 1024  # of the square matrices
COPY_BYTES = 1 << 26  # far more than the caches hold
# Batch, channels and pixels of a side of two 3x3 convolutions, with their backward as many FLOPs each: early and late in
# a network of images. Libraries reach another share of the peak in them than in a matrix multiply.
CONVOLUTIONS = ((16, 64, 32), (16, 256, 8))
WINDOW_SECONDS = 0.08  # at least; several calls of a work, or one
LEAST_WINDOWS = 5
TORCH_WINDOWS = 6  # of each figure
# One thread is timed on bzip2: libbz2 has been the same for years, whatever the Python, and its branches and look-ups are
# more like an interpreter's than arithmetic is.
TEXT_WORDS, TEXT_WINDOWS = 9000, 40


def run_delay_of_others():
    """Return seconds in the queue of all threads of this process but this one."""
    return schedstat.run_delay_of_all() - schedstat.run_delay()


def undisturbed(lap, run_delay_before):
    """Return the seconds of a `Lap` without those in which other threads had no core and were waited for.

    Args:
        run_delay_before: Seconds in the queue of all other threads of this process, before the lap.
    """
    worked, cpu, _ = lap.end()
    waited = min(max(0.0, worked - cpu), max(0.0, run_delay_of_others() - run_delay_before))
    return max(worked - waited, 1e-9)


def window(work, amount, seconds):
    """Return `amount` of one call of `work` over its time, in thousand millions per second."""
    work()  # what the others have left in the caches
    before, lap, repeats = run_delay_of_others(), schedstat.Lap(), 0
    while repeats == 0 or schedstat.clock() - lap.since < seconds:
        work()
        repeats += 1
    return amount * repeats / undisturbed(lap, before) / 1e9


def by_turns(works, windows, seconds=WINDOW_SECONDS):
    """Return sorted rates of every work: a neighbour who comes for a moment slows some windows of each and all of none.

    Args:
        works: Name -> what to call, and how much of it one call is.
    """
    found = {name: [] for name in works}
    for _ in range(windows):
        for name, (work, amount) in works.items():
            found[name].append(window(work, amount, seconds))
    return {name: sorted(rates) for name, rates in found.items()}


def copier(threads):
    """Copy `COPY_BYTES` with all threads; `memmove` runs without the interpreter's lock."""
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


def convolver(torch):
    """Run the convolutions and their backward passes once; with it, the FLOPs of one call."""
    cases, flops = [], 0.0
    for batch, channels, side in CONVOLUTIONS:
        image = torch.randn(batch, channels, side, side, requires_grad=True)
        weight = torch.randn(channels, channels, 3, 3, requires_grad=True)
        cases.append((image, weight, torch.ones(batch, channels, side, side)))
        flops += 3 * 2.0 * batch * channels**2 * 9 * side**2

    def convolve():
        for image, weight, gradient in cases:
            out = torch.nn.functional.conv2d(image, weight, padding=1)
            torch.autograd.grad(out, (image, weight), gradient)

    return convolve, flops


def measure_with_torch(windows=TORCH_WINDOWS):
    """Return all figures, with as many threads as torch takes by itself."""
    import torch

    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8).view(torch.float32)
    target = torch.empty_like(source)
    tiny = torch.zeros(8)
    works = {
        "gemm_gflops": (lambda: torch.mm(left, right), 2.0 * SIZE**3),
        "conv_gflops": convolver(torch),
        "copy_gbps": (lambda: target.copy_(source), 2.0 * COPY_BYTES),
        "calls": (lambda: tiny.add_(1.0), 1e9),
    }
    found = by_turns(works, windows)
    threads = torch.get_num_threads()
    return {**found, "threads": threads, "single_thread_mbps": single_thread_mbps()}


def measure_without_torch(threads, seconds):
    """Return all figures but the convolution; without NumPy `gemm_gflops` and `calls` are empty, too.

    Args:
        threads: For the copy. Those of the matrix multiply are the BLAS library's, set by the environment.
    """
    thread = {"single_thread_mbps": single_thread_mbps(), "conv_gflops": []}
    works = {"copy_gbps": (copier(threads), 2.0 * (COPY_BYTES // threads) * threads)}
    try:
        import numpy as np
    except Exception:  # noqa: BLE001 - a broken installation raises anything
        return {**by_turns(works, LEAST_WINDOWS, seconds / 12), **thread, "gemm_gflops": [], "calls": [], "numpy": ""}
    left = np.full((SIZE, SIZE), 1.25, dtype=np.float32)
    right, out = left.copy(), left.copy()
    tiny = np.zeros(8, dtype=np.float32)
    works["gemm_gflops"] = (lambda: np.dot(left, right, out=out), 2.0 * SIZE**3)
    works["calls"] = (lambda: np.add(tiny, 1.0, out=tiny), 1e9)
    return {**by_turns(works, LEAST_WINDOWS, seconds / 12), **thread, "numpy": np.__version__}


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        result = measure_with_torch(int(sys.argv[2]))
    else:
        result = measure_without_torch(int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write(json.dumps(result) + "\n")
