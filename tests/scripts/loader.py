"""Epochs over a DataLoader with workers, validation, and a checkpoint over an existing file."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=500)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
loader = DataLoader(TensorDataset(torch.randn(640, 16), torch.randn(640, 1)), batch_size=32, num_workers=args.workers)
held_out = DataLoader(TensorDataset(torch.randn(64, 16), torch.randn(64, 1)), batch_size=32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(args.epochs):
    model.train()
    for _, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = sum(nn.functional.mse_loss(model(x), y).item() for x, y in held_out)
    torch.save(model.state_dict(), "model.pt")
    print(epoch, loss)
