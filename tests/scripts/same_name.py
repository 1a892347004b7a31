"""Nested loops that share a variable."""

import torch

net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
x = torch.randn(8, 4)
for _ in range(5000):
    for _ in range(100):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
