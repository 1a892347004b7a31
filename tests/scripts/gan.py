"""A GAN whose critic steps five times for each step of the generator."""

import torch
from torch import nn

generator, critic = nn.Linear(8, 16), nn.Linear(16, 1)
optimizer_g = torch.optim.RMSprop(generator.parameters())
optimizer_c = torch.optim.RMSprop(critic.parameters())
n_critic = 5
for epoch in range(400):
    for i in range(100):
        optimizer_c.zero_grad()
        (critic(generator(torch.randn(4, 8)).detach()) - critic(torch.randn(4, 16))).mean().backward()
        optimizer_c.step()
        if i % n_critic == 0:
            optimizer_g.zero_grad()
            (-critic(generator(torch.randn(4, 8)))).mean().backward()
            optimizer_g.step()
