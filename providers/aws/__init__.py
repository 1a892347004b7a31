"""Amazon EC2, through boto3. Importing this package imports neither boto3 nor the adapter."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from costgpu.models.instance import InstanceRef
from costgpu.models.provider_costs import ProviderCosts
from costgpu.providers.base import Billing, Bucket, Diagnosable, PriceSource, Provider
from costgpu.providers.spec import ProviderConfig, ProviderSetting, ProviderSpec, Trust

VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}


def _adapter(config: ProviderConfig) -> Provider:
    from costgpu.providers.aws.provider import AwsProvider  # noqa: PLC0415

    return AwsProvider(clock=config.clock, **config.settings)


def _diagnostics(config: ProviderConfig) -> Diagnosable:
    from costgpu.providers.aws.diagnostics import AwsDiagnostics  # noqa: PLC0415

    return AwsDiagnostics(clock=config.clock, **config.settings)


def _billing(config: ProviderConfig) -> Billing:
    from costgpu.providers.aws.billing import CostExplorer  # noqa: PLC0415

    return CostExplorer(clock=config.clock)


def _price_source(config: ProviderConfig) -> PriceSource:  # noqa: ARG001 - the form of `ProviderSpec.price_source`
    from costgpu.providers.aws.prices import PriceList  # noqa: PLC0415

    return PriceList()


def _bucket(url: str) -> Bucket:
    from costgpu.providers.aws.bucket import S3Bucket  # noqa: PLC0415

    return S3Bucket(url)


def policy() -> str:
    """The IAM policy that is enough, exactly as shipped."""
    return resources.files(__package__).joinpath("policy.json").read_text(encoding="utf-8")


def end_by_hand(ref: InstanceRef, account: str = "") -> str:  # noqa: ARG001 - the command names no account
    """The command that terminates an instance without costgpu."""
    return f"aws ec2 terminate-instances --region {ref.region} --instance-ids {ref.instance_id}"


def has_credentials() -> bool:
    """Whether some are configured, usable or not: variables and files first, then boto3, which also knows roles."""
    if any(os.environ.get(name) for name in VARIABLES):
        return True
    if any(Path(os.environ.get(name, usual)).expanduser().is_file() for name, usual in FILES.items()):
        return True
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    from costgpu.providers.aws import sdk  # noqa: PLC0415

    try:
        return sdk.boto3().Session().get_credentials() is not None
    except sdk.foreign():
        return True  # configured, and broken: the first real question says how


SPEC = ProviderSpec(
    name="aws",
    display_name="AWS",
    publisher="Amazon Web Services",
    service="Amazon Elastic Compute Cloud",
    adapter=_adapter,
    has_credentials=has_credentials,
    login_hint="aws configure, aws sso login or AWS_PROFILE",
    settings={
        "image": ProviderSetting(
            pattern=r"ami-[0-9a-f]{8,17}",
            form="the id of an image (ami-...)",
            trust=Trust.USER,  # runs with the user's code and secrets
        ),
        "subnet": ProviderSetting(
            pattern=r"subnet-[0-9a-f]{8,17}",
            form="the id of a subnet (subnet-...)",
            trust=Trust.OWN_PROJECT,
            option="--subnet",
        ),
        "scheduler_role_arn": ProviderSetting(
            pattern=r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+",
            form="a role's ARN (arn:aws:iam::...:role/...)",
            trust=Trust.USER,  # is passed on with the user's rights
        ),
    },
    # Source: Amazon EBS pricing (gp3) and Amazon VPC pricing (public IPv4 address), us-east-1 (read 2026-11).
    # Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
    costs=ProviderCosts(disk_usd_per_gb_month=0.08, address_usd_per_hour=0.005, vcpu_watts=(0.74, 3.50)),
    diagnostics=_diagnostics,
    policy=policy,
    billing=_billing,
    price_source=_price_source,
    bucket=_bucket,
    bucket_scheme="s3",
    end_by_hand=end_by_hand,
    spot_notice="imdsv2",
    environment=(
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CA_BUNDLE",
        "AWS_DEFAULT_PROFILE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_ENDPOINT_URL",
    ),
    secret_environment={"AWS_SECRET_ACCESS_KEY": "Store them with `aws configure`, and name them by AWS_PROFILE."},
    programs=("aws",),
)
