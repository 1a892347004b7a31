"""Boosted trees that ask for a GPU: the library is the argument."""

import sys

import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(4000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)

if sys.argv[1] == "xgboost":
    from xgboost import XGBClassifier

    XGBClassifier(n_estimators=20000, device="cuda").fit(x, y)
elif sys.argv[1] == "lightgbm":
    from lightgbm import LGBMClassifier

    LGBMClassifier(n_estimators=20000, device_type="gpu", verbose=-1).fit(x, y)
else:
    from catboost import CatBoostClassifier

    CatBoostClassifier(iterations=20000, task_type="GPU", devices="0", verbose=0).fit(x, y)
