"""Well-known training workloads, for what cannot be measured. May import `snapshot`, `hardware` and `models`."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from costgpu.errors import UsageError
from costgpu.models.offer import Reference
from costgpu.pricing.hardware import nearest
from costgpu.pricing.snapshot import DATA, read_records

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCES_FILE = "references.csv"


@cache
def references() -> Mapping[str, Reference]:
    """Return every shipped reference workload by its name.

    Raises:
        ConfigError: The file is missing or damaged.
    """
    return MappingProxyType({one.name: one for _, one in read_records(DATA / REFERENCES_FILE, Reference)})


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
