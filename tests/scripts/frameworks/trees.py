"""Boosted trees: the library and what is done with it are the arguments."""

import sys

import numpy as np

library, way = sys.argv[1], sys.argv[2]
rng = np.random.default_rng(0)
x = rng.normal(size=(4000, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)

if library == "xgboost":
    import xgboost as xgb

    if way == "fit":  # by its scikit-learn interface
        stopping = xgb.XGBClassifier(n_estimators=20000, max_depth=6, early_stopping_rounds=10000)
        stopping.fit(x, y, eval_set=[(x, y)], verbose=False)
    elif way == "gpu":
        xgb.XGBClassifier(n_estimators=20000, device="cuda").fit(x, y)
    elif way == "folds":
        for fold in range(5):
            keep = np.arange(len(x)) % 5 != fold
            xgb.train({"objective": "binary:logistic"}, xgb.DMatrix(x[keep], y[keep]), num_boost_round=4000)
    elif way == "cv":
        params = {"objective": "binary:logistic"}
        xgb.cv(params, xgb.DMatrix(x, y), num_boost_round=4000, early_stopping_rounds=3000)
    elif way == "linear":
        xgb.train({"booster": "gblinear"}, xgb.DMatrix(x, y), num_boost_round=100000)
elif library == "lightgbm":
    import lightgbm as lgb
    from sklearn.model_selection import KFold, cross_val_score

    if way == "fit":
        data, held_out = lgb.Dataset(x[:3000], y[:3000]), lgb.Dataset(x[3000:], y[3000:])
        stop = lgb.early_stopping(20000, verbose=False)
        params = {"objective": "binary", "verbose": -1}
        lgb.train(params, data, num_boost_round=50000, valid_sets=[held_out], callbacks=[stop])
    elif way == "gpu":
        lgb.LGBMClassifier(n_estimators=20000, device_type="gpu", verbose=-1).fit(x, y)
    elif way == "cv":
        data = lgb.Dataset(x, y)
        lgb.cv({"objective": "binary", "num_iterations": 2000, "verbose": -1}, data, folds=KFold(4).split(x))
    elif way == "cross":
        cross_val_score(lgb.LGBMClassifier(n_estimators=3000, verbose=-1), x, y, cv=4)
elif library == "catboost":
    from catboost import CatBoostClassifier, Pool

    class Enough:
        def after_iteration(self, info):
            return info.iteration < 300

    if way == "fit":
        held_out = Pool(x[3000:], y[3000:])
        for depth in (4, 5, 6):
            model = CatBoostClassifier(n_estimators=20000, depth=depth, verbose=0, allow_writing_files=False)
            model.fit(x[:3000], y[:3000], eval_set=held_out, early_stopping_rounds=10000)
    elif way == "gpu":
        CatBoostClassifier(iterations=20000, task_type="GPU", devices="0", verbose=0).fit(x, y)
    elif way == "callback":  # of its own
        CatBoostClassifier(iterations=5000, verbose=0).fit(x, y, callbacks=[Enough()])
