"""Under `inference_mode` the tracer is handed composite ops whole: what it counts is what it counts under `no_grad`."""

from collections import Counter
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn: Any = torch.nn

from costgpu.measure.probe import op_tracer  # noqa: E402

pytestmark = pytest.mark.torch
probe: Any = op_tracer  # for Python 3.8, without types


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.project, self.join, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: Any) -> Any:
        query, key, value = self.project(self.norm(x)).reshape(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.join(mixed.transpose(1, 2).reshape(2, 5, 32))


NETS: dict[str, Any] = {
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 4)),
        (2, 3, 16, 16),
    ),
    "attention": lambda: (Attention(), (2, 5, 32)),
    "lstm": lambda: (nn.LSTM(8, 16, 2, batch_first=True), (2, 6, 8)),
    "gru": lambda: (nn.GRU(8, 16), (2, 6, 8)),
}


def traced(net: Any, items: Any, context: Any) -> tuple[Counter[str], Any]:
    tracer = probe.make_tracer(torch)()
    with context(), tracer:
        result = net(items)
    counts: Counter[str] = Counter()
    for row in tracer.rows.values():
        counts[repr((row["op"], row["inputs"], row["outputs"]))] += row["count"]
    return counts, result


@pytest.mark.parametrize("name", NETS)
def test_the_same_ops_as_without_gradients(name: str) -> None:
    net, shape = NETS[name]()
    net.eval()
    items = torch.randn(shape)
    plain, expected = traced(net, items, torch.no_grad)
    inferred, result = traced(net, items, torch.inference_mode)
    assert inferred == plain
    first, second = (r[0] if isinstance(r, tuple) else r for r in (expected, result))
    assert torch.equal(first, second)
