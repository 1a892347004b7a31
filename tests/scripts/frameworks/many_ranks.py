"""One small model, trained in several processes by each library that does that; its options are Python."""

import sys

package, options = sys.argv[1], eval(f"dict({sys.argv[2] if len(sys.argv) > 2 else ''})")  # noqa: S307


def with_torch():
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    return torch, model, DataLoader(TensorDataset(torch.randn(640, 8)), batch_size=16, shuffle=True)


def accelerate():
    from accelerate import Accelerator, DataLoaderConfiguration

    split = DataLoaderConfiguration(split_batches=options.pop("split_batches", False))
    accelerator = Accelerator(dataloader_config=split, **options)
    torch, model, data = with_torch()
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
    for _ in range(300):
        for (x,) in data:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()


def lightning():
    import lightning

    torch, model, data = with_torch()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            loss = self.model(batch[0]).pow(2).mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    lightning.Trainer(max_epochs=300, logger=False, enable_checkpointing=False, **options).fit(Module(), data)


def transformers():
    from torch.utils.data import Dataset
    from transformers import Trainer, TrainingArguments

    torch, model, _ = with_torch()

    class Data(Dataset):
        def __len__(self):
            return 640

        def __getitem__(self, index):
            return {"x": torch.randn(8)}

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return {"loss": self.model(x).pow(2).mean()}

    arguments = TrainingArguments(
        "trained", num_train_epochs=300, per_device_train_batch_size=16, report_to=[], save_strategy="no", **options
    )
    Trainer(model=Wrapped(), args=arguments, train_dataset=Data()).train()


def keras():
    import keras
    import numpy as np

    if "mirrored" in options:
        import tensorflow

        scope = tensorflow.distribute.MirroredStrategy().scope
    else:
        scope = keras.distribution.DataParallel().scope
    with scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(32), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(np.random.rand(640, 8), np.random.rand(640, 1), batch_size=32, epochs=300, verbose=0)


def jax():
    import jax
    import jax.numpy as jnp
    import numpy as np

    def loss(weights, x):
        return ((x @ weights) ** 2).mean()

    if "axes" in options:
        axes = options["axes"]
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(axes)), axes)
        where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes[0]))
        weights, x = jnp.ones((8, 1)), jax.device_put(jnp.ones((16, 8)), where)
        step = jax.jit(lambda weights, x: weights - 0.1 * jax.grad(loss)(weights, x))
    else:
        devices = jax.local_device_count()
        weights, x = jnp.ones((devices, 8, 1)), jnp.ones((devices, 16, 8))
        step = jax.pmap(
            lambda weights, x: weights - 0.1 * jax.lax.pmean(jax.grad(loss)(weights, x), "i"), axis_name="i"
        )
    for _ in range(5000):
        weights = step(weights, x)


globals()[package]()
