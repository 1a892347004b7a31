"""How the seconds of a progress series on a GPU can be known: from sums, from the benchmark table, or not at all. Pure."""

from __future__ import annotations

from costgpu.measure.probe.frameworks.registry import BY_NAME
from costgpu.measure.probe.record import SeriesRecord
from costgpu.models.workload import GpuPath


def gpu_path(series: SeriesRecord) -> tuple[GpuPath, str, str]:
    """Return how its seconds on a GPU can be known, why, and its kind in the benchmark table."""
    source, facts = series["source"], series["facts"]
    if source == "log":
        return (GpuPath.TABLE if facts["kind"] else GpuPath.NONE), facts["gpu_reason"], facts["kind"]
    framework = BY_NAME[source]
    if framework.counts:
        if facts.get("totals"):
            return GpuPath.COUNTED, "", ""
        return GpuPath.NONE, "what its step computes could not be counted, so that no GPU time is known", ""
    if facts.get("inference"):
        name = facts.get("estimator") or source
        return GpuPath.NONE, f"no measured figure for predictions of {name} on a GPU", ""
    kind, words = framework.on_gpu(facts)
    return GpuPath.TABLE if kind else GpuPath.NONE, words, kind
