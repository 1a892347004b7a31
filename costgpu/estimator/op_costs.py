"""From traced ops to the work of one step on a GPU: FLOPs, bytes moved and kernels launched. Pure.

The trace is from a CPU (or FakeTensorMode); the counting is as CUDA would run it: dropout is one kernel with a
one-byte mask, views cost nothing, a convolution's backward is two kernels, and the optimizer is counted by
parameter, because the CPU's op list for it is another program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from costgpu.estimator.work import (
    DENSE,
    GEMV,
    LARGE_BYTES,
    MATMUL,
    NHWC,
    POINTWISE,
    PRODUCTS,
    WEIGHTS,
    Work,
    autocast_share,
)
from costgpu.models.workload import OpRow, TensorShape


def _aten(names: str) -> frozenset[str]:
    """Return the full names of ops of ATen."""
    return frozenset(f"aten::{name}" for name in names.split())


# ATen's ops by what they cost.
ITEM_BYTES = {
    "complex128": 16,
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}
# Ops that move nothing: views, allocations, queries.
FREE = _aten(
    """
    view t transpose permute expand expand_as unsqueeze squeeze slice select split split_with_sizes chunk unbind
    detach alias as_strided _unsafe_view _reshape_alias narrow diagonal unfold movedim swapaxes view_as_real
    view_as_complex real imag lift_fresh lift is_same_size empty empty_like empty_strided new_empty new_empty_strided
    empty_permuted set_ resize_ _has_compatible_shallow_copy_type is_pinned sym_size sym_stride sym_numel stride size
    dim numel item result_type can_cast _version requires_grad_ _conj _neg_view mH mT adjoint numpy_T values indices
    _values _indices _nested_view_from_buffer unsafe_split unsafe_chunk split_copy detach_ squeeze_ unsqueeze_
    transpose_ t_
    """
)
FILL = _aten(
    """
    fill_ zero_ zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange eye randn rand
    randn_like rand_like normal_ uniform_ randint randperm linspace scalar_tensor random_ exponential_
    """
)
# Products with weights of 4 and 8 bits.
FOUR_BIT = "bitsandbytes::gemm_4bit"
QUANTIZED = frozenset(
    f"bitsandbytes::{name}"
    for name in ("gemm_4bit", "gemv_4bit", "int8_linear_matmul", "int8_scaled_mm", "int8_mixed_scaled_mm")
)
PRODUCT_OPS = QUANTIZED | _aten("mm addmm bmm baddbmm mv addmv dot linear _addmm_activation addbmm matmul ger addr")
ATTENTION_FORWARD = _aten(
    """
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable
    """
)
ATTENTION_BACKWARD = frozenset(name + "_backward" for name in ATTENTION_FORWARD)
RECURRENT = _aten("mkldnn_rnn_layer mkldnn_rnn_layer_backward")
# Source: benchmarks/README.md, fitted on 255 public rows (2026-10).
BYTE_FACTORS = {
    "aten::native_batch_norm": 1.5,
    "aten::_native_batch_norm_legit": 1.5,
    "aten::native_batch_norm_backward": 1.67,
    "aten::_batch_norm_with_update": 1.5,
    "aten::batch_norm_backward": 1.67,
    "aten::native_layer_norm_backward": 1.67,
    "aten::native_group_norm": 1.5,
    "aten::native_group_norm_backward": 1.67,
    "aten::_fused_rms_norm_backward": 1.67,
}
APPLIED_NORMS = frozenset(name for name in BYTE_FACTORS if "batch_norm" in name and "backward" not in name)
# Reads of only what is picked: index bytes + PICKED_BYTES_FACTOR x output or values.
GATHER = _aten("embedding index gather index_select take _embedding_bag take_along_dim")
SCATTER = _aten(
    """
    index_put_ index_put _index_put_impl_ scatter_add_ scatter_add scatter_ scatter index_add_ index_add index_copy_
    embedding_dense_backward scatter_reduce scatter_reduce_ gather_backward index_select_backward
    """
)
# Ops whose time bytes and FLOPs do not tell.
UNRULED = _aten(
    """
    sort topk unique_dim _unique2 unique_consecutive nonzero linalg_inv_ex inverse linalg_svd _linalg_svd linalg_qr
    linalg_cholesky_ex _linalg_eigh _linalg_solve_ex linalg_lu_factor_ex _fft_r2c _fft_c2r _fft_c2c cdist
    _cdist_forward _cdist_backward _ctc_loss _ctc_loss_backward _sparse_mm _sparse_addmm grid_sampler_2d
    grid_sampler_2d_backward masked_select kthvalue mode median histc bincount searchsorted _weight_int4pack_mm
    grid_sampler_3d grid_sampler_3d_backward cummax cummin logcumsumexp _spdiags _convert_indices_from_coo_to_csr
    """
)
CAST = "aten::_to_copy"  # most of them by autocast, without Python
# What FSDP copies around its collectives: bytes in and out, and nothing else (torch 2.13, _fsdp_collectives.py).
COPIES = frozenset({"fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat"})
PICKED_BYTES_FACTOR = 2.0
# Rows of a product with 4-bit weights from which on they are unpacked first, as for training (bitsandbytes 0.50 chooses by
# GPU and shape, up to 1,536 rows).
UNPACKED_ROWS = 64
# Ops whose outputs have a shape that depends on values, so that the host waits for the device (CUDA kernels, torch 2.x).
WAITING = _aten("nonzero masked_select unique_dim _unique2 unique_consecutive bincount equal") | {"torchvision::nms"}
MASKED_INDEX = _aten("index index_put index_put_ _index_put_impl_")  # wait likewise where the index is a mask
TILE, LEAST_SIDE = 128.0, 8.0  # side of the largest tile of a matrix product, and the least that a narrow one pays for
# Channels of a group up to which half-precision libraries have kernels for channels-last, and how many with as many
# groups as ResNeXt has. Source: benchmarks/README.md, grouped convolutions (2026-11).
NARROW_GROUP, RESNEXT_GROUP, RESNEXT_GROUPS = 8, 32, 32
ALIGNED = 8  # channels of which half-precision tensor cores take a multiple
CAST_BYTES = 6.0  # of an element that is read as float32 and written in half precision, or the reverse
THIN_FLOPS = 500.0  # FLOPs for one element moved, up to which memory is a product's limit


def tensor_bytes(tensor: TensorShape) -> float:
    """Return the bytes of a tensor; a broadcast (stride 0) dimension counts once."""
    shape, strides, dtype = tensor
    item = ITEM_BYTES.get(dtype, 4)
    if len(strides) != len(shape):
        return float(math.prod(shape) * item)
    return float(item * math.prod(n for n, stride in zip(shape, strides, strict=True) if stride != 0 or n == 0))


def elements(tensor: TensorShape) -> float:
    """Count the elements of the shape."""
    return float(math.prod(tensor[0]))


def tile_weight(rows: float, columns: float) -> float:
    """On-chip traffic of a matrix product's FLOPs: 1 with tiles of 128 by 128, more where the product is narrow."""
    return TILE / 2 * (1 / min(max(rows, LEAST_SIDE), TILE) + 1 / min(max(columns, LEAST_SIDE), TILE))


def work_of(ops: Iterable[OpRow], passes: float = 1.0, *, optimizer_ops: bool = False, statistics: bool = True) -> Work:
    """Return the work of one step or forward pass from the rows of a trace of `passes` of them.

    Args:
        ops: Rows; those of validation are left out.
        optimizer_ops: Count the optimizer's own ops too (for an optimizer that torch does not ship).
        statistics: Whether batch norms compute statistics; one that only applies them is one pass over its input.
    """
    work, rows = Work(), list(ops)
    for row in rows:
        if row.phase != "validation" and (row.phase != "optimizer" or optimizer_ops):
            _add(work, row, row.count / max(1.0, passes), statistics=statistics)
    followed = any("half_out" in row.attributes for row in rows)
    if not followed and any(dtype == "float32" for _, dtype in work.flops):  # of a release that did not follow types
        share = autocast_share(work.convolved_share)
        work.autocast_moved.clear()
        work.autocast_sized.clear()
        for (group, _), moved in work.moved.items():
            work.autocast_moved[group] += share * moved
        for (power, _), moved in work.sized.items():
            work.autocast_sized[power + math.log2(share)] += share * moved
    return work


def _add(work: Work, row: OpRow, times: float, *, statistics: bool) -> None:
    name = row.op
    if name in FREE:
        return
    if name == "aten::_local_scalar_dense":
        work.kernels += times
        work.autocast_kernels += times
        work.forward_calls += times
        work.syncs += times
        return
    if name in WAITING or (name in MASKED_INDEX and _by_mask(row)):
        work.syncs += times
    masks = row.attributes.get("masks", [])
    if masks and name in ("aten::bernoulli_", "aten::div_", "aten::empty_like"):
        return  # CUDA draws the mask inside the dropout kernel
    kernels = 1.0
    kind, flops = _flops(row)
    if name == "aten::convolution_backward":
        kernels = float(sum(row.attributes.get("output_mask", [True, True])[:2]))
    elif name == FOUR_BIT and _unpacked_bytes(row):
        kernels = 2.0
    elif name in RECURRENT:
        steps = row.inputs[0][0][0] if row.inputs and row.inputs[0][0] else 1
        kernels = 2.0 * steps
    if flops:
        dtype = row.inputs[-1][2] if name == "aten::addmm" else row.inputs[0][2]
        dtype = "float16" if dtype == "int8" else dtype  # at least as fast
        work.flops[kind, dtype] += times * flops
        if kind in PRODUCTS:
            work.tiled[kind, dtype] += times * flops * _tile_weight(row)
        work.unaligned_bytes += times * _unaligned_bytes(row, kind)
    if row.phase == "backward" or name == CAST:
        work.backward_calls += times
    else:
        work.forward_calls += times
    casts = row.attributes.get("casts", [])
    factor = 1.0 if statistics or name not in APPLIED_NORMS else 1 / BYTE_FACTORS[name]
    moved = factor * _bytes(row, masks)
    autocast = factor * (_autocast_bytes(row, masks) + CAST_BYTES * sum(elements(row.inputs[n]) for n in casts))
    work.kernels += times * kernels
    work.module_kernels += times * kernels if flops or "norm" in name else 0.0
    work.autocast_kernels += times * (kernels + len(casts))
    if moved > LARGE_BYTES:
        work.large_bytes += times * moved
    if name in UNRULED or not (name.startswith(("aten::", "bitsandbytes::")) or name in COPIES):
        work.unruled_bytes += times * moved
    weight = _weight(row)
    if weight is not None and moved:
        read = min(tensor_bytes(weight), moved)
        cast = autocast * read / moved  # casts of weights are done for every pass
        work.moved[WEIGHTS, weight[2]] += times * read
        work.autocast_moved[WEIGHTS] += times * cast
        moved, autocast = moved - read, autocast - cast
    if moved:
        group = _group(row, kind, flops)
        dtype = max([*row.inputs, *row.outputs], key=elements)[2]
        work.moved[group, dtype] += times * moved
        work.sized[_size_class(moved), dtype] += times * moved
        work.autocast_moved[group] += times * autocast
        work.autocast_sized[_size_class(autocast)] += times * autocast


def _group(row: OpRow, kind: str, flops: float) -> str:
    """Return the group of the bytes of an op, weights apart."""
    if not flops or kind.startswith(("grouped", "depthwise")):
        return POINTWISE
    if kind.startswith("conv"):
        return DENSE
    if row.op in ("aten::bmm", "aten::baddbmm") and row.outputs[0][0][-2] == 1:
        return GEMV
    count = sum(elements(tensor) for tensor in (*row.inputs, *row.outputs))
    return MATMUL if flops > THIN_FLOPS * count else POINTWISE


def _size_class(moved: float) -> float:
    """Return the binary logarithm of the bytes of an op, to a half: enough to tell what fits into a cache."""
    return round(2 * math.log2(max(moved, 1.0))) / 2


def _weight(row: OpRow) -> TensorShape | None:
    """Return the operand of a matrix product that is a parameter, as far as its place tells."""
    place = {"aten::addmm": 2, "aten::_addmm_activation": 2, "aten::mm": 1, "aten::linear": 1, FOUR_BIT: 1}.get(row.op)
    return row.inputs[place] if place is not None and len(row.inputs) > place else None


def _by_mask(row: OpRow) -> bool:
    """Return whether an index is a mask. Putting one value under a mask fills it, without a wait."""
    put = row.op != "aten::index"
    indices = row.inputs[1:-1] if put else row.inputs[1:]
    return any(dtype in ("bool", "uint8") for _, _, dtype in indices) and not (put and elements(row.inputs[-1]) == 1)


def _autocast_bytes(row: OpRow, masks: list[int]) -> float:
    """Return the bytes of the op with the types that CUDA autocast gives it."""
    half, half_out = set(row.attributes.get("half", ())), bool(row.attributes.get("half_out"))
    if not half and not half_out:
        return _bytes(row, masks)
    inputs = [_narrowed(t) if at in half else t for at, t in enumerate(row.inputs)]
    outputs = [_narrowed(t) if half_out else t for t in row.outputs]
    return _bytes(replace(row, inputs=inputs, outputs=outputs), masks)


def _narrowed(tensor: TensorShape) -> TensorShape:
    shape, strides, dtype = tensor
    return (shape, strides, "float16") if dtype == "float32" else tensor


def _bytes(row: OpRow, masks: list[int]) -> float:
    name = row.op
    out = sum(tensor_bytes(t) for t in row.outputs)
    if name in FILL:
        return out
    if name in GATHER:
        indices = sum(tensor_bytes(t) for t in row.inputs[1:])
        return indices + PICKED_BYTES_FACTOR * out
    if name in SCATTER:
        values = sum(tensor_bytes(t) for t in row.inputs if t[2] not in ("int64", "int32", "bool"))
        indices = sum(tensor_bytes(t) for t in row.inputs if t[2] in ("int64", "int32", "bool"))
        if name == "aten::embedding_dense_backward":
            return indices + 2 * values + out
        target = tensor_bytes(row.inputs[0]) if row.inputs else 0.0
        return indices + PICKED_BYTES_FACTOR * max(0.0, values - target) + (0.0 if name.endswith("_") else 2 * target)
    moved = out + (_unpacked_bytes(row) if name == FOUR_BIT else 0.0)
    for place, tensor in enumerate(row.inputs):
        moved += elements(tensor) if place in masks else tensor_bytes(tensor)
    return moved * BYTE_FACTORS.get(name, 1.0)


def _unpacked_bytes(row: OpRow) -> float:
    """Return the bytes of writing and reading 4-bit weights in the type of the input; 0 where they stay packed."""
    given, packed = row.inputs[0], row.inputs[1]
    if elements(given) < UNPACKED_ROWS * given[0][-1]:
        return 0.0
    return 2.0 * 2.0 * elements(packed) * ITEM_BYTES.get(given[2], 4)


def _flops(row: OpRow) -> tuple[str, float]:
    name, ins, outs = row.op, row.inputs, row.outputs
    if name in PRODUCT_OPS:
        return "matmul", _matmul_flops(name, ins, outs)
    if name == "aten::convolution":
        return _conv_kind(row, outs[0], ins[0], ins[1]), _conv_flops(
            outs[0], ins[0], ins[1], bool(row.attributes.get("transposed"))
        )
    if name == "aten::convolution_backward":
        one = _conv_flops(ins[0], ins[1], ins[2], bool(row.attributes.get("transposed")))
        wanted = sum(row.attributes.get("output_mask", [True, True, True])[:2])
        return _conv_kind(row, ins[0], ins[1], ins[2]), one * wanted
    if name in ATTENTION_FORWARD and len(ins) >= 3:
        return "attention", _attention_flops(row, ins[0], ins[1], ins[2])
    if name in ATTENTION_BACKWARD and len(ins) >= 4:
        return "attention", 2.5 * _attention_flops(row, ins[1], ins[2], ins[3])
    if name in RECURRENT and len(ins) >= 3 and len(ins[0][0]) == 3:
        length, batch = ins[0][0][:2]
        one = 2.0 * length * batch * (elements(ins[1]) + elements(ins[2]))
        return "matmul", one * (2 if name.endswith("backward") else 1)
    return "", 0.0


def _matmul_flops(name: str, ins: list[TensorShape], outs: list[TensorShape]) -> float:
    if name in ("aten::ger", "aten::addr"):  # outer products
        return 2.0 * elements(outs[0])
    added = name in ("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation", "aten::addbmm")
    left = ins[1] if added and len(ins) > 2 else ins[0]
    inner = left[0][-1] if left[0] else 1
    if name == "aten::dot":
        return 2.0 * elements(left)
    if name == "aten::addbmm":  # the products of the batch are summed
        return 2.0 * elements(outs[0]) * inner * left[0][0]
    return 2.0 * elements(outs[0]) * inner if outs else 0.0


def _conv_flops(out: TensorShape, into: TensorShape, weight: TensorShape, transposed: bool) -> float:
    per_point = math.prod(weight[0][1:])
    return 2.0 * elements(into if transposed else out) * per_point


def _conv_kind(row: OpRow, out: TensorShape, into: TensorShape, weight: TensorShape) -> str:
    if len(weight[0]) != 4:
        return "conv_unusual"
    groups, dense = row.attributes.get("groups", 1), not row.attributes.get("transposed")
    same = all(
        before - after in (0, 2) for before, after in zip(into[0][2:], out[0][2:], strict=False)
    )  # padded or not
    if groups > 1:
        width = weight[0][1]
        served = width <= NARROW_GROUP or (width <= RESNEXT_GROUP and groups % RESNEXT_GROUPS == 0)
        kind = "depthwise" if width == 1 and groups == into[0][1] else "grouped" if served else "grouped_wide"
    else:
        kind = "conv3x3" if dense and weight[0][2:] == [3, 3] and same else "conv"
    return kind + NHWC if _channels_last(into) else kind


def _channels_last(tensor: TensorShape) -> bool:
    """Return whether an image tensor is in channels-last order; False where its order makes no difference."""
    shape, strides, _ = tensor
    return len(shape) == len(strides) == 4 and strides[1] == 1 and shape[1] > 1 and shape[2] * shape[3] > 1


def _unaligned_bytes(row: OpRow, kind: str) -> float:
    """Bytes in half precision of what a dense or grouped convolution reads and writes, if its channels are unaligned."""
    if not kind.startswith(("conv", "grouped")) or kind == "conv_unusual":
        return 0.0
    backward = row.op == "aten::convolution_backward"
    out, into = (row.inputs[0], row.inputs[1]) if backward else (row.outputs[0], row.inputs[0])
    if into[0][1] % ALIGNED == 0 and out[0][1] % ALIGNED == 0:
        return 0.0
    wanted = sum(row.attributes.get("output_mask", [True, True])[:2]) if backward else 1
    return wanted * 2 * (elements(out) + elements(into))


def _tile_weight(row: OpRow) -> float:
    """Mean of `tile_weight` over the products of a row."""
    name, outs = row.op, row.outputs
    if name in RECURRENT and row.inputs[0][0]:
        return tile_weight(row.inputs[0][0][1], row.inputs[1][0][0])
    if name in ATTENTION_FORWARD or name in ATTENTION_BACKWARD:
        query, key, value = row.inputs[0:3] if name in ATTENTION_FORWARD else row.inputs[1:4]
        length, keys, depth = query[0][-2], key[0][-2], value[0][-1]
        return (tile_weight(length, keys) + tile_weight(length, depth)) / 2
    shape = outs[0][0] if outs else []
    return tile_weight(shape[-2] if len(shape) > 1 else 1, shape[-1] if shape else 1)


def _attention_flops(row: OpRow, query: TensorShape, key: TensorShape, value: TensorShape) -> float:
    if len(query[0]) < 3 or len(key[0]) < 2:
        return 0.0
    batch_heads, length, depth = math.prod(query[0][:-2]), query[0][-2], query[0][-1]
    seen = 0.5 if row.attributes.get("is_causal") else 1.0  # kernels skip what a causal mask hides
    return seen * 2.0 * batch_heads * length * key[0][-2] * (depth + value[0][-1])
