"""The append-only record of runs. May import `config`, `job`, `models`, `clock`, `units` and `errors`.

`Ledger` and the codec are loaded on their first use: SQLAlchemy alone takes 0.3 s.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costgpu.ledger.codec import from_json, to_json
    from costgpu.ledger.store import Ledger

__all__ = ["Ledger", "from_json", "to_json"]

_HOMES = {"Ledger": "store", "from_json": "codec", "to_json": "codec"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
