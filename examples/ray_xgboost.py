"""Boosted trees with XGBoost on Ray: every machine of a Ray cluster trains on its own part of the rows.

costgpu run --launcher ray --nodes 2 -t c7i.xlarge --max-cost 1 \
  --setup "pip install 'ray[default,data,train,tune]' xgboost-cpu" examples/ray_xgboost.py
"""

import argparse
from pathlib import Path

import numpy as np
import ray
import xgboost
from ray import train
from ray.train import ScalingConfig
from ray.train.xgboost import XGBoostTrainer


@ray.remote(num_cpus=0)
class Result:
    """Takes what was trained from the worker with rank 0, wherever that is."""

    def put(self, error, model):
        self.result = error, model

    def get(self):
        return self.result


def train_loop(config):
    context = train.get_context()
    random = np.random.default_rng(context.get_world_rank())  # a part of the data that only this worker has
    x = random.normal(size=(config["rows"] // context.get_world_size(), 16))
    matrix = xgboost.DMatrix(x, label=x[:, 0] * x[:, 1] > 0)
    history = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "tree_method": "hist", "eval_metric": "error"},
        matrix,
        num_boost_round=config["rounds"],
        evals=[(matrix, "train")],
        evals_result=history,
        verbose_eval=False,
    )
    error = history["train"]["error"][-1]
    train.report({"error": error})
    if context.get_world_rank() == 0:
        ray.get(config["result"].put.remote(error, bytes(booster.save_raw("ubj"))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()

    ray.init()
    nodes = len(ray.nodes())
    result = Result.remote()
    trainer = XGBoostTrainer(
        train_loop,
        train_loop_config={"rows": options.rows, "rounds": options.rounds, "result": result},
        scaling_config=ScalingConfig(num_workers=nodes),
    )
    trainer.fit()
    error, model = ray.get(result.get.remote())
    Path("model.ubj").write_bytes(model)
    print(f"{nodes} workers: error {error:.4f}")


if __name__ == "__main__":
    main()
