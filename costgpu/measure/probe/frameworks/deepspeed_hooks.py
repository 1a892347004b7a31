"""DeepSpeed's engine, which knows the stage of ZeRO, whichever way it was configured."""

from __future__ import annotations

from functools import partial

from ..patching import harmless, wrap

ZERO_STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


def attach_deepspeed(schemes, module):
    """`deepspeed.initialize`: its engine knows the stage, whichever way it was configured."""

    def note(engine):
        stage = int(engine.zero_optimization_stage())
        sizes = [(int(getattr(p, "ds_numel", None) or p.numel()), p.requires_grad) for p in engine.module.parameters()]
        schemes.sight(ZERO_STAGES.get(stage, "other"), "deepspeed.initialize, ZeRO stage {}".format(stage), sizes)

    def initialize(inner, *args, **kwargs):
        result = inner(*args, **kwargs)
        harmless(note)(result[0])
        return result

    wrap(module, "initialize", initialize)


def hooks(recorder):
    """Return what to attach. It would compile an extension for collectives between CPUs, of which there are none here."""
    return {
        "deepspeed": partial(attach_deepspeed, recorder.schemes),
        "deepspeed.comm.torch": lambda module: wrap(module, "build_shm_op", lambda inner: None),
    }
