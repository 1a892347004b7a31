"""What is told of a CPU without a benchmark."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.host_info import flops_per_cycle, local_accelerators
from costgpu.measure.probe import microbenchmark

benchmark: Any = microbenchmark  # for Python 3.8, without types


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
    found = benchmark.by_turns({"one": (lambda: None, 1e9), "thousand": (lambda: sum(range(1000)), 1e12)}, 0.01)
    for rates in found.values():
        assert rates == sorted(rates)
        assert len(rates) >= 5
        assert min(rates) > 1000


def test_who_disturbs_for_a_moment_slows_some_windows_of_each_work_and_all_of_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a third of the time: as long as one of three works would take without turns."""
    now = 0.0

    def work() -> None:
        nonlocal now
        now += 0.003 if 0.1 <= now < 0.22 else 0.001

    monkeypatch.setattr("costgpu.measure.probe.microbenchmark.time", SimpleNamespace(perf_counter=lambda: now))
    for rates in benchmark.by_turns(dict.fromkeys("abc", (work, 1e6)), 0.12).values():
        assert rates[0] < 0.4
        assert rates[-1] == pytest.approx(1.0)


def test_the_copy_of_several_threads_counts_all_of_them() -> None:
    copy = benchmark.copier(2)
    began = time.perf_counter()
    copy()
    assert benchmark.COPY_BYTES / (time.perf_counter() - began) > 1e6
