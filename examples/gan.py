"""A DCGAN: two optimizers in one loop, a generator and a discriminator."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--images", type=int, default=20_000)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
noise, width = 100, 32


def up(inputs, outputs, stride=2, padding=1):
    return [
        nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(True),
    ]


def down(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]


generator = nn.Sequential(
    *up(noise, width * 8, 1, 0),
    *up(width * 8, width * 4),
    *up(width * 4, width * 2),
    *up(width * 2, width),
    nn.ConvTranspose2d(width, 3, 4, 2, 1),
    nn.Tanh(),
).to(device)
discriminator = nn.Sequential(
    nn.Conv2d(3, width, 4, 2, 1),
    nn.LeakyReLU(0.2, True),
    *down(width, width * 2),
    *down(width * 2, width * 4),
    *down(width * 4, width * 8),
    nn.Conv2d(width * 8, 1, 4),
    nn.Flatten(0),
).to(device)
loader = DataLoader(TensorDataset(torch.rand(min(args.images, 2000), 3, 64, 64) * 2 - 1), batch_size=64, shuffle=True)
passes = max(1, args.images // len(loader.dataset))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
judge = nn.BCEWithLogitsLoss()

for epoch in range(args.epochs * passes):
    for (real,) in loader:
        real = real.to(device)
        fake = generator(torch.randn(len(real), noise, 1, 1, device=device))
        ones, zeros = torch.ones(len(real), device=device), torch.zeros(len(real), device=device)
        optimizer_d.zero_grad()
        loss_d = judge(discriminator(real), ones) + judge(discriminator(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = judge(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
    print(f"epoch {epoch}: D {loss_d.item():.3f} G {loss_g.item():.3f}", flush=True)
