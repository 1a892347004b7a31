"""Compute Engine's quotas: which ones an offer counts against, what is left of them, and how to ask for more.

Not all of them are in the answers of Compute Engine: newer GPUs and CPUs are counted by family, and of those quotas it
tells nothing. They are unknown then, and a create call that breaks one is refused by Google. Sources: Compute Engine,
"Allocation quotas" and "GPU quota" (2026-11); the metrics that there are: ``Quota.metric`` of ``compute.v1`` (20261106).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from costgpu.errors import AuthError, QuotaExceeded
from costgpu.models.offer import Offer
from costgpu.providers.gcp.launch import is_spot, split_type
from costgpu.providers.gcp.sdk import ask_for_more
from costgpu.providers.gcp.session import Clients

ACCELERATORS = {
    "T4": "NVIDIA_T4_GPUS",
    "V100": "NVIDIA_V100_GPUS",
    "P100": "NVIDIA_P100_GPUS",
    "P4": "NVIDIA_P4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "A100": "NVIDIA_A100_GPUS",
    "A100-80GB": "NVIDIA_A100_80GB_GPUS",
}
"""Others are counted by family."""
GPUS_BY_FAMILY = "GPUS_PER_GPU_FAMILY"
CPUS_BY_FAMILY = "CPUS_PER_VM_FAMILY"
GPUS_EVERYWHERE = "GPUS_ALL_REGIONS"
CPUS_EVERYWHERE = "CPUS_ALL_REGIONS"
PREEMPTIBLE = "PREEMPTIBLE_"
PREEMPTIBLE_H100 = "PREEMPTIBLE_NVIDIA_H100_GPUS"  # of a3-highgpu alone; there is no standard one of that name
COMMON_CPUS = frozenset({"e2", "n1", "f1", "g1"})  # counted together, as CPUS
OWN_CPUS = frozenset({"n2", "n2d", "c2", "c2d", "c3", "t2a", "t2d", "a2", "m1", "m2", "m3"})  # N2_CPUS and so on
SHORT_SECONDS = 7 * 86400.0
"""A GPU machine that is deleted by its own time limit within so long may use either quota, the standard or the preemptible
one. Source: Compute Engine, "GPU VMs and preemptible allocation quotas" (2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One quota."""

    metric: str
    limit: float
    usage: float
    where: str  # the region, or ``all regions``


def quotas_in(rows: Sequence[Any], where: str) -> dict[str, Quota]:
    """By metric, from what a region or a project says."""
    return {
        str(row.metric): Quota(metric=str(row.metric), limit=float(row.limit), usage=float(row.usage), where=where)
        for row in rows
    }


def needs(offer: Offer, seconds: float) -> list[tuple[tuple[str, ...], float]]:
    """Return what an offer counts against: metrics of which any one is enough, and how much of it."""
    spot, machine = is_spot(offer), split_type(offer.instance_type)[0]
    found: list[tuple[tuple[str, ...], float]] = []
    if offer.accelerator is not None:
        metric = ACCELERATORS.get(offer.accelerator.name, GPUS_BY_FAMILY)
        preemptible = PREEMPTIBLE_H100 if machine.startswith("a3-highgpu-") else f"{PREEMPTIBLE}{metric}"
        count = max(1.0, float(offer.accelerator.count))
        if spot:
            found.append(((preemptible, metric), count))
        else:
            found.append(((metric, preemptible) if seconds <= SHORT_SECONDS else (metric,), count))
        found.append(((GPUS_EVERYWHERE,), count))
    family = machine.partition("-")[0]
    own = f"{family.upper()}_CPUS" if family in OWN_CPUS else CPUS_BY_FAMILY
    cpus = ("CPUS" if family in COMMON_CPUS else own, CPUS_EVERYWHERE)
    return found + [((f"{PREEMPTIBLE}CPUS", metric) if spot else (metric,), float(offer.vcpus)) for metric in cpus]


def asked(offer: Offer, metrics: Sequence[str], known: Mapping[str, Quota]) -> list[str]:
    """Return those of the metrics that really count.

    A preemptible quota of 0 was never asked for: spot machines count against the standard one then. With one, they count
    against that alone. Source: Compute Engine, "Allocation quotas", preemptible quotas (2026-11).
    """
    had = {metric for metric in metrics if metric in known and known[metric].limit > 0}
    found = [metric for metric in metrics if metric in had or not metric.startswith(PREEMPTIBLE)]
    return found[:1] if is_spot(offer) else found


def missing(offer: Offer, seconds: float, known: Mapping[str, Quota], machines: int = 1) -> tuple[Quota, float] | None:
    """Return the first quota that is too small, and what one machine needs of it.

    None if all that are known are large enough.
    """
    for metrics, count in needs(offer, seconds):
        counting = asked(offer, metrics, known)
        quotas = [known[metric] for metric in counting if metric in known]
        if len(quotas) < len(counting) or any(_fits(each, machines * count) for each in quotas):
            continue
        return max(quotas, key=lambda quota: quota.limit), count
    return None


def looked_at(offer: Offer, seconds: float, known: Mapping[str, Quota]) -> dict[str, bool]:
    """Return the metrics that an offer counts against, and whether their quotas could be read."""
    found: dict[str, bool] = {}
    for metrics, count in needs(offer, seconds):
        counting = asked(offer, metrics, known)
        enough = [metric for metric in counting if metric in known and _fits(known[metric], count)]
        found |= dict.fromkeys(enough[:1], True) or {metric: metric in known for metric in counting}
    return found


def _fits(quota: Quota, amount: float) -> bool:
    return quota.usage + amount <= quota.limit


def check(clients: Clients, offer: Offer, seconds: float, machines: int = 1) -> dict[str, bool]:
    """Raise `QuotaExceeded` if a quota that can be read does not allow so many machines more.

    Returns:
        See `looked_at`.

    Raises:
        QuotaExceeded: With the quota's name and how to ask for more.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="costgpu-gcp") as pool:
        everywhere = pool.submit(clients.read, "read the quotas of the project", "Projects", "get")
        region = clients.read(f"read the quotas of {offer.region}", "Regions", "get", region=offer.region)
    known = quotas_in(region.quotas, offer.region)
    with contextlib.suppress(AuthError):  # a role may do without it; the create call tells
        known = {**quotas_in(everywhere.result().quotas, "all regions"), **known}
    found = missing(offer, seconds, known, machines)
    if found is not None:
        raise exceeded(*found, offer, clients.project, machines)
    return looked_at(offer, seconds, known)


def exceeded(quota: Quota, count: float, offer: Offer, project: str, machines: int = 1) -> QuotaExceeded:
    """Return the error that says what the quota is, what is needed, and how to ask for more.

    Args:
        count: What one machine needs of it.
    """
    used = f", of which {quota.usage:g} are used" if quota.usage else ""
    wanted = f"one {offer.instance_type} needs {count:g}."
    if machines > 1:
        fit = max(0, int((quota.limit - quota.usage) // count))
        wanted = f"{machines} {offer.instance_type} need {machines * count:g}. At most {fit} of them fit."
    return QuotaExceeded(
        f"The quota {quota.metric} of the project {project} in {quota.where} is {quota.limit:g}{used}; {wanted}",
        hint=ask_for_more(quota.metric, project),
    )
