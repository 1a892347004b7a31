"""A small regression whose settings are worth a search: costgpu sweep tries them, see docs/sweep.md."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=16)
options = parser.parse_args()

torch.manual_seed(0)
inputs = torch.randn(40_000, 32)
targets = torch.sin(inputs[:, :4]).sum(dim=1, keepdim=True) + 0.1 * torch.randn(40_000, 1)
loader = DataLoader(TensorDataset(inputs[:32_000], targets[:32_000]), batch_size=128, shuffle=True)

model = nn.Sequential(
    nn.Linear(32, options.width),
    nn.ReLU(),
    nn.Dropout(options.dropout),
    nn.Linear(options.width, options.width),
    nn.ReLU(),
    nn.Linear(options.width, 1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

for epoch in range(options.epochs):
    model.train()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val_loss = nn.functional.mse_loss(model(inputs[32_000:]), targets[32_000:])
    print(f"epoch {epoch}: val_loss={val_loss.item():.4f}")
    torch.save(model.state_dict(), "tune_mlp.pt")
