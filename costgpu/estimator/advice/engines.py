"""What other runtimes would bring: figures from measurements and models of theirs, never what a script does as written.

Source: INFERENCE study of 2026-11 (public rows of vLLM, llama.cpp, TensorRT, ONNX Runtime and CTranslate2).
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.estimator.gpu import POWER_DERATE
from costgpu.models.offer import AcceleratorSpec

ENGINE_READS, ENGINE_LAYER_SECONDS = 1.2, 45e-6
ENGINE_PREFILL, ENGINE_PREFILL_SECONDS = 1.5, 12e-3
# Two runs of vLLM under load differ by so much: its scheduler and the memory left for the cache decide.
SERVING_FACTOR = 1.6
INT4_READS, INT4_LAYER_SECONDS = 1.3, 86e-6  # llama.cpp; up to twice as long on P100, V100 and T4


@dataclass(frozen=True, slots=True)
class EngineGain:
    """A gain that was measured for a runtime."""

    engine: str
    model: str
    gain: float  # seconds of PyTorch over those of the engine
    over: str  # what it is compared with
    accelerator: str


GAINS = (
    EngineGain("TensorRT or ONNX Runtime, fp16", "BERT-base", 6.8, "eager fp32", "A100"),
    EngineGain("TensorRT, int8", "ResNet-50", 4.8, "eager autocast", "T4"),
    EngineGain("faster-whisper", "whisper", 2.3, "openai/whisper", "RTX 3070 Ti"),
    EngineGain("faster-whisper, batched", "whisper", 8.0, "openai/whisper", "RTX 3070 Ti"),
)


def engine_decode_seconds(
    weight_bytes: float, cache_bytes: float, layers: int, spec: AcceleratorSpec, *, int4: bool = False
) -> float:
    """Seconds of one decode by an engine with CUDA graphs, such as vLLM; half precision, or llama.cpp in int4.

    7 % median and 28 % p90 error at batch 1, 5 and 28 % for models of 2 billion parameters and more (L4, A10G, A100).

    Args:
        weight_bytes: Bytes of the weights that one decode reads, in the engine's type.
        cache_bytes: Bytes of the cache of all sequences.
    """
    reads, layer = (INT4_READS, INT4_LAYER_SECONDS) if int4 else (ENGINE_READS, ENGINE_LAYER_SECONDS)
    return reads * (weight_bytes + cache_bytes) / (spec.memory_bandwidth_gbps * 1e9) + layer * layers


def engine_prefill_seconds(parameters: float, tokens: float, spec: AcceleratorSpec) -> float:
    """Return the seconds of a prefill by such an engine.

    Args:
        tokens: Tokens of all prompts.
    """
    peak = (spec.fp16_tensor_tflops or spec.fp32_tflops) * 1e12 * POWER_DERATE.get(spec.name, 1.0)
    return ENGINE_PREFILL * 2 * parameters * tokens / peak + ENGINE_PREFILL_SECONDS
