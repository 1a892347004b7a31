"""Google Compute Engine. Importing this package imports nothing of Google's (2-3 s): the adapter comes on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costgpu.providers.gcp.billing import BillingExport
    from costgpu.providers.gcp.provider import GcpProvider

__all__ = ["BillingExport", "GcpProvider"]
_HOME = {"BillingExport": "billing", "GcpProvider": "provider"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
