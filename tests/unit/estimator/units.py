"""Forward passes and phases of inference to test with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costgpu.estimator.gpu import Execution, Precision
from costgpu.estimator.roofline import FORWARD, GpuTerms, gpu_terms
from costgpu.estimator.work import Work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Generation, OpRow, Phase, StepTimes, Total, TotalKind, Unit
from tests.unit.estimator.advisable import tensor

PLAIN = Execution(Precision(half=None, matmul_tf32=False, conv_tf32=True))


def forward_terms(work: Work, spec: AcceleratorSpec, execution: Execution) -> GpuTerms:
    """Seconds of one forward pass."""
    return gpu_terms(work, spec, execution, FORWARD)


def linear(batch: int, width: int = 1024, *, phase: str = "forward", dtype: str = "float32", count: int = 1) -> OpRow:
    """A linear layer of `width` by `width`."""
    return OpRow(
        op="aten::addmm",
        phase=phase,
        inputs=[tensor(width, dtype=dtype), tensor(batch, width, dtype=dtype), tensor(width, width, dtype=dtype)],
        outputs=[tensor(batch, width, dtype=dtype)],
        count=count,
    )


def relu(batch: int, width: int = 1024, *, phase: str = "forward", dtype: str = "float32", count: int = 1) -> OpRow:
    """An element-wise op."""
    return OpRow(
        op="aten::relu",
        phase=phase,
        inputs=[tensor(batch, width, dtype=dtype)],
        outputs=[tensor(batch, width, dtype=dtype)],
        count=count,
    )


def convolution(batch: int, channels: int = 64, *, groups: int = 1, channels_last: bool = False) -> OpRow:
    """A 3x3 convolution of 56 x 56 points."""
    image = tensor(batch, channels, 56, 56, channels_last=channels_last)
    return OpRow(
        op="aten::convolution",
        phase="forward",
        inputs=[image, tensor(channels, channels // groups, 3, 3)],
        outputs=[image],
        count=1,
        attributes={"transposed": False, "groups": groups},
    )


def phase(ops: list[OpRow], **changes: Any) -> Phase:
    """A phase of inference that scores batches of 8 images."""
    plain = Phase(
        label="score.py:10",
        total=Total(kind=TotalKind.EXACT, steps=100.0, steps_per_epoch=None, how="loop"),
        steps_observed=10,
        step=StepTimes(count=10, median_seconds=0.1, mean_seconds=0.1, low_seconds=0.1, high_seconds=0.1),
        ops=ops,
        trace_steps=1,
        model_bytes=400_000_000,
        unit=Unit(trains=False, items=8.0, item="image", independent=True, activation_bytes=50_000_000),
    )
    return replace(plain, **changes)


def generating(decodes: int = 100, traced: int = 1, dtype: str = "float16") -> Phase:
    """A phase that answers two prompts of 256 tokens each with 101 tokens."""
    ops = [
        linear(512, 4096, phase="prefill", dtype=dtype, count=32),
        linear(2, 4096, phase="decode", dtype=dtype, count=32 * traced),
        relu(2, 4096, phase="decode", dtype=dtype, count=64 * traced),
    ]
    made = Generation(
        sequences=2.0,
        prompt_tokens=256.0,
        new_tokens=decodes + 1.0,
        decodes=float(decodes),
        traced_decodes=traced,
        cache_bytes_per_token=524_288.0,
        layers=32,
    )
    one = Unit(trains=False, items=2.0, item="prompt", weights_dtype=dtype, activation_bytes=1 << 28, generation=made)
    return phase(ops, unit=one, model_bytes=13_500_000_000)
