"""No framework: nested progress bars."""

import numpy as np
from tqdm import tqdm

a = np.random.rand(60, 60)
for epoch in tqdm(range(2000)):
    for i in tqdm(range(300), leave=False):
        np.linalg.eigvalsh(a + a.T)
