"""Well-known training workloads, for what cannot be measured. May import `validated_csv`, `hardware` and `models`."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from costgpu.errors import UsageError
from costgpu.models.offer import Reference
from costgpu.pricing.hardware import nearest
from costgpu.pricing.snapshot import DATA
from costgpu.pricing.validated_csv import needed, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCES_FILE = "references.csv"
REFERENCE_COLUMNS = tuple(field.name for field in fields(Reference))


@cache
def references() -> Mapping[str, Reference]:
    """Return every shipped reference workload by its name.

    Raises:
        ConfigError: The file cannot be read, or a cell is not of its type.
    """
    found: dict[str, Reference] = {}
    for row in read_rows(DATA / REFERENCES_FILE, REFERENCE_COLUMNS):
        share = needed(row, "convolutions", row.number("convolutions", open_end=False))
        one = row.record(Reference, convolutions=share)
        found[one.name] = one
    return MappingProxyType(found)


def reference(name: str) -> Reference:
    """Return the workload that a user's spelling means: ``resnet50``, ``ResNet-50``, ``resnet_50``.

    Raises:
        UsageError: There is no such workload.
    """
    known = references()
    by_key = {_key(one): one for one in known}
    try:
        return known[by_key[_key(name)]]
    except KeyError:
        near = ", ".join(nearest(name, known, _key))
        raise UsageError(
            f"There is no reference workload named {name!r}.",
            hint=f"The nearest are {near}; known are {', '.join(known)}.",
        ) from None


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
