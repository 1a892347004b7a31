"""The hardware tables of pricing/data, from gpu_specs.csv and cpu_families.csv: rows of text, checked, in one order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tools.checked_csv import Row, needed, read_rows

GPU_SPECS = "gpu_specs.csv"
GPU_SPEC_HEADER = (
    "name,board,vendor,year,architecture,memory_gib,memory_bandwidth_gbps,fp32_tflops,fp32_matrix_tflops,"
    "tf32_tensor_tflops,fp16_tensor_tflops,bf16_tensor_tflops,int8_tops,multiprocessors,compute_capability,"
    "tdp_watts,l2_mib,form,notes,usable_gib,usable_from"
)
CPU_FAMILIES = "cpu_families.csv"
CPU_FAMILY_HEADER = (
    "provider,family,cpu_model,other_cpu_models_seen,microarchitecture,year,base_ghz,all_core_ghz,vcpus_per_core,"
    "burstable,simd,bf16_in_hardware,fp32_flops_per_cycle_per_core,memory_gbps_per_socket_theoretical,"
    "measured_read_gbps_largest_size,largest_vcpus_seen,passmark_matrix_mult_per_vcpu,bzip2_mbps_of_one_thread,"
    "figures_from"
)

SPECS_SOURCE = "vendors' published peak figures"
FAMILY_SOURCES = {
    "documentation": "processor vendors' and providers' documentation",
    "generation": "provider's announced processor generation; figures of the same microarchitecture",
}
MEASUREMENTS_SOURCE = "Spare Cores, sc-data-dumps and sc-inspector-data"
MEASUREMENTS_AS_OF = "2026-08-22"  # of the newer of the two
MEASUREMENTS_PREAMBLE = (
    "Derived from benchmark data by Spare Cores (https://sparecores.com): sc-data-dumps of 2026-01-31;",
    "bzip2_mbps from sc-inspector-data of 2026-08-22, bzip2 -9 of one thread, the median over a family's sizes.",
    "Licence: CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/legalcode",
    "Changes: reduced to one row per instance family; read_gbps is of its largest size, scores are per vCPU.",
)
_CUDA = re.compile(r"\d+\.\d+")

TableRow = tuple[str, ...]


def accelerator_rows(facts: Path, as_of: str) -> list[TableRow]:
    """Return the rows of accelerators.csv.

    Raises:
        ConfigError: A figure is missing or not positive, or a name or board is listed twice.
    """
    rows = []
    for fact in _unique(read_rows(facts / GPU_SPECS, GPU_SPEC_HEADER.split(",")), "name", "board"):
        capability = fact.text("compute_capability", empty=True)
        rows.append(
            (
                fact.text("name"),
                fact.text("board"),
                fact.text("vendor"),
                fact.text("architecture"),
                _figure(fact, "year"),
                _figure(fact, "memory_gib"),
                _figure(fact, "memory_bandwidth_gbps"),
                _figure(fact, "fp32_tflops"),
                _optional_figure(fact, "fp32_matrix_tflops"),
                _optional_figure(fact, "tf32_tensor_tflops"),
                _optional_figure(fact, "fp16_tensor_tflops"),
                _optional_figure(fact, "bf16_tensor_tflops"),
                _figure(fact, "multiprocessors"),
                capability if _CUDA.fullmatch(capability) else "",
                _figure(fact, "tdp_watts"),
                _optional_figure(fact, "l2_mib"),
                _usable_gib(fact),
                SPECS_SOURCE,
                as_of,
                fact.text("usable_from", empty=True),
            )
        )
    return sorted(rows)


def _usable_gib(fact: Row) -> str:
    """Return the text of the memory that programs can use: at most the board's, and from somewhere; or the empty text."""
    usable = fact.number("usable_gib", most=float(_figure(fact, "memory_gib")))
    if (usable is None) is not (fact.text("usable_from", empty=True) == ""):
        raise fact.wrong("usable_from", "a figure needs its source, and a source its figure")
    return fact.cells["usable_gib"]


def cpu_rows(facts: Path, as_of: str) -> list[TableRow]:
    """Return the rows of cpus.csv, which holds nothing measured.

    Raises:
        ConfigError: A figure is missing or wrong, or a family is listed twice.
    """
    return sorted(
        (
            family.text("provider"),
            family.text("family"),
            family.text("cpu_model"),
            family.text("microarchitecture", empty=True),
            _figure(family, "vcpus_per_core"),
            _optional_figure(family, "all_core_ghz"),
            _optional_figure(family, "fp32_flops_per_cycle_per_core"),
            family.text("bf16_in_hardware", among=("yes", "no")),
            family.text("burstable", among=("yes", "no")),
            FAMILY_SOURCES[family.text("figures_from", among=tuple(FAMILY_SOURCES))],
            as_of,
        )
        for family in _families(facts)
    )


def cpu_measurement_rows(facts: Path) -> list[TableRow]:
    """Return the rows of cpu_measurements.csv: the families of which anything was measured."""
    rows = []
    for family in _families(facts):
        read = _optional_figure(family, "measured_read_gbps_largest_size")
        matrix = _optional_figure(family, "passmark_matrix_mult_per_vcpu")
        vcpus = _figure(family, "largest_vcpus_seen") if read else ""
        bzip2 = _optional_figure(family, "bzip2_mbps_of_one_thread")
        if read or matrix or bzip2:
            key = family.text("provider"), family.text("family")
            rows.append((*key, read, vcpus, matrix, bzip2, MEASUREMENTS_SOURCE, MEASUREMENTS_AS_OF))
    return sorted(rows)


def _families(facts: Path) -> list[Row]:
    return _unique(read_rows(facts / CPU_FAMILIES, CPU_FAMILY_HEADER.split(",")), "family", within="provider")


def _unique(rows: Iterable[Row], *columns: str, within: str = "") -> list[Row]:
    """Return the rows, in each column of which no value appears twice (with the same value of `within`)."""
    found = list(rows)
    for column in columns:
        seen = set()
        for row in found:
            key = row.cells.get(within), row.text(column)
            if key in seen:
                raise row.wrong(column, f"{row.text(column)!r} is listed twice")
            seen.add(key)
    return found


def _figure(row: Row, column: str) -> str:
    """Return the text of a number above zero."""
    needed(row, column, row.number(column))
    return row.cells[column]


def _optional_figure(row: Row, column: str) -> str:
    """Return the text of a number above zero, or the empty text."""
    row.number(column)
    return row.cells[column]
