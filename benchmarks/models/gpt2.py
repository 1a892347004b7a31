"""GPT-2 large and two GPT-3 sizes, as Hugging Face transformers' GPT-2 runs them eagerly.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), and Brown et al.,
"Language Models are Few-Shot Learners" (2020), with the configurations that NeuSight (ASPLOS 2025)
timed on `GPT2LMHeadModel`. Its "gpt3_xl" is not the paper's (24 layers of 2048): the file has 24
layers of 3072 with 24 heads, 2.9 B parameters, and the measured times are those of such a model.
Projections are `addmm`, the activation is "gelu_new" in eight pointwise kernels, attention is
written out in fp32, the vocabulary logits are computed for every position. Input: N x sequence
token ids, all ones; output N x sequence x 50257.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

VOCABULARY = 50_257
DROPOUT = 0.1
NORM_EPS = 1e-5
INIT_STD = 0.02


@dataclass(frozen=True)
class Size:
    """What differs between the configurations."""

    layers: int
    hidden: int
    heads: int
    sequence: int


GPT2_LARGE = Size(layers=36, hidden=1280, heads=20, sequence=1024)
GPT3_XL = Size(layers=24, hidden=3072, heads=24, sequence=2048)
GPT3_27 = Size(layers=32, hidden=2560, heads=32, sequence=2048)


class Conv1D(nn.Module):
    """A linear layer with its weight stored as (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=INIT_STD)

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return flat.view(*x.size()[:-1], -1)


def gelu_new(x: Tensor) -> Tensor:
    """Return the tanh approximation of gelu, one kernel per operation."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Attention(nn.Module):
    """Causal self-attention with the mask applied by `where`."""

    causal: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.head_size = size.hidden // size.heads
        self.qkv = Conv1D(size.hidden, 3 * size.hidden)
        self.out = Conv1D(size.hidden, size.hidden)
        self.weight_dropout = nn.Dropout(DROPOUT)
        self.out_dropout = nn.Dropout(DROPOUT)
        causal = torch.ones(size.sequence, size.sequence, dtype=torch.bool).tril()
        self.register_buffer("causal", causal[None, None], persistent=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, self.head_size).permute(0, 2, 1, 3)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (self._heads(x) for x in self.qkv(hidden).split(hidden.size(2), dim=2))
        scores = torch.matmul(query, key.transpose(-1, -2))
        kind, device = scores.dtype, scores.device
        scores = scores / torch.full([], self.head_size**0.5, dtype=kind, device=device)
        masked = torch.full([], torch.finfo(kind).min, dtype=kind, device=device)
        scores = torch.where(self.causal, scores, masked)
        weights = self.weight_dropout(functional.softmax(scores, dim=-1))
        context = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        return self.out_dropout(self.out(context.view(hidden.size())))


class Block(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.attention = Attention(size)
        self.norm2 = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.up = Conv1D(size.hidden, 4 * size.hidden)
        self.down = Conv1D(4 * size.hidden, size.hidden)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.attention(self.norm1(hidden)) + hidden
        return hidden + self.dropout(self.down(gelu_new(self.up(self.norm2(hidden)))))


class GPT2(nn.Module):
    """Token and position embeddings, the blocks, and logits tied to the token embeddings."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, size.hidden)
        self.positions = nn.Embedding(size.sequence, size.hidden)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.lm_head = nn.Linear(size.hidden, VOCABULARY, bias=False)
        self.lm_head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=INIT_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.size(1), device=tokens.device).unsqueeze(0)
        hidden = self.dropout(self.words(tokens) + self.positions(positions))
        for block in self.blocks:
            hidden = block(hidden)
        return self.lm_head(self.norm(hidden))


def build(size: Size, batch_size: int) -> Workload:
    """Return a GPT-2 of the given size on the constant tokens that were timed."""
    model = GPT2(size)
    tokens = torch.ones(batch_size, size.sequence, dtype=torch.long)
    return workload(
        model,
        loss=lambda: functional.cross_entropy(model(tokens).view(-1, VOCABULARY), tokens.view(-1)),
        infer=lambda: model(tokens),
    )
