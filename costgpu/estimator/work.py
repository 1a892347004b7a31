"""The work of one training step or forward pass, by what limits it: FLOPs, bytes moved, kernels and calls. Pure.

`op_costs` makes it of traced ops; `counted_work` of sums that a framework counts itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import Any

from costgpu.models.workload import StepTotals

LARGE_BYTES = 4 << 20  # of one op: no CPU cache holds it
HALF_TYPES = frozenset({"float16", "bfloat16"})
NHWC = "_nhwc"  # ends the kinds of convolutions in channels-last order
PRODUCTS = ("matmul", "attention")  # kinds of FLOPs that are no convolutions
# Groups of bytes.
WEIGHTS = "weights"  # second operand of matrix products: read once, however large the batch
MATMUL = "matmul"  # what else large matrix products move
GEMV = "gemv"  # batched products of one row: a decode's attention
DENSE = "dense"  # dense convolutions
POINTWISE = "pointwise"  # everything else
# Share of the bytes that autocast leaves, where it is not known which ops it makes half: of networks of convolutions and
# of others. Source: medians of the traces of 50 image models and transformers (benchmarks/rows.py, 2026-11-23).
AUTOCAST_BYTES_CONV, AUTOCAST_BYTES_OTHER = 0.5, 0.8


@dataclass(slots=True)
class Work:
    """What one training step, its optimizer apart, or one forward pass computes and moves.

    FLOPs have keys (kind, dtype). Kinds are ``matmul`` and ``attention``; ``conv`` (dense), ``conv3x3`` (dense, of
    stride 1: libraries have a cheaper algorithm for it, Winograd), ``grouped``, ``grouped_wide`` (groups of many
    channels) and ``depthwise`` (two-dimensional convolutions), each of them with ``_nhwc`` behind it where its input is
    in channels-last order; and ``conv_unusual``, convolutions of one or three dimensions.
    """

    flops: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # the FLOPs of ``matmul`` and ``attention``, each weighted by the on-chip traffic of its tiles (`op_costs.tile_weight`)
    tiled: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # bytes of every kernel, inputs plus outputs, by (group, dtype), in the dtypes that were traced
    moved: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # the same by group under CUDA autocast, casts of activations included
    autocast_moved: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # part of `moved` in activations, by (binary logarithm of the bytes of one call of the op, dtype): what fits into a
    # GPU's cache does not go to memory between two ops
    sized: dict[tuple[float, str], float] = field(default_factory=lambda: defaultdict(float))
    # the same under CUDA autocast, by the logarithm alone
    autocast_sized: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    kernels: float = 0.0  # number of kernels launched
    module_kernels: float = 0.0  # part of `kernels` in ops that modules call: products, convolutions, normalisations
    autocast_kernels: float = 0.0  # what `kernels` is under CUDA autocast
    forward_calls: float = 0.0  # calls of the framework by the script's modules, views apart
    backward_calls: float = 0.0  # calls by autograd, which goes through no Python, and casts
    # bytes, two for an element, of what convolutions read and write whose channels are no multiple of 8
    unaligned_bytes: float = 0.0
    unruled_bytes: float = 0.0  # part of `bytes_moved` in ops whose time it does not tell
    large_bytes: float = 0.0  # part of `bytes_moved` in ops of over 4 MiB, which no CPU cache holds
    syncs: float = 0.0  # number of times that the host waits for a value (`.item()`) or a shape (`nonzero`)

    @property
    def total_flops(self) -> float:
        """Return all FLOPs."""
        return sum(self.flops.values())

    @property
    def convolved_share(self) -> float:
        """Return the share of the FLOPs that are convolutions."""
        products = sum(flops for (kind, _), flops in self.flops.items() if kind in PRODUCTS)
        return 1 - products / self.total_flops if self.total_flops else 0.0

    @property
    def bytes_moved(self) -> float:
        """Return all bytes, in the dtypes that were traced."""
        return sum(self.moved.values())

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of the weights of matrix products."""
        return sum(moved for (group, _), moved in self.moved.items() if group == WEIGHTS)

    def plus(self, other: Work) -> Work:
        """Return the work of both."""

        def added(name: str) -> Any:
            one, more = getattr(self, name), getattr(other, name)
            if isinstance(one, float):
                return one + more
            return {key: one.get(key, 0.0) + more.get(key, 0.0) for key in one | more}

        return Work(**{each.name: added(each.name) for each in fields(self)})

    def scaled(self, *, size: float = 1.0, launches: float = 1.0, same_bytes: float | None = None) -> Work:
        """Return the work with `size` times the samples and `launches` times the kernels.

        Args:
            size: Factor of arithmetic and bytes.
            launches: Factor of kernels.
            same_bytes: Part of the bytes that comes with every launch, wherever it is; None for those of `WEIGHTS`.
        """
        rest, weights = size, launches
        if same_bytes is not None:
            whole = self.bytes_moved
            same = min(same_bytes, whole) / whole if whole > 0 else 0.0
            rest = weights = same * launches + (1 - same) * size
        shift = math.log2(rest / launches) if rest > 0 and launches > 0 else 0.0  # of what one call moves
        return replace(
            self,
            flops={key: flops * size for key, flops in self.flops.items()},
            tiled={key: flops * size for key, flops in self.tiled.items()},
            moved={key: moved * (weights if key[0] == WEIGHTS else rest) for key, moved in self.moved.items()},
            autocast_moved={
                group: moved * (weights if group == WEIGHTS else rest) for group, moved in self.autocast_moved.items()
            },
            sized={(power + shift, dtype): moved * rest for (power, dtype), moved in self.sized.items()},
            autocast_sized={power + shift: moved * rest for power, moved in self.autocast_sized.items()},
            kernels=self.kernels * launches,
            module_kernels=self.module_kernels * launches,
            autocast_kernels=self.autocast_kernels * launches,
            forward_calls=self.forward_calls * launches,
            backward_calls=self.backward_calls * launches,
            unaligned_bytes=self.unaligned_bytes * size,
            unruled_bytes=self.unruled_bytes * rest,
            large_bytes=self.large_bytes * rest,
            syncs=self.syncs * launches,
        )


def half_share(work: Work) -> float:
    """Return the share of the FLOPs that are in half precision."""
    half = sum(flops for (_, dtype), flops in work.flops.items() if dtype in HALF_TYPES)
    return half / work.total_flops if work.total_flops else 0.0


def autocast_share(convolutions: float) -> float:
    """Return the share of the bytes that autocast leaves, by the share of the FLOPs in convolutions."""
    return convolutions * AUTOCAST_BYTES_CONV + (1 - convolutions) * AUTOCAST_BYTES_OTHER


def counted_work(totals: StepTotals) -> Work:
    """Return the work of which only totals are known: no op's rule applies, optimizers apart."""
    work = Work(kernels=totals.kernels, autocast_kernels=totals.kernels)
    for kind, share in (("conv", totals.convolutions), ("matmul", 1.0 - totals.convolutions)):
        if share > 0 and totals.flops > 0:
            work.flops[kind, totals.dtype] = share * totals.flops
    if ("matmul", totals.dtype) in work.flops:
        work.tiled["matmul", totals.dtype] = work.flops["matmul", totals.dtype]
    work.moved[POINTWISE, totals.dtype] = totals.bytes_moved
    left = 1.0 if totals.dtype in HALF_TYPES else autocast_share(totals.convolutions)
    work.autocast_moved[POINTWISE] = left * totals.bytes_moved
    work.backward_calls = totals.kernels  # a framework that counts its step runs it as a graph, without Python
    if totals.bytes_moved > LARGE_BYTES * totals.kernels:
        work.large_bytes = totals.bytes_moved
    return work
