"""costgpu: should this training script run on a CPU or on a GPU, on which machine, for how much?

The Python interface is `estimate`, `offers`, `run`, `runs`, `jobs`, `logs`, `attach`, `cancel` and `fetch`; what it needs
is imported with its first use.
"""

from __future__ import annotations

from costgpu.version import __version__ as __version__

TYPE_CHECKING = False  # the module typing takes longer to import than the rest
if TYPE_CHECKING:
    from typing import Any

    from costgpu.api import Verdict, attach, cancel, estimate, fetch, jobs, logs, offers, run, runs
    from costgpu.errors import (
        BudgetError,
        ConfigError,
        CostGpuError,
        LedgerError,
        PriceNotFound,
        ProfileError,
        ProviderError,
        RunError,
        ScriptError,
        UsageError,
    )
    from costgpu.models.offer import Offer
    from costgpu.models.run import RunView
    from costgpu.models.workload import WorkloadProfile
    from costgpu.workflows.runs.logs import Logs

__all__ = [
    "BudgetError",
    "ConfigError",
    "CostGpuError",
    "LedgerError",
    "Logs",
    "Offer",
    "PriceNotFound",
    "ProfileError",
    "ProviderError",
    "RunError",
    "RunView",
    "ScriptError",
    "UsageError",
    "Verdict",
    "WorkloadProfile",
    "attach",
    "cancel",
    "estimate",
    "fetch",
    "jobs",
    "logs",
    "offers",
    "run",
    "runs",
]

_HOMES = {
    **dict.fromkeys(("Verdict", "attach", "cancel", "estimate", "fetch"), "costgpu.api"),
    **dict.fromkeys(("jobs", "logs", "offers", "run", "runs"), "costgpu.api"),
    "Logs": "costgpu.workflows.runs.logs",
    "Offer": "costgpu.models.offer",
    "RunView": "costgpu.models.run",
    "WorkloadProfile": "costgpu.models.workload",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - `import costgpu` costs next to nothing

    return getattr(import_module(_HOMES.get(name, "costgpu.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
