"""Hugging Face's Trainer."""

import sys

import torch
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x=None, labels=None):
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


data = [{"x": torch.randn(64), "labels": torch.randn(64)} for _ in range(1000)]
how = {"max_steps": 700} if "--max-steps" in sys.argv else {"num_train_epochs": 50}
Trainer(
    Net(),
    TrainingArguments(
        "out",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="no",
        logging_steps=100000,
        use_cpu=True,
        disable_tqdm=True,
        **how,
    ),
    train_dataset=data,
).train()
