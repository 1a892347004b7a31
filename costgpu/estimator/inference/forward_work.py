"""The work of one forward pass, by what limits it on a GPU: from traced ops to FLOPs and bytes by group. Pure.

It differs from a training step's (`op_costs`) in what it keeps apart: the layout of convolutions, the bytes of weights,
which do not grow with the batch, and those that torch.compile fuses away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from costgpu.estimator import op_costs
from costgpu.models.workload import OpRow, StepTotals, TensorShape

# Groups of bytes.
WEIGHTS = "weights"  # second operand of matrix products: read once, however large the batch
MATMUL = "matmul"  # what else large matrix products move
THIN = "thin"  # the same of products and attention with so few FLOPs for an element that memory is their limit
GEMV = "gemv"  # batched products of one row: a decode's attention
DENSE = "dense"  # dense convolutions
GROUPED = "grouped"  # grouped and depthwise convolutions; ``grouped_nhwc`` in channels-last order
NORM = "norm"  # layer norms, which autocast runs in fp32
POINTWISE = "pointwise"  # everything else, which compilers fuse
_BATCH_NORMS = frozenset(name for name in op_costs.BYTE_FACTORS if "batch_norm" in name and "backward" not in name)
THIN_FLOPS = 500.0  # FLOPs for one element moved, below which a product counts as thin
_WITH_BIAS = frozenset({"aten::addmm", "aten::_addmm_activation"})
_BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
NHWC = op_costs.NHWC


@dataclass(slots=True)
class ForwardWork:
    """What one forward pass computes and moves; the kinds of FLOPs are those of `op_costs.StepWork`."""

    flops: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # FLOPs of matrix products and attention, each weighted by the on-chip traffic of its tiles
    tiled: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # bytes by (group, dtype), in the dtypes that were traced
    moved: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    autocast_moved: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # bytes by group under autocast
    kernels: float = 0.0  # number of kernels launched
    module_kernels: float = 0.0  # part of `kernels` in ops that modules call: products, convolutions, normalisations
    autocast_kernels: float = 0.0  # number of kernels launched under autocast, casts included
    unaligned_bytes: float = 0.0  # what half-precision convolutions move whose channels are no multiple of 8
    unruled_bytes: float = 0.0  # bytes in ops whose time they do not tell
    syncs: float = 0.0  # number of times that the host waits for a value

    @property
    def total_flops(self) -> float:
        """Return all FLOPs."""
        return sum(self.flops.values())

    @property
    def total_bytes(self) -> float:
        """Return all bytes."""
        return sum(self.moved.values())

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of the weights of matrix products."""
        return sum(moved for (group, _), moved in self.moved.items() if group == WEIGHTS)

    def scaled(self, batch: float) -> ForwardWork:
        """Return the work with so many times the items: kernels and weights stay."""
        return ForwardWork(
            flops={key: batch * flops for key, flops in self.flops.items()},
            tiled={key: batch * flops for key, flops in self.tiled.items()},
            moved={key: moved * (1.0 if key[0] == WEIGHTS else batch) for key, moved in self.moved.items()},
            autocast_moved={
                key: moved * (1.0 if key == WEIGHTS else batch) for key, moved in self.autocast_moved.items()
            },
            kernels=self.kernels,
            module_kernels=self.module_kernels,
            autocast_kernels=self.autocast_kernels,
            unaligned_bytes=batch * self.unaligned_bytes,
            unruled_bytes=batch * self.unruled_bytes,
            syncs=self.syncs,
        )


def forward_work(ops: Iterable[OpRow], passes: float = 1.0) -> ForwardWork:
    """Return the work of one forward pass from the rows of a trace of `passes` passes."""
    work = ForwardWork()
    rows = list(ops)
    for row in rows:
        _add(work, row, row.count / max(1.0, passes))
    if not any("half_out" in row.attributes for row in rows):  # traced before types under autocast were followed
        convolved = sum(flops for (kind, _), flops in work.flops.items() if kind not in ("matmul", "attention"))
        share = op_costs.autocast_share(convolved / work.total_flops if work.total_flops else 0.0)
        for (group, _), moved in work.moved.items():
            work.autocast_moved[group] = share * moved
    return work


def counted_forward(totals: StepTotals) -> ForwardWork:
    """Return the work of a forward pass of which only sums are known."""
    step = op_costs.counted_work(totals)
    work = ForwardWork(dict(step.flops), dict(step.tiled), kernels=step.kernels, autocast_kernels=step.autocast_kernels)
    work.moved[POINTWISE, totals.dtype] = step.bytes_moved
    work.autocast_moved[POINTWISE] = step.autocast_bytes
    return work


def _add(work: ForwardWork, row: OpRow, times: float) -> None:
    one = op_costs.op_work(row)
    work.kernels += times * one.kernels
    work.module_kernels += times * one.kernels if one.flops or "norm" in row.op else 0.0
    work.autocast_kernels += times * one.autocast_kernels
    work.syncs += times * one.syncs
    work.unruled_bytes += times * one.unruled_bytes
    work.unaligned_bytes += times * one.unaligned_bytes
    for key, flops in one.flops.items():
        work.flops[key] += times * flops
    for key, flops in one.tiled.items():
        work.tiled[key] += times * flops
    # a batch norm that only applies its statistics is one pass over its input
    factor = times / (op_costs.BYTE_FACTORS[row.op] if row.op in _BATCH_NORMS else 1.0)
    moved, autocast, group = factor * one.bytes_moved, factor * one.autocast_bytes, _group(row, one)
    weight = _weight(row)
    if weight is not None:
        read = times * op_costs.tensor_bytes(weight)
        cast = autocast * read / moved if moved else 0.0  # casts of weights are done for every pass
        work.moved[WEIGHTS, weight[2]] += read
        work.autocast_moved[WEIGHTS] += cast
        moved, autocast = max(0.0, moved - read), max(0.0, autocast - cast)
    if moved:
        work.moved[group, _dtype(row)] += moved
        work.autocast_moved[group] += autocast


def _group(row: OpRow, one: op_costs.StepWork) -> str:
    kind = next(iter(one.flops), ("", ""))[0]
    if kind.startswith(("grouped", "depthwise")):
        return GROUPED + NHWC if kind.endswith(NHWC) else GROUPED
    if kind.startswith("conv"):
        return DENSE
    if row.op in _BATCHED and row.outputs[0][0][-2] == 1:
        return GEMV
    if kind:
        count = sum(op_costs.elements(tensor) for tensor in (*row.inputs, *row.outputs))
        return MATMUL if one.total_flops > THIN_FLOPS * count else THIN
    return NORM if "layer_norm" in row.op or "rms_norm" in row.op else POINTWISE


def _weight(row: OpRow) -> TensorShape | None:
    """Return the operand of a matrix product that is a parameter, as far as its place tells."""
    place = 2 if row.op in _WITH_BIAS else 1 if row.op in ("aten::mm", "aten::linear") else None
    return row.inputs[place] if place is not None and len(row.inputs) > place else None


def _dtype(row: OpRow) -> str:
    """Return the dtype of most bytes of an op."""
    return max([*row.inputs, *row.outputs], key=op_costs.elements)[2]
