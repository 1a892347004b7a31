"""nanoGPT's loop: micro-steps, an evaluation every so often, and a bound on a counter at the end of `while True`."""

import torch
from torch import nn

model = nn.Linear(32, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
iter_num, max_iters = 0, 600000


@torch.no_grad()
def estimate_loss():
    model.eval()
    loss = sum(model(torch.randn(8, 32)).square().mean().item() for _ in range(20)) / 20
    model.train()
    return loss


while True:
    if iter_num % 2000 == 0:
        print(iter_num, estimate_loss())
    for _ in range(3):
        model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > max_iters:
        break
