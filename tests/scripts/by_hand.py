"""No optimizer: parameters are updated by hand, over a generator of batches."""

import torch

weight = torch.randn(16, 1, requires_grad=True)
data = torch.randn(1000, 16)


def batches(values, size):
    for start in range(0, len(values), size):
        yield values[start : start + size]


for epoch in range(250):
    for x in batches(data, 100):
        (x @ weight).square().mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None
