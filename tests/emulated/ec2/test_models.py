"""What the middleware adds to moto is read and answered as botocore's models of the services have it.

moto leaves out of an answer what the model does not have, so a client would never see that something is wrong.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from moto.ec2.exceptions import EC2ClientError

from tests.emulators.ec2 import instances, permissions, services
from tests.emulators.ec2.account import AccountState
from tests.emulators.ec2.placement_groups import PlacementGroups

SESSION = importlib.import_module("botocore.session").get_session()
ParamValidator: Any = importlib.import_module("botocore.validate").ParamValidator


def operation(service: str, name: str) -> Any:
    return SESSION.get_service_model(service).operation_model(name)


def breaches(shape: Any, value: Any) -> list[str]:
    """What a value has that its shape has not: members, types, values of enumerations."""
    report = ParamValidator().validate(value, shape)
    return [*([report.generate_report()] if report.has_errors() else []), *_not_listed(shape, value)]


def _not_listed(shape: Any, value: Any) -> Iterator[str]:
    if shape.type_name == "structure" and isinstance(value, Mapping):
        for name in set(value) & set(shape.members):
            yield from _not_listed(shape.members[name], value[name])
    elif shape.type_name == "list":
        for each in value:
            yield from _not_listed(shape.member, each)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{value} is none of {shape.enum}"


def documented_filters(name: str) -> set[str]:
    """Those of a Describe operation of EC2; ``tag:`` for the tags by their keys."""
    text = operation("ec2", name).input_shape.members["Filters"].documentation
    return {re.sub("&lt;.*|<.*", "", each) for each in re.findall(r"<code>([a-z][^ ]*?)</code>(?:&lt;key&gt;)? ", text)}


class Parameters(dict[str, Any]):
    """Some of a structure; whoever reads one that the model does not have fails."""

    def __init__(self, shape: Any, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._shape = shape

    def get(self, path: str, default: Any = None) -> Any:
        shape: Any = self._shape
        value: Any = dict(self)
        for name in path.split("."):
            assert name in shape.members, f"{shape.name} has no {name}"
            shape, value = shape.members[name], value.get(name) or {}
        if shape.type_name == "list" and shape.member.type_name == "structure":
            return [Parameters(shape.member, each) for each in value]
        return value or default

    def __getitem__(self, name: str) -> Any:
        return self.get(name)


def response(service: str, name: str, **values: Any) -> Any:
    """moto's side of one request, as the middleware gets it."""
    shape = operation(service, name).input_shape
    report = ParamValidator().validate(values, shape)
    assert not report.has_errors(), report.generate_report()
    tags = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        for each in values.get("TagSpecifications", [])
    }
    return SimpleNamespace(
        region="us-east-1",
        error_on_dryrun=lambda: None,
        _get_param=Parameters(shape, values).get,
        _parse_tag_specification=lambda: tags,
        _filters_from_querystring=lambda: {each["Name"]: each["Values"] for each in values.get("Filters", [])},
    )


def fits(service: str, name: str, answer: Any) -> None:
    assert breaches(operation(service, name).output_shape, getattr(answer, "result", answer)) == []


def added(monkeypatch: pytest.MonkeyPatch, module: Any, install: Callable[[], None]) -> dict[str, Any]:
    """What an installation replaces in moto, by the method's name; nothing is replaced."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(module, "replace", lambda owner, name, method: found.update({name: method}))
    install()
    return found


def test_placement_groups_are_as_ec2_has_them() -> None:
    groups = PlacementGroups()
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "costgpu-run", "Value": "r1"}]}]
    create = response("ec2", "CreatePlacementGroup", GroupName="g", Strategy="cluster", TagSpecifications=tags)
    fits("ec2", "CreatePlacementGroup", groups._create(create))
    filters = [{"Name": "tag:costgpu-run", "Values": ["r1"]}]
    described: Any = groups._describe(response("ec2", "DescribePlacementGroups", Filters=filters))
    assert len(described.result["PlacementGroups"]) == 1
    fits("ec2", "DescribePlacementGroups", described)
    interface = {"InterfaceType": "efa", "DeviceIndex": 0, "AssociatePublicIpAddress": True}
    run = {"InstanceType": "p5.48xlarge", "MinCount": 1, "MaxCount": 1, "NetworkInterfaces": [interface]}
    assert groups._check(response("ec2", "RunInstances", **run, Placement={"GroupName": "g"})) == "g"
    groups._delete(response("ec2", "DeletePlacementGroup", GroupName="g"))  # has no answer but that it went well
    assert operation("ec2", "DeletePlacementGroup").output_shape is None


def test_filters_are_those_that_ec2_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    documented = documented_filters("DescribePlacementGroups")
    assert {"group-name", "tag:", "tag-key", "strategy"} <= documented
    groups = PlacementGroups()
    for name in ("group-name", "tag:team", "tag-key"):
        assert re.sub(":.*", ":", name) in documented
        groups._describe(response("ec2", "DescribePlacementGroups", Filters=[{"Name": name, "Values": ["x"]}]))
    groups._create(response("ec2", "CreatePlacementGroup", GroupName="g"))
    with pytest.raises(EC2ClientError, match="invalid"):
        groups._describe(response("ec2", "DescribePlacementGroups", Filters=[{"Name": "owner", "Values": ["x"]}]))
    filters: dict[str, str] = {}
    monkeypatch.setattr(instances, "filter_dict_attribute_mapping", filters)
    emulated: Any = instances.Ec2Instances
    added(monkeypatch, instances, emulated(None, None, None, None).install)
    assert "client-token" in filters
    assert set(filters) <= documented_filters("DescribeInstances")


def test_states_and_their_reasons_are_ec2s() -> None:
    model = SESSION.get_service_model("ec2")
    state, reason = model.shape_for("InstanceState"), model.shape_for("StateReason")
    assert set(instances.STATES) == set(state.members["Name"].enum)
    numbers = dict(re.findall(r"<code>(\d+)</code> : <code>([a-z-]+)</code>", state.members["Code"].documentation))
    assert {name: int(number) for number, name in numbers.items()} == instances.STATES
    for code, _ in (instances.BY_GUEST, instances.BY_USER, instances.BY_SPOT):
        assert f"<code>{code}</code>" in reason.members["Message"].documentation


def test_the_other_answers_are_as_their_services_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = SimpleNamespace(id="key-0123456789abcdef0", key_name="k")
    asked = response("ec2", "DeleteKeyPair", KeyPairId=pair.id)
    asked.ec2_backend = SimpleNamespace(key_pairs={"k": pair}, delete_key_pair=lambda name: None)
    fits("ec2", "DeleteKeyPair", added(monkeypatch, services, services.install_key_pairs)["delete_key_pair"](asked))

    asked = response("ec2", "GetConsoleOutput", InstanceId="i-0123456789abcdef0")
    asked.ec2_backend = SimpleNamespace(get_instance=lambda name: SimpleNamespace(id=name))
    emulated: Any = SimpleNamespace(machines=SimpleNamespace(console=lambda name: b"booted"))
    said: Any = instances.Ec2Instances.console(emulated, asked).result
    fits("ec2", "GetConsoleOutput", {**said, "Output": str(said["Output"])})  # moto's own kind of text

    state, backend = AccountState(), SimpleNamespace(region_name="us-east-1")
    quota = added(monkeypatch, services, lambda: services.install_quotas(state))["get_service_quota"]
    fits("service-quotas", "GetServiceQuota", {"Quota": quota(backend, "ec2", "L-DB2E81BA")})

    statement = {
        "Effect": "Allow",
        "Action": "ec2:*",
        "Resource": "*",
        "Condition": {"StringEquals": {"aws:RequestTag/team": "c"}},
    }
    monkeypatch.setattr(permissions, "_policies", lambda backend, arn: [{"Statement": [statement]}])
    entry = {"ContextKeyName": "aws:RequestTag/team", "ContextKeyValues": ["c"], "ContextKeyType": "string"}
    for more in ({}, {"ResourceArns": ["arn:aws:ec2:::x"], "ContextEntries": [entry]}):
        arn = "arn:aws:iam::123456789012:user/ann"
        simulated = {"PolicySourceArn": arn, "ActionNames": ["ec2:RunInstances"], **more}
        asked = response("iam", "SimulatePrincipalPolicy", **simulated)
        asked.backend = None
        fits("iam", "SimulatePrincipalPolicy", permissions._simulate(asked))


@pytest.mark.parametrize(
    "answer",
    [
        {"PlacementGroup": {"GroupName": 5}},
        {"PlacementGroup": {"Name": "g"}},
        {"PlacementGroup": {"State": "ready", "GroupName": "g"}},
    ],
)
def test_a_breach_is_seen(answer: dict[str, Any]) -> None:
    assert breaches(operation("ec2", "CreatePlacementGroup").output_shape, answer)
    with pytest.raises(AssertionError, match="has no Name"):
        response("ec2", "CreatePlacementGroup", GroupName="g")._get_param("Name")
