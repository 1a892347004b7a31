"""A search for the best learning rate with Ray Tune: trials run side by side on all machines of a Ray cluster.

costgpu run --launcher ray --nodes 4 -t c7i.xlarge --max-cost 1 examples/ray_tune.py
"""

import argparse

import numpy as np
import ray
from ray import tune


def trial(config):
    random = np.random.default_rng(0)
    x = random.normal(size=(512, 16))
    y = x @ np.arange(16.0)
    weights = np.zeros(16)
    for _ in range(config["steps"]):
        error = x @ weights - y
        weights -= config["lr"] * x.T @ error / len(x)
        if not np.isfinite(weights).all():
            break
    return {"loss": float(np.nan_to_num(np.mean((x @ weights - y) ** 2), nan=1e9))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    ray.init()
    space = {"lr": tune.loguniform(1e-4, 1), "steps": options.steps}
    config = tune.TuneConfig(num_samples=options.trials, metric="loss", mode="min")
    results = tune.Tuner(trial, param_space=space, tune_config=config).fit()
    best = results.get_best_result()
    results.get_dataframe().to_csv("trials.csv", index=False)
    print(f"{len(results)} trials, best learning rate {best.config['lr']:.4f}: loss {best.metrics['loss']:.4g}")


if __name__ == "__main__":
    main()
