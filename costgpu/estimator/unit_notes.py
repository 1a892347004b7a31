"""What an estimate of inference, or of a script measured without weights, cannot know, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from costgpu.models.workload import Phase, WorkloadProfile
from costgpu.units import format_duration, format_number, format_size

LARGE_WEIGHTS = 1e9  # bytes from which fetching a model is worth a word
WITHOUT_WEIGHTS = "Measured without weights: shapes are exact, values are not."
NETWORK_BYTES_PER_SECOND = (0.1e9, 0.3e9)  # of a download to a fresh machine: assumed


def unit_notes(profile: WorkloadProfile) -> tuple[str, ...]:
    """Return a sentence for each thing; empty for training that was measured as it is."""
    first = [WITHOUT_WEIGHTS] if profile.without_weights else []
    return tuple(dict.fromkeys([*first, *(note for phase in profile.phases for note in _notes(phase))]))


def _notes(phase: Phase) -> Iterator[str]:
    unit, made = phase.unit, phase.unit.generation
    if unit.trains:
        return
    if not unit.items:
        yield f"How many items a {unit.name or 'call'} holds could not be told: the amounts are for each {unit.name}."
    if made is not None:
        length = f"An answer is taken to have {format_number(made.new_tokens)} tokens, the median of what was seen"
        if made.most_new_tokens is not None and made.most_new_tokens > made.new_tokens:
            length += f"; the script allows {format_number(made.most_new_tokens)}"
        yield f"{length}. Where an answer ends depends on the data."
        yield "Engines (vLLM, TensorRT-LLM) and continuous batching are not predicted: measure them on the machine."
    if phase.model_bytes > LARGE_WEIGHTS:
        slow, fast = (phase.model_bytes / rate for rate in NETWORK_BYTES_PER_SECOND)
        yield (
            f"Fetching its weights ({format_size(phase.model_bytes)}) to a rented machine takes {format_duration(fast)} to"
            f" {format_duration(slow)} more (assumed), which is not in the times."
        )
