"""No framework: loops and NumPy."""

import numpy as np

rng = np.random.default_rng(0)
a = rng.normal(size=(60, 60))


def simulate(runs):
    for run in range(runs):
        for step in range(500):
            np.linalg.svd(a + step, compute_uv=False)


simulate(2000)
