"""The hardware tables, from gpu_specs.csv and cpu_families.csv: rows of text, checked, in one order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from costgpu.errors import ConfigError
from costgpu.pricing.sources.gpu_names import BOARDS, BURSTABLE, FAMILIES_WITHOUT_ROW, LEFT_OUT

Fact = Mapping[str, str]

GPU_SPECS = "gpu_specs.csv"
GPU_SPEC_COLUMNS = (
    "gpu,vendor,year,architecture,memory_gib,memory_bandwidth_gbps,fp32_tflops,tf32_tensor_tflops,"
    "fp16_tensor_tflops,bf16_tensor_tflops,int8_tops,sm_or_cu_count,compute_capability,tdp_watts,form,notes"
)
CPU_FAMILIES = "cpu_families.csv"
CPU_FAMILY_COLUMNS = (
    "vendor,family,cpu_model,other_cpu_models_seen,microarchitecture,year,base_ghz,all_core_ghz,vcpus_per_core,"
    "simd,bf16_in_hardware,fp32_flops_per_cycle_per_core,memory_gbps_per_socket_theoretical,"
    "measured_read_gbps_largest_size,largest_vcpus_seen,passmark_matrix_mult_per_vcpu,stressng_best_per_vcpu,"
    "llamacpp_pp128_llama7b_q4_tokens_s_per_vcpu,llamacpp_pp512_qwen0_5b_q4_tokens_s_per_vcpu"
)

SPECS_SOURCE = "vendors' published peak figures"
FAMILIES_SOURCE = "processor vendors' and providers' documentation"
GENERATION_SOURCE = "provider's announced processor generation; figures of the same microarchitecture"
MEASUREMENTS_SOURCE = "Spare Cores, sc-data-dumps"
MEASUREMENTS_AS_OF = "2026-01-31"
"""The dump that cpu_families.csv was measured from."""
MEASUREMENTS_PREAMBLE = (
    "Derived from benchmark data by Spare Cores (https://sparecores.com), sc-data-dumps of 2026-01-31.",
    "Licence: CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/legalcode",
    "Changes: reduced to one row per instance family; read_gbps is of its largest size, scores are per vCPU.",
)

_FP32_MATRIX = re.compile(r"fp32 matrix (\d+(?:\.\d+)?)")
_CUDA = re.compile(r"\d+\.\d+")


def accelerator_rows(facts: Sequence[Fact], as_of: str) -> list[tuple[str, ...]]:
    """The rows of accelerators.csv.

    Raises:
        ConfigError: A named board is missing, or a figure is missing or not positive.
    """
    boards = {fact["gpu"]: fact for fact in facts}
    if len(boards) != len(facts):
        raise ConfigError(f"{GPU_SPECS} lists a board twice.")
    missing = [board for board in BOARDS.values() if board not in boards]
    if missing:
        raise ConfigError(f"{GPU_SPECS} lacks the board {', '.join(missing)}.")
    names = {board: name for name, board in BOARDS.items()}
    rows = []
    for board, fact in boards.items():
        if board in LEFT_OUT:
            continue
        capability, matrix = fact["compute_capability"], _FP32_MATRIX.search(fact["notes"])
        rows.append(
            (
                names.get(board, board),
                board,
                fact["vendor"],
                fact["architecture"],
                _positive(fact, "year", GPU_SPECS),
                _positive(fact, "memory_gib", GPU_SPECS),
                _positive(fact, "memory_bandwidth_gbps", GPU_SPECS),
                _positive(fact, "fp32_tflops", GPU_SPECS),
                matrix.group(1) if matrix else "",
                _positive_or_blank(fact, "tf32_tensor_tflops", GPU_SPECS),
                _positive_or_blank(fact, "fp16_tensor_tflops", GPU_SPECS),
                _positive_or_blank(fact, "bf16_tensor_tflops", GPU_SPECS),
                _positive(fact, "sm_or_cu_count", GPU_SPECS),
                capability if _CUDA.fullmatch(capability) else "",
                _positive(fact, "tdp_watts", GPU_SPECS),
                SPECS_SOURCE,
                as_of,
            )
        )
    return sorted(rows)


def cpu_rows(facts: Sequence[Fact], as_of: str) -> list[tuple[str, ...]]:
    """The rows of cpus.csv: nothing measured.

    Raises:
        ConfigError: A figure is missing, or the rows of one microarchitecture disagree where one is needed.
    """
    rows = []
    for fact in facts:
        key = fact["vendor"], fact["family"]
        rows.append(
            (
                *key,
                fact["cpu_model"],
                fact["microarchitecture"],
                _positive(fact, "vcpus_per_core", CPU_FAMILIES),
                _positive_or_blank(fact, "all_core_ghz", CPU_FAMILIES),
                _positive_or_blank(fact, "fp32_flops_per_cycle_per_core", CPU_FAMILIES),
                _yes_or_no(fact, facts),
                "yes" if key in BURSTABLE else "no",
                FAMILIES_SOURCE,
                as_of,
            )
        )
    listed = {row[:2] for row in rows}
    for key, (model, microarchitecture) in FAMILIES_WITHOUT_ROW.items():
        if key in listed:
            raise ConfigError(f"{CPU_FAMILIES} has {key} by now: take it out of FAMILIES_WITHOUT_ROW.")
        same = [fact for fact in facts if fact["microarchitecture"] == microarchitecture]
        same = [fact for fact in same if fact["vendor"] == key[0]] or same
        if not same:
            continue  # nothing is known of that microarchitecture: the offers' check will say so
        flops = _agreed(same, "fp32_flops_per_cycle_per_core")
        bf16 = _agreed(same, "bf16_in_hardware")
        rows.append((*key, model, microarchitecture, "2", "", flops, bf16, "no", GENERATION_SOURCE, as_of))
    if len({row[:2] for row in rows}) != len(rows):
        raise ConfigError(f"{CPU_FAMILIES} lists a family twice.")
    return sorted(rows)


def cpu_measurement_rows(facts: Iterable[Fact]) -> list[tuple[str, ...]]:
    """The rows of cpu_measurements.csv: the families of which anything was measured."""
    rows = []
    for fact in facts:
        read = _positive_or_blank(fact, "measured_read_gbps_largest_size", CPU_FAMILIES)
        matrix = _positive_or_blank(fact, "passmark_matrix_mult_per_vcpu", CPU_FAMILIES)
        vcpus = _positive(fact, "largest_vcpus_seen", CPU_FAMILIES) if read else ""
        if read or matrix:
            key = fact["vendor"], fact["family"]
            rows.append((*key, read, vcpus, matrix, MEASUREMENTS_SOURCE, MEASUREMENTS_AS_OF))
    return sorted(rows)


def memory_of(rows: Iterable[Sequence[str]]) -> dict[str, float]:
    """Memory in GiB by canonical name, from the rows of accelerators.csv."""
    return {row[0]: float(row[5]) for row in rows}


def _yes_or_no(fact: Fact, facts: Sequence[Fact]) -> str:
    """Whether bf16 is fast; where the row is silent, as the rows of its microarchitecture agree."""
    answer = fact["bf16_in_hardware"]
    if not answer:
        same = [other for other in facts if other["microarchitecture"] == fact["microarchitecture"]]
        answer = _agreed([other for other in same if other["bf16_in_hardware"]], "bf16_in_hardware")
    if answer not in {"yes", "no"}:
        raise ConfigError(f"{CPU_FAMILIES}: {fact['family']}: bf16_in_hardware is {answer!r}.")
    return answer


def _agreed(facts: Sequence[Fact], column: str) -> str:
    values = {fact[column] for fact in facts}
    if len(values) != 1:
        raise ConfigError(f"{CPU_FAMILIES}: {column} is not one value but {sorted(values)}.")
    return values.pop()


def _positive(fact: Fact, column: str, file: str) -> str:
    text = _positive_or_blank(fact, column, file)
    if not text:
        raise ConfigError(f"{file}: {next(iter(fact.values()))} has no {column}.")
    return text


def _positive_or_blank(fact: Fact, column: str, file: str) -> str:
    text = fact[column]
    try:
        valid = not text or 0 < float(text) < float("inf")
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{file}: {column} of {next(iter(fact.values()))} is {text!r}.")
    return text
