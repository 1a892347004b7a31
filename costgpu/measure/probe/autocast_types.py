"""What type each float32 tensor of a traced step would have under CUDA autocast, from the ops alone. Python 3.8.

A script that enters ``torch.autocast("cuda")`` on a machine without a GPU computes in float32, and advice asks what
autocast would do to one that does not enter it. So the tracer follows every tensor by its storage. Source of the lists:
torch's "CUDA Ops that can autocast to float16 / float32" (docs of torch 2.x), by the names that ops have below autograd.
"""

from __future__ import annotations

from typing import Any, Dict, Hashable, List, Set, Tuple

TO_HALF = frozenset(
    "aten::" + name
    for name in """
    convolution convolution_backward _convolution mm addmm bmm baddbmm mv addmv addbmm linear matmul _addmm_activation
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    mkldnn_rnn_layer mkldnn_rnn_layer_backward _thnn_fused_lstm_cell _thnn_fused_gru_cell
    """.split()
)
TO_FLOAT = frozenset(
    "aten::" + name
    for name in """
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data native_layer_norm
    native_layer_norm_backward native_group_norm native_group_norm_backward nll_loss_forward nll_loss_backward
    nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward
    huber_loss huber_loss_backward binary_cross_entropy_with_logits soft_margin_loss cumsum cumprod prod sum
    pow exp expm1 log log10 log2 log1p reciprocal rsqrt norm linalg_vector_norm acos asin cosh sinh tan erfinv
    softplus softplus_backward renorm dist pdist cdist upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    """.split()
)


Tensors = List[Tuple[Hashable, bool]]  # storage, and whether the type is one that autocast decides


class AutocastTypes:
    """Follows which storages would hold half-precision values."""

    def __init__(self) -> None:
        # storage -> whether half; a storage that no traced op made is a parameter or an input
        self.half: Dict[Hashable, bool] = {}
        # storages of which a half copy was made in the forward pass, and saved or cached
        self.cast: Set[Hashable] = set()

    def follow(self, name: str, backward: bool, inputs: Tensors, outputs: Tensors) -> Dict[str, Any]:
        """Return what autocast would do to one call.

        Args:
            backward: Whether it is part of the backward pass, which runs without autocast.

        Returns:
            ``half`` (positions of inputs that the kernel would read in half precision), ``half_out`` (whether it would
            write so), ``casts`` (positions of inputs that another kernel would cast before); each only if there is any.
        """
        floats = [at for at, (_, decided) in enumerate(inputs) if decided]
        narrow = [at for at in floats if self.half.get(inputs[at][0])]
        casts = []
        if name in TO_HALF:
            casts = [at for at in floats if at not in narrow and self.needs_cast(inputs[at][0], backward)]
            narrow, out = floats, True
        elif name in TO_FLOAT and (not backward or "_backward" in name):
            casts, narrow, out = narrow, [], False
        elif "batch_norm" in name or name.endswith("_backward"):
            # statistics and weights stay float32; a gradient has the type of what was saved in the forward pass
            deciding = floats[1] if name.endswith("_backward") and len(floats) > 1 else floats[0] if floats else None
            out = deciding in narrow
            if out and floats[0] not in narrow:
                casts, narrow = floats[:1], [floats[0], *narrow]
        else:
            out = bool(floats) and len(narrow) == len(floats)  # the widest type of the inputs
        out = self.written(inputs, outputs, out)
        found = {"half": narrow, "half_out": out, "casts": casts}
        return {key: value for key, value in found.items() if value}

    def written(self, inputs: Tensors, outputs: Tensors, half: bool) -> bool:
        """Note the type of what was made, and say whether the call's first float output is half."""
        own = {storage for storage, _ in inputs}
        first = None
        for storage, decided in outputs:
            if storage is not None and storage not in own:  # neither a view nor changed in place
                self.half[storage] = half and decided
                self.cast.discard(storage)
            if decided and first is None:
                first = self.half.get(storage, False)
        return bool(first)

    def needs_cast(self, storage: Hashable, backward: bool) -> bool:
        """Return whether a half copy has to be made: parameters have one after their first use, saved tensors as well."""
        had = storage in self.cast
        if not backward:
            self.cast.add(storage)
        return not had or (not backward and storage in self.half)
