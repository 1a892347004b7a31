"""Boosting rounds of CatBoost."""

from __future__ import annotations

import os
from functools import partial

from ..patching import harmless, wrap
from .boosting_hooks import open_rounds
from .registry import CATBOOST

ON_GPU = ("task_type", "devices", "gpu_ram_part")


class CatBoostRounds:
    """CatBoost's own callbacks: after every round it asks each of them whether to go on."""

    def __init__(self, progress, series, others):
        self._progress, self._series, self._callbacks = progress, series, others

    def after_iteration(self, info):
        harmless(self._progress.step)(self._series)
        return all(one.after_iteration(info) for one in self._callbacks)


def attach_catboost(progress, module):
    @harmless
    def counting(params):
        asks_gpu = str(params.get("task_type", "CPU")).upper() == "GPU"
        params = {k: v for k, v in params.items() if not asks_gpu or k not in ON_GPU}
        series = open_rounds(
            progress,
            CATBOOST,
            params.get("iterations", 1000),
            settings={str(k): str(v)[:100] for k, v in params.items()},
            may_stop=any(name in params for name in ("od_wait", "od_pval")),
            asks_gpu=asks_gpu,
        )
        others = getattr(params.get("callbacks"), "_callbacks", [])
        folder = os.path.join(progress.recorder.files.scratch, "catboost_info")  # it writes there in native code
        return dict(params, callbacks=CatBoostRounds(progress, series, others), train_dir=folder)

    def train(inner, model, train_pool, test_pool, params, *args, **kwargs):
        return inner(model, train_pool, test_pool, counting(params) or params, *args, **kwargs)

    wrap(module._CatBoostBase, "_train", train)


def hooks(recorder):
    return {"catboost.core": partial(attach_catboost, recorder.progress)}
