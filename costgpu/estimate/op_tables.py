"""The ops of ATen by what they cost: tables for `op_costs`, by name. Data only."""

from __future__ import annotations


def _aten(names: str) -> frozenset[str]:
    """The full names of ops of ATen."""
    return frozenset(f"aten::{name}" for name in names.split())


ITEM_BYTES = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
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
MATMUL = _aten(
    """
    mm addmm bmm baddbmm mv addmv dot linear _addmm_activation addbmm matmul ger addr
    """
)
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
# Reads of only what is picked: index bytes + PICKED_BYTES_FACTOR x output or values.
GATHER = _aten(
    """
    embedding index gather index_select take _embedding_bag take_along_dim
    """
)
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
PICKED_BYTES_FACTOR = 2.0
HALF_TYPES = frozenset({"float16", "bfloat16"})
