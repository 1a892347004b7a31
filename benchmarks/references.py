"""Counts the reference workloads that `costgpu estimate --like` knows, and prints them as rows of references.csv.

    python -m benchmarks.references > pricing/data/references.csv

Each model is built under FakeTensorMode (no memory, no computing) with a batch that fits 16 GB and traced by the tracer that
measures users' scripts; what its backward pass keeps is counted by autograd's own hooks. Nothing here was timed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from benchmarks.models import build
from costgpu.estimator.op_costs import work_of
from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.offer import Reference
from costgpu.models.workload import OpRow

NVIDIA_EXAMPLES = "lambdal/deeplearning-benchmark"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One workload: a function that makes (model, loss function) and what is usual for it."""

    name: str
    kind: str
    detail: str
    make: Callable[[int], tuple[nn.Module, Callable[[], Tensor]]]
    sample_bytes: int
    optimizer: str
    momentum: bool
    batch: int
    samples: int | None
    epochs: float | None
    source: str


def public(name: str) -> Callable[[int], tuple[nn.Module, Callable[[], Tensor]]]:
    """Return a model of benchmarks/models."""

    def make(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
        found = build(name, batch, NVIDIA_EXAMPLES)
        return found.model, found.loss

    return make


def classifier(
    model: nn.Module, shape: tuple[int, ...], classes: int, batch: int
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Cross entropy of a model on one batch."""
    inputs, targets = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))
    return model, lambda: functional.cross_entropy(model(inputs), targets)


def mlp(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Two hidden layers of 512 on MNIST."""
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.2)]
    return classifier(nn.Sequential(*layers, nn.Linear(512, 10)), (784,), 10, batch)


def mnist_cnn(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Two convolutions on MNIST."""
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    head = [nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
    return classifier(nn.Sequential(*layers, *head), (1, 28, 28), 10, batch)


def cifar_cnn(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Four convolutions on CIFAR-10."""
    layers: list[nn.Module] = []
    for into, out in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU(), nn.Conv2d(out, out, 3), nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
    head = [nn.Flatten(), nn.Linear(64 * 6 * 6, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
    return classifier(nn.Sequential(*layers, *head), (3, 32, 32), 10, batch)


class Recurrent(nn.Module):
    """Word embedding, LSTM, and a linear layer on its last or on every state."""

    def __init__(
        self, words: int, width: int, hidden: int, layers: int, classes: int, *, both: bool, every: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(hidden * (2 if both else 1), classes)
        self.every = every

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the last token, or of all."""
        states = self.lstm(self.embed(tokens))[0]
        return self.head(states if self.every else states[:, -1])


def imdb_lstm(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Sentiment of IMDB reviews."""
    model = Recurrent(20000, 128, 64, 1, 2, both=True, every=False)
    tokens, targets = torch.randint(0, 20000, (batch, 100)), torch.randint(0, 2, (batch,))
    return model, lambda: functional.cross_entropy(model(tokens), targets)


def ptb_lstm(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Language model of the Penn Treebank."""
    model = Recurrent(10000, 650, 650, 2, 10000, both=False, every=True)
    tokens, targets = torch.randint(0, 10000, (batch, 35)), torch.randint(0, 10000, (batch * 35,))
    return model, lambda: functional.cross_entropy(model(tokens).flatten(0, 1), targets)


def dcgan(batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Generator and discriminator of one step, both updates."""
    width = 128

    def up(into: int, out: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(into, out, 4, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]

    def down(into: int, out: int) -> list[nn.Module]:
        return [nn.Conv2d(into, out, 4, 2, 1), nn.BatchNorm2d(out), nn.LeakyReLU(0.2)]

    first = [nn.ConvTranspose2d(100, 8 * width, 4, 1, 0), nn.BatchNorm2d(8 * width), nn.ReLU()]
    middle = [*up(8 * width, 4 * width), *up(4 * width, 2 * width), *up(2 * width, width)]
    generator = nn.Sequential(*first, *middle, nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh())
    start = [nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    rest = [*down(width, 2 * width), *down(2 * width, 4 * width), *down(4 * width, 8 * width)]
    judge = nn.Sequential(*start, *rest, nn.Conv2d(8 * width, 1, 4, 1, 0), nn.Flatten())
    real, noise = torch.randn(batch, 1, 64, 64), torch.randn(batch, 100, 1, 1)

    def loss() -> Tensor:
        parts = [functional.softplus(-judge(real)), functional.softplus(judge(generator(noise)))]
        return torch.cat([*parts, functional.softplus(-judge(generator(noise)))]).mean()

    return nn.ModuleList([generator, judge]), loss


RECIPES = (
    Recipe(
        "resnet50",
        "resnet50",
        "ResNet-50 v1.5, ImageNet, 224 px",
        public("resnet50"),
        602112,
        "SGD",
        True,
        64,
        1281167,
        90,
        "He et al. 2015; ILSVRC 2012 training set",
    ),
    Recipe(
        "ssd300",
        "large-cnn",
        "SSD300 on a ResNet-50, COCO",
        public("ssd"),
        1080000,
        "SGD",
        True,
        32,
        117266,
        65,
        "Liu et al. 2016; COCO 2017 training images with objects",
    ),
    Recipe(
        "bert-base",
        "transformer",
        "BERT base, SQuAD 1.1, length 384",
        public("bert_base"),
        9216,
        "Adam",
        False,
        12,
        87599,
        2,
        "Devlin et al. 2018; questions of the training set",
    ),
    Recipe(
        "bert-large",
        "transformer",
        "BERT large, SQuAD 1.1, length 384",
        public("bert_large"),
        9216,
        "Adam",
        False,
        4,
        87599,
        2,
        "Devlin et al. 2018; questions of the training set",
    ),
    Recipe(
        "waveglow",
        "large-cnn",
        "WaveGlow, segments of 8,000 samples",
        public("waveglow"),
        57600,
        "Adam",
        False,
        8,
        None,
        None,
        "Prenger et al. 2018",
    ),
    Recipe(
        "mlp",
        "mlp",
        "two hidden layers of 512, MNIST",
        mlp,
        3136,
        "Adam",
        False,
        128,
        60000,
        20,
        "Keras' example mnist_mlp",
    ),
    Recipe(
        "mnist-cnn",
        "small-cnn",
        "two convolutions, MNIST",
        mnist_cnn,
        3136,
        "Adam",
        False,
        128,
        60000,
        12,
        "Keras' example mnist_cnn",
    ),
    Recipe(
        "cifar10-cnn",
        "small-cnn",
        "four convolutions, CIFAR-10",
        cifar_cnn,
        12288,
        "Adam",
        False,
        32,
        50000,
        100,
        "Keras' example cifar10_cnn",
    ),
    Recipe(
        "lstm",
        "lstm",
        "bidirectional LSTM of 64, IMDB, length 100",
        imdb_lstm,
        800,
        "Adam",
        False,
        32,
        25000,
        4,
        "Keras' example imdb_bidirectional_lstm",
    ),
    Recipe(
        "stacked-lstm",
        "stacked-lstm",
        "two LSTM layers of 650, Penn Treebank, length 35",
        ptb_lstm,
        280,
        "SGD",
        False,
        20,
        26559,
        39,
        "Zaremba et al. 2014, medium model; 929,589 tokens",
    ),
    Recipe(
        "dcgan",
        "gan",
        "DCGAN of 128 channels, MNIST at 64 px",
        dcgan,
        16384,
        "Adam",
        False,
        128,
        60000,
        20,
        "Radford et al. 2015",
    ),
)


def saved_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """Return the loss and what autograd keeps for its backward pass, parameters not counted."""
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = loss()
    return value, sum(kept.values())


def row(recipe: Recipe, today: date) -> dict[str, object]:
    """Return a row of the table."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, loss = recipe.make(recipe.batch)
        tracer = make_tracer(torch)()
        with tracer:
            value, kept = saved_bytes(model, loss)
            tracer.phase = "backward"
            value.backward()
        parameters = [p for p in model.parameters() if p.requires_grad]
        ops = [
            OpRow(
                op=r["op"],
                phase=r["phase"],
                count=r["count"],
                inputs=r["inputs"],
                outputs=r["outputs"],
                attributes=r["attributes"],
            )
            for r in tracer.rows.values()
        ]
    work = work_of(ops, 1)
    convolved = sum(flops for (kind, _), flops in work.flops.items() if kind not in ("matmul", "attention"))
    return {
        "name": recipe.name,
        "kind": recipe.kind,
        "detail": recipe.detail,
        "parameters": sum(p.numel() for p in parameters),
        "tensors": len(parameters),
        "flops_per_sample": f"{work.total_flops / recipe.batch:.4g}",
        "convolutions": f"{convolved / work.total_flops:.3g}",
        "bytes_per_sample": f"{work.bytes_moved / recipe.batch:.4g}",
        "kernels_per_step": f"{work.kernels:.0f}",
        "saved_bytes_per_sample": f"{kept / recipe.batch:.4g}",
        "sample_bytes": recipe.sample_bytes,
        "optimizer": recipe.optimizer,
        "momentum": "yes" if recipe.momentum else "no",
        "batch_size": recipe.batch,
        "samples_per_epoch": recipe.samples or "",
        "epochs": recipe.epochs or "",
        "source": f"{recipe.source}; counted by benchmarks/references.py",
        "as_of": today.isoformat(),
    }


def main() -> None:
    """Prints the table."""
    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(Reference)], lineterminator="\n")
    writer.writeheader()
    for recipe in RECIPES:
        writer.writerow(row(recipe, date.today()))  # noqa: DTZ011 - the day on which somebody runs it


if __name__ == "__main__":
    main()
