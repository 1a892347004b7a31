"""EC2's vCPU quotas: which one an instance type counts against, its value, and where to ask for more."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from decimal import Decimal

from costgpu.errors import QuotaExceeded
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import Clients

STANDARD_FAMILIES = "acdhimrtz"


@dataclass(frozen=True, slots=True)
class QuotaBucket:
    """The instance types that share a quota. Codes: Service Quotas, service ``ec2``; spot empty where not known."""

    name: str
    on_demand: str
    spot: str


STANDARD = QuotaBucket("Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A", "L-34B43A08")
GRAPHICS = QuotaBucket("G and VT instances", "L-DB2E81BA", "L-3819A6DF")
P4_AND_OLDER = QuotaBucket("P instances", "L-417A185B", "L-7212CCBC")
P5 = QuotaBucket("P instances", "L-417A185B", "L-C4BD4855")
P6 = QuotaBucket("P instances", "L-417A185B", "")
X = QuotaBucket("X instances", "L-7295265B", "L-E3A00192")
"""Source: Amazon EC2 endpoints and quotas, AWS General Reference (2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What an offer counts against."""

    code: str  # its name in Service Quotas; empty if it is not known
    name: str
    vcpus: Decimal | None  # its value; None if it could not be read


def bucket_of(instance_type: str) -> QuotaBucket | None:
    """Return the bucket of an instance type; None for those with a quota of their own that costgpu does not know."""
    match = re.match(r"([a-z]+)(\d*)", instance_type)
    letters, generation = match.groups() if match else ("", "")
    if letters in ("g", "gr", "vt"):
        return GRAPHICS
    if letters == "p":
        return P4_AND_OLDER if int(generation or 0) <= 4 else P5 if generation == "5" else P6
    if letters == "x":
        return X
    if letters in ("inf", "trn", "dl", "mac", "hpc", "f", "u", ""):
        return None
    return STANDARD if letters[0] in STANDARD_FAMILIES else None


def look_up(clients: Clients, offer: Offer) -> Quota:
    """Return the quota and, if these credentials may read it, its value."""
    bucket = bucket_of(offer.instance_type)
    spot = offer.purchase_option is PurchaseOption.SPOT
    if bucket is None:
        return Quota(code="", name=f"{offer.family} instances", vcpus=None)
    code = bucket.spot if spot else bucket.on_demand
    name = f"{'Spot' if spot else 'Running On-Demand'} {bucket.name}"
    value: Decimal | None = None
    if code:
        with contextlib.suppress(*sdk.foreign()):
            reply = clients.client("service-quotas", offer.region).get_service_quota(ServiceCode="ec2", QuotaCode=code)
            value = Decimal(str(reply["Quota"]["Value"]))
    return Quota(code=code, name=name, vcpus=value)


def check(clients: Clients, offer: Offer, machines: int = 1) -> Quota:
    """Return the quota, which is large enough for so many machines of the offer, or could not be read.

    Raises:
        QuotaExceeded: It is too small.
    """
    quota = look_up(clients, offer)
    if quota.vcpus is not None and quota.vcpus < offer.vcpus * machines:
        raise exceeded(quota, offer, machines=machines)
    return quota


def exceeded(quota: Quota, offer: Offer, said: str = "", *, machines: int = 1) -> QuotaExceeded:
    """Return the error that says what the quota is, what is needed, and how to ask for more.

    Args:
        said: AWS's own words, if it has refused already.
        machines: How many are wanted at once.
    """
    value = "not known" if quota.vcpus is None else f"{quota.vcpus.normalize():f} vCPUs"
    code = f" ({quota.code})" if quota.code else ""
    console = f"https://{offer.region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    needed = offer.vcpus * machines
    ask = f"Ask AWS for more: {console}/{quota.code}".rstrip("/")
    if quota.code:
        ask += (
            f" or: aws service-quotas request-service-quota-increase --region {offer.region} --service-code ec2"
            f" --quota-code {quota.code} --desired-value {int(quota.vcpus or 0) + needed}"
        )
    wanted = f"{machines} {offer.instance_type} need" if machines > 1 else f"one {offer.instance_type} needs"
    message = (
        f"The account's quota for {quota.name}{code} in {offer.region} is {value}; "
        f"{wanted} {needed} on top of what already runs."
    )
    if machines > 1 and quota.vcpus is not None:
        message += f" At most {int(quota.vcpus // offer.vcpus)} of them fit."
    return QuotaExceeded(f"{message} {said}".rstrip(), hint=ask)
