"""An optimizer that calls a closure several times in one step."""

import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
x, y = torch.randn(64, 8), torch.randn(64, 1)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(7000):
    optimizer.step(closure)
