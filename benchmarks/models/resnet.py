"""ResNet-50 v1.5 on 224 x 224 images.

He et al., "Deep Residual Learning for Image Recognition" (2015), in the v1.5 form of NVIDIA's
DeepLearningExamples `PyTorch/Classification/ConvNets`: the stride of a down-sampling block sits
on its 3 x 3 convolution. Input N x 3 x 224 x 224, output N x 1000, cross entropy, SGD with
momentum. The measured script ran with its defaults: contiguous (NCHW) tensors, no label smoothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPANSION = 4
STAGE_BLOCKS = (3, 4, 6, 3)
STAGE_WIDTHS = (64, 128, 256, 512)
STAGE_STRIDES = (1, 2, 2, 2)
STEM_WIDTH = 64
IMAGE_SIZE = 224
CLASSES = 1000


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1 x 1 to `width`, 3 x 3, 1 x 1 to 4 x `width`, plus the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                _conv(inputs, outputs, 1, stride),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def trunk(strides: Sequence[int]) -> nn.Sequential:
    """Return the stem and the first `len(strides)` stages; `strides` replaces the usual 1, 2, 2, 2."""
    layers: list[nn.Module] = [
        _conv(3, STEM_WIDTH, 7, stride=2),
        nn.BatchNorm2d(STEM_WIDTH),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    ]
    inputs = STEM_WIDTH
    for blocks, width, stride in zip(STAGE_BLOCKS, STAGE_WIDTHS, strides, strict=False):
        stage: list[nn.Module] = []
        for index in range(blocks):
            stage.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = width * EXPANSION
        layers.append(nn.Sequential(*stage))
    return nn.Sequential(*layers)


class ResNet50(nn.Module):
    """Stem, four stages, global average pool, one fully connected layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = trunk(STAGE_STRIDES)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(STAGE_WIDTHS[-1] * EXPANSION, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.pool(self.features(images)).flatten(1))


def build(batch_size: int) -> Workload:
    """ResNet-50 on a synthetic batch, as the measured script used."""
    model = ResNet50()
    images = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
    labels = torch.randint(0, CLASSES, (batch_size,))
    return workload(
        model,
        loss=lambda: functional.cross_entropy(model(images), labels),
        infer=lambda: model(images),
    )
