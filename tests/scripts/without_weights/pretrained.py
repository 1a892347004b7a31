"""Fine-tunes all of a small language model that it loads by the configuration beside it."""

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    ids = torch.randint(0, 1000, (2, 64), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
