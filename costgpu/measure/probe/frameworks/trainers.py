"""What a trainer on the stack says of its own length: Lightning, Hugging Face's Trainer, Ignite."""

from __future__ import annotations

import itertools
import math

from ..loops.script_frames import outwards
from ..record import Told


def told_by_trainer(frame, limit=80):
    """Total steps and steps per epoch of the trainer that runs the step; None if none is on the stack."""
    for live in itertools.islice(outwards(frame), limit):
        owner = live.f_locals.get("self")
        for kind in type(owner).__mro__:
            read = READERS.get((kind.__module__.partition(".")[0], kind.__name__))
            if read is not None:
                try:
                    return read(owner)
                except Exception:  # noqa: BLE001 - another version of it, or not in training yet
                    break
    return None


def lightning(trainer) -> Told:
    total = trainer.estimated_stepping_batches
    batches = trainer.num_training_batches
    accumulate = max(1, int(getattr(trainer, "accumulate_grad_batches", 1) or 1))
    epoch = math.ceil(batches / accumulate) if batches and math.isfinite(batches) else None
    stops = [type(one).__name__ for one in trainer.callbacks or () if "EarlyStopping" in type(one).__name__]
    stops += ["max_time"] if any(type(one).__name__ == "Timer" for one in trainer.callbacks or ()) else []
    manual = not getattr(trainer.lightning_module, "automatic_optimization", True)
    if manual:
        epochs = trainer.max_epochs
        total = epochs * batches if epochs and epochs > 0 and math.isfinite(batches) else None
        epoch = batches if math.isfinite(batches) else None
    how = "max_epochs={}, max_steps={}".format(trainer.max_epochs, trainer.max_steps)
    return Told(trainer="Lightning Trainer", total=number(total), per_epoch=epoch, may_stop=stops, how=how)


def hugging_face(trainer) -> Told:
    state, args = trainer.state, trainer.args
    total = state.max_steps if state.max_steps and state.max_steps > 0 else None
    epochs = state.num_train_epochs or args.num_train_epochs
    stops = [type(one).__name__ for one in trainer.callback_handler.callbacks if "EarlyStopping" in type(one).__name__]
    epoch = total / epochs if total and epochs and args.max_steps <= 0 else None
    how = "max_steps={}".format(args.max_steps) if args.max_steps > 0 else "num_train_epochs={:g}".format(epochs)
    return Told(trainer="Hugging Face Trainer", total=number(total), per_epoch=epoch, may_stop=stops, how=how)


def ignite(engine) -> Told | None:
    state = engine.state
    length, epochs = state.epoch_length, state.max_epochs
    if length is None or epochs is None:
        return None
    total, how = number(float(length) * epochs), "max_epochs={}, epoch_length={}".format(epochs, length)
    return Told(trainer="Ignite Engine", total=total, per_epoch=length, may_stop=[], how=how)


def number(value):
    """A finite count, ``inf``, or None."""
    if value is None or value != value or value < 0:  # noqa: PLR0124 - nan
        return None
    return "inf" if math.isinf(value) else float(value)


READERS = {
    ("lightning", "Trainer"): lightning,
    ("pytorch_lightning", "Trainer"): lightning,
    ("transformers", "Trainer"): hugging_face,
    ("ignite", "Engine"): ignite,
}
