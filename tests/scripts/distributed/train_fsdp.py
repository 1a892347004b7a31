"""A small transformer under FSDP2; rank 0 saves the whole model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(64, 32), *layers, nn.Linear(32, 64))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sharded = sum(parameter.to_local().numel() for parameter in model.parameters())
    whole = sum(parameter.numel() for parameter in model.parameters())
    print(f"rank {rank} of {world} holds {sharded / whole:.2f}", flush=True)
    generator = torch.Generator().manual_seed(rank)
    for step in range(4):
        tokens = torch.randint(0, 64, (4, 17), generator=generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, "model.pt")


dist.init_process_group("gloo")
train()
dist.destroy_process_group()
