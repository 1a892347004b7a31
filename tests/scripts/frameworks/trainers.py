"""Trainers over torch: the package is the argument."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

package, options = sys.argv[1], sys.argv[2:]
net = torch.nn.Linear(64, 64)
data = DataLoader(TensorDataset(torch.randn(1000, 64), torch.randn(1000, 64)), batch_size=10)

if package == "lightning":
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, index):
            if "gpu" in options:
                assert self.device.type == "cuda"
                batch = [one + torch.zeros(1, device=self.device) for one in batch]
            return ((self.net(batch[0]) - batch[1]) ** 2).mean()

        def validation_step(self, batch, index):
            return ((self.net(batch[0]) - batch[1]) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    device = {"accelerator": "gpu", "devices": 1, "precision": "16-mixed"} if "gpu" in options else {}
    trainer = lightning.Trainer(
        max_epochs=700,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing="saves" in options,
        enable_progress_bar=False,
        enable_model_summary=False,
        val_check_interval=20 if "validates" in options else 1.0,
        **(device or {"accelerator": "cpu"}),
    )
    trainer.fit(Module(), data, data if "validates" in options else None)
elif package == "transformers":
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x=None, labels=None):
            out = self.net(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    arguments = TrainingArguments(
        "out",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        report_to=[],
        save_strategy="steps" if "saves" in options else "no",
        save_steps=25 if "often" in options else 300,
        eval_strategy="epoch" if "validates" in options else "no",
        logging_steps=100000,
        use_cpu=True,
        disable_tqdm=True,
        **({"max_steps": 700} if "max-steps" in options else {"num_train_epochs": 50}),
    )
    samples = [{"x": x, "labels": y} for x, y in zip(*data.dataset.tensors)]
    Trainer(Model(), arguments, train_dataset=samples, eval_dataset=samples[:160]).train()
elif package == "ignite":
    from ignite.engine import create_supervised_trainer

    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    create_supervised_trainer(net, optimizer, torch.nn.MSELoss()).run(data, max_epochs=3000)
elif package == "accelerate":
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), data)
    for epoch in range(400):
        for x, y in data:
            optimizer.zero_grad()
            accelerator.backward(((net(x) - y) ** 2).mean())
            optimizer.step()
