"""Data parallel training with Ray Train: a worker on each GPU of a Ray cluster, or on each CPU if there is none.

costgpu run --launcher ray --nodes 2 -t g5.xlarge --max-cost 2 examples/ray_train.py

Every worker trains on its own part of the data. Checkpoints need a folder that all machines share, such as a bucket:
RunConfig(storage_path="s3://..."). Here the weights return to this script through Ray.
"""

import argparse
import itertools

import ray
import torch
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@ray.remote(num_cpus=0)
class Result:
    """Takes what was trained from the worker with rank 0, wherever that is."""

    def put(self, loss, weights):
        self.result = loss, weights

    def get(self):
        return self.result


def train_loop(config):
    torch.manual_seed(0)  # the same data and weights everywhere
    x = torch.randn(4096, 64)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    loader = prepare_data_loader(DataLoader(data, batch_size=64, shuffle=True))
    model = prepare_model(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(config["epochs"]):
        for inputs, labels in itertools.islice(loader, config["steps"]):
            loss = nn.functional.cross_entropy(model(inputs.to(get_device())), labels.to(get_device()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        train.report({"epoch": epoch, "loss": loss.item()})
    if train.get_context().get_world_rank() == 0:
        module = model.module if hasattr(model, "module") else model
        weights = {name: each.cpu() for name, each in module.state_dict().items()}
        ray.get(config["result"].put.remote(loss.item(), weights))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="at most so many in an epoch")
    options = parser.parse_args()

    ray.init()
    gpus, cpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("GPU", "CPU"))
    result = Result.remote()
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": options.epochs, "steps": options.steps, "result": result},
        scaling_config=ScalingConfig(num_workers=gpus or cpus, use_gpu=gpus > 0),
    )
    trainer.fit()
    loss, weights = ray.get(result.get.remote())
    torch.save(weights, "model.pt")
    print(f"{gpus or cpus} workers: loss {loss:.4f}")


if __name__ == "__main__":
    main()
