"""Scores a data set with a small network: the way in which it says so is the argument."""

import contextlib
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

way, shape = sys.argv[1], sys.argv[2]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(3 if n == 0 else 8, 8, 3, padding=1) for n in range(3)])
        self.head = nn.Linear(8 * 16 * 16, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x.flatten(1))


net = Net()
if way != "nothing":
    net.eval()
net(torch.randn(1, 3, 16, 16))  # to see that it works
quiet = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}.get(way, contextlib.nullcontext)
data = torch.randn(1003, 3, 16, 16)
scores = []
with quiet():
    if shape == "loader":
        for part in range(3):
            for (x,) in DataLoader(TensorDataset(data), batch_size=10):
                scores.append(net(x).argmax(1))
    elif shape == "array":
        for start in range(0, len(data), 8):
            scores.append(net(data[start : start + 8]).softmax(1))
    elif shape == "forward":
        for name in [f"{n}.png" for n in range(700)]:
            scores.append(net.forward(torch.randn(1, 3, 16, 16)))
    elif shape == "words":
        words, memory = nn.Embedding(100, 16), nn.GRUCell(16, 16)

        class Speaker(nn.Module):
            def forward(self, word, state):
                return memory(words(word)[0], state)

        speaker, word, state = Speaker(), torch.randint(100, (1, 1)), torch.zeros(1, 16)
        for _ in range(300):
            state = speaker(word, state)
            word.fill_(int(state.argmax()))
    elif shape == "several":
        coder, decoder = nn.Linear(16, 16), nn.Linear(16, 64)
        for x in data:
            state = coder(x[0])
            for _ in range(5):
                state = state + net(torch.randn(1, 3, 16, 16)).sum()
            scores.append(decoder(state))
    elif shape == "numpy":
        import numpy as np

        matrix = np.random.rand(50, 50)
        for _ in range(200000):
            matrix = matrix @ matrix
            matrix /= matrix.sum()
    elif shape == "train":
        quietly, optimizer = torch.no_grad(), torch.optim.SGD(net.parameters(), 0.01)

        def check():
            with quietly:
                return [net(data[n : n + 8]) for n in range(0, 160, 8)]

        check()
        for epoch in range(3):
            for start in range(0, 400, 8):
                net(data[start : start + 8]).mean().backward()
                optimizer.step()
            check()
        with quietly:
            for start in range(0, len(data), 8):
                net(data[start : start + 8])
