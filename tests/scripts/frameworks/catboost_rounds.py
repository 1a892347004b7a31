"""CatBoost, with a callback of its own."""

import sys

import numpy as np
from catboost import CatBoostClassifier, Pool

rng = np.random.default_rng(0)
x = rng.normal(size=(4000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)


class Enough:
    def after_iteration(self, info):
        return info.iteration < 300


if sys.argv[1:] == ["--callback"]:
    CatBoostClassifier(iterations=5000, verbose=0).fit(x, y, callbacks=[Enough()])
else:
    held_out = Pool(x[3000:], y[3000:])
    for depth in (4, 5, 6):
        CatBoostClassifier(n_estimators=20000, depth=depth, verbose=0, allow_writing_files=False).fit(
            x[:3000], y[:3000], eval_set=held_out, early_stopping_rounds=10000
        )
