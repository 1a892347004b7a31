"""IAM's SimulatePrincipalPolicy: what a user's or role's own policies say about actions, resources and conditions."""

import fnmatch
import json
from collections.abc import Mapping, Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import IAMBackend, Policy
from moto.iam.responses import IamResponse

Document = Mapping[str, Any]


def install_simulation() -> None:
    """SimulatePrincipalPolicy answers."""
    setattr(IamResponse, "simulate_principal_policy", _simulate)  # noqa: B010 - a method that moto does not have


def decision(documents: Sequence[Document], action: str, resource: str, context: Mapping[str, Sequence[str]]) -> str:
    """``allowed``, ``explicitDeny`` or ``implicitDeny``."""
    effects = {
        statement["Effect"]
        for document in documents
        for statement in _list(document["Statement"])
        if _concerns(statement, action, resource, context)
    }
    return "explicitDeny" if "Deny" in effects else "allowed" if "Allow" in effects else "implicitDeny"


def _concerns(statement: Document, action: str, resource: str, context: Mapping[str, Sequence[str]]) -> bool:
    return (
        any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in _list(statement["Action"]))
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in _list(statement["Resource"]))
        and all(
            _holds(operator, value, context.get(key, ()))
            for operator, keys in statement.get("Condition", {}).items()
            for key, value in keys.items()
        )
    )


def _holds(operator: str, wanted: Any, given: Sequence[str]) -> bool:
    if operator == "Null":
        return (str(wanted).lower() == "true") == (not given)
    if operator == "StringLike":
        return any(fnmatch.fnmatchcase(value, pattern) for value in given for pattern in _list(wanted))
    if operator in ("StringEquals", "Bool", "IpAddress"):
        return any(value in _list(wanted) for value in given)
    raise NotImplementedError(operator)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _simulate(response: Any) -> ActionResult:
    documents = _policies(response.backend, response._get_param("PolicySourceArn"))
    resources = response._get_param("ResourceArns", [])
    context = {each["ContextKeyName"]: each["ContextKeyValues"] for each in response._get_param("ContextEntries", [])}
    used = {
        key
        for document in documents
        for statement in _list(document["Statement"])
        for keys in statement.get("Condition", {}).values()
        for key in keys
    }
    missing = sorted(used - set(context))
    rows = []
    for action in response._get_param("ActionNames"):
        by_resource = {arn: decision(documents, action, arn, context) for arn in resources or ["*"]}
        worst = next((said for said in by_resource.values() if said != "allowed"), "allowed")
        row: dict[str, Any] = {"EvalActionName": action, "EvalResourceName": "*", "EvalDecision": worst}
        if resources:
            row["ResourceSpecificResults"] = [
                {"EvalResourceName": arn, "EvalResourceDecision": said, "MissingContextValues": missing}
                for arn, said in by_resource.items()
            ]
        else:
            row["MissingContextValues"] = missing
        rows.append(row)
    return ActionResult({"EvaluationResults": rows, "IsTruncated": False})


def _policies(backend: IAMBackend, arn: str) -> list[Document]:
    """Inline and attached ones; there are no groups here."""
    kind, _, name = arn.partition("iam::")[2].partition(":")[2].partition("/")
    name = name.rpartition("/")[2]
    if kind == "user":
        names, one = backend.list_user_policies(name), backend.get_user_policy
        texts = [one(name, policy)["policy_document"] for policy in names]
        attached = backend.list_attached_user_policies(name)[0]
    elif kind == "role":
        role = backend.get_role(name)
        if role.arn != arn:
            raise NotFoundException(f"The role with name {arn} cannot be found.")
        texts = [backend.get_role_policy(name, policy)[1] for policy in backend.list_role_policies(name)]
        attached = backend.list_attached_role_policies(name)[0]
    else:
        raise NotFoundException(f"{arn} is neither a user nor a role.")
    texts += [version.document for policy in attached for version in _default(policy)]
    return [json.loads(text) for text in texts]


def _default(policy: Policy) -> list[Any]:
    return [version for version in policy.versions if version.is_default]
