"""Starts workers by spawn, which import afresh, and saves a scripted module."""

import multiprocessing
import pathlib
import sys

import torch
from torch import nn

here = pathlib.Path(sys.argv[1])


def work():
    (here / "by_spawned").write_text("new")


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    torch.jit.script(nn.Linear(2, 2)).save(str(here / "scripted.pt"))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
