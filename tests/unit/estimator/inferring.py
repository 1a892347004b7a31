"""Profiles of scripts that only infer, made without measuring: a classifier, an embedder, a language model."""

from dataclasses import replace
from typing import Any

from costgpu.models.workload import (
    DataLoading,
    Generation,
    OpRow,
    Phase,
    Total,
    TotalKind,
    Unit,
    WorkloadProfile,
)
from tests.unit.estimator import advisable, builders
from tests.unit.estimator.advisable import tensor

# Of a ResNet-50: channels in and out, image size, kernel, stride, number of such convolutions.
CONVOLUTIONS = (
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 3),
    (64, 256, 56, 1, 1, 7),
    (256, 128, 56, 1, 1, 5),
    (128, 128, 28, 3, 1, 4),
    (128, 512, 28, 1, 1, 8),
    (256, 256, 14, 3, 1, 6),
    (256, 1024, 14, 1, 1, 13),
    (512, 512, 7, 3, 1, 3),
    (512, 2048, 7, 1, 1, 6),
)


def known(steps: float | None) -> Total:
    """A number of units; None for a server's endless loop."""
    if steps is None:
        return Total(kind=TotalKind.UNBOUNDED, steps=None, steps_per_epoch=None, how="while True (score.py:12)")
    how = f"{steps:g} (score.py:9)"
    return Total(kind=TotalKind.EXACT, steps=steps, steps_per_epoch=None, how=how)


def profile(*phases: Phase, script: str = "score.py", **facts: Any) -> WorkloadProfile:
    return advisable.profile(*phases, script=script, **facts)


def scoring(batch: int = 64, steps: float | None = 1000, *, seconds: float = 0.08, **facts: Any) -> Phase:
    """A ResNet-50 that scores images.

    Args:
        seconds: Seconds of one image here.
    """
    ops = []
    for inner, outer, size, kernel, stride, count in CONVOLUTIONS:
        image, weight = tensor(batch, inner, size, size), tensor(outer, inner, kernel, kernel)
        result = tensor(batch, outer, size // stride, size // stride)
        ops += [
            OpRow(op="aten::convolution", phase="forward", inputs=[image, weight], outputs=[result], count=count),
            OpRow(op="aten::native_batch_norm", phase="forward", inputs=[result], outputs=[result], count=count),
            OpRow(op="aten::relu", phase="forward", inputs=[result], outputs=[result], count=count),
        ]
    usual: dict[str, Any] = {
        "label": "score.py:9",
        "total": known(steps),
        "step": builders.step_times(seconds * batch),
        "ops": ops,
        "calls_per_step": 170.0,
        "host_seconds_per_step": 0.002,
        "model_bytes": 102_000_000,
        "data": DataLoading(batches_per_step=1, batch_size=batch, batch_bytes=batch * 3 * 224 * 224 * 4),
        "unit": Unit(
            name="batch",
            trains=False,
            items=float(batch),
            item="image",
            independent=True,
            activation_bytes=batch * 10_000_000,
        ),
    }
    return builders.phase(**{**usual, **facts})


def layers(batch: int, tokens: int, *, phase: str, hidden: int, count: int, dtype: str) -> list[OpRow]:
    """Matrix products, attention's cache apart, and element-wise ops of so many layers of a decoder."""
    state = tensor(batch * tokens, hidden, dtype=dtype)
    wide = tensor(batch * tokens, 4 * hidden, dtype=dtype)
    square, up = tensor(hidden, hidden, dtype=dtype), tensor(hidden, 4 * hidden, dtype=dtype)
    down = tensor(4 * hidden, hidden, dtype=dtype)
    share = 0.4 if phase == "prefill" else 0.01
    return [
        OpRow(op="aten::mm", phase=phase, inputs=[state, square], outputs=[state], count=4 * count, seconds=share),
        OpRow(op="aten::mm", phase=phase, inputs=[state, up], outputs=[wide], count=2 * count, seconds=2 * share),
        OpRow(op="aten::mm", phase=phase, inputs=[wide, down], outputs=[state], count=count, seconds=share),
        OpRow(op="aten::mul", phase=phase, inputs=[state, state], outputs=[state], count=30 * count),
    ]


def chat(
    batch: int = 1,
    steps: float | None = 500,
    *,
    name: str = "batch",
    dtype: str = "bfloat16",
    seconds: float = 20.0,
    **facts: Any,
) -> Phase:
    """A language model of about a billion parameters that answers prompts of 256 tokens with 128 new ones."""
    hidden, count, prompt, new = 2048, 22, 256, 128
    ops = layers(batch, prompt, phase="prefill", hidden=hidden, count=count, dtype=dtype)
    ops += layers(batch, 1, phase="decode", hidden=hidden, count=count, dtype=dtype)
    generation = Generation(
        sequences=float(batch),
        prompt_tokens=float(prompt),
        new_tokens=float(new),
        decodes=float(new - 1),
        most_new_tokens=512.0,
        traced_decodes=1,
        cache_bytes_per_token=2.0 * count * hidden * 2,
        layers=count,
    )
    usual: dict[str, Any] = {
        "label": "chat.py:14",
        "total": replace(known(steps), how=f"{steps} (chat.py:12)" if steps else "it runs until it is stopped"),
        "step": builders.step_times(seconds),
        "ops": ops,
        "calls_per_step": 22.0 * 40 * new,
        "host_seconds_per_step": 0.5,
        "model_bytes": 2_600_000_000,
        "unit": Unit(
            name=name,
            trains=False,
            items=float(batch),
            item="prompt",
            independent=True,
            weights_dtype=dtype,
            activation_bytes=batch * 50_000_000,
            generation=generation,
        ),
    }
    return builders.phase(**{**usual, **facts})


def embedding(batch: int = 32, steps: float | None = 2000, *, seconds: float = 0.6, **facts: Any) -> Phase:
    """A BERT-like encoder that embeds sentences of 64 tokens."""
    ops = layers(batch, 64, phase="forward", hidden=768, count=12, dtype="float32")
    usual: dict[str, Any] = {
        "label": "embed.py:7",
        "total": replace(known(steps), how=f"{steps} (embed.py:7)"),
        "step": builders.step_times(seconds),
        "ops": ops,
        "calls_per_step": 12.0 * 40,
        "host_seconds_per_step": 0.004,
        "model_bytes": 440_000_000,
        "unit": Unit(
            name="batch",
            trains=False,
            items=float(batch),
            item="sentence",
            independent=True,
            activation_bytes=batch * 2_000_000,
        ),
    }
    return builders.phase(**{**usual, **facts})
