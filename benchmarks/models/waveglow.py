"""WaveGlow, training on segments of 8000 samples.

Prenger et al., "WaveGlow: A Flow-based Generative Network for Speech Synthesis" (2018), in the form
of NVIDIA's DeepLearningExamples `PyTorch/SpeechSynthesis/Tacotron2`: 12 flows over groups of 8
samples, 2 channels leave early before flows 4 and 8, each coupling network has 8 layers of 512
channels (its default), kernel 3, dilation doubling per layer, weight normalisation everywhere but
in its last convolution. Inputs: mel spectrogram N x 80 x 32 and audio N x 8000; the audio becomes
N x 8 x 1000. Loss: negative log-likelihood with sigma 1. The timed script compiled `gate` into one
kernel; here it is four.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from .workload import Workload, workload

MELS = 80
FLOWS = 12
GROUP = 8
EARLY_EVERY = 4
EARLY_SIZE = 2
LAYERS = 8
CHANNELS = 512
KERNEL = 3
WINDOW, HOP = 1024, 256
SEGMENT = 8000
FRAMES = SEGMENT // HOP + 1
SIGMA = 1.0


class Invertible1x1Conv(nn.Module):
    """A square 1 x 1 convolution and the log-determinant it adds to the likelihood."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size=1, bias=False)
        rotation, _ = torch.linalg.qr(torch.randn(channels, channels))
        flip = torch.sign(torch.linalg.det(rotation))  # determinant +1, not -1
        rotation = torch.cat((rotation[:, :1] * flip, rotation[:, 1:]), dim=1)
        self.conv.weight = nn.Parameter(rotation.unsqueeze(-1).contiguous())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, groups = z.size()
        weight = self.conv.weight.squeeze()
        log_det = batch * groups * torch.logdet(weight.unsqueeze(0).float()).squeeze()
        return self.conv(z), log_det


def gate(audio: Tensor, condition: Tensor) -> Tensor:
    """tanh of the first half of the channels times sigmoid of the second half, of the sum."""
    summed = audio + condition
    return torch.tanh(summed[:, :CHANNELS, :]) * torch.sigmoid(summed[:, CHANNELS:, :])


class CouplingNetwork(nn.Module):
    """The WaveNet-like network "WN": dilated convolutions gated by the upsampled spectrogram."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.start = weight_norm(nn.Conv1d(inputs, CHANNELS, 1))
        self.end = nn.Conv1d(CHANNELS, 2 * inputs, 1)
        nn.init.zeros_(self.end.weight)
        assert self.end.bias is not None
        nn.init.zeros_(self.end.bias)
        self.dilated = nn.ModuleList()
        self.condition = nn.ModuleList()
        self.res_skip = nn.ModuleList()
        for layer in range(LAYERS):
            dilation = 2**layer
            padding = (KERNEL - 1) * dilation // 2
            outputs = 2 * CHANNELS if layer < LAYERS - 1 else CHANNELS
            conv = nn.Conv1d(CHANNELS, 2 * CHANNELS, KERNEL, dilation=dilation, padding=padding)
            self.dilated.append(weight_norm(conv))
            self.condition.append(weight_norm(nn.Conv1d(MELS * GROUP, 2 * CHANNELS, 1)))
            self.res_skip.append(weight_norm(nn.Conv1d(CHANNELS, outputs, 1)))

    def forward(self, audio: Tensor, spectrogram: Tensor) -> Tensor:
        audio = self.start(audio)
        skipped: Tensor | None = None
        layers = zip(self.dilated, self.condition, self.res_skip, strict=True)
        for dilated, condition, res_skip in layers:
            out = res_skip(gate(dilated(audio), condition(spectrogram)))
            if out.size(1) > CHANNELS:
                audio = out[:, :CHANNELS, :] + audio
                out = out[:, CHANNELS:, :]
            if skipped is None:
                skipped = 0 + out  # the original starts its sum from the number 0: a kernel
            else:
                skipped += out
        return self.end(skipped)


class WaveGlow(nn.Module):
    """Upsample the spectrogram, then 12 steps of 1 x 1 convolution and affine coupling."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(MELS, MELS, WINDOW, stride=HOP)
        self.mixers = nn.ModuleList()
        self.couplings = nn.ModuleList()
        channels = GROUP
        for flow in range(FLOWS):
            if flow > 0 and flow % EARLY_EVERY == 0:
                channels -= EARLY_SIZE
            self.mixers.append(Invertible1x1Conv(channels))
            self.couplings.append(CouplingNetwork(channels // 2))

    def forward(
        self,
        spectrogram: Tensor,
        audio: Tensor,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        spectrogram = self.upsample(spectrogram)[:, :, : audio.size(1)]
        grouped = spectrogram.unfold(2, GROUP, GROUP).permute(0, 2, 1, 3).contiguous()
        spectrogram = grouped.view(grouped.size(0), grouped.size(1), -1).permute(0, 2, 1)
        audio = audio.unfold(1, GROUP, GROUP).permute(0, 2, 1)

        done: list[Tensor] = []
        log_scales: list[Tensor] = []
        log_dets: list[Tensor] = []
        for flow, (mixer, coupling) in enumerate(zip(self.mixers, self.couplings, strict=True)):
            if flow > 0 and flow % EARLY_EVERY == 0:
                done.append(audio[:, :EARLY_SIZE, :])
                audio = audio[:, EARLY_SIZE:, :]
            audio, log_det = mixer(audio)
            log_dets.append(log_det)

            half = audio.size(1) // 2
            kept, changed = audio[:, :half, :], audio[:, half:, :]
            out = coupling(kept, spectrogram)
            shift, log_scale = out[:, :half, :], out[:, half:, :]
            log_scales.append(log_scale)
            audio = torch.cat([kept, torch.exp(log_scale) * changed + shift], 1)
        done.append(audio)
        return torch.cat(done, 1), log_scales, log_dets


def negative_log_likelihood(z: Tensor, log_scales: list[Tensor], log_dets: list[Tensor]) -> Tensor:
    """Return the loss of the paper, per sample of audio."""
    log_scale, log_det = torch.sum(log_scales[0]), log_dets[0]
    for scale, det in zip(log_scales[1:], log_dets[1:], strict=True):
        log_scale = log_scale + torch.sum(scale)
        log_det = log_det + det
    loss = torch.sum(z * z) / (2 * SIGMA * SIGMA) - log_scale - log_det
    return loss / (z.size(0) * z.size(1) * z.size(2))


def build(batch_size: int) -> Workload:
    """WaveGlow on random audio; there are no inference rows, `infer` is the same forward pass."""
    model = WaveGlow()
    spectrogram = torch.randn(batch_size, MELS, FRAMES)
    audio = torch.rand(batch_size, SEGMENT) * 2 - 1
    return workload(
        model,
        loss=lambda: negative_log_likelihood(*model(spectrogram, audio)),
        infer=lambda: model(spectrogram, audio),
    )
