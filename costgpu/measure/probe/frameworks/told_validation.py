"""How often a trainer says that it evaluates, and how many batches an evaluation has: reached or not."""

from __future__ import annotations

import math
import sys

from ..loops.safe_eval import Evaluator
from ..patching import attribute, known
from ..record import Validation

NEARLY = 0.02  # by which a number of evaluations may be off before the rhythm is stretched to it
EVALUATES_AT_THE_END = 5  # Hugging Face's version since which `eval_strategy="steps"` evaluates after the last step too


def positive(value):
    """Return a finite number above 0; None for anything else that an attribute may hold."""
    if isinstance(value, (str, bytes, bool)):
        return None
    value = known(float, value)
    return value if value is not None and 0 < value < math.inf else None


def is_kind(one, name):
    """Return whether this is an object of a library's class of that name, or of one that is derived from it."""
    return any(kind.__name__ == name for kind in type(one).__mro__)


def length(value):
    """Return the batches of a loader or samples of a data set; None without a length."""
    return positive(known(Evaluator({}, {}).length, value))


def paced(rhythm, every, times, steps, per_epoch):
    """Return the rhythm, stretched where the training ends amid it: ``(rhythm, every)``, or None if it never comes.

    Args:
        times: How often it comes in all; None if that is not known.
        steps: Steps of the whole training, None if not known; `per_epoch` of an epoch.
    """
    if times is None or not steps:
        return rhythm, float(every)
    if times < 1:
        return None
    epochs = steps / per_epoch if per_epoch else None
    amount = steps if rhythm == "steps" else epochs
    if amount is not None and abs(amount / every - times) <= NEARLY * times:
        return rhythm, float(every)
    if epochs is not None and epochs == round(epochs) and rhythm == "epoch":
        return rhythm, epochs / times
    return "steps", steps / times


def validation(pace, sizes) -> Validation | None:
    """Return what is told of evaluations of these parts: (batches, samples in one), each None if not known."""
    if pace is None or positive(pace[1]) is None:
        return None
    batches = [number for number, _ in sizes]
    known_sizes = bool(sizes) and all(number and size for number, size in sizes)
    total = sum(batches) if sizes and None not in batches else None
    size = round(sum(number * size for number, size in sizes) / total) if known_sizes else None
    return Validation(batches=total, batch_size=size or None, rhythm=pace[0], every=pace[1])


# -- Lightning


def lightning_validation(trainer, steps, per_epoch) -> Validation | None:
    """By `val_check_interval`, `check_val_every_n_epoch` and `limit_val_batches`; None if it validates nothing."""
    if not trainer.enable_validation:
        return None
    sizes = known(lightning_sizes, trainer) or [(None, None)]
    if sum(number or 0 for number, _ in sizes) == 0 and None not in [number for number, _ in sizes]:
        return None
    seconds = positive(getattr(trainer, "_val_check_time_interval", None))
    if seconds is not None:
        return validation(("seconds", seconds), sizes)
    return validation(lightning_pace(trainer, steps, per_epoch), sizes)


def lightning_sizes(trainer):
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


def batch_size_of(loader):
    size = attribute(loader, "batch_size")
    return positive(size if size is not None else attribute(attribute(loader, "batch_sampler"), "batch_size"))


def lightning_pace(trainer, steps, per_epoch):
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


# -- Hugging Face


def hugging_face_validation(trainer, steps, per_epoch) -> Validation | None:
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
    sizes = known(hugging_face_sizes, trainer) or [(None, None)]
    return validation(pace, sizes)


def evaluations_by_steps(steps, every, delay):
    """Return how often `steps` steps are evaluated that have a multiple of `every`, from `delay` on."""
    times = math.floor(steps / every) - max(0, math.ceil(min(delay, steps + 1) / every) - 1)
    version = str(getattr(sys.modules.get("transformers"), "__version__", "")).partition(".")[0]
    at_end = not version.isdigit() or int(version) >= EVALUATES_AT_THE_END
    return max(0, times) + int(at_end and steps % every != 0 and steps >= delay)


def per_epoch_pace(steps, per_epoch, delay=0.0, first=0):
    """At the end of each epoch, the last of which may be cut off by the number of steps."""
    if not steps:
        return "epoch", 1.0
    epochs = steps / per_epoch if per_epoch else 1.0  # the last: of a stream that seems to have no end
    last, begin = min(math.ceil(epochs - 1e-9), 10**6), max(1, math.ceil(delay))
    times = max(0, last - begin + 1) if epochs >= delay else 0
    return paced("epoch", 1, times + first, steps, per_epoch)


def hugging_face_sizes(trainer):
    """Batches and batch size of each data set; the batches are unknown where it generates text to evaluate it."""
    args, data = trainer.args, trainer.eval_dataset
    size = positive(known(lambda: args.eval_batch_size)) or positive(args.per_device_eval_batch_size)
    if getattr(args, "predict_with_generate", False) is True:
        return [(None, size)]
    processes = positive(known(lambda: args.world_size)) or 1
    whole = math.floor if getattr(args, "dataloader_drop_last", False) is True else math.ceil
    parts = [length(one) for one in (data.values() if isinstance(data, dict) else [data])]
    return [(None if number is None else whole(number / (size * processes)), size) for number in parts]


# -- Ignite


def ignite_validation(engine, steps, per_epoch) -> Validation | None:
    """By the handlers that name a DataLoader: they run an evaluator over it. None without one."""
    found = []
    for event, handlers in engine._event_handlers.items():
        name = str(getattr(event, "name", event)).rpartition(".")[2].lower()
        each = {"epoch": per_epoch, "iteration": 1, "completed": steps}.get(name.partition("_")[0])
        if not each:
            continue
        for handler, args, kwargs in handlers:
            free, every = closure_of(handler), 1
            if "event_filter" in free:  # for some events only
                every = positive(closure_of(free["event_filter"]).get("every"))
                handler = free.get("handler")
            for loader in loaders_of(handler, [*args, *kwargs.values()]) if every else ():
                found.append((each * every, length(loader), batch_size_of(loader)))
    if not found:
        return None
    between = min(one for one, _, _ in found)
    sizes = [(number and number * between / one, size) for one, number, size in found]
    pace = ("epoch", between / per_epoch) if between % per_epoch == 0 else ("steps", between)
    return validation(paced(*pace, steps and math.floor(steps / between + 1e-9), steps, per_epoch), sizes)


def closure_of(function):
    """Return the variables of the functions around this one that it uses; empty for what is no plain function."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return {
        name: known(getattr, cell, "cell_contents")
        for name, cell in zip(names, getattr(function, "__closure__", None) or ())
    }


def loaders_of(handler, arguments):
    """DataLoaders that a handler is given, or names."""
    owner, function = getattr(handler, "__self__", None), getattr(handler, "__func__", handler)
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    spaces = [getattr(function, "__globals__", {}), getattr(owner, "__dict__", {})]
    named = [space[name] for space in spaces for name in names if name in space]
    return [one for one in [*arguments, *closure_of(function).values(), *named] if is_kind(one, "DataLoader")]


# -- Keras


def keras_validation(local, steps, per_epoch, epochs, batch_of) -> Validation | None:
    """By the arguments of `fit`, whose variables these are; `batch_of` tells the batch size of some data.

    Args:
        epochs: Epochs of this call, from `initial_epoch` on.
    """
    data = local.get("validation_data")
    if data is None:
        return None
    inputs = data[0] if isinstance(data, (tuple, list)) and data else data
    asked = {"x": inputs, "batch_size": local.get("validation_batch_size") or local.get("batch_size")}
    size, limit = positive(known(batch_of, asked)), positive(local.get("validation_steps"))
    batches = batches_of(inputs, size)
    if limit is not None:
        batches = min(batches or limit, limit)
    begun, frequency = int(positive(local.get("initial_epoch")) or 0), local.get("validation_freq", 1)
    last = begun + int(epochs)
    if isinstance(frequency, (list, tuple, set)):
        times = sum(begun < one <= last for one in set(frequency))
        pace = paced("epoch", epochs / times if times else 1, times, steps or epochs, per_epoch if steps else 1)
    else:
        every = positive(frequency) or 1
        times = last // every - begun // every
        pace = paced("epoch", every, times, steps or epochs, per_epoch if steps else 1)
    return validation(pace, [(batches, size)])


def batches_of(inputs, size):
    """Return the batches of arrays, or of data that comes in batches; None if that cannot be told."""
    while isinstance(inputs, (dict, list, tuple)) and inputs:
        inputs = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0]
    shape = known(tuple, attribute(inputs, "shape"))
    if shape:
        return math.ceil(shape[0] / size) if size and positive(shape[0]) else None
    return length(inputs)
