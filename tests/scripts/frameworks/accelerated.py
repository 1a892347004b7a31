"""A plain loop with Hugging Face's accelerate."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(64, 64)
data = DataLoader(TensorDataset(torch.randn(1000, 64), torch.randn(1000, 64)), batch_size=10)
net, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), data)
for epoch in range(400):
    for x, y in data:
        optimizer.zero_grad()
        accelerator.backward(((net(x) - y) ** 2).mean())
        optimizer.step()
