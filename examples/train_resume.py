"""Training that can go on: python examples/train_resume.py --resume checkpoints/last.pt

    costgpu run --spot --recover 5 --checkpoint 'checkpoints/**' --resume-args '--resume {latest}' \
      --max-cost 5 examples/train_resume.py
"""

import argparse
from pathlib import Path

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to go on from")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if options.resume:
        saved = torch.load(options.resume)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])  # the same batches and the same dropout as without the interruption
        first = saved["step"]
        print(f"going on from step {first}", flush=True)

    Path("checkpoints").mkdir(exist_ok=True)
    for step in range(first, options.steps):
        x = torch.randn(64, 32)
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done = step + 1
        if done % options.save_every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}
            torch.save({**state, "random": torch.get_rng_state()}, "checkpoints/last.pt")
            print(f"step {done}: loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
