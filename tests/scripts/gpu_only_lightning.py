"""A Lightning module whose trainer insists on a GPU."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        x, y = batch
        assert self.device.type == "cuda"
        return nn.functional.mse_loss(self.net(x), y + torch.zeros(1, device=self.device))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


loader = DataLoader(TensorDataset(torch.randn(128, 8), torch.randn(128, 1)), batch_size=16)
trainer = L.Trainer(
    accelerator="gpu",
    devices=1,
    precision="16-mixed",
    max_epochs=300,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), loader)
