"""Predictions of what has been trained: the way is the argument."""

import sys

import numpy as np

way = sys.argv[1]
rows = np.random.rand(640, 16).astype("float32")

if way.startswith("keras"):
    import keras

    model = keras.Sequential(
        [keras.layers.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
    )
    if way == "keras-evaluate":
        model.compile("sgd", "mse")
        for fold in range(200):
            model.evaluate(rows, rows[:, :1], batch_size=16, verbose=0)
    else:
        for shard in range(200):
            model.predict(rows, batch_size=32, verbose=0)
elif way == "jax":
    import flax.linen as nn
    import jax

    net = nn.Sequential([nn.Dense(64), nn.relu, nn.Dense(1)])
    weights = net.init(jax.random.key(0), rows[:1])

    @jax.jit
    def apply(weights, x):
        return net.apply(weights, x)

    for start in range(0, 640000, 64):
        np.asarray(apply(weights, jax.numpy.asarray(rows[:64])))
elif way == "sklearn":
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(3).fit(rows[:100], rows[:100, 0])
    for shard in range(3000):
        forest.predict(rows[:200])
elif way in ("xgboost", "lightgbm"):
    import importlib

    library = importlib.import_module(way)
    sets = library.DMatrix(rows, rows[:, 0]) if way == "xgboost" else library.Dataset(rows, rows[:, 0])
    booster = library.train({"verbosity": 0 if way == "xgboost" else -1}, sets, 1)
    for shard in range(3000):
        booster.predict(library.DMatrix(rows) if way == "xgboost" else rows)
