"""Horovod's optimizer, in each of the frameworks that it spreads."""

from __future__ import annotations

from functools import partial

MODULES = ("horovod.torch", "horovod.keras", "horovod.tensorflow", "horovod.tensorflow.keras")
CALL = ("DistributedOptimizer", "ddp", "Horovod's DistributedOptimizer")


def hooks(recorder):
    return {module: partial(recorder.schemes.on_call, *CALL) for module in MODULES}
