"""Statistics of a data set with Ray Data: all machines of a Ray cluster make its blocks and sum them up.

costgpu run --launcher ray --nodes 2 -t c7i.xlarge --max-cost 1 examples/ray_data.py
"""

import argparse
from pathlib import Path

import numpy as np
import ray


def features(batch):
    x = batch["id"] / 1000
    node = ray.get_runtime_context().get_node_id()
    return {"x": x, "y": 3.0 * x + np.sin(batch["id"]), "node": np.full(len(x), node)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=64)
    options = parser.parse_args()

    ray.init()
    data = ray.data.range(options.rows, override_num_blocks=options.blocks)
    data = data.map_batches(features).materialize()
    text = f"{data.count()} rows from {len(data.unique('node'))} machines: mean of y {data.mean('y'):.3f}"
    Path("statistics.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
