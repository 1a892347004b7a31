"""Well-known training workloads, for what cannot be measured. May import `validated_csv`, `hardware` and `models`."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from costgpu.errors import UsageError
from costgpu.models.offer import Reference
from costgpu.pricing.hardware import nearest
from costgpu.pricing.snapshot import DATA, columns
from costgpu.pricing.validated_csv import Row, needed, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REFERENCES_FILE = "references.csv"
REFERENCE_COLUMNS = columns(
    """
    name kind detail parameters tensors flops_per_sample convolutions bytes_per_sample kernels_per_step
    saved_bytes_per_sample sample_bytes optimizer momentum batch_size samples_per_epoch epochs source as_of
    """
)


@cache
def references() -> Mapping[str, Reference]:
    """Every shipped reference workload by its name.

    Raises:
        ConfigError: A row is malformed.
    """
    return MappingProxyType(read_references(DATA / REFERENCES_FILE))


def read_references(path: Path) -> dict[str, Reference]:
    """The rows of a table of reference workloads.

    Raises:
        ConfigError: The file cannot be read, or a row is malformed: with file, line and column.
    """
    found: dict[str, Reference] = {}
    for row in read_rows(path, REFERENCE_COLUMNS):
        one = _reference(row)
        if one.name in found:
            raise row.wrong("name", f"{one.name!r} is there twice")
        found[one.name] = one
    return found


def reference(name: str) -> Reference:
    """The workload that a user's spelling means: ``resnet50``, ``ResNet-50``, ``resnet_50``.

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


def _reference(row: Row) -> Reference:
    def size(column: str) -> float:
        return needed(row, column, row.number(column))

    def count(column: str) -> int:
        return needed(row, column, row.whole(column))

    return Reference(
        name=row.text("name"),
        kind=row.text("kind"),
        detail=row.text("detail"),
        parameters=count("parameters"),
        tensors=count("tensors"),
        flops_per_sample=size("flops_per_sample"),
        convolutions=needed(row, "convolutions", row.number("convolutions", most=1.0, open_end=False)),
        bytes_per_sample=size("bytes_per_sample"),
        kernels_per_step=size("kernels_per_step"),
        saved_bytes_per_sample=size("saved_bytes_per_sample"),
        sample_bytes=count("sample_bytes"),
        optimizer=row.text("optimizer", among=("SGD", "Adam")),
        momentum=row.flag("momentum"),
        batch_size=count("batch_size"),
        samples_per_epoch=row.whole("samples_per_epoch"),
        epochs=row.number("epochs"),
        source=row.text("source"),
        as_of=row.day("as_of"),
    )
