"""A model of six layers that is trained on texts from a loader, as on a GPU."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, WORDS, LENGTH = 128, 2048, 512


class Texts(Dataset):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"ids": torch.arange(index, index + LENGTH) % WORDS}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.parts = nn.LayerNorm(WIDTH), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        for part in self.parts:
            y = nn.functional.gelu(part(y))
        return x + y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(6)), nn.Linear(WIDTH, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in DataLoader(Texts(), batch_size=4):
    loss = model(batch["ids"].cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
