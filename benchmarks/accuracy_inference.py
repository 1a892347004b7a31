"""How far the model of inference is from public measurements: median and p90 absolute percentage error, and coverage.

    python -m benchmarks.accuracy_inference ROWS.csv [--refit] [--cache FILE]

ROWS.csv has the columns task, model, framework, mode, precision, layout, batch, size, device, device_kind, cores,
throughput, unit, source. Rows of eager and compiled PyTorch on GPUs of the hardware table are traced under
FakeTensorMode and predicted as by `costgpu estimate`; rows of engines are predicted by the formulas of
`estimator.advice.engines` and `cpu`. It needs timm, torchvision, transformers and diffusers.

Each figure comes with the shipped constants, with the host's speed known (one factor for each source and machine, read
off its smallest batches), and with the constants fitted anew on rows that share neither chip family nor model.
"""

from __future__ import annotations

import argparse
import csv
import math
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.accuracy import percent
from benchmarks.models.inference import forward_rows, generation_rows
from benchmarks.rows import PRECISIONS, family
from costgpu.estimator.cpu_peak import unit_seconds_on_cpu
from costgpu.estimator.gpu import Execution, Runtime
from costgpu.estimator.gpu_interval import gpu_interval
from costgpu.estimator.op_costs import work_of
from costgpu.estimator.roofline import FORWARD, OVERLAP, device_sums, gpu_terms
from costgpu.estimator.unit_work import Pass, UnitWork, terms_of
from costgpu.estimator.work import Work
from costgpu.models.offer import AcceleratorSpec, CpuSpec
from costgpu.models.workload import OpRow
from costgpu.pricing.hardware import accelerators

# Rows of this source time the pageable copy of the batch, too; seconds per byte, fitted with the rest.
COPIES, PAGEABLE_SECONDS = "pytorch-gpu-benchmark", 0.38e-9
IMAGES = ("pytorch-image-models", "DeepLearningExamples")  # sources whose nets are timm's
VISION = ("pytorch-gpu-benchmark", "deep-learning-benchmark")  # torchvision's
HOST = ("module", "op", "autocast")  # constants of the host
SHIPPED = {
    **{name: value for name, (_, value) in FORWARD.seconds.items()},
    "module": FORWARD.call_seconds[0],
    "op": FORWARD.call_seconds[1],
    "autocast": FORWARD.autocast_host,
}
DEVICE = list(FORWARD.seconds)
# Source: Intel's product page (14 cores, two AVX-512 units each, four channels of DDR4-2933); clock under AVX-512 assumed.
DESKTOP = CpuSpec(
    provider="",
    family="",
    model="Core i9-10940X",
    microarchitecture="Cascade Lake",
    vcpus_per_core=2,
    all_core_ghz=3.0,
    fp32_flops_per_cycle=64,
    bf16_in_hardware=False,
    read_gbps=80.0,
    read_vcpus=28,
    matrix_mult_per_vcpu=None,
    bzip2_mbps=None,
    burstable=False,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One public measurement with what the model needs for it."""

    raw: Mapping[str, str]
    passes: list[tuple[Work, float]]  # work and how many times it is done
    spec: AcceleratorSpec
    execution: Execution
    seconds: float
    copy: float

    @property
    def batch(self) -> int:
        """Items of one unit."""
        return int(self.raw["batch"])

    @property
    def source(self) -> str:
        """Return the repository."""
        return self.raw["source"].split("@")[0].split("/")[-1]

    @property
    def gpu(self) -> str:
        """Return the board."""
        return self.raw["device"]

    def host(self) -> tuple[str, ...]:
        """Rows that were measured on one machine with one software."""
        return self.source, self.raw["framework"], self.raw["task"], self.gpu


class Traces:
    """Traces, each made once and kept in a file."""

    def __init__(self, cache: Path | None) -> None:
        self.cache = cache
        self.known: dict[tuple[object, ...], tuple[list[OpRow], ...]] = {}
        if cache is not None and cache.exists():
            self.known = pickle.loads(cache.read_bytes())

    def of(self, key: tuple[object, ...], make: Callable[[], tuple[list[OpRow], ...]]) -> tuple[list[OpRow], ...]:
        """Return the trace of that name."""
        if key not in self.known:
            self.known[key] = make()
            print(f"traced {key}", file=sys.stderr)
        return self.known[key]

    def save(self) -> None:
        """Writes the file."""
        if self.cache is not None:
            self.cache.write_bytes(pickle.dumps(self.known))


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of the file without its comments."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def measured(raw: Mapping[str, str], traces: Traces) -> Measured | None:
    """Return the row with its trace; None if it is none of PyTorch on a known GPU."""
    specs = {key: spec for spec in accelerators().values() for key in (spec.name, spec.model)}
    spec, model = specs.get(raw["device"]), raw["model"]
    if raw["mode"] == "engine" or raw["device_kind"] != "GPU" or spec is None or "whisper" in model:
        return None
    batch, rate, task = int(raw["batch"]), float(raw["throughput"]), raw["task"]
    if task.startswith("LLM"):
        prompt, context = {
            "LLM prefill": (int(raw["size"].split()[0].split("x")[0]) if task == "LLM prefill" else 0,) * 2,
            "LLM decode": (256, 512),
            "LLM generate": (512, 1012),
        }[task]
        first, second = traces.of(
            (model, batch, prompt, context), lambda: generation_rows(model, batch, prompt, context)
        )
        passes, seconds = {
            "LLM prefill": ([(work_of(first, statistics=False), 1.0)], batch * prompt / rate),
            "LLM decode": ([(work_of(second, statistics=False), 1.0)], batch / rate),
            "LLM generate": (
                [(work_of(first, statistics=False), 1.0), (work_of(second, statistics=False), 999.0)],
                batch * 1000 / rate,
            ),
        }[task]
    else:
        library = _library(raw)
        size, half, last = int(raw["size"].split("x")[0]), raw["precision"] in ("fp16", "bf16"), raw["layout"] == "nhwc"
        (rows,) = traces.of(
            (library, model, batch, size, half, last),
            lambda: (forward_rows(library, model, batch, size, half=half, channels_last=last),),
        )
        passes, seconds = [(work_of(rows, statistics=False), 1.0)], (1.0 if "UNet" in raw["unit"] else batch) / rate
    copied = COPIES in raw["source"]
    precision = PRECISIONS["half" if raw["precision"] in ("fp16", "bf16") else raw["precision"]]
    runtime = Runtime.COMPILED if raw["mode"] == "compile" else Runtime.EAGER
    item = 3 * 224 * 224 * (2 if raw["precision"] == "fp16" else 4)
    return Measured(
        raw,
        passes,
        spec,
        Execution(precision, runtime=runtime),
        seconds,
        copy=batch * item * PAGEABLE_SECONDS if copied else 0.0,
    )


def _library(raw: Mapping[str, str]) -> str:
    source = raw["source"]
    if raw["model"].startswith("stable-diffusion"):
        return "diffusers"
    if any(name in source for name in IMAGES) and raw["model"] != "bert_large":
        return "timm"
    return "torchvision" if any(name in source for name in VISION) else "huggingface"


@dataclass(frozen=True, slots=True)
class Table:
    """The rows as arrays, so that a prediction with other constants is a product of matrices."""

    row: np.ndarray  # of each pass its row
    times: np.ndarray
    sums: np.ndarray  # by pass and coefficient, after what torch.compile leaves
    modules: np.ndarray  # kernels of modules by pass
    others: np.ndarray  # other kernels by pass
    autocast: np.ndarray  # whether autocast
    hosts: np.ndarray  # what compilation leaves of the host's time
    copy: np.ndarray  # seconds by row

    @classmethod
    def of(cls, rows: list[Measured]) -> Table:
        """Return the table of these rows."""
        found: list[tuple[object, ...]] = []
        for at, row in enumerate(rows):
            compiled = row.execution.runtime is not Runtime.EAGER
            for work, times in row.passes:
                sums = device_sums(work, row.spec, row.execution, FORWARD)
                line = [sums.get(n, 0.0) * (FORWARD.compiled.get(n, 1.0) if compiled else 1.0) for n in DEVICE]
                amp = row.execution.precision.half is not None
                kernels = work.autocast_kernels if amp else work.kernels
                left = FORWARD.compiled_host.get(row.execution.runtime, 1.0)
                found.append((at, times, line, work.module_kernels, kernels - work.module_kernels, amp, left))
        columns = [np.array(column) for column in zip(*found, strict=True)]
        return cls(*columns, copy=np.array([row.copy for row in rows]))

    def predict(self, constants: Mapping[str, float], speed: np.ndarray | float = 1.0) -> np.ndarray:
        """Seconds of every row.

        Args:
            speed: Factor of the host's seconds, of each row or of all.
        """
        device = self.sums @ np.array([constants[name] for name in DEVICE])
        host = constants["module"] * self.modules + constants["op"] * self.others
        host *= np.where(self.autocast, constants["autocast"], 1.0) * self.hosts
        host *= speed[self.row] if isinstance(speed, np.ndarray) else speed
        each = self.times * (device**OVERLAP + host**OVERLAP) ** (1 / OVERLAP)
        seconds = self.copy.copy()
        np.add.at(seconds, self.row, each)
        return seconds


def fit(
    rows: list[Measured], table: Table, start: Mapping[str, float], speed: np.ndarray | float = 1.0
) -> dict[str, float]:
    """Constants that minimise the mean absolute log error, held to `start` by a weak spring."""
    wanted = np.log([row.seconds for row in rows])

    def loss(constants: Mapping[str, float]) -> float:
        error = float(np.abs(np.log(table.predict(constants, speed)) - wanted).mean())
        return error + 0.002 * sum(math.log(constants[name] / start[name]) ** 2 for name in start)

    best, step = dict(start), 0.3
    least = loss(best)
    while step > 0.02:
        moved = False
        for name in start:
            for factor in (1 + step, 1 / (1 + step)):
                trial = best | {name: best[name] * factor}
                if (value := loss(trial)) < least - 1e-6:
                    best, least, moved = trial, value, True
        step = step if moved else step / 2
    return best


def host_speeds(rows: list[Measured], table: Table, constants: Mapping[str, float]) -> np.ndarray:
    """For each row the factor of its machine's host, by the smallest batches that were measured on it."""
    groups = defaultdict(list)
    for at, row in enumerate(rows):
        groups[row.host()].append(at)
    seconds, factors = np.array([row.seconds for row in rows]), np.ones(len(rows))
    for places in groups.values():
        least = min(rows[at].batch for at in places)
        small = [at for at in places if rows[at].batch == least]
        errors = {}
        for factor in np.geomspace(0.5, 2.2, 31):
            factors[places] = factor
            errors[factor] = np.abs(np.log(table.predict(constants, factors)[small] / seconds[small])).mean()
        factors[places] = min(errors, key=lambda factor: (round(errors[factor], 4), abs(math.log(factor))))
    return factors


def report(title: str, rows: list[Measured], predicted: np.ndarray) -> None:
    """Prints a table of errors."""
    print(f"\n{title}: absolute percentage error\n{'':52}{'rows':>6}{'median':>9}{'p90':>9}{'bias':>9}")

    def line(name: str, chosen: Iterable[int]) -> None:
        errors = [predicted[at] / rows[at].seconds - 1 for at in chosen]
        if errors:
            absolute = [abs(error) for error in errors]
            figures = f"{percent(absolute, 0.5):8.1f}%{percent(absolute, 0.9):8.1f}%{percent(errors, 0.5):+8.1f}%"
            print(f"{name:52}{len(errors):6}{figures}")

    line("all", range(len(rows)))
    for label, key in CUTS.items():
        print(f"  by {label}")
        for name in sorted({key(row) for row in rows}):
            line(f"    {name}", [at for at, row in enumerate(rows) if key(row) == name])


def _limit(row: Measured) -> str:
    terms = [gpu_terms(work, row.spec, row.execution, FORWARD) for work, _ in row.passes]
    return "host" if terms[-1].calls_alone > terms[-1].device_seconds else "device"


CUTS: dict[str, Callable[[Measured], str]] = {
    "precision and layout": lambda row: f"{row.raw['precision']} {row.raw['layout']}".strip(),
    "chip family": family,
    "batch": lambda row: "1 to 4" if row.batch <= 4 else "5 to 16" if row.batch <= 16 else "above 16",
    "limit": _limit,
    "task": lambda row: row.raw["task"],
    "source": lambda row: f"{row.source}, {row.raw['framework']}",
    "model": lambda row: row.raw["model"],
}


def both_out(rows: list[Measured], table: Table, speed: np.ndarray | float) -> np.ndarray:
    """Each row by constants that were fitted without its chip family and without its model."""
    found = np.zeros(len(rows))
    keys = [(family(row), row.raw["model"]) for row in rows]
    for key in sorted(set(keys)):
        kept = [at for at, other in enumerate(keys) if other[0] != key[0] and other[1] != key[1]]
        part = [rows[at] for at in kept]
        own = speed[kept] if isinstance(speed, np.ndarray) else speed
        constants = fit(part, Table.of(part), SHIPPED, own)
        mine = [at for at, other in enumerate(keys) if other == key]
        found[mine] = table.predict(constants, speed)[mine]
    return found


def coverage(rows: list[Measured], predicted: np.ndarray) -> str:
    """Return how many rows lie in their 80 % interval."""
    places = []
    for row, seconds in zip(rows, predicted, strict=True):
        terms = [gpu_terms(work, row.spec, row.execution, FORWARD) for work, _ in row.passes]
        whole = terms_of(UnitWork(tuple(Pass(work, times) for work, times in row.passes)), terms)
        interval, _ = gpu_interval(whole, row.spec, row.execution, trains=False, year=row.spec.year + 2)
        low, high = seconds * interval.low, seconds * interval.high
        places.append(-1 if row.seconds < low else 1 if row.seconds > high else 0)
    inside = 100 * places.count(0) / len(places)
    return (
        f"80 % intervals cover {inside:.0f} % of {len(places)} rows ({places.count(-1)} below, {places.count(1)} above)"
    )


def on_cpu(raws: Iterable[Mapping[str, str]], traces: Traces) -> None:
    """Prints the error of the formula for CPUs on the nets that timm's authors timed on one, in fp32 at batch 1."""
    errors = []
    for raw in raws:
        if raw["device"] == DESKTOP.model and raw["precision"] == "fp32":
            model, size = raw["model"], int(raw["size"])
            make = partial(forward_rows, "timm", model, 1, size, half=False, channels_last=False)
            (rows,) = traces.of(("timm", model, 1, size, False, False), lambda make=make: (make(),))
            found = unit_seconds_on_cpu(UnitWork((Pass(work_of(rows, statistics=False)),)), DESKTOP, 28, "float32")
            errors.append(found * float(raw["throughput"]) - 1)
    absolute = [abs(error) for error in errors]
    figures = (
        f"{percent(absolute, 0.5):.1f} % median, {percent(absolute, 0.9):.1f} % p90, bias {percent(errors, 0.5):+.1f} %"
    )
    print(f"\n{DESKTOP.model}, fp32, batch 1, nothing measured there: {len(errors)} rows, {figures}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="CSV of measured rows")
    parser.add_argument("--cache", type=Path, help="file to keep traces in")
    parser.add_argument("--refit", action="store_true", help="also with constants fitted on other chips and models")
    arguments = parser.parse_args()
    traces = Traces(arguments.cache)
    known = [row for raw in read(arguments.rows) if (row := measured(raw, traces)) is not None]
    on_cpu(read(arguments.rows), traces)
    traces.save()
    eager = [row for row in known if row.raw["mode"] == "eager"]
    compiled = [row for row in known if row.raw["mode"] == "compile"]
    for title, rows in (("Eager", eager), ("torch.compile", compiled)):
        table = Table.of(rows)
        predicted = table.predict(SHIPPED)
        report(f"{title}, one host speed for all", rows, predicted)
        print(coverage(rows, predicted))
        speeds = host_speeds(rows, table, SHIPPED)
        report(f"{title}, host speed known", rows, table.predict(SHIPPED, speeds))
    if arguments.refit:
        table = Table.of(eager)
        speeds = host_speeds(eager, table, SHIPPED)
        for title, speed in (("one host speed", 1.0), ("host speed known", speeds)):
            fitted = fit(eager, table, SHIPPED, speed)
            print(f"\nfitted on all, {title}:", ", ".join(f"{name} {value:.4g}" for name, value in fitted.items()))
            left = both_out(eager, table, speed)
            report(f"Chip family and model left out, {title}", eager, left)
            print(coverage(eager, left))


if __name__ == "__main__":
    sys.exit(main())
