"""Neural collaborative filtering (NeuMF) on MovieLens-20M.

He et al., "Neural Collaborative Filtering" (2017), in the form of NVIDIA's DeepLearningExamples
`PyTorch/Recommendation/NCF`: 138493 users, 26744 items; a matrix-factorisation branch of 64 factors
and an MLP 256-256-128-64 with dropout 0.5 behind its own two tables of 128; one logit per pair.
Input: N user and N item indices; BCE with logits, averaged. Embedding gradients are dense.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Workload, workload

USERS = 138_493
ITEMS = 26_744
FACTORS = 64
MLP_SIZES = (256, 256, 128, 64)
DROPOUT = 0.5
EMBEDDING_STD = 0.01


class NeuMF(nn.Module):
    """The product of two embeddings beside an MLP over two others, joined by one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.mf_user = nn.Embedding(USERS, FACTORS)
        self.mf_item = nn.Embedding(ITEMS, FACTORS)
        self.mlp_user = nn.Embedding(USERS, MLP_SIZES[0] // 2)
        self.mlp_item = nn.Embedding(ITEMS, MLP_SIZES[0] // 2)
        sizes = pairwise(MLP_SIZES)
        self.mlp = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in sizes)
        self.final = nn.Linear(MLP_SIZES[-1] + FACTORS, 1)
        for table in (self.mf_user, self.mf_item, self.mlp_user, self.mlp_item):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)

    def forward(self, users: Tensor, items: Tensor, *, sigmoid: bool = False) -> Tensor:
        factors = self.mf_user(users) * self.mf_item(items)
        hidden = torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1)
        for layer in self.mlp:
            hidden = functional.relu(layer(hidden))
            hidden = functional.dropout(hidden, p=DROPOUT, training=self.training)
        logits = self.final(torch.cat((factors, hidden), dim=1))
        return torch.sigmoid(logits) if sigmoid else logits


def build(batch_size: int) -> Workload:
    """NeuMF on random pairs."""
    model = NeuMF()
    users = torch.randint(0, USERS, (batch_size,))
    items = torch.randint(0, ITEMS, (batch_size,))
    labels = torch.randint(0, 2, (batch_size,)).float()

    def loss() -> Tensor:
        losses = functional.binary_cross_entropy_with_logits(model(users, items), labels.view(-1, 1), reduction="none")
        return losses.float().view(-1).mean(0)

    return workload(model, loss, infer=lambda: model(users, items, sigmoid=True))
