"""Ways to train a model that nobody has written yet: how it is spread, in which micro-batches, with checkpointing or not.

Of a language model that is known by its size alone, every place is predicted with the fastest one that fits. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costgpu.estimator.multi_gpu.step_time import Group
from costgpu.estimator.training_memory import TrainingBytes
from costgpu.models.parallelism import Parallelism, Scheme

# Bytes kept for the backward pass of a transformer's layer: 34 s b h, and 2 s b h where only its input is kept (Korthikanti
# et al. 2022, arXiv:2205.05198, sections 4.1 and 5).
CHECKPOINT_SHARE = 2 / 34
# Of one micro-batch; more saves little. One GPU has no communication to spare, and takes one.
SEQUENCES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to train it."""

    scheme: Scheme
    sequences: int = 1  # samples of a micro-batch, over those of the profile
    checkpointed: bool = False  # whether activations are computed again in the backward pass

    def of(self, parallelism: Parallelism) -> Parallelism:
        """Return the parallelism under this layout."""
        return replace(parallelism, scheme=self.scheme)


def layouts(group: Group, micro_batches: float) -> Iterator[Layout]:
    """Yield the ways that are worth a try on these GPUs, the simplest first.

    Args:
        group: The GPUs.
        micro_batches: Micro-batches of a step on all of them together, one sample each.
    """
    schemes = [Scheme.DDP]
    if group.gpus > 1:
        schemes.append(Scheme.FSDP)
    if group.nodes > 1 and group.gpus > group.nodes:
        schemes.append(Scheme.HSDP)
    for checkpointed in (False, True):
        for scheme in schemes:
            for sequences in SEQUENCES:
                if sequences == 1 or 1 < group.gpus <= micro_batches / sequences:
                    yield Layout(scheme=scheme, sequences=sequences, checkpointed=checkpointed)


def held_under(layout: Layout, held: TrainingBytes, layers: float) -> TrainingBytes:
    """Return what a process holds under a layout.

    Args:
        layout: The layout.
        held: What it holds with such micro-batches, without checkpointing.
        layers: Number of layers, of equal size.
    """
    if not layout.checkpointed:
        return held
    return replace(held, activations=held.activations * (CHECKPOINT_SHARE + 1 / max(1.0, layers)))
