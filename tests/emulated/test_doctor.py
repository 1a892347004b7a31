"""`costgpu doctor` asks both emulated clouds: what is missing is named, with what to do; nothing is created.

One file of more than 400 lines: the same checks of both clouds, side by side.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import NotConfirmed
from costgpu.providers.aws import sdk
from costgpu.providers.aws.facts import POLICY_FILE
from tests.cli.here import told
from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.planted_orphans import become_user

boto3 = sdk.boto3()
AWS = ("--infra", "aws/us-east-1")
GCP = ("--infra", "gcp/us-central1")
Checks = dict[str, dict[str, Any]]


def doctor(*words: str) -> tuple[int, dict[str, Checks]]:
    code, out, _ = told("doctor", "--json", *words)
    document = json.loads(out)
    assert document["exit_code"] == code
    return code, {place["place"]: {c["name"]: c for c in place["checks"]} for place in document["places"]}


def statuses(checks: Checks) -> dict[str, str]:
    return {name: check["status"] for name, check in checks.items()}


# -- AWS ---------------------------------------------------------------------------------------------------------------


def document_without(*actions: str) -> dict[str, Any]:
    """The shipped policy, less some actions."""
    found: dict[str, Any] = json.loads(POLICY_FILE.read_text())
    for statement in found["Statement"]:
        held = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [action for action in held if action not in actions] or ["none:None"]
    return found


def test_all_is_well_with_the_shipped_policy(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    become_user(monkeypatch, document_without())
    cloud.forget_requests()
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    assert code == 0
    checks = places["aws/us-east-1"]
    assert set(statuses(checks).values()) == {"ok"}
    assert list(checks) == ["credentials", "clock", "permissions", "region", "disk key", "machine", "quota", "dry run"]
    assert checks["credentials"]["detail"].startswith("arn:aws:iam::123456789012:user/ann")
    assert "64 vCPUs" in checks["quota"]["detail"]
    asking = ("Describe", "Get", "List", "Simulate")
    changing = [name for name in cloud.calls() if not name.partition(":")[2].startswith(asking)]
    assert changing == ["ec2:RunInstances?"]
    assert not cloud.instances()


def test_a_missing_permission_is_named(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    become_user(monkeypatch, document_without("ec2:TerminateInstances", "ce:GetCostAndUsage"))
    code, places = doctor(*AWS)
    check = places["aws/us-east-1"]["permissions"]
    assert (code, check["status"]) == (41, "failed")
    assert "missing: ec2:TerminateInstances; and, needed less, ce:GetCostAndUsage" in check["detail"]
    assert "--policy aws" in check["fix"]


def test_a_permission_that_no_run_needs_is_a_warning(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    become_user(monkeypatch, document_without("ce:GetCostAndUsage", "iam:CreateServiceLinkedRole"))
    code, places = doctor(*AWS)
    assert (code, places["aws/us-east-1"]["permissions"]["status"]) == (0, "warning")
    code, places = doctor(*AWS, "--spot")
    assert (code, places["aws/us-east-1"]["permissions"]["status"]) == (41, "failed")


def test_a_condition_of_the_users_own_policy_leaves_it_open(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    document = document_without("ec2:TerminateInstances")
    office = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    document["Statement"].append(
        {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "*", "Condition": office}
    )
    become_user(monkeypatch, document)
    code, places = doctor(*AWS)
    check = places["aws/us-east-1"]["permissions"]
    assert (code, check["status"]) == (0, "unknown")
    assert check["detail"] == "ec2:TerminateInstances: whether they are there depends on aws:SourceIp"


def test_a_policy_for_other_resources_is_not_enough(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    document = document_without()
    document["Statement"] = [each for each in document["Statement"] if each["Sid"] != "CreateWithOurTag"]
    become_user(monkeypatch, document)
    _, places = doctor(*AWS)
    assert places["aws/us-east-1"]["permissions"]["detail"].endswith("missing: ec2:RunInstances")


@pytest.mark.parametrize("path", ["/", "/teams/vision/"])
def test_an_assumed_role_is_judged_by_its_role(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    iam = boto3.client("iam")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    arn = iam.create_role(RoleName="trainer", Path=path, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    document = json.dumps(document_without("ec2:RunInstances"))
    iam.put_role_policy(RoleName="trainer", PolicyName="costgpu", PolicyDocument=document)
    key = boto3.client("sts").assume_role(RoleArn=arn, RoleSessionName="laptop")["Credentials"]
    for name, value in (
        ("ACCESS_KEY_ID", "AccessKeyId"),
        ("SECRET_ACCESS_KEY", "SecretAccessKey"),
        ("SESSION_TOKEN", "SessionToken"),
    ):
        monkeypatch.setenv(f"AWS_{name}", key[value])
    _, places = doctor(*AWS)
    check = places["aws/us-east-1"]["permissions"]
    assert "assumed-role/" in places["aws/us-east-1"]["credentials"]["detail"]
    assert check["detail"].endswith("missing: ec2:RunInstances")


def test_permissions_that_cannot_be_asked_are_not_known(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    become_user(monkeypatch, document_without())
    cloud.fault({"action": "SimulatePrincipalPolicy", "code": "AccessDenied", "status": 403, "times": -1})
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    checks = places["aws/us-east-1"]
    assert (code, checks["permissions"]["status"], checks["dry run"]["status"]) == (0, "unknown", "ok")
    assert "iam:SimulatePrincipalPolicy" in checks["permissions"]["fix"]


def test_a_dry_run_that_is_refused(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.fault({"action": "RunInstances?", "code": "UnauthorizedOperation", "status": 403, "times": -1})
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    check = places["aws/us-east-1"]["dry run"]
    assert (code, check["status"]) == (41, "failed")
    assert "RunInstances" in check["detail"]


def test_a_quota_that_is_too_small_on_aws(cloud: RunningEc2) -> None:
    cloud.quota("us-east-1", "L-DB2E81BA", 0)
    code, places = doctor("--infra", "aws/us-east-1", "--gpus", "A10G:1")
    check = places["aws/us-east-1"]["quota"]
    assert (code, check["status"]) == (43, "failed")
    assert "(L-DB2E81BA) in us-east-1 is 0 vCPUs" in check["detail"]
    assert "request-service-quota-increase" in check["fix"]
    assert places["aws/us-east-1"]["dry run"]["detail"] == "not asked: see quota"


def test_a_quota_that_may_not_be_read_stops_nothing(cloud: RunningEc2) -> None:
    cloud.fault({"service": "servicequotas", "code": "AccessDeniedException", "times": -1})
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    found = statuses(places["aws/us-east-1"])
    assert (code, found["quota"], found["dry run"]) == (0, "unknown", "ok")


def key_of_its_own() -> str:
    """The account's default key of disks in the region is one of its own from now on; its ARN."""
    key: str = boto3.client("kms").create_key()["KeyMetadata"]["Arn"]
    boto3.client("ec2").modify_ebs_default_kms_key_id(KmsKeyId=key)
    return key


def test_an_account_with_a_disk_key_of_its_own(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of_its_own()
    become_user(monkeypatch, document_without())
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    check = places["aws/us-east-1"]["disk key"]
    assert (code, check["status"]) == (0, "ok")
    assert key in check["detail"]
    code, places = doctor(*AWS, "-t", "g5.xlarge", "--spot")
    check = places["aws/us-east-1"]["disk key"]
    assert (code, check["status"]) == (0, "warning")
    assert f"--key-id {key} --grantee-principal arn:aws:iam::123456789012:role/aws-service-role/spot" in check["fix"]


@pytest.mark.parametrize("action", ["kms:CreateGrant", "kms:ReEncryptFrom"])
def test_a_disk_key_that_may_not_be_used(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    key_of_its_own()
    become_user(monkeypatch, document_without(action))
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    check = places["aws/us-east-1"]["disk key"]
    assert (code, check["status"]) == (0, "warning")
    assert f"have no {action}: " in check["detail"]
    assert "--policy aws" in check["fix"]


def test_a_right_to_another_key_is_not_enough(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    document = document_without()
    for statement in document["Statement"]:
        if "kms" in str(statement["Resource"]):
            statement["Resource"] = "arn:aws:kms:us-east-1:123456789012:key/another"
    key_of_its_own()
    become_user(monkeypatch, document)
    _, places = doctor(*AWS)
    assert places["aws/us-east-1"]["disk key"]["status"] == "warning"


@pytest.mark.parametrize("action", ["GetEbsDefaultKmsKeyId", "SimulatePrincipalPolicy"])
def test_a_disk_key_that_aws_does_not_tell(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    key_of_its_own()
    become_user(monkeypatch, document_without())
    cloud.fault({"action": action, "code": "AccessDenied", "status": 403, "times": -1})
    code, places = doctor(*AWS, "-t", "g5.xlarge")
    found = statuses(places["aws/us-east-1"])
    assert (code, found["disk key"], found["dry run"]) == (0, "unknown", "ok")


def test_expired_credentials(cloud: RunningEc2) -> None:
    cloud.expire("AKIAEMULATED")
    code, places = doctor(*AWS)
    checks = places["aws/us-east-1"]
    assert (code, checks["credentials"]["status"], checks["clock"]["status"]) == (41, "failed", "ok")
    assert "have expired" in checks["credentials"]["detail"]
    assert checks["permissions"]["detail"] == checks["region"]["detail"] == "not asked: see credentials"


def test_a_region_that_aws_does_not_have(cloud: RunningEc2) -> None:
    code, places = doctor("--infra", "aws/us-esat-1", "-t", "g5.xlarge")
    check = places["aws/us-esat-1"]["region"]
    assert (code, check["status"]) == (44, "failed")
    assert "us-east-1" in check["fix"]


def test_a_region_that_is_not_enabled_in_the_account(cloud: RunningEc2) -> None:
    code, places = doctor("--infra", "aws/ap-east-1")
    check = places["aws/ap-east-1"]["region"]
    assert (code, check["status"]) == (44, "failed")
    assert "aws account enable-region --region-name ap-east-1" in check["fix"]


@pytest.mark.parametrize(("seconds", "code", "status"), [(20, 0, "ok"), (100, 0, "warning"), (-400, 41, "failed")])
def test_the_clock_against_both_clouds(
    cloud: RunningEc2, gce: RunningComputeEngine, seconds: int, code: int, status: str
) -> None:
    for running in (cloud, gce):
        running.advance(seconds)
    found, places = doctor()
    assert found == code
    for name in ("aws", "gcp"):
        check = places[name]["clock"]
        assert check["status"] == status
        if status != "ok":
            assert ("behind" if seconds > 0 else "ahead") in check["detail"]
            assert "timedatectl" in check["fix"]


# -- Google Cloud ------------------------------------------------------------------------------------------------------


def test_all_is_well_on_google_cloud(gce: RunningComputeEngine) -> None:
    code, places = doctor(*GCP, "--gpus", "T4:1")
    checks = places["gcp/us-central1"]
    assert code == 0
    assert set(statuses(checks).values()) == {"ok"}
    assert list(checks) == [
        "credentials",
        "clock",
        "permissions",
        "API, billing",
        "organisation",
        "region",
        "machine",
        "quota",
        "request",
    ]
    assert PROJECT in checks["credentials"]["detail"]
    assert "us-central1-a" in checks["machine"]["detail"]
    writing = ("insert", "delete", "patch", "update", "set")
    assert not [name for name in gce.calls() if name.partition(".")[2].startswith(writing)]
    assert (gce.instances(), gce.leftovers()) == ([], [])


def test_a_missing_permission_is_named_on_google_cloud(gce: RunningComputeEngine) -> None:
    gce.forbid("compute.instances.delete", "compute.projects.get")
    code, places = doctor(*GCP, "-t", "e2-standard-2")
    check = places["gcp/us-central1"]["permissions"]
    assert (code, check["status"]) == (41, "failed")
    assert "missing: compute.instances.delete; and, needed less, compute.projects.get" in check["detail"]
    assert "--policy gcp" in check["fix"]
    gce.forbid("compute.instances.getSerialPortOutput")
    code, places = doctor(*GCP)
    assert (code, places["gcp/us-central1"]["permissions"]["status"]) == (0, "warning")


def test_permissions_that_google_does_not_tell(gce: RunningComputeEngine) -> None:
    gce.fault({"service": "cloudresourcemanager", "code": "api-disabled", "times": -1})
    code, places = doctor(*GCP)
    check = places["gcp/us-central1"]["permissions"]
    assert (code, check["status"]) == (0, "unknown")
    assert "gcloud services enable" in check["fix"]


NO_ADDRESS: dict[str, Any] = {"listPolicy": {"allValues": "DENY"}}
BREACHES: dict[str, dict[str, Any]] = {
    "compute.requireOsLogin": {"booleanPolicy": {"enforced": True}},
    "compute.vmExternalIpAccess": NO_ADDRESS,
    "gcp.resourceLocations": {"listPolicy": {"allowedValues": ["us-east1", "europe-west4"]}},
}


@pytest.mark.parametrize("constraint", list(BREACHES))
def test_a_policy_of_the_organisation_is_found(gce: RunningComputeEngine, constraint: str) -> None:
    gce.org_policy(constraint, BREACHES[constraint])
    code, places = doctor(*GCP, "-t", "e2-standard-2")
    check = places["gcp/us-central1"]["organisation"]
    assert (code, check["status"]) == (49 if constraint == "gcp.resourceLocations" else 44, "failed")
    assert constraint in check["detail"]
    assert "administrator" in check["fix"]


def test_images_that_the_organisation_does_not_trust(gce: RunningComputeEngine) -> None:
    constraint = "compute.trustedImageProjects"
    gce.org_policy(constraint, {"listPolicy": {"allowedValues": ["projects/ubuntu-os-cloud"]}})
    assert doctor(*GCP, "-t", "e2-standard-2")[0] == 0
    code, places = doctor(*GCP, "--gpus", "L4:1")
    check = places["gcp/us-central1"]["request"]
    assert (code, check["status"]) == (44, "failed")
    assert constraint in check["detail"]


def test_policies_that_these_credentials_may_not_see(gce: RunningComputeEngine) -> None:
    gce.org_policy("compute.vmExternalIpAccess", NO_ADDRESS)
    gce.forbid("orgpolicy.policy.get")
    code, places = doctor(*GCP, "-t", "e2-standard-2")
    found = statuses(places["gcp/us-central1"])
    assert (code, found["organisation"], found["request"]) == (0, "unknown", "ok")
    assert "orgpolicy.policy.get" in places["gcp/us-central1"]["organisation"]["fix"]


def test_a_quota_that_is_too_small_on_google_cloud(gce: RunningComputeEngine) -> None:
    gce.quota("global", "GPUS_ALL_REGIONS", 0)
    code, places = doctor(*GCP, "--gpus", "L4:1")
    check = places["gcp/us-central1"]["quota"]
    assert (code, check["status"]) == (43, "failed")
    assert "GPUS_ALL_REGIONS" in check["detail"]
    assert f"iam-admin/quotas?project={PROJECT}" in check["fix"]
    assert places["gcp/us-central1"]["request"]["detail"] == "not asked: see quota"
    assert doctor(*GCP, "-t", "e2-standard-2")[0] == 0


@pytest.mark.parametrize(
    ("gpus", "told", "untold"),
    [("L4:1", "NVIDIA_L4_GPUS", "CPUS_PER_VM_FAMILY"), ("H100:8", "GPUS_ALL_REGIONS", "GPUS_PER_GPU_FAMILY")],
)
def test_a_quota_that_compute_engine_does_not_tell_is_unknown(
    gce: RunningComputeEngine, gpus: str, told: str, untold: str
) -> None:
    code, places = doctor(*GCP, "--gpus", gpus)
    check = places["gcp/us-central1"]["quota"]
    assert (code, check["status"]) == (0, "unknown")
    known, _, unknown = check["detail"].partition(", but Compute Engine does not tell ")
    assert told in known, check
    assert untold in unknown, check
    assert f"iam-admin/quotas?project={PROJECT}" in check["fix"]
    assert places["gcp/us-central1"]["request"]["status"] == "ok"


def test_the_cpus_of_all_regions_are_asked(gce: RunningComputeEngine) -> None:
    gce.quota("global", "CPUS_ALL_REGIONS", 1)
    code, places = doctor(*GCP, "-t", "e2-standard-2")
    check = places["gcp/us-central1"]["quota"]
    assert (code, check["status"]) == (43, "failed")
    assert "CPUS_ALL_REGIONS" in check["detail"]


@pytest.mark.parametrize(
    ("fault", "fix"),
    [("api-disabled", "gcloud services enable compute.googleapis.com"), ("billing-disabled", "billing")],
)
def test_an_api_that_is_off(gce: RunningComputeEngine, fault: str, fix: str) -> None:
    gce.fault({"service": "compute", "code": fault, "times": -1})
    code, places = doctor(*GCP, "--gpus", "L4:1")
    checks = places["gcp/us-central1"]
    assert (code, checks["API, billing"]["status"], checks["permissions"]["status"]) == (41, "failed", "ok")
    assert fix in checks["API, billing"]["fix"]
    assert checks["region"]["detail"] == "not asked: see API, billing"


def test_a_region_that_google_does_not_have(gce: RunningComputeEngine) -> None:
    code, places = doctor("--infra", "gcp/us-cnetral1", "-t", "g2-standard-4")
    check = places["gcp/us-cnetral1"]["region"]
    assert (code, check["status"]) == (44, "failed")
    assert "us-central1" in check["fix"]


def test_a_machine_that_the_region_does_not_have(gce: RunningComputeEngine) -> None:
    code, places = doctor("--infra", "gcp/northamerica-northeast2", "--gpus", "H100:8")
    checks = places["gcp/northamerica-northeast2"]
    assert (code, checks["region"]["status"], checks["machine"]["status"]) == (44, "ok", "failed")


def test_nobody_answers(gce: RunningComputeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGPU_GCP_ENDPOINT", "http://127.0.0.1:9")
    code, places = doctor(*GCP)
    found = statuses(places["gcp/us-central1"])
    assert code == 46
    assert (found["API, billing"], found["clock"], found["region"]) == ("failed", "unknown", "unknown")


# -- live --------------------------------------------------------------------------------------------------------------


def test_a_live_check_without_an_allowance_creates_nothing_and_names_nobody(
    cloud: RunningEc2, gce: RunningComputeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSTGPU_BUCKET", "s3://secret-of-the-lab/runs")
    become_user(monkeypatch, document_without())
    key = key_of_its_own()
    code, places = doctor("--live")
    assert code == 0
    assert statuses(places["aws"])["dry run"] == statuses(places["gcp"])["request"] == "ok"
    assert "instances.insert" not in gce.calls()
    assert not cloud.instances()
    text = (tmp_path / "costgpu-first-run.json").read_text()
    private = [
        "123456789012",
        PROJECT,
        key.rpartition("/")[2],
        "user/ann",
        "secret-of-the-lab",
        str(Path.home()),
        "arn:",
    ]
    assert [value for value in private if value in text] == []
    document = json.loads(text)
    assert document["trials"] == []
    assert document["max_cost_usd"] is None
    told = {place["provider"]: {each["name"]: each for each in place["checks"]} for place in document["places"]}
    assert "detail" not in told["aws"]["credentials"]
    assert "<arn>" in told["aws"]["disk key"]["detail"]
    assert all("detail" not in each for each in told["this computer"].values())


def test_a_report_that_is_there_is_kept(
    gce: RunningComputeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "first.json"
    file.write_text("mine")
    code, _, err = told("doctor", *GCP, "--live", "--report", str(file))
    assert (code, file.read_text()) == (2, "mine")
    assert "exists already" in err
    assert gce.calls() == []
    assert told("doctor", *GCP, "--live", "--report", str(file), "--force")[0] == 0
    assert json.loads(file.read_text())["schema"] == "costgpu.first_run"


def test_nothing_is_created_that_nobody_has_agreed_to(
    gce: RunningComputeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSTGPU_CALLER_ADDRESS", "198.51.100.7/32")
    code, _, err = told("doctor", *GCP, "--live", "--max-cost", "0.50")
    assert code == NotConfirmed.exit_code
    assert "e2-highcpu-2" in err
    assert "instances.insert" not in gce.calls()
    assert json.loads((tmp_path / "costgpu-first-run.json").read_text())["trials"] == []


# -- both --------------------------------------------------------------------------------------------------------------


def test_one_cloud_in_trouble_hides_nothing_of_the_other(cloud: RunningEc2, gce: RunningComputeEngine) -> None:
    cloud.fault({"drop": True, "times": -1})
    code, places = doctor(*AWS, *GCP, "--gpus", "T4:1")
    assert code == 46
    assert statuses(places["aws/us-east-1"])["credentials"] == "failed"
    assert set(statuses(places["gcp/us-central1"]).values()) == {"ok"}


def test_without_infra_a_machine_is_asked_about_where_it_exists(cloud: RunningEc2, gce: RunningComputeEngine) -> None:
    code, places = doctor("-t", "g2-standard-4")
    assert code == 0
    assert "quota" in places["gcp"]
    assert "quota" not in places["aws"]
    assert places["aws"]["credentials"]["status"] == "ok"
