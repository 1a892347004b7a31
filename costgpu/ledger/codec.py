"""Values in the ledger: as `border` writes and reads them, with errors that name the ledger. Imports `border`, `errors`."""

from __future__ import annotations

from typing import Any, TypeVar

from costgpu import border
from costgpu.border import to_json
from costgpu.errors import LedgerDamaged

__all__ = ["from_json", "to_json"]

T = TypeVar("T")


def from_json(cls: type[T], data: Any) -> T:
    """Return the value of this type that `to_json` made the JSON value of, also in another version.

    Raises:
        LedgerDamaged: A key without a default is missing, or a value is not what its field holds.
    """
    return border.read(cls, data, lambda problem: _damaged(cls, problem))


def _damaged(cls: type, problem: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"What was stored of a {getattr(cls, '__name__', cls)} cannot be read: {problem}",
        hint="It was changed by something else than costgpu, or written by a version that does not fit.",
    )
