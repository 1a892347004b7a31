"""A character-level transformer trained by steps, with gradient accumulation and a `while` loop."""

import math

import torch
import torch.nn.functional as F
from torch import nn

vocabulary, length, width, heads, layers = 96, 256, 384, 6, 6
batch_size, accumulation, max_iters, eval_interval = 12, 4, 5000, 500
device = "cuda" if torch.cuda.is_available() else "cpu"
text = torch.randint(0, vocabulary, (1_000_000,))


def batch(size):
    start = torch.randint(len(text) - length - 1, (size,))
    x = torch.stack([text[i : i + length] for i in start])
    y = torch.stack([text[i + 1 : i + 1 + length] for i in start])
    return x.to(device), y.to(device)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        size = x.size(0)
        q, k, v = (
            p.view(size, -1, heads, width // heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(size, -1, width))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, x, y):
        hidden = self.tokens(x) + self.places(torch.arange(x.size(1), device=x.device))
        return F.cross_entropy(self.head(self.layers(hidden)).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    loss = sum(model(*batch(batch_size)).item() for _ in range(5)) / 5
    model.train()
    return loss


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
iteration = 0
while True:
    for group in optimizer.param_groups:
        group["lr"] = 3e-4 * 0.5 * (1 + math.cos(math.pi * iteration / max_iters))
    if iteration % eval_interval == 0:
        print(f"step {iteration}: {estimate_loss():.3f}", flush=True)
    for _ in range(accumulation):
        (model(*batch(batch_size)) / accumulation).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iteration += 1
    if iteration >= max_iters:
        break
