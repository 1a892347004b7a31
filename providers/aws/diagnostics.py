"""Whether a run on AWS would work: identity, clock, permissions, quota, availability. Creates nothing, costs nothing."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError
from costgpu.models import diagnostics
from costgpu.models.diagnostics import Check, Examination
from costgpu.models.instance import Identity
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.providers.aws import quotas, sdk
from costgpu.providers.aws.facts import POLICY_FILE
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.common import compare_clocks, example_request, find_zones

ENOUGH = "costgpu doctor --policy aws prints a policy that is enough."
_ASSUMED = re.compile(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/")
AWS_KEY = "alias/aws/ebs"
"""The key that AWS keeps for an account's disks, whose policy lets everybody in the account use it through EC2.
Source: Amazon EBS User Guide, "How Amazon EBS encryption works" (2026-11)."""
SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_NOT_NEEDED = frozenset(
    {
        "ec2:DescribeSpotPriceHistory",
        "ec2:GetConsoleOutput",
        "ec2:GetEbsDefaultKmsKeyId",
        # for runs on several machines
        "ec2:AuthorizeSecurityGroupEgress",
        "ec2:CreatePlacementGroup",
        "ec2:DeletePlacementGroup",
        "ec2:DescribePlacementGroups",
    }
)
_EXAMPLES = {"image": "ami-0123456789abcdef0", "*": "costgpu-example"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the policy simulator at once."""

    actions: tuple[str, ...]  # such as ``ec2:RunInstances``
    resources: tuple[str, ...] = ()  # ARNs without wildcards; empty for actions that have no resource
    # condition key -> values that our requests have
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def shipped_questions(account: str, region: str) -> tuple[Question, ...]:
    """Return those about the policy that comes with costgpu."""
    return questions(json.loads(POLICY_FILE.read_text(encoding="utf-8")), account, region)


def questions(document: Mapping[str, Any], account: str, region: str) -> tuple[Question, ...]:
    """Return what our policy allows, as questions: one for each of its statements."""
    return tuple(
        Question(
            actions=_texts(statement["Action"]),
            resources=tuple(_concrete(arn, account, region) for arn in _texts(statement["Resource"]) if arn != "*"),
            context=_context(statement.get("Condition", {}), region),
        )
        for statement in document["Statement"]
    )


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _concrete(arn: str, account: str, region: str) -> str:
    """Return an ARN that a pattern of ours stands for."""
    partition, service, where, whose, what = arn.split(":", 5)[1:]
    kind = what.partition("/")[0]
    example = _EXAMPLES.get(kind, _EXAMPLES["*"])
    return ":".join(
        ("arn", partition, service, where.replace("*", region), whose.replace("*", account), what.replace("*", example))
    )


def _context(condition: Mapping[str, Mapping[str, Any]], region: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for operator, keys in condition.items():
        for key, value in keys.items():
            if operator == "Null" and value == "false":
                found[key] = ("costgpu-example",)
            elif operator in ("StringEquals", "Bool"):
                found[key] = _texts(value)[:1]
            elif operator == "StringLike":
                found[key] = (_texts(value)[0].replace("*", region),)
            else:
                raise ValueError(f"the shipped policy has a condition that is not known here: {operator} {key}")
    return found


def is_needed(action: str, *, spot: bool) -> bool:
    """Return whether no run works without it; the others are for schedules, buckets, bills, prices and better messages."""
    if action == "iam:CreateServiceLinkedRole":
        return spot
    return action.startswith(("ec2:", "ssm:")) and action not in _NOT_NEEDED


class AwsDiagnostics:
    """Examines one AWS account."""

    def __init__(self, *, clock: Clock, **options: Any) -> None:
        session = sdk.boto3().Session()
        self._clock = clock
        self._clients = Clients(session)
        self._provider = AwsProvider(clock=clock, session=session, **options)

    def examine(self, offer: Offer | None) -> Sequence[Check]:
        """See `costgpu.providers.base.Diagnosable`."""
        known: list[Identity] = []
        spot = offer is not None and offer.purchase_option is PurchaseOption.SPOT
        done = Examination()
        gate = done.add("credentials", lambda: self._credentials(known))
        done.add("clock", lambda: compare_clocks("AWS", self._provider, self._clock))
        done.add("permissions", lambda: self._permissions(known[0], self._region(offer), spot=spot), after=[gate])
        region = done.add("region", lambda: self._reached(self._region(offer)), after=[gate])
        done.add("disk key", lambda: self._disk_key(known[0], self._region(offer), spot=spot), after=[region])
        if offer is not None:
            there = done.add("machine", lambda: find_zones(self._provider, offer), after=[region])
            quota = done.add("quota", lambda: self._quota(offer), after=[there])
            done.add("dry run", lambda: self._dry_run(offer), after=[quota])
        return done.checks

    def _region(self, offer: Offer | None) -> str:
        return offer.region if offer is not None else self._clients.home()

    def _credentials(self, known: list[Identity]) -> Check:
        who = self._provider.identity()
        known.append(who)
        words = f"{who.principal}" + (f" ({who.source})" if who.source else "")
        if who.principal.endswith(":root"):
            return diagnostics.warning(
                "credentials", f"{words}: the account's root user", f"Use a role or a user. {ENOUGH}"
            )
        return diagnostics.ok("credentials", words)

    def _reached(self, region: str) -> Check:
        self._clients.require(region)
        enabled = self._clients.enabled_regions()
        if region not in enabled:
            raise InvalidRequest(
                f"The account cannot use {region}: it is not enabled.",
                hint=f"aws account enable-region --region-name {region}",
            )
        return diagnostics.ok("region", f"{region} is enabled in the account, as {len(enabled) - 1} others are")

    def _permissions(self, who: Identity, region: str, *, spot: bool) -> Check:
        entity = self._entity(who.principal)
        if who.principal.endswith(":root"):
            return diagnostics.ok("permissions", "the root user may do everything")
        if not entity:
            return diagnostics.unknown("permissions", f"AWS cannot simulate those of {who.principal}", ENOUGH)
        asked = shipped_questions(who.account, region)
        needed = {action for each in asked for action in each.actions}
        try:
            with self._clients.speaking("have the permissions simulated"):
                denied = dict(found for each in asked for found in self._denied(entity, each))
        except ProviderError as error:
            return diagnostics.unknown(
                "permissions",
                f"could not be asked: {error.message}",
                f"Allow iam:SimulatePrincipalPolicy to have them checked, or compare: {ENOUGH}",
            )
        optional = [action for action in needed if not is_needed(action, spot=spot)]
        ours = {key for each in asked for key in each.context}
        open_ = {key for keys in denied.values() for key in keys} - ours
        missing = {action for action, keys in denied.items() if not set(keys) - ours}
        check = diagnostics.permissions_check(sorted(needed), sorted(needed - missing), optional, ENOUGH)
        if open_ and check.status is not diagnostics.Status.FAILED:
            rest = ", ".join(sorted(set(denied) - missing))
            return diagnostics.unknown(
                "permissions", f"{rest}: whether they are there depends on {', '.join(sorted(open_))}"
            )
        return check

    def _entity(self, principal: str) -> str:
        """Return the user or role whose policies count; empty if there is none."""
        assumed = _ASSUMED.match(principal)
        if assumed is None:
            return principal if re.match(r"arn:aws[a-z-]*:iam::\d+:(user|role)/", principal) else ""
        partition, account, name = assumed.groups()
        with contextlib.suppress(*sdk.foreign()):  # a session does not tell its role's path
            return str(self._clients.client("iam", self._clients.home()).get_role(RoleName=name)["Role"]["Arn"])
        return f"arn:{partition}:iam::{account}:role/{name}"

    def _denied(self, entity: str, question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what is not allowed, with the condition keys of the user's own policies that a simulation does not know."""
        given: dict[str, Any] = {"PolicySourceArn": entity, "ActionNames": list(question.actions)}
        if question.resources:
            given["ResourceArns"] = list(question.resources)
        if question.context:
            given["ContextEntries"] = [
                {
                    "ContextKeyName": key,
                    "ContextKeyType": "boolean" if values == ("true",) else "string",
                    "ContextKeyValues": list(values),
                }
                for key, values in question.context.items()
            ]
        client = self._clients.client("iam", self._clients.home())
        for page in client.get_paginator("simulate_principal_policy").paginate(**given):
            for result in page["EvaluationResults"]:
                parts = result.get("ResourceSpecificResults", ())
                said = [result["EvalDecision"], *(each["EvalResourceDecision"] for each in parts)]
                if any(word != "allowed" for word in said):
                    keys = {key for each in (result, *parts) for key in each.get("MissingContextValues", ())}
                    yield result["EvalActionName"], tuple(sorted(keys))

    def _disk_key(self, who: Identity, region: str, *, spot: bool) -> Check:
        """Return whether machines can be given their encrypted disk, with the account's default key.

        No dry run tells that.
        """
        name = "disk key"
        try:
            with self._clients.speaking("ask for the default key of disks"):
                key = str(self._clients.client("ec2", region).get_ebs_default_kms_key_id()["KmsKeyId"])
        except ProviderError as error:
            return diagnostics.unknown(name, f"could not be asked: {error.message}", "Allow ec2:GetEbsDefaultKmsKeyId.")
        if key.endswith(AWS_KEY):
            return diagnostics.ok(name, "disks are encrypted with AWS's own key, which needs no permission")
        whose = f"disks in {region} are encrypted with the account's own key {key}"
        try:
            missing = self._missing_for(key, who, region)
        except ProviderError as error:
            why = f"{whose}; whether these credentials may use it could not be asked: {error.message}"
            return diagnostics.unknown(name, why, ENOUGH)
        if missing:
            return diagnostics.warning(
                name,
                f"{whose}, and these credentials have no {', '.join(missing)}: unless the key's own policy allows it,"
                " a machine ends as soon as it is created (Client.InternalError)",
                ENOUGH,
            )
        if spot:
            role = f"arn:aws:iam::{who.account}:{SPOT_ROLE}"
            return diagnostics.warning(
                name,
                f"{whose}; spot machines start only if the role of EC2 Spot has a grant for it",
                f"aws kms create-grant --region {region} --key-id {key} --grantee-principal {role} --operations Decrypt"
                " Encrypt GenerateDataKey GenerateDataKeyWithoutPlaintext ReEncryptFrom ReEncryptTo CreateGrant DescribeKey",
            )
        return diagnostics.ok(name, f"{whose}, which these credentials may use")

    def _missing_for(self, key: str, who: Identity, region: str) -> list[str]:
        """Return the actions on the account's own key that these credentials do not have by policies of their own.

        Raises:
            ProviderError: AWS does not tell.
        """
        if who.principal.endswith(":root"):
            return []
        entity = self._entity(who.principal)
        if not entity:
            raise ProviderError(f"AWS cannot simulate the permissions of {who.principal}")
        asked = [each for each in shipped_questions(who.account, region) if each.actions[0].startswith("kms:")]
        if ":key/" in key:
            asked = [replace(each, resources=(key,)) for each in asked]
        with self._clients.speaking("have the permissions simulated"):
            return sorted(action for each in asked for action, _ in self._denied(entity, each))

    def _quota(self, offer: Offer) -> Check:
        quota = quotas.check(self._clients, offer)
        if quota.vcpus is None:
            why = f"the quota for {quota.name} in {offer.region} could not be read"
            return diagnostics.unknown("quota", why, "" if not quota.code else "Allow servicequotas:GetServiceQuota.")
        return diagnostics.ok(
            "quota",
            f"{quota.name} ({quota.code}) in {offer.region}: {quota.vcpus.normalize():f} vCPUs, what runs already"
            f" included; one {offer.instance_type} needs {offer.vcpus}",
        )

    def _dry_run(self, offer: Offer) -> Check:
        self._provider.check(example_request(offer, self._clock.now()))
        return diagnostics.ok(
            "dry run", f"AWS would accept the request to create a {offer.instance_type} in {offer.region}"
        )
