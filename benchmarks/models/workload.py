"""What every model family hands to the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Workload:
    """A model and the two things that were timed on it.

    Attributes:
        model: the module whose parameters are trained.
        loss: one forward pass and the loss of a training step, with the model in train mode.
        infer: one forward pass without gradients, with the model in eval mode.
    """

    model: nn.Module
    loss: Callable[[], Tensor]
    infer: Callable[[], object]


def workload(model: nn.Module, loss: Callable[[], Tensor], infer: Callable[[], object]) -> Workload:
    """Wrap two plain forward passes so that each one sets the mode it needs."""

    def in_train_mode() -> Tensor:
        model.train()
        return loss()

    def in_eval_mode() -> object:
        model.eval()
        with torch.no_grad():
            return infer()

    return Workload(model=model, loss=in_train_mode, infer=in_eval_mode)
