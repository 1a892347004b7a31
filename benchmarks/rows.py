"""Public measurements of training steps, each with the work that the tracer of users' scripts finds in its model.

A file has the columns source, software, model, phase, gpu, precision, batch_size, optimizer, seconds_per_step, and may
have layout (``nchw`` or ``nhwc``) and image_size. Each row's model is built under FakeTensorMode (no memory, seconds).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.models import Workload, build, zoo
from costgpu.estimator import gpu
from costgpu.estimator.op_costs import work_of
from costgpu.estimator.roofline import HostCpu
from costgpu.estimator.work import Work
from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import OpRow, OptimizerFacts
from costgpu.pricing.hardware import accelerators

PRECISIONS = {
    "fp32": gpu.Precision(half=None, matmul_tf32=False, conv_tf32=True),
    "tf32": gpu.Precision(half=None, matmul_tf32=True, conv_tf32=True),
    "amp": gpu.Precision(half="float16", matmul_tf32=True, conv_tf32=True),
    "fp16": gpu.Precision(half="float16", matmul_tf32=True, conv_tf32=True),
    "half": gpu.Precision(half=None, matmul_tf32=True, conv_tf32=True),
    "bf16": gpu.Precision(half="bfloat16", matmul_tf32=True, conv_tf32=True),
}
# The script of these rows cast the whole model (apex, level O2) and did not use autocast.
WHOLE_MODEL_IN_HALF = frozenset({("bert_base", "amp"), ("bert_large", "amp")})
OLD_HOST = 2.5  # times the seconds of calls on hosts of 2018-21 with their torch
LAST_OLD_HOST = 2021  # year of the software
PAGEABLE_GBPS = 1.5  # of a new batch from pageable memory on the hosts of the `tv:` rows: fitted on them


@dataclass(frozen=True, slots=True)
class Model:
    """What is traced once for all rows of it."""

    name: str
    source: str
    phase: str
    batch: int
    image_size: int
    layout: str
    half: bool  # the model itself, not by autocast


@dataclass(frozen=True, slots=True)
class Row:
    """One public measurement with what the model needs for it."""

    source: str
    model: str
    phase: str
    gpu: str
    precision: str
    layout: str
    batch: int
    seconds: float
    work: Work
    optimizers: list[OptimizerFacts]
    spec: AcceleratorSpec
    year: int
    copy_seconds: float  # of the input to the GPU, where it was timed
    host: HostCpu


def build_any(model: Model) -> Workload:
    """Return the model as that source has it; for a source not known here, as any of the known ones has it."""
    if ":" in model.name:
        return zoo.build(model.name, model.batch, model.image_size, channels_last=model.layout == "nhwc")
    for candidate in (model.source, "lambdal/deeplearning-benchmark", "sitar-lab/NeuSight"):
        try:
            return build(model.name, model.batch, candidate)
        except ValueError:
            continue
    raise SystemExit(f"there is no model {model.name!r} in benchmarks/models")


@contextmanager
def default_type(*, half: bool) -> Iterator[None]:
    """Whether tensors without a type of their own are of half precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16 if half else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@cache
def trace(model: Model) -> tuple[list[OpRow], int, int]:
    """Ops of one step, parameters and their tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True), default_type(half=model.half):
        workload = build_any(model)
        tracer = make_tracer(torch)()
        with tracer:
            if model.phase == "train":
                loss = workload.loss()
                tracer.phase = "backward"
                loss.backward()
            else:
                with torch.no_grad():
                    workload.infer()
        parameters = [p for p in workload.model.parameters() if p.requires_grad]
        names = ("op", "phase", "count", "inputs", "outputs", "attributes")
        ops = [OpRow(**{name: row[name] for name in names}) for row in tracer.rows.values()]
        return ops, sum(p.numel() for p in parameters), len(parameters)


def optimizer_facts(name: str, parameters: int, tensors: int) -> list[OptimizerFacts]:
    """Return what the row's optimizer is to the model; gradients that are only accumulated are none."""
    kinds = {"adam": ("Adam", False), "sgd_momentum": ("SGD", True), "none_grad_accumulate": ("SGD", False)}
    if name not in kinds:
        return []
    kind, momentum = kinds[name]
    return [OptimizerFacts(name=kind, momentum=momentum, parameters=parameters, tensors=tensors)]


def find_spec(name: str) -> AcceleratorSpec:
    """Return the hardware row of a benchmark's GPU name."""
    for spec in accelerators().values():
        if name in (spec.name, spec.model):
            return spec
    raise SystemExit(f"no specs for {name!r}")


class OnBoard(Protocol):
    """A measurement that names its board."""

    @property
    def gpu(self) -> str:
        """Return the board."""
        ...


def family(row: OnBoard) -> str:
    """Chips that share a die count as one: leaving out one card of them leaves nothing to learn from."""
    return row.gpu.split("-")[0]


def load(paths: Iterable[Path]) -> list[Row]:
    """Reads the rows and traces each model and batch once."""
    rows: list[Row] = []
    for path in paths:
        with path.open(newline="") as stream:
            rows += [_row(raw) for raw in csv.DictReader(stream)]
    return rows


def _row(raw: dict[str, str]) -> Row:
    batch, size, layout = int(raw["batch_size"]), int(raw.get("image_size") or 0), raw.get("layout") or "nchw"
    half = raw["precision"] in ("half", "fp16") or (raw["model"], raw["precision"]) in WHOLE_MODEL_IN_HALF
    ops, parameters, tensors = trace(Model(raw["model"], raw["source"], raw["phase"], batch, size, layout, half))
    found = re.search(r"20\d\d", raw["software"])
    year = int(found.group()) if found else 2023
    sample_bytes = 3 * size * size * (2 if half else 4)
    return Row(
        source=raw["source"],
        model=raw["model"],
        phase=raw["phase"],
        gpu=raw["gpu"],
        precision=raw["precision"],
        layout=layout,
        batch=batch,
        seconds=float(raw["seconds_per_step"]),
        work=work_of(ops, 1),
        optimizers=optimizer_facts(raw["optimizer"], parameters, tensors),
        spec=find_spec(raw["gpu"]),
        year=year,
        copy_seconds=batch * sample_bytes / (PAGEABLE_GBPS * 1e9) if raw["model"].startswith("tv:") else 0.0,
        host=HostCpu(speed=1.0 if year > LAST_OLD_HOST else 1 / OLD_HOST),
    )
