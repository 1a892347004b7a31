"""What the tracer tells of a real network: layouts, and the types that CUDA autocast would give."""

from collections import Counter

import pytest

from costgpu.estimator.op_costs import work_of
from costgpu.estimator.work import Work
from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.workload import OpRow

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def traced(*, channels_last: bool = False, half: bool = False) -> Work:
    """One step of a small network that has one op of each kind."""
    nn = torch.nn
    layers = [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, groups=16),
    ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.LayerNorm(16 * 36), nn.Linear(16 * 36, 8))
    order = torch.channels_last if channels_last else torch.contiguous_format
    dtype = torch.bfloat16 if half else torch.float32
    model, images = (
        model.to(memory_format=order, dtype=dtype),
        torch.randn(4, 3, 8, 8).to(memory_format=order, dtype=dtype),
    )
    tracer = make_tracer(torch)()  # type: ignore[no-untyped-call]
    with tracer:
        loss = torch.nn.functional.cross_entropy(model(images), torch.zeros(4, dtype=torch.int64))
        tracer.phase = "backward"
        loss.backward()
    names = ("op", "phase", "count", "inputs", "outputs", "attributes")
    return work_of([OpRow(**{name: row[name] for name in names}) for row in tracer.rows.values()], 1)


@pytest.mark.parametrize(("channels_last", "end"), [(False, ""), (True, "_nhwc")])
def test_layouts_are_told(channels_last: bool, end: str) -> None:
    kinds = {kind for kind, _ in traced(channels_last=channels_last).flops}
    assert kinds == {f"conv3x3{end}", f"depthwise{end}", "matmul"}


def test_types_under_autocast_are_followed() -> None:
    work = traced()
    assert 0.4 < sum(work.autocast_moved.values()) / work.bytes_moved < 1.0
    assert work.autocast_kernels > work.kernels
    assert work.unaligned_bytes == 2 * 2 * (4 * 3 * 64 + 4 * 16 * 64), (
        "of the first convolution, forward and its weights' gradient"
    )


def test_a_network_in_half_precision_has_its_own_types() -> None:
    work = traced(half=True)
    assert {dtype for _, dtype in work.flops} == {"bfloat16"}
    assert sum(work.autocast_moved.values()) == work.bytes_moved


@pytest.mark.parametrize("causal", [False, True])
def test_a_causal_mask_is_told(causal: bool) -> None:
    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    tracer = make_tracer(torch)()  # type: ignore[no-untyped-call]
    with tracer:
        torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=causal).sum().backward()
    told = [row["attributes"].get("is_causal", False) for row in tracer.rows.values() if "_dot_product_" in row["op"]]
    assert told == [causal, causal]


@pytest.mark.parametrize(("reentrant", "again"), [(False, 1), (True, 2)])
def test_what_a_checkpoint_computes_again_is_of_the_forward_pass(reentrant: bool, again: int) -> None:
    """It goes through the modules' Python, as the first time. The newer kind stops when it has what it needs."""
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    images = torch.randn(4, 8, requires_grad=True)
    tracer = make_tracer(torch)()  # type: ignore[no-untyped-call]
    with tracer:
        loss = torch.utils.checkpoint.checkpoint(layer, images, use_reentrant=reentrant).sum()
        tracer.phase = "backward"
        loss.backward()
    counts = Counter[tuple[str, str]]()
    for row in tracer.rows.values():
        counts[row["op"], row["phase"]] += row["count"]
    assert (counts["aten::addmm", "forward"], counts["aten::addmm", "backward"]) == (2 + again, 0)
    assert counts["aten::mm", "backward"] == 4
