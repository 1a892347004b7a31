"""FLOPs, bytes and kernels of single ops, counted by hand.

One file of more than 400 lines: it is one table of ops.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.op_costs import elements, tensor_bytes, tile_weight, work_of
from costgpu.estimator.work import Work
from costgpu.models.workload import OpRow, TensorShape


def tensor(*shape: int, dtype: str = "float32", strides: list[int] | None = None) -> TensorShape:
    """A contiguous tensor, unless `strides` says otherwise."""
    if strides is None:
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return list(shape), strides, dtype


def index(*shape: int) -> TensorShape:
    return tensor(*shape, dtype="int64")


def op(
    name: str,
    inputs: list[TensorShape],
    outputs: list[TensorShape],
    *,
    phase: str = "forward",
    count: int = 1,
    **other: Any,
) -> OpRow:
    return OpRow(op=f"aten::{name}", phase=phase, inputs=inputs, outputs=outputs, count=count, attributes=other)


def cost(*rows: OpRow, steps: int = 1, optimizer_ops: bool = False) -> Work:
    return work_of(list(rows), steps, optimizer_ops=optimizer_ops)


sizes = st.integers(1, 64)


# --------------------------------------------------------------------------------------------------- FLOPs: matmul


@given(sizes, sizes, sizes, sizes)
def test_matrix_multiplies(b: int, m: int, k: int, n: int) -> None:
    """2 M N K, whatever else is added."""
    one, many = 2.0 * m * k * n, 2.0 * b * m * k * n
    rows = {
        "mm": (op("mm", [tensor(m, k), tensor(k, n)], [tensor(m, n)]), one),
        "addmm": (op("addmm", [tensor(n), tensor(m, k), tensor(k, n)], [tensor(m, n)]), one),
        "bmm": (op("bmm", [tensor(b, m, k), tensor(b, k, n)], [tensor(b, m, n)]), many),
        "baddbmm": (op("baddbmm", [tensor(b, m, n), tensor(b, m, k), tensor(b, k, n)], [tensor(b, m, n)]), many),
        "mv": (op("mv", [tensor(m, k), tensor(k)], [tensor(m)]), 2.0 * m * k),
        "addmv": (op("addmv", [tensor(m), tensor(m, k), tensor(k)], [tensor(m)]), 2.0 * m * k),
        "dot": (op("dot", [tensor(k), tensor(k)], [tensor()]), 2.0 * k),
    }
    for name, (row, flops) in rows.items():
        assert cost(row).flops == {("matmul", "float32"): flops}, name


@given(sizes, sizes, sizes, sizes)
def test_rarer_matrix_multiplies(b: int, m: int, k: int, n: int) -> None:
    summed = op("addbmm", [tensor(m, n), tensor(b, m, k), tensor(b, k, n)], [tensor(m, n)])
    assert cost(summed).total_flops == 2.0 * b * m * k * n, "all matrices of the batch are multiplied"
    assert cost(op("addr", [tensor(m, n), tensor(m), tensor(n)], [tensor(m, n)])).total_flops == 2.0 * m * n
    assert cost(op("ger", [tensor(m), tensor(n)], [tensor(m, n)])).total_flops == 2.0 * m * n


def test_flops_are_kept_by_dtype() -> None:
    half = op(
        "addmm",
        [tensor(4, dtype="float32"), tensor(2, 8, dtype="float16"), tensor(8, 4, dtype="float16")],
        [tensor(2, 4, dtype="float16")],
    )
    full = op("mm", [tensor(2, 8), tensor(8, 4)], [tensor(2, 4)])
    assert cost(half, full).flops == {("matmul", "float16"): 128.0, ("matmul", "float32"): 128.0}
    assert cost(half, full).total_flops == 256.0


def test_a_transposed_operand_changes_nothing() -> None:
    row = op("mm", [tensor(4, 8, strides=[1, 4]), tensor(8, 2)], [tensor(4, 2)])
    assert cost(row).total_flops == 2 * 4 * 8 * 2


# --------------------------------------------------------------------------------------------- FLOPs: convolutions


def conv(
    weight: TensorShape, into: TensorShape, out: TensorShape, groups: int = 1, *, transposed: bool = False
) -> OpRow:
    bias = tensor(out[0][1])
    return op("convolution", [into, weight, bias], [out], groups=groups, transposed=transposed)


def conv_backward(
    weight: TensorShape,
    into: TensorShape,
    out: TensorShape,
    mask: list[bool],
    groups: int = 1,
    *,
    transposed: bool = False,
) -> OpRow:
    wanted = [t for t, flag in zip((into, weight, tensor(out[0][1])), mask, strict=True) if flag]
    return op(
        "convolution_backward",
        [out, into, weight],
        wanted,
        phase="backward",
        groups=groups,
        transposed=transposed,
        output_mask=mask,
    )


SHAPES = {
    # weight, input, output, groups, transposed, FLOPs of the forward
    "dense": (tensor(16, 8, 3, 3), tensor(2, 8, 10, 10), tensor(2, 16, 10, 10), 1, False, 2 * 2 * 16 * 100 * 8 * 9),
    "strided": (tensor(16, 8, 3, 3), tensor(2, 8, 10, 10), tensor(2, 16, 5, 5), 1, False, 2 * 2 * 16 * 25 * 8 * 9),
    "pointwise": (tensor(16, 8, 1, 1), tensor(2, 8, 10, 10), tensor(2, 16, 10, 10), 1, False, 2 * 2 * 16 * 100 * 8),
    "grouped": (tensor(16, 2, 3, 3), tensor(2, 8, 10, 10), tensor(2, 16, 10, 10), 4, False, 2 * 2 * 16 * 100 * 2 * 9),
    "depthwise": (tensor(8, 1, 3, 3), tensor(2, 8, 10, 10), tensor(2, 8, 10, 10), 8, False, 2 * 2 * 8 * 100 * 9),
    "transposed": (tensor(8, 4, 3, 3), tensor(2, 8, 5, 5), tensor(2, 4, 11, 11), 1, True, 2 * 2 * 8 * 25 * 4 * 9),
    "of sound": (tensor(16, 8, 5), tensor(2, 8, 100), tensor(2, 16, 96), 1, False, 2 * 2 * 16 * 96 * 8 * 5),
    "of volumes": (tensor(4, 2, 3, 3, 3), tensor(1, 2, 6, 6, 6), tensor(1, 4, 6, 6, 6), 1, False, 2 * 4 * 216 * 2 * 27),
}
KINDS = {
    **dict.fromkeys(SHAPES, "conv"),
    **dict.fromkeys(("of sound", "of volumes"), "conv_unusual"),
    "grouped": "grouped",
    "depthwise": "depthwise",
    "dense": "conv3x3",
}  # only dense 3x3 ones of stride 1 have Winograd


@pytest.mark.parametrize("name", SHAPES)
def test_convolutions(name: str) -> None:
    weight, into, out, groups, transposed, flops = SHAPES[name]
    work = cost(conv(weight, into, out, groups, transposed=transposed))
    assert work.flops == {(KINDS[name], "float32"): flops}
    assert work.kernels == 1


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("mask", "gradients"),
    [([True, True, True], 2), ([True, True, False], 2), ([False, True, True], 1), ([True, False, False], 1)],
)
def test_the_backward_of_a_convolution_is_a_convolution_for_each_gradient(
    name: str, mask: list[bool], gradients: int
) -> None:
    weight, into, out, groups, transposed, flops = SHAPES[name]
    work = cost(conv_backward(weight, into, out, mask, groups, transposed=transposed))
    assert work.flops == {(KINDS[name], "float32"): gradients * flops}
    assert work.kernels == gradients


def test_a_3x3_convolution_without_padding_is_one_too() -> None:
    work = cost(conv(tensor(32, 16, 3, 3), tensor(2, 16, 28, 28), tensor(2, 32, 26, 26)))
    assert set(work.flops) == {("conv3x3", "float32")}


@pytest.mark.parametrize(
    ("groups", "width", "kind"),
    [
        (3, 24, "grouped_wide"),
        (20, 16, "grouped_wide"),
        (2, 128, "grouped_wide"),
        (32, 64, "grouped_wide"),
        (32, 32, "grouped"),
        (64, 16, "grouped"),
        (5, 8, "grouped"),
    ],
)
def test_groups_of_many_channels_are_apart_unless_they_are_resnexts(groups: int, width: int, kind: str) -> None:
    image = tensor(2, groups * width, 7, 7)
    assert set(cost(conv(tensor(groups * width, width, 3, 3), image, image, groups)).flops) == {(kind, "float32")}


def channels_last(*shape: int) -> TensorShape:
    n, c, h, w = shape
    return tensor(n, c, h, w, strides=[h * w * c, 1, w * c, c])


@pytest.mark.parametrize("name", ["dense", "strided", "pointwise", "grouped", "depthwise", "transposed"])
def test_the_layout_of_a_convolution_is_its_inputs(name: str) -> None:
    weight, into, out, groups, transposed, _ = SHAPES[name]
    last = channels_last(*into[0])
    forward = cost(conv(weight, last, out, groups, transposed=transposed))
    backward = cost(conv_backward(weight, last, out, [True, True, False], groups, transposed=transposed))
    assert {kind for kind, _ in [*forward.flops, *backward.flops]} == {KINDS[name] + "_nhwc"}


@pytest.mark.parametrize("shape", [(2, 1, 10, 10), (2, 8, 1, 1)])
def test_a_layout_that_makes_no_difference_is_not_told(shape: tuple[int, ...]) -> None:
    work = cost(conv(tensor(16, shape[1], 1, 1), channels_last(*shape), tensor(2, 16, *shape[2:])))
    assert set(work.flops) == {("conv", "float32")}


@pytest.mark.parametrize(("channels", "wanted"), [((8, 16), 0), ((3, 16), 1), ((8, 18), 1), ((7, 9), 1)])
def test_unaligned_channels(channels: tuple[int, int], wanted: int) -> None:
    """Two bytes for each element that is read or written, once for each pass."""
    weight = tensor(channels[1], channels[0], 1, 1)
    into, out = tensor(2, channels[0], 4, 4), tensor(2, channels[1], 4, 4)
    passed = wanted * 2 * 2 * 16 * sum(channels)
    assert cost(conv(weight, into, out)).unaligned_bytes == passed
    assert cost(conv_backward(weight, into, out, [True, True, False])).unaligned_bytes == 2 * passed
    assert cost(conv_backward(weight, into, out, [False, True, False])).unaligned_bytes == passed


# ------------------------------------------------------------------------------------------------------------ tiles


@pytest.mark.parametrize(
    ("rows", "columns", "weight"),
    [(128, 128, 1.0), (4096, 300, 1.0), (64, 128, 1.5), (64, 64, 2.0), (16, 4096, 4.5), (1, 1, 16.0), (8, 8, 16.0)],
)
def test_the_weight_of_a_products_tiles(rows: float, columns: float, weight: float) -> None:
    assert tile_weight(rows, columns) == tile_weight(columns, rows) == weight


def test_products_are_weighted_by_their_tiles() -> None:
    row = op("bmm", [tensor(5, 64, 32), tensor(5, 32, 256)], [tensor(5, 64, 256)])
    assert cost(row).tiled == {("matmul", "float32"): 1.5 * cost(row).total_flops}
    q, k = tensor(2, 4, 256, 64), tensor(2, 4, 256, 64)
    attention = cost(op("_scaled_dot_product_flash_attention", [q, k, k], [q]))
    assert attention.tiled["attention", "float32"] == (1.0 + 1.5) / 2 * attention.total_flops
    dense = cost(conv(tensor(16, 8, 3, 3), tensor(2, 8, 10, 10), tensor(2, 16, 10, 10)))
    assert not dense.tiled


# ------------------------------------------------------------------------------------ FLOPs: attention, recurrence


def test_attention() -> None:
    """Two batched multiplies forward, five backward (the scores are computed again)."""
    q, k, v = tensor(2, 4, 6, 8), tensor(2, 4, 10, 8), tensor(2, 4, 10, 16)
    out = tensor(2, 4, 6, 16)
    forward = 2.0 * 2 * 4 * 6 * 10 * (8 + 16)
    name = "_scaled_dot_product_flash_attention_for_cpu"
    assert cost(op(name, [q, k, v], [out])).flops == {("attention", "float32"): forward}
    backward = op(f"{name}_backward", [out, q, k, v, out], [q, k, v], phase="backward")
    assert cost(backward).flops == {("attention", "float32"): 2.5 * forward}
    for row in (op(name, [q, k, v], [out]), backward):
        causal = replace(row, attributes=row.attributes | {"is_causal": True})
        assert cost(causal).total_flops == cost(row).total_flops / 2
        assert cost(causal).bytes_moved == cost(row).bytes_moved


def test_a_recurrent_layer() -> None:
    """An LSTM of 32 units over 7 steps of a batch of 3: input and hidden weights of four gates."""
    into, input_weight, hidden_weight = tensor(7, 3, 16), tensor(128, 16), tensor(128, 32)
    state = tensor(3, 32)
    inputs = [into, input_weight, hidden_weight, tensor(128), tensor(128), state, state]
    flops = 2.0 * 7 * 3 * (128 * 16 + 128 * 32)
    forward = cost(op("mkldnn_rnn_layer", inputs, [tensor(7, 3, 32), state, state]))
    assert forward.flops == {("matmul", "float32"): flops}
    assert forward.kernels == 14
    backward = cost(op("mkldnn_rnn_layer_backward", inputs, [into, input_weight, hidden_weight], phase="backward"))
    assert backward.flops == {("matmul", "float32"): 2 * flops}


# ---------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (tensor(3, 4), 48),
        (tensor(), 4),
        (tensor(0, 4), 0),
        (tensor(3, 4, dtype="float64"), 96),
        (tensor(3, 4, dtype="bfloat16"), 24),
        (tensor(3, 4, dtype="bool"), 12),
        (tensor(3, 4, strides=[0, 1]), 16),
        (tensor(3, 4, strides=[0, 0]), 4),
        (tensor(0, 4, strides=[0, 1]), 0),
        (tensor(3, 4, strides=[]), 48),
    ],
    ids=["plain", "scalar", "empty", "double", "half", "bool", "rows", "expanded scalar", "expanded empty", "sparse"],
)
def test_bytes_of_a_tensor(value: TensorShape, size: int) -> None:
    assert tensor_bytes(value) == size


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5))
def test_a_broadcast_dimension_counts_once(dimensions: list[tuple[int, bool]]) -> None:
    shape, strides = [n for n, _ in dimensions], [0 if broadcast else 1 for _, broadcast in dimensions]
    broadcast = tensor_bytes((shape, strides, "float32"))
    assert broadcast <= 4 * elements((shape, strides, "float32"))
    assert (broadcast == 0) == (0 in shape), "a dimension of length 0 leaves nothing, broadcast or not"


def test_a_kernel_reads_its_inputs_and_writes_its_outputs() -> None:
    work = cost(op("add", [tensor(10, 4), tensor(10, 4, strides=[0, 1])], [tensor(10, 4)]))
    assert work.bytes_moved == 160 + 16 + 160
    assert (work.kernels, work.total_flops, work.unruled_bytes) == (1, 0, 0)


@pytest.mark.parametrize("name", ["view", "t", "expand", "as_strided", "detach", "empty_like", "_unsafe_view", "split"])
def test_views_and_allocations_are_free(name: str) -> None:
    work = cost(op(name, [tensor(1000, 1000)], [tensor(1000, 1000)]))
    assert work == Work()


@pytest.mark.parametrize("name", ["zeros", "zero_", "fill_", "ones_like", "normal_", "arange"])
def test_a_fill_writes_and_reads_nothing(name: str) -> None:
    work = cost(op(name, [tensor(10, 10)], [tensor(10, 10)]))
    assert (work.bytes_moved, work.kernels) == (400, 1)


def test_an_embedding_reads_what_it_picks() -> None:
    table, picked = tensor(50_000, 8), tensor(4, 5, 8)
    assert cost(op("embedding", [table, index(4, 5)], [picked])).bytes_moved == 20 * 8 + 2 * 640
    backward = op("embedding_dense_backward", [picked, index(4, 5)], [table], phase="backward")
    assert cost(backward).bytes_moved == 20 * 8 + 2 * 640 + 50_000 * 8 * 4


def test_scattering_in_place_touches_what_it_changes() -> None:
    target, values = tensor(50_000, 8), tensor(20, 8)
    inplace = cost(op("index_add_", [target, index(20), values], [target]))
    assert inplace.bytes_moved == 20 * 8 + 2 * 640
    copied = cost(op("index_add", [target, index(20), values], [target]))
    assert copied.bytes_moved == inplace.bytes_moved + 2 * 1_600_000


def test_dropout_is_one_kernel_with_a_mask_of_bytes() -> None:
    """On a CPU it is several ops and a mask as wide as the values."""
    x = tensor(10, 10)
    rows = [
        op("empty_like", [x], [x]),
        op("bernoulli_", [x], [x], masks=[0]),
        op("div_", [x], [x], masks=[0]),
        op("mul", [x, x], [x], masks=[1]),
    ]
    work = cost(*rows)
    assert work.kernels == 1
    assert work.bytes_moved == 400 + 100 + 400


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("native_batch_norm", 1.5),
        ("native_batch_norm_backward", 1.67),
        ("native_layer_norm_backward", 1.67),
        ("native_layer_norm", 1.0),
    ],
)
def test_normalisation_goes_over_its_data_more_than_once(name: str, factor: float) -> None:
    x = tensor(10, 10)
    assert cost(op(name, [x], [x])).bytes_moved == pytest.approx(800 * factor)


def test_waiting_for_a_value_is_a_kernel_and_a_stop() -> None:
    work = cost(op("_local_scalar_dense", [tensor()], [], count=3))
    assert (work.kernels, work.syncs, work.bytes_moved) == (3, 3, 0)


@pytest.mark.parametrize(
    ("row", "waits"),
    [
        (op("nonzero", [tensor(10)], [tensor(4, 1, dtype="int64")]), 1),
        (replace(op("nms", [tensor(9, 4)], [tensor(3, dtype="int64")]), op="torchvision::nms"), 1),
        (op("index", [tensor(9), tensor(9, dtype="bool")], [tensor(4)]), 1),
        (op("index", [tensor(9), tensor(4, dtype="int64")], [tensor(4)]), 0),
        (op("index_put_", [tensor(9), tensor(9, dtype="bool"), tensor(4)], [tensor(9)]), 1),
        (op("index_put_", [tensor(9), tensor(9, dtype="bool"), tensor()], [tensor(9)]), 0),  # fills under the mask
        (op("topk", [tensor(9)], [tensor(4), tensor(4, dtype="int64")]), 0),
    ],
)
def test_a_shape_that_depends_on_values_is_waited_for(row: OpRow, waits: int) -> None:
    assert (cost(row).syncs, cost(row).kernels) == (waits, 1)


def test_what_no_cache_holds() -> None:
    small, large = tensor(1 << 18), tensor(1 << 20)
    work = cost(op("relu", [small], [small]), op("relu", [large], [large]))
    assert work.bytes_moved == (2 << 20) + (8 << 20)
    assert work.large_bytes == 8 << 20


@pytest.mark.parametrize("name", ["aten::sort", "aten::_fft_r2c", "mylib::fused_scan", "torchvision::nms"])
def test_ops_without_a_rule_are_known_as_such(name: str) -> None:
    row = OpRow(op=name, phase="forward", inputs=[tensor(10)], outputs=[tensor(10)], count=1)
    work = cost(row, op("relu", [tensor(10)], [tensor(10)]))
    assert (work.bytes_moved, work.unruled_bytes) == (160, 80)


def test_copies_around_collectives_have_a_rule() -> None:
    work = cost(OpRow(op="fsdp::chunk_cat", phase="backward", inputs=[tensor(10)], outputs=[tensor(10)], count=1))
    assert (work.bytes_moved, work.unruled_bytes) == (80, 0)


# -------------------------------------------------------------------------------------------------- under autocast


def test_bytes_under_autocast_are_of_the_types_that_it_gives() -> None:
    x = tensor(10, 10)
    product = op("mm", [x, x], [x], half=[0, 1], half_out=True, casts=[0])
    loss = op("_softmax", [x], [x], casts=[0])
    stays = op("add", [x, x], [x], half=[0])
    work = cost(product, loss, stays)
    assert work.bytes_moved == 3 * 400 + 2 * 400 + 3 * 400
    assert sum(work.autocast_moved.values()) == (3 * 200 + 600) + (2 * 400 + 600) + (200 + 2 * 400)
    assert (work.kernels, work.autocast_kernels) == (3, 5)


def test_what_is_half_already_stays_as_it_is() -> None:
    x = tensor(10, 10, dtype="bfloat16")
    work = cost(op("mm", [x, x], [x]), op("add", [x, x], [x]))
    assert sum(work.autocast_moved.values()) == work.bytes_moved == 1200
    assert work.autocast_kernels == work.kernels


def test_a_trace_without_types_takes_those_of_its_kind_of_network() -> None:
    x = tensor(10, 10)
    product = op("mm", [x, x], [x])
    image = conv(tensor(16, 8, 1, 1), tensor(2, 8, 10, 10), tensor(2, 16, 10, 10))
    for row, share in ((product, 0.8), (image, 0.5)):
        assert sum(cost(row).autocast_moved.values()) == pytest.approx(share * cost(row).bytes_moved)
    adds = cost(op("add", [x, x], [x]))
    assert sum(adds.autocast_moved.values()) == adds.bytes_moved, "autocast changes nothing where nothing is multiplied"


# --------------------------------------------------------------------------------------------------------- a step


def test_calls_by_who_makes_them() -> None:
    x = tensor(10, 10)
    work = cost(
        op("relu", [x], [x], count=3),
        op("view", [x], [x], count=9),
        op("threshold_backward", [x, x], [x], phase="backward", count=2),
        conv_backward(tensor(16, 8, 1, 1), tensor(2, 8, 4, 4), tensor(2, 16, 4, 4), [True, True, False]),
        op("_local_scalar_dense", [tensor()], []),
        op("_to_copy", [x], [x], count=5),
    )
    assert (work.forward_calls, work.backward_calls) == (4, 3 + 5), "casts go through no Python of modules"
    assert work.kernels == 3 + 2 + 2 + 1 + 5


def test_the_optimizer_is_counted_elsewhere() -> None:
    ours = op("mul", [tensor(10)], [tensor(10)])
    theirs = op("_foreach_add_", [tensor(10)], [tensor(10)], phase="optimizer")
    assert cost(ours, theirs) == cost(ours)
    assert cost(ours, theirs, optimizer_ops=True).bytes_moved == 160


def test_products_with_packed_weights() -> None:
    """Two weights in a byte; for many rows they are unpacked, written and read again."""
    packed, scales = tensor(128 * 256 // 2, 1, dtype="uint8"), tensor(512)

    def product(rows: int) -> Work:
        half = [tensor(1, rows, wide, dtype="bfloat16") for wide in (256, 128)]
        found = replace(op("gemm_4bit", [half[0], packed, scales], [half[1]]), op="bitsandbytes::gemm_4bit")
        return cost(found)

    few, many = product(8), product(100)
    assert few.flops == {("matmul", "bfloat16"): 2.0 * 8 * 256 * 128}
    assert few.bytes_moved == 8 * 256 * 2 + 8 * 128 * 2 + 16384 + 2048
    assert many.bytes_moved == 100 * 256 * 2 + 100 * 128 * 2 + 16384 + 2048 + 2 * 2 * 256 * 128
    assert (few.kernels, many.kernels, many.unruled_bytes) == (1, 2, 0)
    eight = replace(
        op("mm", [tensor(8, 256, dtype="int8"), tensor(128, 256, dtype="int8")], [tensor(8, 128, dtype="int32")]),
        op="bitsandbytes::int8_linear_matmul",
    )
    assert cost(eight).flops == {("matmul", "float16"): 2.0 * 8 * 256 * 128}


def test_bytes_are_kept_by_the_size_of_an_op() -> None:
    """In half powers of two of what one call moves, weights apart; for more samples of as many calls the sizes grow."""
    small = op("relu", [tensor(1024)], [tensor(1024)], count=3)
    large = op("mm", [tensor(4, 512), tensor(512, 8)], [tensor(4, 8)])
    work = cost(small, large)
    assert work.sized == {(13.0, "float32"): 3 * 8192 + 8192 + 128}
    assert sum(work.sized.values()) == work.bytes_moved - work.weight_bytes
    assert sum(work.autocast_sized.values()) == pytest.approx(0.8 * sum(work.sized.values()))
    assert list(cost(replace(small, attributes={"half": [0], "half_out": True})).autocast_sized) == [12.0]
    assert work.scaled(size=4).sized == {(15.0, "float32"): 4 * sum(work.sized.values())}
    assert work.scaled(size=4, launches=4).sized.keys() == work.sized.keys()


def test_validation_is_no_part_of_a_step() -> None:
    row = op("mm", [tensor(4, 4), tensor(4, 4)], [tensor(4, 4)], phase="validation")
    assert cost(row, optimizer_ops=True) == Work()


@given(st.integers(1, 50), st.integers(1, 8))
def test_a_step_is_its_share_of_the_trace(count: int, steps: int) -> None:
    row = op("mm", [tensor(4, 8), tensor(8, 2)], [tensor(4, 2)], count=count * steps)
    work, one = cost(row, steps=steps), cost(op("mm", [tensor(4, 8), tensor(8, 2)], [tensor(4, 2)]))
    assert work.total_flops == pytest.approx(count * one.total_flops)
    assert work.bytes_moved == pytest.approx(count * one.bytes_moved)
    assert work.kernels == pytest.approx(count)


def test_an_empty_trace_is_no_work() -> None:
    assert cost(steps=0) == Work()
    assert Work().total_flops == 0
