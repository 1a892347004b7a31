"""XGBoost by its scikit-learn interface."""

import sys

import numpy as np
import xgboost as xgb

rng = np.random.default_rng(0)
x = rng.normal(size=(5000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)
if "--folds" in sys.argv:
    for fold in range(5):
        keep = np.arange(len(x)) % 5 != fold
        xgb.train({"objective": "binary:logistic"}, xgb.DMatrix(x[keep], y[keep]), num_boost_round=4000)
elif "--linear" in sys.argv:
    xgb.train({"booster": "gblinear"}, xgb.DMatrix(x, y), num_boost_round=100000)
else:
    xgb.XGBClassifier(n_estimators=20000, max_depth=6, early_stopping_rounds=10000).fit(
        x, y, eval_set=[(x, y)], verbose=False
    )
