"""Compute Engine's quotas: which ones an offer counts against, what is left of them, and how to ask for more.

Only quotas that the API of Compute Engine tells are looked at: those by VM family are not among them, and a create call
that breaks one of those is refused by Google. Source: Compute Engine, "Allocation quotas" and "GPU quota" (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "H100": "NVIDIA_H100_GPUS",
}
EVERYWHERE = "GPUS_ALL_REGIONS"
PREEMPTIBLE = "PREEMPTIBLE_"
COMMON_CPUS = frozenset({"e2", "n1"})  # counted together, as CPUS
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
    """What an offer counts against: metrics of which any one is enough, and how much of it."""
    spot = is_spot(offer)
    found: list[tuple[tuple[str, ...], float]] = []
    if offer.accelerator is not None:
        metric = ACCELERATORS.get(offer.accelerator.name, "")
        count = max(1.0, float(offer.accelerator.count))
        if metric and spot:
            found.append(((f"{PREEMPTIBLE}{metric}", metric), count))
        elif metric:
            found.append(((metric, f"{PREEMPTIBLE}{metric}") if seconds <= SHORT_SECONDS else (metric,), count))
        found.append(((EVERYWHERE,), count))
    family = split_type(offer.instance_type)[0].partition("-")[0]
    cpus = "CPUS" if family in COMMON_CPUS else f"{family.upper()}_CPUS"
    found.append(((f"{PREEMPTIBLE}CPUS", cpus) if spot else (cpus,), float(offer.vcpus)))
    return found


def missing(offer: Offer, seconds: float, known: Mapping[str, Quota], machines: int = 1) -> tuple[Quota, float] | None:
    """The first quota that is too small, and what one machine needs of it; None if all that are known are large enough.

    A preemptible quota of 0 was never asked for: spot machines count against the standard one then. With one, they count
    against that alone. Source: Compute Engine, "Allocation quotas", preemptible quotas (2026-11).
    """
    for metrics, count in needs(offer, seconds):
        had = {metric for metric in metrics if metric in known and known[metric].limit > 0}
        asked = [metric for metric in metrics if metric in had or not metric.startswith(PREEMPTIBLE)]
        if is_spot(offer):
            asked = asked[:1]
        quotas = [known[metric] for metric in asked if metric in known]
        if (
            len(quotas) < len(asked)
            or not quotas
            or any(each.usage + machines * count <= each.limit for each in quotas)
        ):
            continue
        return max(quotas, key=lambda quota: quota.limit), count
    return None


def check(clients: Clients, offer: Offer, seconds: float, machines: int = 1) -> None:
    """Raises `QuotaExceeded` if a quota that can be read does not allow so many machines more.

    Raises:
        QuotaExceeded: With the quota's name and how to ask for more.
    """
    region = clients.read(f"read the quotas of {offer.region}", "Regions", "get", region=offer.region)
    known = quotas_in(region.quotas, offer.region)
    if offer.accelerator is not None:
        try:
            whole = clients.read("read the quotas of the project", "Projects", "get")
        except AuthError:
            pass  # a role may do without it; the create call tells
        else:
            told = quotas_in(whole.quotas, "all regions")
            known |= {EVERYWHERE: told[EVERYWHERE]} if EVERYWHERE in told else {}
    found = missing(offer, seconds, known, machines)
    if found is not None:
        raise exceeded(*found, offer, clients.project, machines)


def exceeded(quota: Quota, count: float, offer: Offer, project: str, machines: int = 1) -> QuotaExceeded:
    """The error that says what the quota is, what is needed, and how to ask for more.

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
