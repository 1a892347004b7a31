"""device="cuda" everywhere, steps timed with CUDA events, memory statistics, attention kernels chosen by hand."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

device = "cuda"
torch.set_default_device("cuda")
torch.backends.cuda.matmul.allow_tf32 = True


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, device=device)
        self.out = nn.Linear(width, width, device=device)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32, device=device)).bool())

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:length, :length])
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


model = nn.Sequential(nn.Embedding(100, 32), Block(32, 4), Block(32, 4), nn.Linear(32, 100)).to(device)
state = torch.cuda.get_rng_state()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = torch.cuda.Stream()
torch.cuda.reset_peak_memory_stats()
for step in range(5000):
    start.record()
    with torch.cuda.stream(side):
        tokens = torch.randint(0, 100, (8, 33), device=torch.cuda.current_device())
    torch.cuda.current_stream().wait_stream(side)
    tokens.record_stream(torch.cuda.current_stream())
    torch.cuda.nvtx.range_push("step")
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 100), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.nvtx.range_pop()
    end.record()
    torch.cuda.synchronize()
    assert logits.device == torch.device("cuda", 0) and logits.new_zeros(2, device=logits.get_device()).is_cuda
    if step % 10 == 0:
        free, total = torch.cuda.mem_get_info()
        peak = torch.cuda.max_memory_allocated() / torch.cuda.get_device_properties(0).total_memory
        print(f"{start.elapsed_time(end):.2f} ms, {peak:.1%} of memory, {free / total:.0%} free")
        print(torch.cuda.memory_stats()["allocated_bytes.all.peak"], torch.cuda.memory_summary())
