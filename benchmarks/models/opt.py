"""OPT-1.3B with sequences of 2048 tokens, as Hugging Face transformers runs it eagerly.

Zhang et al., "OPT: Open Pre-trained Transformer Language Models" (2022): 24 layers of 2048, 32
heads, ReLU of 8192, vocabulary 50272, tied logits for every position. Timed by NeuSight (ASPLOS
2025) in fp32. The heads are copied to be contiguous, the causal mask is built once per pass and
added, and scores are clamped to the smallest float before the softmax, each in a kernel of its own.
Input: N x 2048 token ids, all ones; output N x 2048 x 50272.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

SEQUENCE = 2048
VOCABULARY = 50_272
LAYERS = 24
HIDDEN = 2048
HEADS = 32
HEAD_SIZE = HIDDEN // HEADS
FEED_FORWARD = 8192
DROPOUT = 0.1
PADDING_TOKEN = 1
POSITION_OFFSET = 2
INIT_STD = 0.02


class Attention(nn.Module):
    """Causal self-attention in (batch * heads) batched products."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)

    @staticmethod
    def _heads(x: Tensor) -> Tensor:
        heads = x.view(x.size(0), -1, HEADS, HEAD_SIZE).transpose(1, 2).contiguous()
        return heads.view(x.size(0) * HEADS, -1, HEAD_SIZE)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = hidden.size()
        query = self._heads(self.query(hidden) * HEAD_SIZE**-0.5)
        key, value = self._heads(self.key(hidden)), self._heads(self.value(hidden))
        scores = torch.bmm(query, key.transpose(1, 2)).view(batch, HEADS, length, length) + mask
        floor = torch.full([], torch.finfo(scores.dtype).min, device=scores.device)
        scores = torch.max(scores, floor).view(batch * HEADS, length, length)
        context = torch.bmm(functional.softmax(scores, dim=-1), value)
        context = context.view(batch, HEADS, length, HEAD_SIZE).transpose(1, 2)
        return self.out(context.reshape(batch, length, width))


class Layer(nn.Module):
    """One pre-norm decoder layer; the feed-forward part works on (batch * sequence, hidden)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(HIDDEN)
        self.attention = Attention()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, FEED_FORWARD)
        self.down = nn.Linear(FEED_FORWARD, HIDDEN)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        attended = self.attention(self.attention_norm(hidden), mask)
        hidden = hidden + self.dropout(attended)
        flat = hidden.reshape(-1, hidden.size(-1))
        expanded = functional.relu(self.up(self.norm(flat)))
        return (flat + self.dropout(self.down(expanded))).view(hidden.size())


def causal_mask(present: Tensor, kind: torch.dtype) -> Tensor:
    """Return the additive mask (batch, 1, sequence, sequence) from a mask (batch, sequence) of ones."""
    batch, length = present.size()
    lowest = torch.finfo(kind).min
    future = torch.full((length, length), lowest, device=present.device)
    order = torch.arange(length, device=present.device)
    future.masked_fill_(order < (order + 1).view(length, 1), 0)
    expanded = present[:, None, None, :].expand(batch, 1, length, length).to(kind)
    absent = 1.0 - expanded
    absent = absent.masked_fill(absent.to(torch.bool), lowest)
    return future[None, None].expand(batch, 1, length, length).masked_fill(absent.bool(), lowest)


class OPT(nn.Module):
    """Token and position embeddings, the layers, and logits tied to the token embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=PADDING_TOKEN)
        self.positions = nn.Embedding(SEQUENCE + POSITION_OFFSET, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.lm_head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=INIT_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.words(tokens)
        present = torch.ones(tokens.size(), device=tokens.device)
        mask = causal_mask(present, embedded.dtype)
        counted = present.long()
        positions = torch.cumsum(counted, dim=1) * counted - 1
        hidden = embedded + self.positions(positions + POSITION_OFFSET)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.lm_head(self.norm(hidden))


def build(batch_size: int) -> Workload:
    """OPT-1.3B on the constant tokens that were timed."""
    model = OPT()
    tokens = torch.ones(batch_size, SEQUENCE, dtype=torch.long)
    return workload(
        model,
        loss=lambda: functional.cross_entropy(model(tokens).view(-1, VOCABULARY), tokens.view(-1)),
        infer=lambda: model(tokens),
    )
