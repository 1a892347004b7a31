"""BERT base and large, fine-tuned on SQuAD with sequences of 384 tokens.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2018), in the form of
NVIDIA's DeepLearningExamples `PyTorch/LanguageModeling/BERT` (`run_squad.py`, 2022): vocabulary
padded to 30528; inside the encoder tensors are (sequence, batch, hidden), so that the heads are
views and the two batched products need no copies; additive mask, softmax and dropout 0.1 are
separate kernels; one gelu kernel after the biased linear layer. Inputs: N x 384 token ids, segment
ids and mask; outputs: two N x 384 logits. The pooler runs in the forward pass, gets no gradient and
is not optimised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

SEQUENCE = 384
VOCABULARY = 30_528
POSITIONS = 512
SEGMENTS = 2
DROPOUT = 0.1
NORM_EPS = 1e-12
MASKED = -10_000.0


@dataclass(frozen=True)
class Size:
    """What differs between the published sizes."""

    layers: int
    hidden: int
    heads: int


BASE = Size(layers=12, hidden=768, heads=12)
LARGE = Size(layers=24, hidden=1024, heads=16)


class Embeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Embedding(POSITIONS, hidden)
        self.segments = nn.Embedding(SEGMENTS, hidden)
        self.norm = nn.LayerNorm(hidden, eps=NORM_EPS)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        positions = torch.arange(tokens.size(1), device=tokens.device)
        positions = positions.unsqueeze(0).expand_as(tokens)
        embedded = self.words(tokens) + self.positions(positions) + self.segments(segments)
        return self.dropout(self.norm(embedded))


class SelfAttention(nn.Module):
    """Attention written out on (sequence, batch, hidden) tensors."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.head_size = size.hidden // size.heads
        self.query = nn.Linear(size.hidden, size.hidden)
        self.key = nn.Linear(size.hidden, size.hidden)
        self.value = nn.Linear(size.hidden, size.hidden)
        self.dropout = nn.Dropout(DROPOUT)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1) * self.heads, self.head_size)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        length, batch, width = hidden.size()
        query, key, value = self.query(hidden), self.key(hidden), self.value(hidden)
        scores = torch.bmm(self._heads(query).transpose(0, 1), self._heads(key).permute(1, 2, 0))
        scores = scores.view(batch, self.heads, length, length)
        scores = scores / math.sqrt(self.head_size)
        scores = scores + mask
        weights = self.dropout(functional.softmax(scores, dim=-1)).view(-1, length, length)
        context = torch.bmm(weights, self._heads(value).transpose(0, 1))
        return context.transpose(0, 1).contiguous().view(length, batch, width)


class Layer(nn.Module):
    """One post-norm encoder layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = SelfAttention(size)
        self.attention_out = nn.Linear(size.hidden, size.hidden)
        self.attention_norm = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.up = nn.Linear(size.hidden, 4 * size.hidden)
        self.down = nn.Linear(4 * size.hidden, size.hidden)
        self.norm = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        attended = self.dropout(self.attention_out(self.attention(hidden, mask)))
        hidden = self.attention_norm(attended + hidden)
        expanded = functional.gelu(self.up(hidden), approximate="tanh")
        return self.norm(self.dropout(self.down(expanded)) + hidden)


class BertForQuestionAnswering(nn.Module):
    """BERT with a start logit and an end logit for every token."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embeddings = Embeddings(size.hidden)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.pooler = nn.Linear(size.hidden, size.hidden)
        self.span = nn.Linear(size.hidden, 2)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        additive = mask.unsqueeze(1).unsqueeze(2).to(self.span.weight.dtype)
        additive = (1.0 - additive) * MASKED
        hidden = self.embeddings(tokens, segments).transpose(0, 1)
        for layer in self.layers:
            hidden = layer(hidden, additive)
        hidden = hidden.transpose(0, 1).contiguous()
        torch.tanh(self.pooler(hidden[:, 0]))  # computed by the original, used by no one
        start, end = self.span(hidden).split(1, dim=-1)
        return start.squeeze(-1), end.squeeze(-1)


def build(size: Size, batch_size: int) -> Workload:
    """BERT of the given size on random tokens without padding."""
    model = BertForQuestionAnswering(size)
    tokens = torch.randint(0, VOCABULARY, (batch_size, SEQUENCE))
    segments = torch.zeros_like(tokens)
    mask = torch.ones_like(tokens)
    starts = torch.randint(0, SEQUENCE, (batch_size,))
    ends = torch.randint(0, SEQUENCE, (batch_size,))

    def loss() -> Tensor:
        start, end = model(tokens, segments, mask)
        ignored = start.size(1)
        criterion = nn.CrossEntropyLoss(ignore_index=ignored)
        start_loss = criterion(start, starts.clamp(0, ignored))
        end_loss = criterion(end, ends.clamp(0, ignored))
        return (start_loss + end_loss) / 2

    return workload(model, loss, infer=lambda: model(tokens, segments, mask))
