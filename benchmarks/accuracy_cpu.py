"""How far the CPU model is from public measurements: median and p90 absolute percentage error, and coverage.

    python -m benchmarks.accuracy_cpu [ROWS.csv] [--refit]

First what is shipped, from host to host: the steps of `cpu_hosts.csv`, each predicted for the other hosts from the
micro-benchmark and the seconds that were measured on one, as `costgpu estimate` does it; and how far the hosts agree on
the steps of the clouds' families, of which nobody knows the truth.

Then, with a file, public rows. ROWS.csv has one measured time a row, in these columns (others are not read):

    group     rows of one group are the same work: the same model, batch, and software
    kind      a line of the report; "torch ..." for ops of torch, whose calls count
    model     left out of the fit together
    machine   its name
    provider, family   as in pricing/data/cpus.csv; without a provider, a family of `OUTSIDE`
    cores     physical cores used
    seconds   of one step
    flops, bytes, weights, kernels   of one step: floating-point operations, bytes moved and, of these, bytes of
              parameters, ops; all four empty for boosted trees and the like, kernels alone where it is not known

A file with the columns task, model, framework, size, device, cores, throughput, unit is read, too: of its rows, those of
prompts (task "LLM prefill", throughput in tokens/s, size "512 in") whose device ends in the cloud machine's name: "CPU
(aws c7g.2xlarge)". Lines that begin with # are comments.

Every row is predicted from others of its group as `costgpu estimate` predicts an offer from a step measured here: the
machine of the one row is "this machine", with the figures that its micro-benchmark would find if the CPU tables were
right, the other row's is the offer. With `--refit` the two constants of sigma are fitted anew for every model, on the
rows of the other models.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

from costgpu.estimator import cpu as model
from costgpu.estimator.interval import cpu_interval
from costgpu.estimator.work import Work
from costgpu.models.offer import CpuSpec
from costgpu.models.workload import Machine
from costgpu.pricing.hardware import cpus

FROM_CORES = (2, 4, 8)  # what a script is measured on as a rule
MOST_PAIRS, SEED = 4000, 1  # of a kind of pairs; drawn at random where there are more
LARGE_BYTES = 4 << 20
CALL_SECONDS = 2e-6  # of an op, where it was not measured: torch 2.13 on one Zen 5 core
USUAL_KERNELS = 150.0  # of a net whose kernels are not told
# Parameters and layers of the language models of prompts; ten ops a layer, weights of 0.6 bytes, and activations of 80 kB
# a token and layer are ours.
LANGUAGE_MODELS = {
    "qwen1.5-0.5b": (464e6, 24),
    "gemma-2b": (2.5e9, 18),
    "llama-7b": (6.7e9, 32),
    "phi-4-14b": (14.7e9, 40),
    "llama-3.3-70b": (70e9, 80),
}
PROMPT_BYTES = 81920.0
HOSTS_FILE, STEPS_FILE = (Path(__file__).with_name(name) for name in ("cpu_hosts.csv", "cpu_steps.csv"))
# Families that rent such a host; the others are this kind of host with its libraries held to fewer instructions.
HOSTS = {"intel": ("aws", "c8i"), "zen4": ("aws", "c7a"), "zen3": ("aws", "c6a")}
CLEAN = {"intel", "zen4"}  # nobody else computed on them, or hardly
FAMILIES = [
    (provider, family)
    for provider, family in (
        ("aws", "c7g"),
        ("aws", "c8g"),
        ("aws", "c6i"),
        ("aws", "c7i"),
        ("aws", "c8i"),
        ("aws", "c5a"),
        ("aws", "c6a"),
        ("aws", "c7a"),
        ("aws", "c8a"),
        ("gcp", "n2"),
        ("gcp", "c3"),
        ("gcp", "c4"),
        ("gcp", "t2d"),
        ("gcp", "c4a"),
    )
]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    group: str
    kind: str
    model: str
    machine: str
    provider: str
    family: str
    cores: float
    seconds: float
    work: Work
    gflops: float = 0.0  # of the machine, if a net of the file shows what its matrix multiply reaches; else 0


@dataclass(frozen=True, slots=True)
class Result:
    """One row predicted from another."""

    there: Row
    error: float  # logarithm of predicted over measured
    inside: bool


def outside_spec(name: str, ghz: float, flops: float, cores: int, gbps: float) -> CpuSpec:
    """Return a CPU that no cloud of the tables rents."""
    return CpuSpec(
        provider="",
        family=name,
        model=name,
        microarchitecture=name,
        vcpus_per_core=1,
        all_core_ghz=ghz,
        fp32_flops_per_cycle=flops,
        bf16_in_hardware=False,
        read_gbps=gbps,
        read_vcpus=cores,
        matrix_mult_per_vcpu=None,
        bzip2_mbps=None,
        burstable=False,
    )


# Nominal figures of the processor vendors' pages: clock with all cores busy and wide vectors, fp32 FLOPs of a core and
# cycle (of the i7, whose 14 cores are of two sizes, the mean), cores, and about 0.8 of the nominal memory bandwidth.
OUTSIDE = {
    "i7-12700H": outside_spec("i7-12700H", 3.3, 24.0, 14, 60.0),
    "i9-10940X": outside_spec("i9-10940X", 3.0, 64.0, 14, 75.0),
    "skylake": outside_spec("skylake", 2.6, 64.0, 18, 107.0),
}


def prompt_cells(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of ROWS.csv of a prompt's row of the other file; empty if it is none, or no cloud machine's."""
    name = re.search(r"\((\w+) ((\w+(?:-flex)?)[.-]\S+)\)$", cells["device"])
    if cells["task"] != "LLM prefill" or cells["unit"] != "tokens/s" or name is None:
        return {}
    tokens = float(cells["size"].split()[0])
    parameters, layers = LANGUAGE_MODELS[cells["model"]]
    weights = 0.6 * parameters
    return {
        "group": " ".join(cells[column] for column in ("model", "framework", "size")),
        "kind": "int4 prompt",
        "model": cells["model"],
        "provider": name[1],
        "machine": name[2],
        "family": name[3],
        "cores": cells["cores"],
        "seconds": str(tokens / float(cells["throughput"])),
        "flops": str(2 * parameters * tokens),
        "bytes": str(weights + PROMPT_BYTES * layers * tokens),
        "weights": str(weights),
        "kernels": str(10 * layers),
    }


def read_row(cells: Mapping[str, str]) -> Row:
    """One row of ROWS.csv."""
    flops, moved, weights, kernels = (float(cells[name] or 0) for name in ("flops", "bytes", "weights", "kernels"))
    if flops and not kernels:
        kernels = USUAL_KERNELS
    each = (moved - weights) / kernels if kernels else 0.0
    work = Work(
        flops={("matmul", "float32"): flops} if flops else {},
        moved={("pointwise", "float32"): moved},
        kernels=kernels,
        large_bytes=weights + (moved - weights if each > LARGE_BYTES else 0.0),
    )
    names = (cells[name] for name in ("group", "kind", "model", "machine", "provider", "family"))
    return Row(*names, float(cells["cores"]), float(cells["seconds"]), work)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of the file; numbers that are not known are empty."""
    with path.open(encoding="utf-8", newline="") as stream:
        tables: list[dict[str, str]] = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    if tables and "task" in tables[0]:
        tables = [cells for row in tables if (cells := prompt_cells(row))]
    found = [read_row(cells) for cells in tables]
    best: dict[str, float] = defaultdict(float)  # no cloud's CPU: the micro-benchmark would reach what a net reaches
    for row in found:
        if row.family in OUTSIDE and row.kind != "torch eager":
            best[row.machine] = max(best[row.machine], row.work.total_flops / row.seconds / 1e9)
    return [replace(row, gflops=best.get(row.machine, 0.0)) for row in found]


@cache
def spec_of(provider: str, family: str) -> CpuSpec | None:
    """Return the CPU of a row; None if nothing is known of it."""
    return cpus().get((provider, family)) if provider else OUTSIDE[family]


@cache
def machine_of(spec: CpuSpec, cores: float, gflops: float = 0.0) -> Machine:
    """Return what the micro-benchmark would find on so many cores of this CPU.

    Args:
        gflops: What it surely would find, if more is known than the tables tell; 0 if not.
    """
    rates = model.rates_there(spec, round(cores * spec.vcpus_per_core))
    gflops = gflops or rates.core_gflops * model.speedup_of(cores, model.SIGMA_LARGE)
    return Machine(
        cpu_model=spec.model,
        cores=round(cores),
        threads=round(cores),
        memory_gib=64,
        gemm_gflops=gflops,
        gemm_gflops_low=gflops,
        conv_gflops=gflops * rates.conv_gflops / rates.core_gflops,
        copy_gbps=rates.memory_gbps,
        op_seconds=CALL_SECONDS,
        single_thread_mbps=model.thread_mbps(spec),
    )


def host_figures() -> dict[str, dict[str, float]]:
    """Return what was measured on each host of `cpu_hosts.csv`: figures of the micro-benchmark, and CPU ms by step."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for cells in table_of(HOSTS_FILE):
        found[cells["host"]][cells["what"]] = float(cells["value"])
    return found


def table_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file without its comments."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def host_machine(name: str, figures: Mapping[str, float]) -> Machine:
    """Return a host as a measurement on one of its threads describes it."""
    names = ("gemm_gflops", "conv_gflops", "copy_gbps", "op_seconds", "single_thread_mbps")
    known = {figure: figures[figure] for figure in names}
    low = figures["gemm_gflops"]
    return Machine(cpu_model=name, cores=1, threads=1, memory_gib=16, gemm_gflops_low=low, gemm_threads=1, **known)


def step_of(cells: Mapping[str, str]) -> tuple[Work, float]:
    """Return the work of a step of `cpu_steps.csv`, and its calls."""
    amounts = {name: float(cells[name]) for name in cells if name != "step"}
    kinds = {"matmul": amounts["product_flops"], "conv": amounts["convolution_flops"]}
    flops = {(kind, "float32"): value for kind, value in kinds.items() if value}
    moved, large = amounts["bytes_moved"], amounts["large_bytes"]
    return Work(
        flops=flops, moved={("pointwise", "float32"): moved}, large_bytes=large, kernels=amounts["kernels"]
    ), amounts["calls"]


def seconds_on(
    cpu: CpuSpec, machine: Machine, seconds: float, work: Work, calls: float
) -> tuple[float, tuple[float, float]]:
    """Return the seconds of a step on one core of a cloud's CPU, and the ends of the interval as multipliers."""
    split = model.split_step(seconds, work, calls, 0.0, machine)
    there = sum(model.step_there(split, work, machine, cpu, cpu.vcpus_per_core).values())
    interval, _ = cpu_interval(machine, cpu, cores=1.0, convolved=work.convolved_share)
    return there, (interval.low, interval.high)


def report_hosts() -> None:
    """Print the errors from host to host, and the spread of several hosts on one family."""
    hosts, steps = host_figures(), {cells["step"]: step_of(cells) for cells in table_of(STEPS_FILE)}
    errors: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    spreads: dict[str, list[float]] = defaultdict(list)
    for step, (work, calls) in steps.items():
        kind = "convolutions" if work.convolved_share > 0.5 else "other"
        measured_on = {name: figures for name, figures in hosts.items() if step in figures}
        for name, figures in measured_on.items():
            machine = host_machine(name, figures)
            for other, key in HOSTS.items():
                if other == name or other not in measured_on:
                    continue
                told, (low, high) = seconds_on(cpus()[key], machine, figures[step] / 1e3, work, calls)
                truth = hosts[other][step] / 1e3
                one = math.log(told / truth), low * told <= truth <= high * told
                cuts = ["all", kind, f"from {name}", f"to {other}"]
                for cut in [*cuts, "between clean hosts"] if {name, other} <= CLEAN else cuts:
                    errors[cut].append(one)
                print(f"  {step[:44]:46}{name:>14} -> {other:6}{told / truth:6.2f}")
        for key in FAMILIES:
            told_by = {
                name: seconds_on(cpus()[key], host_machine(name, figures), figures[step] / 1e3, work, calls)[0]
                for name, figures in measured_on.items()
            }
            for cut, names in (("clean hosts", CLEAN), ("hosts", HOSTS), ("hosts, and one held to AVX", told_by)):
                of_cut = [told_by[name] for name in names if name in told_by]
                if len(of_cut) > 1:
                    spreads[cut].append(max(of_cut) / min(of_cut))
    print(f"{'from host to host':44} {'pairs':>6} {'median':>7} {'p90':>7} {'bias':>7} {'inside':>6}")
    for cut, found in errors.items():
        print(summary(cut, [error for error, _ in found], [inside for _, inside in found]))
    for cut, ratios in spreads.items():
        middle, most = statistics.median(ratios), max(ratios)
        print(f"{cut} on one family: highest over lowest {middle:.2f} in the median, {most:.2f} at most")


def predict(here: Row, there: Row) -> Result | None:
    """One row from another of its group."""
    mine, theirs = spec_of(here.provider, here.family), spec_of(there.provider, there.family)
    if mine is None or theirs is None or mine.burstable or theirs.burstable:
        return None
    machine = machine_of(mine, here.cores, here.gflops)
    calls = here.work.kernels if here.kind.startswith("torch") else 0.0
    split = model.split_step(here.seconds, here.work, calls, 0.0, machine)
    vcpus = round(there.cores * theirs.vcpus_per_core)
    terms = model.step_there(split, here.work, machine, theirs, vcpus, spreads=not here.work.kernels)
    error = math.log(sum(terms.values()) / there.seconds)
    convolved = here.work.convolved_share
    interval, _ = cpu_interval(machine, theirs, cores=there.cores, convolved=convolved, library=not here.work.kernels)
    return Result(there, error, math.log(interval.low) <= -error <= math.log(interval.high))


def pairs(rows: Iterable[Row], *, same: bool) -> Iterator[tuple[Row, Row]]:
    """Pairs of one group: a larger machine of the family, or a machine of another one."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    for group in groups.values():
        for here, there in itertools.permutations(group, 2):
            if (here.provider, here.family) == (there.provider, there.family):
                if same and here.cores in FROM_CORES and there.cores > here.cores:
                    yield here, there
            elif not same and (here.cores in FROM_CORES or not here.provider) and there.cores >= 2:
                yield here, there


def chosen(rows: list[Row], *, same: bool) -> list[tuple[Row, Row]]:
    """Return the pairs, at most `MOST_PAIRS`."""
    found = list(pairs(rows, same=same))
    return random.Random(SEED).sample(found, MOST_PAIRS) if len(found) > MOST_PAIRS else found


def results(chosen_pairs: Iterable[tuple[Row, Row]]) -> list[Result]:
    """Return the pairs of which both CPUs are known, predicted."""
    return [found for here, there in chosen_pairs if (found := predict(here, there)) is not None]


def line(name: str, found: list[Result]) -> str:
    """One line of the report."""
    return summary(name, [one.error for one in found], [one.inside for one in found])


def summary(name: str, logarithms: list[float], inside: list[bool]) -> str:
    """One line of the report, of logarithms of predicted over measured."""
    errors = sorted(abs(math.expm1(one)) for one in logarithms)
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    bias, held = math.expm1(statistics.median(logarithms)), sum(inside) / len(inside)
    return f"{name:44} {len(errors):6} {statistics.median(errors):7.1%} {p90:7.1%} {bias:+7.1%} {held:6.0%}"


def refitted(by_model: dict[str, list[tuple[Row, Row]]]) -> list[Result]:
    """Every model's pairs with the constants of sigma fitted on those of the other models."""
    grid = list(itertools.product((0.002, 0.005, 0.01, 0.015, 0.02, 0.03), (0.01, 0.02, 0.03, 0.04, 0.05, 0.07)))
    losses: dict[tuple[float, float], dict[str, list[float]]] = {}
    outcomes: dict[tuple[float, float], dict[str, list[Result]]] = {}
    for least, rest in grid:
        with patch.object(model, "SIGMA_LEAST", least), patch.object(model, "SIGMA_REST", rest):
            outcomes[least, rest] = {name: results(found) for name, found in by_model.items()}
        losses[least, rest] = {name: [abs(one.error) for one in found] for name, found in outcomes[least, rest].items()}
    together = []
    for name in by_model:
        others = [other for other in by_model if other != name]
        best = min(
            grid, key=lambda at: statistics.mean(statistics.mean(losses[at][o]) for o in others if losses[at][o])
        )
        print(f"    without {name}: {best[0]:g} + {best[1]:g} sqrt(...)")
        together += outcomes[best][name]
    return together


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?", help="public measurements; without them the hosts alone")
    parser.add_argument("--refit", action="store_true", help="fit sigma without each model in turn")
    options = parser.parse_args()
    report_hosts()
    if options.rows is None:
        return
    rows = read_rows(options.rows)
    for same, title in ((True, "same family, more cores"), (False, "another family")):
        print(f"{title:44} {'pairs':>6} {'median':>7} {'p90':>7} {'bias':>7} {'inside':>6}")
        for kind in sorted({row.kind for row in rows}):
            own = [row for row in rows if row.kind == kind]
            found = chosen(own, same=same)
            if not found:
                continue
            print(line(kind, results(found)))
            if options.refit and same and any(row.work.kernels for row in own):
                by_model = defaultdict(list)
                for here, there in found:
                    by_model[there.model].append((here, there))
                print(line("  sigma fitted on the other models", refitted(by_model)))


if __name__ == "__main__":
    main()
