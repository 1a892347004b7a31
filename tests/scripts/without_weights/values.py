"""Looks at values in every way while it trains a layer of 1.1 GB, and saves and loads it."""

import copy

import torch
from torch import nn

WIDE = 16384
model = nn.Linear(WIDE, WIDE).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(30):
    rows = torch.randn(4, WIDE, device="cuda")
    out = model(rows)
    assert not torch.isnan(out).any(), "guards pass"
    chosen = out[out > 0]
    best = out.topk(3).indices
    picked = torch.gather(out, 1, best)
    loss = chosen.square().mean() + picked.sum()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        raise SystemExit("the norm of the gradients is not finite")
    optimizer.step()
    optimizer.zero_grad()
    print(step, f"{loss.item():.3f}", best.tolist()[0], out.detach().cpu().numpy().mean(), out[0, :2])
    if step == 1:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
        saved = torch.load("checkpoint.pt")
        model.load_state_dict(saved["model"])
        copy.deepcopy(model)
