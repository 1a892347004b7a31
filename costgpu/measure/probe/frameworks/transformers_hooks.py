"""Hugging Face's Trainer, pipelines and `generate`."""

from __future__ import annotations

import math
import sys
from functools import partial

from ..inference.hooks import attach_generate
from ..patching import known, observe
from ..ranks.schemes import sizes_of
from ..record import Saves, TrainerLength, Validation
from .trainers import length, paced, per_epoch_pace, positive, stoppers, validation

EVALUATES_AT_THE_END = 5  # version since which `eval_strategy="steps"` evaluates after the last step too


def attach_trainer(schemes, module):
    """Hugging Face's Trainer, which copies the model to all GPUs that it sees, unless a launcher gives it one of them."""

    def trains(trainer, *_, **__):
        arguments = trainer.args
        if arguments.parallel_mode.name != "DISTRIBUTED" and not getattr(arguments, "use_cpu", False):
            schemes.sight("data_parallel", "Hugging Face Trainer on all GPUs", sizes_of(trainer.model.parameters()))

    observe(getattr(module, "Trainer", None), "train", trains, before=True)


def trainer_length(trainer) -> TrainerLength:
    state, args = trainer.state, trainer.args
    total, epochs, limit = positive(state.max_steps), positive(args.num_train_epochs), positive(args.max_steps)
    stops = stoppers(known(lambda: trainer.callback_handler.callbacks) or ())
    batches = known(lambda: length(trainer.callback_handler.train_dataloader))
    accumulate = positive(getattr(args, "gradient_accumulation_steps", 1)) or 1
    epoch = float(math.ceil(batches / accumulate)) if batches else None
    if epoch is None and total and epochs and limit is None:
        epoch = total / epochs
    how = "num_train_epochs={:g}".format(epochs or math.nan) if limit is None else "max_steps={:g}".format(limit)
    told = TrainerLength(trainer="Hugging Face Trainer", total=total, per_epoch=epoch, may_stop=stops, how=how)
    told["validation"] = known(validation_of, trainer, total, epoch)
    told["saves"] = known(saves_of, state, args, total, epoch)
    return told


def pipeline_length(iterator) -> TrainerLength | None:
    """Batches of a pipeline's iterator over a DataLoader; the one around it, over its results, is of the same length."""
    batches = float(len(iterator.loader))
    if not hasattr(iterator.loader, "batch_sampler"):
        return None
    how = "{:,.0f} batches".format(batches)
    return TrainerLength(trainer="pipeline", total=batches, per_epoch=None, may_stop=[], how=how)


def validation_of(trainer, steps, per_epoch) -> Validation | None:
    """By `eval_strategy`, `eval_steps` and `eval_delay`; None if it evaluates nothing."""
    args = trainer.args
    strategy = getattr(args, "eval_strategy", None) or getattr(args, "evaluation_strategy", None)
    strategy = str(getattr(strategy, "value", strategy))
    delay, first = (
        positive(getattr(args, "eval_delay", None)) or 0.0,
        int(getattr(args, "eval_on_start", False) is True),
    )
    if strategy == "steps":
        every = positive(getattr(trainer.state, "eval_steps", None)) or positive(args.eval_steps)
        if every is not None and every < 1:
            every = math.ceil(steps * every) if steps else None
        if every is None:
            return None
        pace = paced("steps", every, steps and first + evaluations_by_steps(steps, every, delay), steps, per_epoch)
    elif strategy == "epoch":
        pace = per_epoch_pace(steps, per_epoch, delay, first)
    else:
        return None
    sizes = known(sizes_of_evaluations, trainer) or [(None, None)]
    return validation(pace, sizes)


def evaluations_by_steps(steps, every, delay):
    """Return how often `steps` steps are evaluated that have a multiple of `every`, from `delay` on."""
    times = math.floor(steps / every) - max(0, math.ceil(min(delay, steps + 1) / every) - 1)
    version = str(getattr(sys.modules.get("transformers"), "__version__", "")).partition(".")[0]
    at_end = not version.isdigit() or int(version) >= EVALUATES_AT_THE_END
    return max(0, times) + int(at_end and steps % every != 0 and steps >= delay)


def sizes_of_evaluations(trainer):
    """Batches and batch size of each data set; the batches are unknown where it generates text to evaluate it."""
    args, data = trainer.args, trainer.eval_dataset
    size = positive(known(lambda: args.eval_batch_size)) or positive(args.per_device_eval_batch_size)
    if getattr(args, "predict_with_generate", False) is True:
        return [(None, size)]
    processes = positive(known(lambda: args.world_size)) or 1
    whole = math.floor if getattr(args, "dataloader_drop_last", False) is True else math.ceil
    parts = [length(one) for one in (data.values() if isinstance(data, dict) else [data])]
    return [(None if number is None else whole(number / (size * processes)), size) for number in parts]


def saves_of(state, args, steps=None, per_epoch=None) -> Saves | None:
    """Return the rhythm: every `save_steps` steps or every epoch; None for never, and where only improvements are saved."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    every = getattr(state, "save_steps", None) or args.save_steps
    if strategy == "steps" and every >= 1:
        return Saves(rhythm="steps", every=float(every))
    rhythm, each = per_epoch_pace(steps, per_epoch)
    return Saves(rhythm=rhythm, every=each) if strategy == "epoch" else None


def hooks(recorder):
    def attach(module):
        recorder.saving.time(getattr(module, "Trainer", None), "_save_checkpoint")
        attach_trainer(recorder.schemes, module)

    return {"transformers.trainer": attach, "transformers.generation.utils": partial(attach_generate, recorder)}
