"""What is told of a CPU without a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from costgpu.measure.bench import copy_windows, windows
from costgpu.measure.machine import flops_per_cycle, local_accelerators


@pytest.mark.parametrize(
    ("info", "flops"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx avx2 avx512f\n", 64),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 avx512f\n", 32),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 avx512f avx512_vp2intersect\n", 64),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 fma\n", 32),
        ("flags\t\t: fpu avx\n", 16),
        ("flags\t\t: fpu sse2\n", 8),
        ("Features\t: fp asimd\n", 16),
        ("Features\t: fp asimd sve\n", 32),
    ],
)
def test_flops_of_a_cycle(info: str, flops: float) -> None:
    assert flops_per_cycle(info) == flops


def test_gpus_by_their_drivers_own_words(tmp_path: Path) -> None:
    assert local_accelerators(tmp_path / "none") == []
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 77\n")
    assert local_accelerators(tmp_path) == ["NVIDIA A100-SXM4-40GB"] * 2


def test_windows_are_sorted_rates() -> None:
    calls = []
    rates = windows(lambda: calls.append(1), 1e9, 0.01)
    assert rates == sorted(rates)
    assert len(rates) >= 5
    assert min(rates) > 1000
    assert calls


def test_the_copy_of_several_threads_counts_all_of_them() -> None:
    assert all(rate > 0.01 for rate in copy_windows(2, 0.01))
