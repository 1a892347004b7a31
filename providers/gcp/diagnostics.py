"""Whether a run on Google Cloud would work: identity, clock, API and billing, permissions, quotas, availability.

Creates nothing, costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import ProviderError
from costgpu.models import diagnostics
from costgpu.models.diagnostics import Check, Examination
from costgpu.models.offer import Offer
from costgpu.providers.common import compare_clocks, example_request, find_zones
from costgpu.providers.gcp import quotas, sdk
from costgpu.providers.gcp.facts import ROLE_FILE
from costgpu.providers.gcp.org_policies import RESOURCE_MANAGER, OrgPolicies
from costgpu.providers.gcp.provider import GcpProvider
from costgpu.providers.gcp.session import Clients, endpoint

ENOUGH = "costgpu doctor --policy gcp prints a role that is enough."
AT_ONCE = 100  # permissions in one question
HOURS = 1.0  # of the machine whose quota is looked at
NOT_NEEDED = frozenset(
    {
        "compute.instances.getSerialPortOutput",
        "compute.projects.get",
        *(f"compute.resourcePolicies.{verb}" for verb in ("create", "delete", "get", "list", "use")),
    }
)
"""Permissions for boot messages, for a quota that the create call tells, too, and for several machines close together."""


def permissions_in(document: str) -> tuple[str, ...]:
    """Return those of a role's YAML, which has them as its only list."""
    return tuple(line[2:].strip() for line in document.splitlines() if line.startswith("- "))


class GcpDiagnostics:
    """Examines one Google Cloud project.

    Args:
        project: None for that of the credentials, or of gcloud.
    """

    def __init__(self, *, clock: Clock, project: str | None = None, **options: Any) -> None:
        self._clock = clock
        self._clients = Clients(clock, project)
        self._provider = GcpProvider(clock=clock, project=project, **options)

    def examine(self, offer: Offer | None) -> Sequence[Check]:
        """See `costgpu.providers.base.Diagnosable`."""
        done = Examination()
        gate = done.add("credentials", self._credentials)
        done.add("clock", lambda: compare_clocks("Google", self._provider, self._clock))
        done.add("permissions", self._permissions, after=[gate])
        api = done.add("API, billing", self._api, after=[gate])
        done.add("organisation", lambda: self._organisation(offer), after=[api])
        if offer is not None:
            region = done.add("region", lambda: self._region(offer.region), after=[api])
            there = done.add("machine", lambda: find_zones(self._provider, offer), after=[region])
            quota = done.add("quota", lambda: self._quota(offer), after=[there])
            done.add("request", lambda: self._request(offer), after=[quota])
        return done.checks

    def _credentials(self) -> Check:
        who = self._clients.identity()
        source = f" ({who.source})" if who.source else ""
        return diagnostics.ok("credentials", f"{who.principal} in project {who.account}{source}")

    def _permissions(self) -> Check:
        needed, project = permissions_in(ROLE_FILE.read_text(encoding="utf-8")), self._clients.project
        url = f"{endpoint() or RESOURCE_MANAGER}/v1/projects/{project}:testIamPermissions"
        held: list[str] = []
        try:
            for start in range(0, len(needed), AT_ONCE):
                question = {"permissions": list(needed[start : start + AT_ONCE])}
                reply = self._clients.asked("ask which permissions there are", "POST", url, question)
                held += sdk.document(reply).get("permissions", [])
        except ProviderError as error:
            return diagnostics.unknown("permissions", f"could not be asked: {error.message}", error.hint or ENOUGH)
        return diagnostics.permissions_check(needed, held, sorted(NOT_NEEDED), ENOUGH)

    def _api(self) -> Check:
        """Any question to Compute Engine fails if the API or billing is off, and says so."""
        count = len(self._clients.regions())
        return diagnostics.ok("API, billing", f"Compute Engine answers for {self._clients.project} ({count} regions)")

    def _organisation(self, offer: Offer | None) -> Check:
        """Policies that refuse every machine of costgpu's; with an offer also by its region."""
        policies = OrgPolicies(self._clients)
        policies.check(offer.region if offer is not None else "", "")
        obstacle = policies.why_unknown()
        if obstacle is not None:
            fix = "The role roles/orgpolicy.policyViewer has the permission orgpolicy.policy.get, which tells them."
            return diagnostics.unknown("organisation", f"its policies could not be asked: {obstacle.message}", fix)
        return diagnostics.ok("organisation", "no policy that was found refuses machines of costgpu")

    def _region(self, region: str) -> Check:
        self._clients.require(region)
        return diagnostics.ok("region", f"the project can use {region}")

    def _quota(self, offer: Offer) -> Check:
        looked_at = quotas.check(self._clients, offer, HOURS * 3600)
        known = ", ".join(metric for metric, told in looked_at.items() if told)
        unknown = ", ".join(metric for metric, told in looked_at.items() if not told)
        enough = f"enough for one {offer.instance_type} in {offer.region} ({known})"
        if unknown:
            words = f"{f'{enough}, but ' if known else ''}Compute Engine does not tell {unknown}"
            return diagnostics.unknown("quota", words, f"See what there is: {sdk.quota_page(self._clients.project)}.")
        return diagnostics.ok("quota", enough)

    def _request(self, offer: Offer) -> Check:
        self._provider.check(example_request(offer, self._clock.now()))
        return diagnostics.ok("request", "image and network are there; Google has no dry run of the create call itself")
