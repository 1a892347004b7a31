"""Eleven training steps on one thread of this machine, and its micro-benchmark: one column of `benchmarks/cpu_hosts.csv`.

    python -m benchmarks.cpu_steps NAME [--trace]

Prints rows ``host,what,value``: CPU milliseconds of a step (least of six windows, so that a busy neighbour costs
little), and the figures that `costgpu estimate` measures. With --trace the work of each step as the probe's tracer
counts it, which is the same on every machine. ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS and ATEN_CPU_CAPABILITY
make another host of this one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

from costgpu.estimator.op_costs import work_of
from costgpu.measure.probe.microbenchmark import measure_with_torch
from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.workload import OpRow

WINDOWS, WINDOW_SECONDS = 6, 1.0
VOCABULARY = 5000

Step = Callable[[], None]


def supervised(model: nn.Module, inputs: torch.Tensor, classes: int) -> Step:
    """Return a step of a classifier under SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(0, classes, (len(inputs),))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def residual_block(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Two 3x3 convolutions and a shortcut, as in examples/train.py."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.norm2(self.second(F.relu(self.norm1(self.first(x))))) + self.shortcut(x))

    return Block()


def resnet18() -> Step:
    """Return the network of examples/train.py: 32 px, batch 32."""
    stages: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for before, after, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        stages += [residual_block(before, after, stride), residual_block(after, after, 1)]
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return supervised(model, torch.randn(32, 3, 32, 32), 10)


class Bottleneck(nn.Module):
    """The block of ResNet-50 (expansion 4), or, with groups, that of MobileNetV2."""

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        mobile, same = groups > 1, stride == 1 and inputs == outputs
        self.added, self.rectified = same or not mobile, not mobile
        reshaped = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut: nn.Module = nn.Identity() if same or mobile else reshaped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        out: torch.Tensor = self.body(x)
        out = out + self.shortcut(x) if self.added else out
        return F.relu(out) if self.rectified else out


def resnet50() -> Step:
    """ResNet-50 (He et al., 2015): 224 px, batch 4."""
    stages: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for n in range(count):
            stages.append(Bottleneck(width, inner, 4 * inner, stride if n == 0 else 1))
            width = 4 * inner
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
    return supervised(model, torch.randn(4, 3, 224, 224), 1000)


def mobilenet() -> Step:
    """MobileNetV2 (Sandler et al., 2018): 128 px, batch 8."""
    stages: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    width, rows = (
        32,
        ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    for times, outputs, count, stride in rows:
        for n in range(count):
            stages.append(Bottleneck(width, times * width, outputs, stride if n == 0 else 1, groups=times * width))
            width = outputs
    stages += [nn.Conv2d(width, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU()]
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))
    return supervised(model, torch.randn(8, 3, 128, 128), 1000)


def mlp(*widths: int, batch: int) -> Step:
    """Linear layers of these widths."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return supervised(nn.Sequential(*layers[:-1]), torch.randn(batch, widths[0]), widths[-1])


class Language(nn.Module):
    """A language model: embedding, something in the middle, a layer that gives the words."""

    def __init__(self, middle: nn.Module, width: int) -> None:
        super().__init__()
        self.words, self.middle, self.out = nn.Embedding(VOCABULARY, width), middle, nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next word at each place."""
        found = self.middle(self.words(tokens))
        return self.out(found[0] if isinstance(found, tuple) else found).flatten(0, 1)  # type: ignore[no-any-return]


def language(middle: nn.Module, width: int, shape: tuple[int, int]) -> Step:
    """Return a step of a language model on tokens of this shape."""
    model = Language(middle, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens, wanted = torch.randint(0, VOCABULARY, shape), torch.randint(0, VOCABULARY, (shape[0] * shape[1],))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), wanted).backward()
        optimizer.step()

    return step


def transformer(width: int, batch: int, length: int) -> Step:
    """Four layers of an encoder."""
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
    return language(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), width, (batch, length))


def dcgan() -> Step:
    """DCGAN (Radford et al., 2015): 64 px, batch 16, a step of the discriminator and one of the generator."""
    up = [(100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)]
    made: list[nn.Module] = []
    for inputs, outputs, stride, padding in up:
        made += [
            nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    generator = nn.Sequential(*made, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())
    judged: list[nn.Module] = [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for inputs, outputs in ((64, 128), (128, 256), (256, 512)):
        judged += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
    critic = nn.Sequential(*judged, nn.Conv2d(512, 1, 4, 1, 0, bias=False), nn.Flatten())
    one = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    other = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images, noise = torch.randn(16, 3, 64, 64), torch.randn(16, 100, 1, 1)
    real, fake = torch.ones(16, 1), torch.zeros(16, 1)

    def step() -> None:
        one.zero_grad()
        drawn = generator(noise)
        judge = F.binary_cross_entropy_with_logits
        (judge(critic(images), real) + judge(critic(drawn.detach()), fake)).backward()
        one.step()
        other.zero_grad()
        judge(critic(drawn), real).backward()
        other.step()

    return step


def conv1d() -> Step:
    """Three one-dimensional convolutions, 16-64-128-128 channels, length 512, batch 32."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((16, 64), (64, 128), (128, 128)):
        layers += [nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 10))
    return supervised(model, torch.randn(32, 16, 512), 10)


STEPS: dict[str, Callable[[], Step]] = {
    "resnet18 (examples/train.py's network) 32 px batch 32": resnet18,
    "resnet50 224 px batch 4": resnet50,
    "mobilenetv2 128 px batch 8": mobilenet,
    "MLP 784-256-256-10 batch 128": lambda: mlp(784, 256, 256, 10, batch=128),
    "MLP 2048-2048-2048-10 batch 256": lambda: mlp(2048, 2048, 2048, 10, batch=256),
    "LSTM 2x256 batch 20 length 35 vocabulary 5000": lambda: language(nn.LSTM(256, 256, 2), 256, (35, 20)),
    "GRU 2x256 batch 20 length 35 vocabulary 5000": lambda: language(nn.GRU(256, 256, 2), 256, (35, 20)),
    "transformer 256x4 layers batch 8 length 128 vocabulary 5000": lambda: transformer(256, 8, 128),
    "transformer 512x4 layers batch 8 length 256 vocabulary 5000": lambda: transformer(512, 8, 256),
    "DCGAN 64 px batch 16 (one step of generator and discriminator)": dcgan,
    "conv1d 16-64-128-128 length 512 batch 32": conv1d,
}


def least_milliseconds(step: Step) -> float:
    """CPU milliseconds of a step: the least mean of some windows."""
    step()
    step()
    best = float("inf")
    for _ in range(WINDOWS):
        count, begin, busy = 0, time.perf_counter(), time.thread_time()
        while not count or time.perf_counter() - begin < WINDOW_SECONDS:
            step()
            count += 1
        best = min(best, (time.thread_time() - busy) / count)
    return 1e3 * best


def traced(step: Step) -> dict[str, float]:
    """Return the work of one step, as the probe's tracer counts it."""
    step()
    tracer = make_tracer(torch)()
    tracer.phase = "forward"
    with tracer:
        step()
    work = work_of([OpRow(**row) for row in tracer.rows.values()], 1, optimizer_ops=True)
    products = sum(flops for (kind, _), flops in work.flops.items() if kind in ("matmul", "attention"))
    return {
        "product_flops": products,
        "convolution_flops": work.total_flops - products,
        "bytes_moved": work.bytes_moved,
        "large_bytes": work.large_bytes,
        "kernels": work.kernels,
        "calls": tracer.calls,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of this host")
    parser.add_argument("--trace", action="store_true", help="print the work of the steps instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.trace:
        json.dump({name: traced(build()) for name, build in STEPS.items()}, sys.stdout, indent=1)
        return
    figures = measure_with_torch()
    for name in ("gemm_gflops", "conv_gflops", "copy_gbps"):
        if name in figures:
            print(f"{options.name},{name},{figures[name][-1]:.1f}")
    print(f"{options.name},op_seconds,{1 / figures['calls'][-1]:.2e}")
    print(f"{options.name},single_thread_mbps,{figures['single_thread_mbps']:.1f}", flush=True)
    for name, build in STEPS.items():
        print(f'{options.name},"{name}",{least_milliseconds(build()):.4g}', flush=True)


if __name__ == "__main__":
    main()
