"""Options of inference that no prediction covers: named with the gains that others measured, never with a saving. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from costgpu.estimator.advice.context import AdviceContext
from costgpu.estimator.advice.engines import GAINS, SERVING_FACTOR, engine_decode_seconds, engine_prefill_seconds
from costgpu.estimator.memory import QUANTIZED_BYTES
from costgpu.estimator.throughput import inference_phase
from costgpu.estimator.unit_work import mean_context
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.models.workload import Generation, Phase
from costgpu.units import format_number

MEASURED = "measurements of others; this script was not run so"
MODELLED = "the weights and the memory bandwidth; this script was not run so"
# Speed of int8 and int4 weights in Hugging Face models over half precision: 0.65-0.9 (INFERENCE study, 2026-11).
QUANTIZED_SPEED = 0.75
SPEECH = ("audio", "window")  # in the name of an item
BYTES_PER_PARAMETER = {"float32": 4.0, "float64": 8.0}


def named_options(context: AdviceContext) -> Iterator[Advice]:
    """Yield the engines and quantization for the last phase, on the GPU that is recommended."""
    phase, before = context.workload.profile.phases[-1], context.before
    if phase.unit.trains or before.candidate.accelerator is None:
        return
    if phase.unit.generation is None:
        speech = any(word in phase.unit.item for word in SPEECH)
        gains = "; ".join(
            f"{gain.engine}: {gain.gain:g}x over {gain.over} ({gain.model}, {gain.accelerator})"
            for gain in GAINS
            if (gain.model == "whisper") == speech
        )
        action = "An engine instead of PyTorch, if there is one for the model"
        notes = (f"Measured elsewhere: {gains}.",)
        yield Advice(kind=AdviceKind.ENGINE, action=action, before=before, basis=MEASURED, notes=notes)
        return
    yield _engine(phase, phase.unit.generation, before, before.candidate.accelerator)
    sizes = ", ".join(f"{name} {share:.0%}" for name, share in QUANTIZED_BYTES.items())
    note = (
        f"Of the bytes in half precision: {sizes}. In Hugging Face models they compute at about {QUANTIZED_SPEED:.0%} of the"
        " speed. Compare the quality of the answers."
    )
    yield Advice(
        kind=AdviceKind.QUANTIZATION,
        action="Quantized weights, where a smaller or cheaper GPU would then hold the model",
        before=before,
        basis=MEASURED,
        notes=(note,),
    )


def _engine(phase: Phase, made: Generation, before: Prediction, spec: AcceleratorSpec) -> Advice:
    """Return what an engine with CUDA graphs would make of the same prompts, one batch at a time."""
    dtype = phase.unit.weights_dtype
    parameters = phase.model_bytes / BYTES_PER_PARAMETER.get(dtype, 2.0)
    narrower = 2.0 / BYTES_PER_PARAMETER.get(dtype, 2.0)
    cache = narrower * made.cache_bytes_per_token * made.sequences * mean_context(made)
    decode = engine_decode_seconds(2.0 * parameters, cache, made.layers, spec)
    prefill = engine_prefill_seconds(parameters, made.sequences * made.prompt_tokens, spec)
    tokens = made.sequences * made.new_tokens
    rate = tokens / (prefill + made.decodes * decode)
    now = inference_phase(before)
    seconds = now.sustained_seconds.value if now is not None else 0.0
    as_now = f" instead of {format_number(tokens / seconds)}" if seconds > 0 else ""
    return Advice(
        kind=AdviceKind.ENGINE,
        action=f"An engine such as vLLM, in half precision: about {format_number(rate)} output tokens/s with the same batch"
        f" on the {spec.name}{as_now}",
        before=before,
        basis=MODELLED,
        notes=(f"With many requests at once its scheduler decides: known only within a factor of {SERVING_FACTOR:g}.",),
    )
