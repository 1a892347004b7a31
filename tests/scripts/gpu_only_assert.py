"""Refuses at once without a GPU, then uses DataParallel and resumes from a checkpoint that was saved on a GPU."""

import io

import torch
from torch import nn

assert torch.cuda.is_available(), "CUDA is required"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))).cuda()
saved = io.BytesIO()
torch.save(model.module.state_dict(), saved)
saved.seek(0)
model.module.load_state_dict(torch.load(saved, map_location="cuda:0"))
optimizer = torch.optim.RMSprop(model.parameters())
for epoch in range(50):
    for batch in range(100):
        with torch.cuda.device(0), torch.cuda.amp.autocast(dtype=torch.bfloat16):
            x = torch.tensor([[1.0] * 8] * 4, device=device)
            loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.cuda.empty_cache()
