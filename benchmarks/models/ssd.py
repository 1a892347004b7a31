"""SSD300 with a ResNet-50 backbone.

Liu et al., "SSD: Single Shot MultiBox Detector" (2016), in the form of NVIDIA's
DeepLearningExamples `PyTorch/Detection/SSD`: the trunk stops after conv4_x, whose stride is 1
(300 px -> 1024 x 38 x 38); five extra blocks give maps of 19, 10, 5, 3 and 1 px; 8732 default
boxes, 81 COCO classes. Input N x 3 x 300 x 300, outputs N x 4 x 8732 and N x 81 x 8732. The loss is
smooth L1 on the positives plus cross entropy with hard-negative mining by two sorts, three
negatives per positive. Normalising the images and transposing the boxes are part of the timed step
and of `loss` here.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from .resnet import trunk
from .workload import Workload, workload

IMAGE_SIZE = 300
CLASSES = 81
TRUNK_STRIDES = (1, 2, 1)
MAP_SIZES = (38, 19, 10, 5, 3, 1)
MAP_CHANNELS = (1024, 512, 512, 256, 256, 256)
EXTRA_CHANNELS = (256, 256, 128, 128, 128)
BOXES_PER_CELL = (4, 6, 6, 6, 4, 4)
STRIDED_EXTRAS = 3
BOX_STEPS = (8, 16, 32, 64, 100, 300)
BOX_SCALES = (21, 45, 99, 153, 207, 261, 315)
BOX_RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
SCALE_XY, SCALE_WH = 0.1, 0.2
NEGATIVES_PER_POSITIVE = 3
IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def default_boxes() -> Tensor:
    """Return the 8732 default boxes as (8732, 4): centre x, centre y, width, height in [0, 1]."""
    boxes: list[tuple[float, float, float, float]] = []
    for level, cells in enumerate(MAP_SIZES):
        small = BOX_SCALES[level] / IMAGE_SIZE
        middle = sqrt(small * BOX_SCALES[level + 1] / IMAGE_SIZE)
        sizes = [(small, small), (middle, middle)]
        for ratio in BOX_RATIOS[level]:
            long, short = small * sqrt(ratio), small / sqrt(ratio)
            sizes += [(long, short), (short, long)]
        pitch = BOX_STEPS[level] / IMAGE_SIZE
        boxes += [
            ((column + 0.5) * pitch, (row + 0.5) * pitch, width, height)
            for width, height in sizes
            for row in range(cells)
            for column in range(cells)
        ]
    return torch.tensor(boxes).clamp(0.0, 1.0)


def _extra_block(inputs: int, middle: int, outputs: int, *, strided: bool) -> nn.Sequential:
    stride, padding = (2, 1) if strided else (1, 0)
    return nn.Sequential(
        nn.Conv2d(inputs, middle, kernel_size=1, bias=False),
        nn.BatchNorm2d(middle),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, outputs, kernel_size=3, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _heads(values_per_box: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Conv2d(channels, boxes * values_per_box, kernel_size=3, padding=1)
        for channels, boxes in zip(MAP_CHANNELS, BOXES_PER_CELL, strict=True)
    )


class SSD300(nn.Module):
    """Trunk, five extra blocks, and a box head and a class head on each of the six maps."""

    def __init__(self) -> None:
        super().__init__()
        self.features = trunk(TRUNK_STRIDES)
        self.extras = nn.ModuleList(
            _extra_block(inputs, middle, outputs, strided=index < STRIDED_EXTRAS)
            for index, (inputs, middle, outputs) in enumerate(
                zip(MAP_CHANNELS[:-1], EXTRA_CHANNELS, MAP_CHANNELS[1:], strict=True)
            )
        )
        self.box_heads = _heads(4)
        self.class_heads = _heads(CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        batch = images.size(0)
        maps = [self.features(images)]
        for block in self.extras:
            maps.append(block(maps[-1]))
        boxes: list[Tensor] = []
        classes: list[Tensor] = []
        heads = zip(self.box_heads, self.class_heads, strict=True)
        for feature, (box_head, class_head) in zip(maps, heads, strict=True):
            boxes.append(box_head(feature).view(batch, 4, -1))
            classes.append(class_head(feature).view(batch, CLASSES, -1))
        return torch.cat(boxes, 2).contiguous(), torch.cat(classes, 2).contiguous()


class SSDLoss(nn.Module):
    """Smooth L1 of the positives and cross entropy of the positives and the hardest negatives."""

    anchors: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("anchors", default_boxes().transpose(0, 1).unsqueeze(0))
        self.smooth_l1 = nn.SmoothL1Loss(reduction="none")
        self.cross_entropy = nn.CrossEntropyLoss(reduction="none")

    def _offsets(self, boxes: Tensor) -> Tensor:
        sizes = self.anchors[:, 2:, :]
        centre = (1.0 / SCALE_XY) * (boxes[:, :2, :] - self.anchors[:, :2, :]) / sizes
        size = (1.0 / SCALE_WH) * (boxes[:, 2:, :] / sizes).log()
        return torch.cat((centre, size), dim=1).contiguous()

    def forward(self, boxes: Tensor, classes: Tensor, true_boxes: Tensor, labels: Tensor) -> Tensor:
        positive = labels > 0
        positives = positive.sum(dim=1)

        box_loss = self.smooth_l1(boxes, self._offsets(true_boxes)).sum(dim=1)
        box_loss = (positive.float() * box_loss).sum(dim=1)

        class_loss = self.cross_entropy(classes, labels)
        negative_loss = class_loss.clone().masked_fill_(positive, 0)
        _, order = negative_loss.sort(dim=1, descending=True)
        _, rank = order.sort(dim=1)
        wanted = torch.clamp(NEGATIVES_PER_POSITIVE * positives, max=positive.size(1))
        negative = rank < wanted.unsqueeze(-1)
        class_loss = (class_loss * (positive.float() + negative.float())).sum(dim=1)

        has_object = (positives > 0).float()
        count = positives.float().clamp(min=1e-6)
        return ((box_loss + class_loss) * has_object / count).mean(dim=0)


def build(batch_size: int) -> Workload:
    """SSD300 on synthetic images; about one anchor in a hundred is matched to an object."""
    model, criterion = SSD300(), SSDLoss()
    images = torch.rand(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
    mean = torch.tensor(IMAGE_MEAN).view(1, 3, 1, 1)
    std = torch.tensor(IMAGE_STD).view(1, 3, 1, 1)
    anchors = criterion.anchors.size(2)
    true_boxes = torch.rand(batch_size, anchors, 4) + 0.01
    labels = torch.randint(1, CLASSES, (batch_size, anchors))
    labels = labels * (torch.rand(batch_size, anchors) < 0.01)

    def loss() -> Tensor:
        boxes, classes = model(images.sub(mean).div_(std))
        return criterion(boxes, classes, true_boxes.transpose(1, 2).contiguous(), labels)

    return workload(model, loss, infer=lambda: model(images.sub(mean).div_(std)))
