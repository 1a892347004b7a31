"""Lightning's Trainer: what it says of its length, and rank 0 alone in the place of the processes that it starts."""

from __future__ import annotations

import math
import os

from ..patching import attribute, known, observe, put, wrap
from ..ranks.schemes import sizes_of
from ..ranks.world import WORLD
from ..record import Saves, TrainerLength, Validation
from .trainers import batch_size_of, is_kind, length, number, paced, positive, shortest, stoppers, validation

ALL = ("auto", -1, "-1", None)
GPUS = ("auto", "gpu", "cuda", None)


class LightningHooks:
    """Tells the world of the processes that a Trainer would start, and the schemes of those on the GPUs that it finds."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.all_gpus = False  # whether the trainer takes as many as there are

    def callbacks(self):
        """Return what to do after a module has been imported, under both names of the package."""
        found = {}
        for name, fabric in (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric")):
            found[name + ".trainer.trainer"] = self.attach_trainer
            found[name + ".tuner.lr_finder"] = lambda module: wrap(module, "_lr_find", self.tune)
            found[name + ".tuner.batch_size_scaling"] = lambda module: wrap(module, "_scale_batch_size", self.tune)
            found[name + ".strategies.launchers.subprocess_script"] = self.attach_launcher
            found[fabric + ".strategies.launchers.subprocess_script"] = self.attach_launcher
        return found

    def tune(self, inner, *args, **kwargs):
        """Return the learning rate, or the size of a batch, is looked for with fits that are not the job."""
        self.recorder.tuning_begins()
        try:
            return inner(*args, **kwargs)
        finally:
            self.recorder.tuning_ends()

    def attach_launcher(self, module):
        """Keep the launcher from starting processes where one process answers for all ranks."""

        def start(inner, one):
            if WORLD.alone:
                return inner(one)
            put(one, procs=[])
            return None

        wrap(getattr(module, "_SubprocessScriptLauncher", None), "_call_children_scripts", start)

    def attach_trainer(self, module):
        def construct(inner, one, *args, **kwargs):
            self.set_devices(kwargs)
            return inner(one, *args, **kwargs)

        def fit(one, model, *_, **__):
            if self.all_gpus:
                self.recorder.schemes.sight("ddp", "Lightning Trainer on all GPUs", sizes_of(model.parameters()))
                self.recorder.schemes.data_are_divided()

        wrap(module.Trainer, "__init__", construct)
        observe(module.Trainer, "fit", fit, before=True)

    def set_devices(self, kwargs):
        """Under a launcher, one device for each of its processes; by itself, as many as the script says."""
        devices, nodes = kwargs.get("devices"), kwargs.get("num_nodes", 1)
        local = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if WORLD.alone:
            return
        if devices in ALL and local.isdigit() and int(local) > 1:
            kwargs["devices"] = int(local)
        elif devices in ALL and nodes == 1:
            self.all_gpus = kwargs.get("accelerator") in GPUS
            return
        count = len(devices) if isinstance(devices, (list, tuple)) else kwargs.get("devices", 1)
        if isinstance(count, str) and count.isdigit():
            count = int(count)
        if isinstance(count, int) and count * nodes > 1:
            WORLD.asked(count * nodes)
            WORLD.spread_over(nodes, fixed=local == "1")
            self.recorder.schemes.data_are_divided(kwargs.get("use_distributed_sampler", True))


def trainer_length(trainer) -> TrainerLength:
    batches, epochs = positive(known(lambda: trainer.num_training_batches)), trainer.max_epochs
    accumulate = max(1, int(positive(getattr(trainer, "accumulate_grad_batches", 1)) or 1))
    epoch = float(math.ceil(batches / accumulate)) if batches else None
    callbacks = [one for one in known(list, trainer.callbacks) or [] if one is not None]
    seconds = shortest([getattr(one, "_duration", None) for one in callbacks if is_kind(one, "Timer")])
    stops = (["max_time"] if seconds is not None else []) + stoppers([*callbacks, trainer.lightning_module])
    if getattr(trainer.lightning_module, "automatic_optimization", True):
        total = number(known(lambda: trainer.estimated_stepping_batches))
    else:
        total, epoch = number(epochs * batches if positive(epochs) and batches else None), batches
    how = "max_epochs={}, max_steps={}".format(epochs, trainer.max_steps)
    told = TrainerLength(
        trainer="Lightning Trainer", total=total, per_epoch=epoch, may_stop=stops, how=how, seconds=seconds
    )
    steps = positive(total)
    told["validation"] = checked = known(validation_of, trainer, steps, epoch)
    savers = known(lambda: trainer.checkpoint_callbacks)
    told["saves"] = known(saves_of, savers, trainer, checked, steps, epoch)
    return told


def loop_length(loop) -> TrainerLength:
    """Batches of Lightning's `predict`, `validate` and `test`."""
    limits = loop.max_batches
    total = float(sum(limits)) if isinstance(limits, (list, tuple)) else float(limits)
    how = "{:,.0f} batches".format(total)
    return TrainerLength(trainer="Lightning Trainer", total=number(total), per_epoch=None, may_stop=[], how=how)


def validation_of(trainer, steps, per_epoch) -> Validation | None:
    """By `val_check_interval`, `check_val_every_n_epoch` and `limit_val_batches`; None if it validates nothing."""
    if not trainer.enable_validation:
        return None
    sizes = known(sizes_of_evaluations, trainer) or [(None, None)]
    if sum(number or 0 for number, _ in sizes) == 0 and None not in [number for number, _ in sizes]:
        return None
    seconds = positive(getattr(trainer, "_val_check_time_interval", None))
    if seconds is not None:
        return validation(("seconds", seconds), sizes)
    return validation(pace_of(trainer, steps, per_epoch), sizes)


def sizes_of_evaluations(trainer):
    """Batches and batch size of each loader; before the first evaluation those of loaders that `fit` was given."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    numbers, loaders = list(trainer.num_val_batches), list(flattened(trainer.val_dataloaders))
    if not numbers:
        loaders = list(flattened(loop._data_source.instance))
        numbers = [limited(length(one), trainer.limit_val_batches) for one in loaders]
    sizes = [batch_size_of(one) for one in loaders]
    if len(sizes) != len(numbers):
        sizes = [None] * len(numbers)
    return [(0 if number == 0 else positive(number), size) for number, size in zip(numbers, sizes)]


def flattened(loaders):
    """Yield the loaders in lists, dictionaries and Lightning's own combinations."""
    loaders = attribute(loaders, "iterables", loaders)
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, (list, tuple)):
        for one in loaders:
            yield from flattened(one)
    elif loaders is not None:
        yield loaders


def limited(batches, limit):
    """Return what `limit_val_batches` leaves of them: a number of batches, or a share."""
    if isinstance(limit, int):
        return limit if batches is None else min(batches, limit)
    return None if batches is None else math.floor(batches * limit)


def pace_of(trainer, steps, per_epoch):
    """By batches within every n-th epoch, or by all batches; ``(rhythm, every)`` or None."""
    epochs, batches = trainer.check_val_every_n_epoch, positive(trainer.num_training_batches)
    interval = positive(trainer.val_check_batch)  # in batches; infinite: at the end of an epoch without a length
    per_batch = per_epoch / batches if per_epoch and batches else 1 / (positive(trainer.accumulate_grad_batches) or 1)
    if epochs is None:
        if interval is None:
            return paced("epoch", 1, None, steps, per_epoch)
        every = interval * per_batch
        return paced("steps", every, math.floor(steps / every + 1e-9) if steps else None, steps, per_epoch)
    if not batches and interval is not None:
        return paced("steps", interval * per_batch * epochs, None, steps, per_epoch)
    in_epoch = math.floor(batches / interval) if batches and interval else 1
    times = None
    if steps and per_epoch:
        whole = math.floor(steps / per_epoch + 1e-9)
        times = in_epoch * (whole // epochs)
        if (whole + 1) % epochs == 0 and interval:
            times += math.floor((steps - whole * per_epoch) / per_batch / interval + 1e-9)
    if in_epoch == 1 or not per_epoch:
        return paced("epoch", epochs / in_epoch, times, steps, per_epoch)
    return paced("steps", epochs * per_epoch / in_epoch, times, steps, per_epoch)


def saves_of(callbacks, trainer=None, validation=None, steps=None, per_epoch=None) -> Saves | None:
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


def hooks(recorder):
    return LightningHooks(recorder).callbacks()
