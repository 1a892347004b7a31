"""A head is trained first, everything afterwards, by the same function."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
data = [torch.randn(8, 16) for _ in range(50)]


def train(parameters, epochs):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(epochs):
        for phase in ["train", "val"]:
            for x in data:
                if phase == "train":
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                    optimizer.step()


train(model[1].parameters(), epochs=2000)
train(model.parameters(), epochs=3000)
