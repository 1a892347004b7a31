"""Policies of the organisation that refuse every machine of ours, as far as Google tells these credentials.

Source: Resource Manager v1, ``projects.getEffectiveOrgPolicy``; "Organization policy constraints" and "Using list
constraints" for the forms of values (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from costgpu.errors import InvalidRequest, ProviderError, RefusedHere
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.session import Clients, endpoint

RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
OS_LOGIN = "compute.requireOsLogin"
ADDRESS = "compute.vmExternalIpAccess"
IMAGES = "compute.trustedImageProjects"
PLACES = "gcp.resourceLocations"
CONSTRAINTS = (OS_LOGIN, ADDRESS, IMAGES, PLACES)
HINT = "The organisation's administrator can make an exception for the project."
LONGEST_SECONDS = 5.0  # Google refuses what it refuses anyway: nobody waits long to hear that before
Policy = Mapping[str, Any]


def allowed(policy: Policy, wanted: Collection[str], undecided: Callable[[str], bool]) -> bool | None:
    """Return what a list policy says.

    Args:
        wanted: Values that stand for what is asked for; any of them is enough.
        undecided: Whether a value of the policy may stand for it, too.

    Returns:
        None if only Google can tell.
    """
    rules = policy.get("listPolicy", {})
    only, never = (
        {str(value).removeprefix("is:") for value in rules.get(key, ())} for key in ("allowedValues", "deniedValues")
    )
    if rules.get("allValues") == "DENY" or never.intersection(wanted):
        return False
    if not only:
        return None if any(map(undecided, never)) else True
    return True if only.intersection(wanted) else None if any(map(undecided, only)) else False


class OrgPolicies:
    """Those that hold for the project of some clients; asked for once."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @cached_property
    def _told(self) -> Mapping[str, Policy | ProviderError]:
        with ThreadPoolExecutor(len(CONSTRAINTS), thread_name_prefix="costgpu-gcp") as pool:
            return dict(zip(CONSTRAINTS, pool.map(self._ask, CONSTRAINTS), strict=True))

    def _ask(self, constraint: str) -> Policy | ProviderError:
        try:
            url = f"{endpoint() or RESOURCE_MANAGER}/v1/projects/{self._clients.project}:getEffectiveOrgPolicy"
            doing = f"ask for the organisation's policy {constraint}"
            question = {"constraint": f"constraints/{constraint}"}
            reply = self._clients.asked(doing, "POST", url, question, seconds=LONGEST_SECONDS)
        except ProviderError as error:
            return error
        return sdk.document(reply)

    def why_unknown(self) -> ProviderError | None:
        """Return why some of them are not known; None if all are."""
        return next((said for said in self._told.values() if isinstance(said, ProviderError)), None)

    def breaches(self, region: str = "", image: str = "") -> Sequence[str]:
        """Return what the policies forbid of a machine, for certain, in words.

        Args:
            region: Where it is to be; empty if that is not known.
            image: ``projects/PROJECT/...`` that it is to boot; empty if that is not known.
        """
        project = image.split("/")[1] if image.startswith("projects/") else ""
        continent = region.partition("-")[0]
        places = {region, f"in:{region}-locations", f"in:{continent}-locations"}
        groups = ("in:", "under:")
        asked: dict[str, Callable[[Policy], bool | None]] = {
            OS_LOGIN: lambda policy: not policy.get("booleanPolicy", {}).get("enforced", False),
            ADDRESS: lambda policy: allowed(policy, (), lambda value: value.startswith(groups)),
        }
        words = {
            OS_LOGIN: "it demands OS Login, and costgpu logs in with a key of the run",
            ADDRESS: "it forbids public addresses, which machines are reached at",
            IMAGES: f"it does not trust images of {project}",
            PLACES: f"it allows nothing in {region}",
        }
        if project:
            trusted = (f"projects/{project}", project)
            asked[IMAGES] = lambda policy: allowed(policy, trusted, lambda value: value.startswith(groups))
        if region:
            parts = (*groups, f"{region}-")
            asked[PLACES] = lambda policy: allowed(policy, places, lambda value: value.startswith(parts))
        told = {name: said for name, said in self._told.items() if not isinstance(said, ProviderError)}
        return [f"{words[name]} ({name})" for name, fits in asked.items() if name in told and fits(told[name]) is False]

    def check(self, region: str, image: str) -> None:
        """Raise an error if a machine with this image in this region is certain to be refused.

        Raises:
            RefusedHere: In this region, as far as is known.
            InvalidRequest: Everywhere.
        """
        found = self.breaches(region, image)
        if found:
            kind = RefusedHere if not self.breaches("", image) else InvalidRequest
            raise kind(f"A policy of the organisation is in the way: {'; '.join(found)}.", hint=HINT)
