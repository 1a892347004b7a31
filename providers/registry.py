"""Providers by name. Adapters, and the SDKs under them, are imported when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest
from costgpu.providers.base import Billing, Diagnosable, Provider


def _aws(clock: Clock, options: dict[str, Any]) -> Provider:
    from costgpu.providers.aws import AwsProvider  # noqa: PLC0415

    names = ("subnet", "scheduler_role_arn", "image", "regions")
    return AwsProvider(clock=clock, **{name: options[name] for name in names if options.get(name) is not None})


def _local(clock: Clock, options: dict[str, Any]) -> Provider:
    from costgpu.providers.local import LocalProvider  # noqa: PLC0415

    folder = options.get("local_folder")
    if folder is None:
        from costgpu.config.paths import data_folder  # noqa: PLC0415

        folder = data_folder() / "machines"
    return LocalProvider(Path(folder), clock)


def _gcp(clock: Clock, options: dict[str, Any]) -> Provider:
    from costgpu.providers.gcp import GcpProvider  # noqa: PLC0415

    names = ("project", "network", "image")
    given = {name: options.get(f"gcp_{name}") for name in names}
    return GcpProvider(clock=clock, **{name: value for name, value in given.items() if value is not None})


FACTORIES: dict[str, Callable[[Clock, dict[str, Any]], Provider]] = {"aws": _aws, "gcp": _gcp, "local": _local}
OPTIONS = (
    "subnet",
    "scheduler_role_arn",
    "image",
    "regions",
    "gcp_project",
    "gcp_network",
    "gcp_image",
    "local_folder",
)


def provider(name: str, *, clock: Clock, **options: Any) -> Provider:
    """The adapter of that name. Nothing is asked of the provider yet.

    Args:
        name: ``aws``, ``gcp`` or ``local``.
        clock: For everything that waits.
        options: ``subnet``, ``scheduler_role_arn``, ``image`` and ``regions`` (AWS), ``gcp_project``, ``gcp_network`` and
            ``gcp_image`` (Google Cloud), ``local_folder`` (this machine); None for the default. Each adapter takes its
            own and leaves the others.

    Raises:
        InvalidRequest: There is no such provider, or an option cannot be meant.
        TypeError: There is no such option.
    """
    if unknown := set(options) - set(OPTIONS):
        raise TypeError(f"no provider has the option {min(unknown)!r}")
    if name not in FACTORIES:
        names = ", ".join(sorted(FACTORIES))
        raise InvalidRequest(f"There is no provider {name!r}.", hint=f"costgpu knows {names}.")
    return FACTORIES[name](clock, options)


LOGIN = {
    "aws": "aws configure, aws sso login or AWS_PROFILE",
    "gcp": "gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS",
}
"""How to get credentials."""


def examined(name: str, *, clock: Clock, **options: Any) -> Diagnosable | None:
    """Who says whether a run on that provider would work; None if nobody does.

    Args:
        name: ``aws`` or ``gcp``.
        clock: Whose time is compared with the provider's.
        options: As for `provider`.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if name == "aws":
        from costgpu.providers.aws.diagnostics import AwsCheckup  # noqa: PLC0415

        names = ("subnet", "scheduler_role_arn", "image")
        return AwsCheckup(clock=clock, **{key: given[key] for key in names if key in given})
    if name == "gcp":
        from costgpu.providers.gcp.diagnostics import GcpCheckup  # noqa: PLC0415

        found = {key: f"gcp_{key}" for key in ("project", "network", "image")}
        return GcpCheckup(clock=clock, **{key: given[option] for key, option in found.items() if option in given})
    return None


def policy(name: str) -> str:
    """What somebody needs who runs jobs there, as the provider wants it: an IAM policy, a role. Exactly as shipped.

    Raises:
        InvalidRequest: That provider has no such thing.
    """
    if name == "aws":
        from costgpu.providers.aws import diagnostics as aws  # noqa: PLC0415

        return aws.policy()
    if name == "gcp":
        from costgpu.providers.gcp import diagnostics as gcp  # noqa: PLC0415

        return gcp.role()
    raise InvalidRequest(f"There is no policy for {name!r}.", hint="costgpu has one for aws and one for gcp.")


def billing(name: str, *, clock: Clock, gcp_project: str | None = None, gcp_table: str | None = None) -> Billing | None:
    """Who tells what that provider has billed; None if nobody does.

    Args:
        name: Of the provider.
        clock: Tells how old an answer is.
        gcp_project: As for `provider`.
        gcp_table: Of Google's billing export; without one nobody tells.
    """
    if name == "aws":
        from costgpu.providers.aws import CostExplorer  # noqa: PLC0415

        return CostExplorer(clock=clock)
    if name == "gcp" and gcp_table is not None:
        from costgpu.providers.gcp import BillingExport  # noqa: PLC0415

        return BillingExport(clock=clock, table=gcp_table, project=gcp_project)
    return None


def has_credentials(name: str) -> bool:
    """Whether it makes sense to ask this provider: some credentials are configured, usable or not.

    This machine needs none. For AWS the variables and files come first; only then boto3 is asked, which also knows
    the roles of instances and containers. For Google Cloud files and variables are looked at, and whether this is a
    Google machine; its library, which takes seconds to import, is not asked.
    """
    if name == "local":
        return True
    if name == "gcp":
        return _has_google_credentials()
    if name != "aws":
        return False
    hints = (
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_DEFAULT_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    )
    if any(os.environ.get(hint) for hint in hints):
        return True
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    if any(Path(os.environ.get(hint, usual)).expanduser().is_file() for hint, usual in files.items()):
        return True
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    from costgpu.providers.aws import sdk  # noqa: PLC0415

    try:
        return sdk.boto3().Session().get_credentials() is not None
    except sdk.foreign():
        return True  # configured, and broken: the first real question says how


def _has_google_credentials() -> bool:
    """Where ``google.auth`` would find some. Source: Google Cloud, "How Application Default Credentials works" (2026-11)."""
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.environ.get("COSTGPU_GCP_ENDPOINT"):
        return True
    folder = os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    if (Path(folder).expanduser() / "application_default_credentials.json").is_file():
        return True
    if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    try:
        return Path("/sys/class/dmi/id/product_name").read_text(encoding="ascii").startswith("Google")
    except (OSError, UnicodeDecodeError):
        return False


def caller_address() -> str:
    """The caller's own public address, as a CIDR.

    Raises:
        Unreachable: Nobody tells.
    """
    from costgpu.providers.aws import caller_address as ask  # noqa: PLC0415

    return ask()
