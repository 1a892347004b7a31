"""Ignite."""

import torch
from ignite.engine import create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(64, 64)
data = DataLoader(TensorDataset(torch.randn(1000, 64), torch.randn(1000, 64)), batch_size=10)
trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), 0.01), torch.nn.MSELoss())
trainer.run(data, max_epochs=3000)
