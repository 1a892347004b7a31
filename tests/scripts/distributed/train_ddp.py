"""A seeded regression under DistributedDataParallel: n ranks take a share each of the batch that one takes alone."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(epochs, batch):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=batch // world, sampler=sampler)
    print(f"rank {rank} of {world} on node {os.environ.get('COSTGPU_NODE_RANK', '-')}", flush=True)
    for epoch in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "model.pt")
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    Path(f"seen-{rank}.txt").write_text(f"{rank}/{world}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args.epochs, args.batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
