"""Amazon EC2, through boto3. Importing this package imports neither boto3 nor the adapter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.providers.aws.facts import COSTS, POLICY_FILE, end_by_hand, needs_own_image
from costgpu.providers.spec import ProviderConfig, ProviderSetting, ProviderSpec, Trust

if TYPE_CHECKING:
    from costgpu.providers.base import Billing, Bucket, Diagnosable, PriceSource, Provider

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


def _public_price_source(config: ProviderConfig) -> PriceSource:
    from costgpu.providers.aws.public_prices import PublicPrices  # noqa: PLC0415

    return PublicPrices(clock=config.clock)


def _bucket(url: str) -> Bucket:
    from costgpu.providers.aws.bucket import S3Bucket  # noqa: PLC0415

    return S3Bucket(url)


def has_credentials() -> bool:
    """Return whether some are configured, usable or not: variables and files first, then boto3, which also knows roles."""
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
    needs_own_image=needs_own_image,
    costs=COSTS,
    diagnostics=_diagnostics,
    policy_file=POLICY_FILE,
    billing=_billing,
    price_source=_price_source,
    public_price_source=_public_price_source,
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
