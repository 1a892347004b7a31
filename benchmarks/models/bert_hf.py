"""BERT large with sequences of 512 tokens, as Hugging Face transformers runs it eagerly.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2018). NeuSight (ASPLOS
2025) timed `BertForPreTraining` for training (masked-LM logits of every position, vocabulary 30522,
tied decoder; the loss is on these logits alone, so the pooler and the next-sentence head only run
forward) and `BertForSequenceClassification` for inference (no vocabulary head). Both are heads of
one module here. Input: N x 512 token ids, all ones; fp32, eager attention.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

SEQUENCE = 512
VOCABULARY = 30_522
LAYERS = 24
HIDDEN = 1024
HEADS = 16
HEAD_SIZE = HIDDEN // HEADS
INTERMEDIATE = 4096
DROPOUT = 0.1
NORM_EPS = 1e-12
INIT_STD = 0.02


class Embeddings(nn.Module):
    """Word, segment and position embeddings, summed and normalised."""

    segment_ids: Tensor
    position_ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=0)
        self.positions = nn.Embedding(SEQUENCE, HIDDEN)
        self.segments = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=NORM_EPS)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("segment_ids", torch.zeros(1, SEQUENCE, dtype=torch.long))
        self.register_buffer("position_ids", torch.arange(SEQUENCE).unsqueeze(0))

    def forward(self, tokens: Tensor) -> Tensor:
        segments = self.segments(self.segment_ids.expand(tokens.size(0), -1))
        embedded = self.words(tokens) + segments
        embedded = embedded + self.positions(self.position_ids)
        return self.dropout(self.norm(embedded))


class SelfAttention(nn.Module):
    """Eager attention on (batch, sequence, hidden) tensors; matmul copies the permuted heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.dropout = nn.Dropout(DROPOUT)

    @staticmethod
    def _heads(x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), HEADS, HEAD_SIZE).permute(0, 2, 1, 3)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        query = self._heads(self.query(hidden))
        key = self._heads(self.key(hidden))
        value = self._heads(self.value(hidden))
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(HEAD_SIZE)
        scores = scores + mask
        weights = self.dropout(functional.softmax(scores, dim=-1))
        context = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous()
        return context.view(hidden.size())


class Layer(nn.Module):
    """One post-norm encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()
        self.attention_out = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=NORM_EPS)
        self.up = nn.Linear(HIDDEN, INTERMEDIATE)
        self.down = nn.Linear(INTERMEDIATE, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=NORM_EPS)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        attended = self.dropout(self.attention_out(self.attention(hidden, mask)))
        hidden = self.attention_norm(attended + hidden)
        return self.norm(self.dropout(self.down(functional.gelu(self.up(hidden)))) + hidden)


class BertLarge(nn.Module):
    """The encoder with the heads of pre-training and of sequence classification."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.transform_norm = nn.LayerNorm(HIDDEN, eps=NORM_EPS)
        self.decoder = nn.Linear(HIDDEN, VOCABULARY)
        self.decoder.weight = self.embeddings.words.weight
        nn.init.normal_(self.decoder.weight, std=INIT_STD)
        self.next_sentence = nn.Linear(HIDDEN, 2)
        self.dropout = nn.Dropout(DROPOUT)
        self.classifier = nn.Linear(HIDDEN, 2)

    def _encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        mask = torch.ones(tokens.size(), device=tokens.device)[:, None, None, :]
        mask = (1.0 - mask) * torch.finfo(mask.dtype).min
        hidden = self.embeddings(tokens)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden, torch.tanh(self.pooler(hidden[:, 0]))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Masked-LM logits (N, 512, 30522) and next-sentence logits (N, 2)."""
        hidden, pooled = self._encode(tokens)
        hidden = self.transform_norm(functional.gelu(self.transform(hidden)))
        return self.decoder(hidden), self.next_sentence(pooled)

    def classify(self, tokens: Tensor) -> Tensor:
        """Class logits (N, 2)."""
        _, pooled = self._encode(tokens)
        return self.classifier(self.dropout(pooled))


def build(batch_size: int) -> Workload:
    """BERT large on the constant tokens that were timed."""
    model = BertLarge()
    tokens = torch.ones(batch_size, SEQUENCE, dtype=torch.long)

    def loss() -> Tensor:
        logits, _ = model(tokens)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), tokens.view(-1))

    return workload(model, loss, infer=lambda: model.classify(tokens))
