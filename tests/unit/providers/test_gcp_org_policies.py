"""What the values of an organisation's list policies mean for a region, an image, an address."""

from typing import Any

import pytest

from costgpu.errors import InvalidRequest, ProviderError, RefusedHere
from costgpu.providers.gcp.org_policies import ADDRESS, IMAGES, OS_LOGIN, PLACES, OrgPolicies

IMAGE = "projects/ubuntu-os-cloud/global/images/ubuntu-2404"


class Reply:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def json(self) -> dict[str, Any]:
        return self._document


class Told:
    """Clients that are told these policies; another one is refused."""

    project = "research-42"

    def __init__(self, policies: dict[str, dict[str, Any]]) -> None:
        self._policies, self.asked_for = policies, list[str]()

    def asked(self, doing: str, method: str, url: str, document: dict[str, str], seconds: float) -> Reply:
        assert seconds < 10, "Google refuses what it refuses anyway"
        assert (method, url.rpartition("/")[2]) == ("POST", "research-42:getEffectiveOrgPolicy")
        name = document["constraint"].removeprefix("constraints/")
        self.asked_for.append(name)
        if name not in self._policies:
            raise ProviderError(f"may not {doing}")
        return Reply(self._policies[name])


def policies(**policy: Any) -> dict[str, Any]:
    return {"listPolicy": policy}


@pytest.mark.parametrize(
    ("constraint", "policy", "refused"),
    [
        (OS_LOGIN, {"booleanPolicy": {"enforced": True}}, True),
        (OS_LOGIN, {"booleanPolicy": {}}, False),
        (OS_LOGIN, {}, False),
        (ADDRESS, policies(allValues="DENY"), True),
        (ADDRESS, policies(allValues="ALLOW"), False),
        (ADDRESS, policies(allowedValues=["projects/p/zones/us-central1-a/instances/bastion"]), True),
        (ADDRESS, policies(deniedValues=["projects/p/zones/us-central1-a/instances/db"]), False),
        (ADDRESS, policies(allowedValues=["under:folders/7"]), False),
        (IMAGES, policies(allowedValues=["projects/ubuntu-os-cloud"]), False),
        (IMAGES, policies(allowedValues=["is:projects/ubuntu-os-cloud"]), False),
        (IMAGES, policies(allowedValues=["projects/golden"]), True),
        (IMAGES, policies(allowedValues=["projects/golden", "under:organizations/1"]), False),
        (IMAGES, policies(deniedValues=["projects/ubuntu-os-cloud"]), True),
        (PLACES, policies(allowedValues=["us-central1"]), False),
        (PLACES, policies(allowedValues=["in:us-central1-locations"]), False),
        (PLACES, policies(allowedValues=["in:us-locations"]), False),
        (PLACES, policies(allowedValues=["us-central1-f"]), False),
        (PLACES, policies(allowedValues=["in:canada-locations"]), False),
        (PLACES, policies(allowedValues=["europe-west4", "us-central2"]), True),
        (PLACES, policies(deniedValues=["in:us-locations"]), True),
        (PLACES, policies(deniedValues=["us-east1"]), False),
        (PLACES, {}, False),
    ],
)
def test_only_what_is_certain_is_a_refusal(constraint: str, policy: dict[str, Any], refused: bool) -> None:
    found: Any = Told({constraint: policy})
    asked = OrgPolicies(found)
    assert [constraint in words for words in asked.breaches("us-central1", IMAGE)] == [True] * refused
    assert asked.why_unknown() is not None
    assert len(found.asked_for) == 4
    if refused:
        with pytest.raises(RefusedHere if constraint == PLACES else InvalidRequest, match=constraint):
            asked.check("us-central1", IMAGE)
    if constraint in (IMAGES, PLACES):
        assert not asked.breaches()
