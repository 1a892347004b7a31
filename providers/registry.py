"""Providers by name. Adapters, and the SDKs under them, are imported when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest
from costgpu.providers.base import Provider


def _aws(clock: Clock, options: dict[str, Any]) -> Provider:
    from costgpu.providers.aws import AwsProvider  # noqa: PLC0415

    names = ("subnet", "scheduler_role_arn", "image", "regions")
    return AwsProvider(clock=clock, **{name: options[name] for name in names if options.get(name) is not None})


def _local(clock: Clock, options: dict[str, Any]) -> Provider:
    from costgpu.providers.local import LocalProvider  # noqa: PLC0415

    folder = options.get("local_folder")
    if folder is None:
        from costgpu.config.places import data_folder  # noqa: PLC0415

        folder = data_folder() / "machines"
    return LocalProvider(Path(folder), clock)


def _gcp(clock: Clock, options: dict[str, Any]) -> Provider:  # noqa: ARG001
    raise InvalidRequest(
        "costgpu compares prices of Google Cloud, but launching there is not there yet.",
        hint="Launch on aws or on this machine: --infra aws, --infra local.",
    )


FACTORIES: dict[str, Callable[[Clock, dict[str, Any]], Provider]] = {"aws": _aws, "gcp": _gcp, "local": _local}
OPTIONS = ("subnet", "scheduler_role_arn", "image", "regions", "local_folder")


def provider(name: str, *, clock: Clock, **options: Any) -> Provider:
    """The adapter of that name. Nothing is asked of the provider yet.

    Args:
        name: ``aws`` or ``local``.
        clock: For everything that waits.
        options: ``subnet``, ``scheduler_role_arn``, ``image`` and ``regions`` (AWS), ``local_folder`` (this machine);
            None for the default. Each adapter takes its own and leaves the others.

    Raises:
        InvalidRequest: There is no such provider, or it cannot launch yet.
        TypeError: There is no such option.
    """
    if unknown := set(options) - set(OPTIONS):
        raise TypeError(f"no provider has the option {min(unknown)!r}")
    if name not in FACTORIES:
        names = ", ".join(sorted(FACTORIES))
        raise InvalidRequest(f"There is no provider {name!r}.", hint=f"costgpu knows {names}.")
    return FACTORIES[name](clock, options)


def has_credentials(name: str) -> bool:
    """Whether it makes sense to ask this provider: some credentials are configured, usable or not.

    This machine needs none. For AWS the variables and files come first; only then boto3 is asked, which also knows
    the roles of instances and containers.
    """
    if name == "local":
        return True
    if name != "aws":
        return False
    hints = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
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


def caller_address() -> str:
    """The caller's own public address, as a CIDR.

    Raises:
        Unreachable: Nobody tells.
    """
    from costgpu.providers.aws import caller_address as ask  # noqa: PLC0415

    return ask()
