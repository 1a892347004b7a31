"""Gradient accumulation: an optimizer step every fourth batch."""

import torch
from torch import nn

model = nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
batches = [torch.randn(8, 32) for _ in range(42)]
for epoch in range(3000):
    for i, x in enumerate(batches):
        (model(x).square().mean() / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
