"""LightGBM."""

import sys

import lightgbm as lgb
import numpy as np
from sklearn.model_selection import cross_val_score

rng = np.random.default_rng(0)
x = rng.normal(size=(5000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)
if sys.argv[1:] == ["--cross"]:
    cross_val_score(lgb.LGBMClassifier(n_estimators=3000, verbose=-1), x, y, cv=4)
    sys.exit()
data, held_out = lgb.Dataset(x[:4000], y[:4000]), lgb.Dataset(x[4000:], y[4000:])
lgb.train(
    {"objective": "binary", "verbose": -1},
    data,
    num_boost_round=50000,
    valid_sets=[held_out],
    callbacks=[lgb.early_stopping(20000, verbose=False)],
)
