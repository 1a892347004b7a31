"""All frameworks that costgpu knows: one line each. The probe calls their hooks, and the host reads the same entries."""

from __future__ import annotations

from .accelerate_hooks import ACCELERATE
from .catboost_hooks import CATBOOST
from .deepspeed_hooks import DEEPSPEED
from .framework import FrameworkSpec
from .horovod_hooks import HOROVOD
from .jax_hooks import JAX
from .keras_hooks import KERAS, TENSORFLOW
from .lightgbm_hooks import LIGHTGBM
from .lightning_hooks import LIGHTNING
from .sklearn_hooks import SKLEARN
from .torch_hooks import TORCH
from .tqdm_hooks import TQDM
from .transformers_hooks import TRANSFORMERS
from .xgboost_hooks import XGBOOST

FRAMEWORKS = (
    TORCH,
    JAX,
    KERAS,
    TENSORFLOW,
    XGBOOST,
    LIGHTGBM,
    CATBOOST,
    SKLEARN,
    LIGHTNING,
    TRANSFORMERS,
    ACCELERATE,
    DEEPSPEED,
    HOROVOD,
    TQDM,
    FrameworkSpec(name="diffusers", on_torch=True),
    FrameworkSpec(name="fastai", on_torch=True, telling=frozenset(("fit_one_cycle",))),
    FrameworkSpec(name="timm", on_torch=True),
)
BY_NAME = {one.name: one for one in FRAMEWORKS}


def callbacks(recorder):
    """Return what to call after a module has been imported, in order, by the module's name."""
    found = {}
    for framework in FRAMEWORKS:
        for name, attach in (framework.hooks(recorder) if framework.hooks is not None else {}).items():
            found.setdefault(name, []).append(attach)
    return found
