"""How often a trainer says that it saves checkpoints, and how long its saving takes, whatever it writes them with."""

from __future__ import annotations

import math

from ..patching import wrap
from ..record import Saves
from ..schedstat import work_clock
from .told_validation import paced, per_epoch_pace


class Saving:
    """Times the outermost call that saves; one per process."""

    def __init__(self, recorder):
        self.recorder, self.inside = recorder, False

    def time(self, owner, name, also=None):
        """Have every call of ``owner.name`` counted as one that saves; `also` gets its seconds, too."""

        def save(inner, *args, **kwargs):
            if self.inside:
                return inner(*args, **kwargs)
            self.inside, begin = True, work_clock()
            try:
                return inner(*args, **kwargs)
            finally:
                self.inside = False
                seconds = work_clock() - begin
                self.recorder.saved(seconds)
                if also is not None:
                    also(seconds)

        wrap(owner, name, save)


def hugging_face_saves(state, args, steps=None, per_epoch=None) -> Saves | None:
    """Return the rhythm: every `save_steps` steps or every epoch; None for never, and where only improvements are saved."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    every = getattr(state, "save_steps", None) or args.save_steps
    if strategy == "steps" and every >= 1:
        return Saves(rhythm="steps", every=float(every))
    rhythm, each = per_epoch_pace(steps, per_epoch)
    return Saves(rhythm=rhythm, every=each) if strategy == "epoch" else None


def lightning_saves(callbacks, trainer=None, validation=None, steps=None, per_epoch=None) -> Saves | None:
    """By the ModelCheckpoint that saves most often; None where there is none, or it saves improvements only.

    Args:
        validation: What the trainer tells of its evaluations, after which it saves if they are no part of each epoch.
        steps: Steps of the training, `per_epoch` of an epoch; None where they are not known.
    """
    found = []
    for one in callbacks or ():
        often, epochs = getattr(one, "_every_n_train_steps", 0), getattr(one, "_every_n_epochs", 0)
        always = getattr(one, "save_last", None) or getattr(one, "monitor", None) is None
        if not always or (getattr(one, "save_top_k", 0) == 0 and not getattr(one, "save_last", None)):
            continue
        if often >= 1:
            found.append(("steps", float(often)))
        elif epochs >= 1 and trainer is not None and saves_after_validation(one, trainer, validation):
            if validation is not None:  # in epochs that are multiples of both numbers
                both = math.gcd(int(validation["every"]), epochs) if validation["rhythm"] == "epoch" else 1
                found.append((validation["rhythm"], validation["every"] * epochs / max(1, both)))
        elif epochs >= 1:
            times = math.ceil(steps / per_epoch - 1e-9) // epochs if steps and per_epoch else None
            pace = paced("epoch", epochs, times, steps, per_epoch)
            found += [pace] if pace is not None else []
    rhythm, every = min(found, key=lambda pace: (pace[0] == "epoch", pace[1]), default=(None, 0.0))
    return Saves(rhythm=rhythm, every=every) if rhythm is not None else None


def saves_after_validation(callback, trainer, validation):
    """Return whether a ModelCheckpoint saves at the end of evaluations, and not of epochs of training."""
    asked = getattr(callback, "_save_on_train_epoch_end", None)
    if asked is not None:
        return not asked
    if getattr(trainer, "_val_check_time_interval", None) is not None or trainer.check_val_every_n_epoch != 1:
        return True
    return validation is not None and trainer.val_check_interval != 1.0


def keras_saves(callbacks) -> Saves | None:
    """By ModelCheckpoint or BackupAndRestore; None without one, and where only improvements are saved."""
    for one in callbacks:
        every = getattr(one, "save_freq", None)
        if every is None or getattr(one, "save_best_only", False):
            continue
        return Saves(rhythm="epoch", every=1.0) if every == "epoch" else Saves(rhythm="steps", every=float(every))
    return None
