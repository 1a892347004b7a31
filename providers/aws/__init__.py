"""Amazon EC2, through boto3. Importing this package imports neither boto3 nor the adapter: names come on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costgpu.providers.aws.address import caller_address
    from costgpu.providers.aws.billing import CostExplorer
    from costgpu.providers.aws.bucket import S3Bucket
    from costgpu.providers.aws.provider import AwsProvider

__all__ = ["AwsProvider", "CostExplorer", "S3Bucket", "caller_address"]
_HOME = {"AwsProvider": "provider", "CostExplorer": "billing", "S3Bucket": "bucket", "caller_address": "address"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
