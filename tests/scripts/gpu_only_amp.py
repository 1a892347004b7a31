"""Mixed precision as the PyTorch recipes write it: autocast, GradScaler, clipping, channels-last, a fused optimizer."""

import torch
from torch import nn

device = torch.device("cuda:0")
torch.cuda.set_device(device)
print("training on", torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)  # what the loss has come to at step 60 is not left to chance
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
model = model.to(device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
scaler = torch.amp.GradScaler("cuda")
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4000)
generator = torch.Generator(device="cuda").manual_seed(0)
images = torch.randn(8, 3, 32, 32, device=device, generator=generator)
labels = images.mean((1, 2, 3)).argsort() % 10
first = None
for step in range(4000):
    x = images.to(device=device, memory_format=torch.channels_last, non_blocking=True)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device_type=x.device.type, dtype=torch.float16):
        assert torch.is_autocast_enabled()
        loss = nn.functional.cross_entropy(model(x), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if before <= scaler.get_scale():
        schedule.step()
    first = first or loss.item()
    assert torch.isfinite(norm) and scaler.is_enabled()
    assert step != 60 or loss.item() < 0.8 * first, (first, loss.item())
