"""What drives a loop over batches inside of a library says of its own length: pipelines, and Lightning's loops."""

from __future__ import annotations

import itertools
import math

from ..loops.script_frames import outwards
from ..patching import known
from ..record import TrainerLength

MOST_FRAMES = 60


def told_by_driver(frame):
    """Return the units of the call that is going on, as the innermost driver on the stack says it; None without one."""
    for live in itertools.islice(outwards(frame), MOST_FRAMES):
        owner = live.f_locals.get("self")
        for kind in type(owner).__mro__:
            read = READERS.get((kind.__module__.partition(".")[0], kind.__name__))
            found = known(read, owner) if read is not None else None
            if found is not None:
                return found
    return None


def pipeline(iterator):
    """Return a pipeline's iterator over a DataLoader; the one around it, over its results, is of the same length."""
    batches = float(len(iterator.loader))
    if not hasattr(iterator.loader, "batch_sampler"):
        return None
    return told("pipeline", batches, "{:,.0f} batches".format(batches))


def lightning(loop):
    limits = loop.max_batches
    total = float(sum(limits)) if isinstance(limits, (list, tuple)) else float(limits)
    return told("Lightning Trainer", "inf" if math.isinf(total) else total, "{:,.0f} batches".format(total))


def told(trainer, total, how) -> TrainerLength:
    return {"trainer": trainer, "total": total, "per_epoch": None, "may_stop": [], "how": how}


READERS = {
    ("transformers", "PipelineIterator"): pipeline,
    ("lightning", "_PredictionLoop"): lightning,
    ("lightning", "_EvaluationLoop"): lightning,
    ("pytorch_lightning", "_PredictionLoop"): lightning,
    ("pytorch_lightning", "_EvaluationLoop"): lightning,
}
