"""Changes of a training that make it hold less of its accelerator's memory. Imports nothing of ours."""

from __future__ import annotations

from enum import StrEnum


class MemoryChange(StrEnum):
    """One such change, by the name under which the probe knows it."""

    CHECKPOINTING = "checkpointing"  # activations are computed again in the backward pass
    EIGHT_BIT_STATES = "eight_bit_states"  # of an optimizer of Adam's family
    LORA = "lora"  # adapters are trained instead of the weights, which are held in half precision
    QLORA = "qlora"  # the same, and the weights are held in 4 bits
    FOUR_BIT_WEIGHTS = "four_bit_weights"  # of a model whose adapters are trained already
    HALF_SEQUENCES = "half_sequences"  # batches have half as many columns

    @property
    def trains_other_weights(self) -> bool:
        """Return whether the result is another model: adapters beside the weights, and not the weights."""
        return self in (MemoryChange.LORA, MemoryChange.QLORA)


Changes = tuple[MemoryChange, ...]


def word_of(changes: Changes) -> str:
    """Return several changes as the one word that the probe is given."""
    return "+".join(changes)
