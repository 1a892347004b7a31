"""Image models of timm and torchvision by name, as `timm:NAME` and `tv:NAME` of the public rows.

Both packages must be installed where the benchmark runs; the product needs neither. timm's models take values out of
tensors while they are built, which fake tensors do not have, so they are built for real; initialisers are left out,
because values do not matter here.
"""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional

from .workload import Workload, workload

CLASSES = 1000
INITIALISERS = [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]


def build(name: str, batch_size: int, image_size: int, *, channels_last: bool) -> Workload:
    """Return a model of the default type with random images, trained on the cross entropy of its classes.

    Args:
        name: ``timm:resnet18`` or ``tv:resnet18``.
        image_size: Height and width in pixels.
        channels_last: Whether model and images are in channels-last order.
    """
    package, _, plain = name.partition(":")
    order = torch.channels_last if channels_last else torch.contiguous_format
    with ExitStack() as stack, unset_fake_temporarily():
        for initialiser in INITIALISERS:
            stack.enter_context(mock.patch.object(nn.init, initialiser, lambda tensor, *_, **__: tensor))
        model = (_timm(plain) if package == "timm" else _torchvision(plain)).to(memory_format=order)
    images = torch.empty(batch_size, 3, image_size, image_size).to(memory_format=order)
    labels = torch.empty(batch_size, dtype=torch.int64)

    def loss() -> torch.Tensor:
        found = model(images)
        return functional.cross_entropy(getattr(found, "logits", found), labels)

    return workload(model, loss, lambda: model(images))


def _timm(name: str) -> nn.Module:
    import timm  # noqa: PLC0415 - only where such rows are
    from timm.layers import set_fused_attn  # noqa: PLC0415

    set_fused_attn(enable=False)  # the rows are of PyTorch before 2.0, which had no fused attention
    return timm.create_model(name)


def _torchvision(name: str) -> nn.Module:
    from torchvision import models  # noqa: PLC0415

    return getattr(models, name)(weights=None)
