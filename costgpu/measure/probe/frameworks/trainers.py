"""What a trainer on the stack says of its length: Lightning's, Hugging Face's, Ignite's, Stable-Baselines3's, Tianshou's."""

from __future__ import annotations

import gc
import itertools
import math
import sys

from ..loops.script_frames import outwards, package_of_file
from ..patching import known
from ..record import TrainerLength
from .saving_hooks import hugging_face_saves, lightning_saves
from .told_validation import (
    hugging_face_validation,
    ignite_validation,
    is_kind,
    length,
    lightning_validation,
    positive,
)

# What a callback says to a trainer that is to end.
STOP_WORDS = {"should_training_stop", "should_epoch_stop", "should_stop", "stop_training", "terminate"}

MOST_FRAMES = 80
NEVER_STOP = ("NoneType", "ConvertCallback", "ProgressBarCallback", "CheckpointCallback")  # of Stable-Baselines3


def told_by(frame, readers):
    """Return what the innermost object on the stack that has a reader says of its length; None without one.

    Args:
        readers: (package, class) -> what reads such an object; it may raise for another version of it.
    """
    for live in itertools.islice(outwards(frame), MOST_FRAMES):
        owner = live.f_locals.get("self")
        for kind in type(owner).__mro__:
            read = readers.get((kind.__module__.partition(".")[0], kind.__name__))
            found = known(read, owner) if read is not None else None
            if found is not None:
                return found
    return None


def lightning(trainer) -> TrainerLength:
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
    told["validation"] = checked = known(lightning_validation, trainer, steps, epoch)
    savers = known(lambda: trainer.checkpoint_callbacks)
    told["saves"] = known(lightning_saves, savers, trainer, checked, steps, epoch)
    return told


def hugging_face(trainer) -> TrainerLength:
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
    told["validation"] = known(hugging_face_validation, trainer, total, epoch)
    told["saves"] = known(hugging_face_saves, state, args, total, epoch)
    return told


def ignite(engine) -> TrainerLength | None:
    state = engine.state
    each, epochs = positive(state.epoch_length), positive(state.max_epochs)
    if each is None or epochs is None:
        return None
    total, how = number(each * epochs), "max_epochs={:.0f}, epoch_length={:.0f}".format(epochs, each)
    handlers = [one[0] for some in engine._event_handlers.values() for one in some]
    handlers = [one._parent() if hasattr(one, "_parent") else one for one in handlers]  # of one for some events only
    clocks = [one for one in handlers if is_kind(one, "TimeLimit")]
    seconds = shortest([getattr(one, "limit_sec", None) for one in clocks])
    stops = ["TimeLimit"][: len(clocks)] + ignite_stops(engine, handlers)
    told = TrainerLength(trainer="Ignite Engine", total=total, per_epoch=each, may_stop=stops, how=how, seconds=seconds)
    told["validation"] = known(ignite_validation, engine, positive(total), each)
    return told


def ignite_stops(engine, handlers):
    """Return what may end an engine's run: its handlers, and an EarlyStopping, which usually hangs on the evaluator."""
    found = []
    functions = [one for one in handlers if STOP_WORDS & set(getattr(getattr(one, "__code__", None), "co_names", ()))]
    if "ignite.handlers.early_stopping" in sys.modules:
        kind = sys.modules["ignite.handlers.early_stopping"].EarlyStopping
        found += [one for one in gc.get_objects() if type(one) is kind and one.trainer is engine]
    return stoppers(handlers) + [type(one).__name__ for one in found] + [one.__name__ for one in functions]


def on_policy(model) -> TrainerLength:
    """Rollouts of `n_steps` in each environment, each read `n_epochs` times in batches (A2C: once, whole)."""
    rollout = model.n_steps * model.n_envs
    rollouts = math.ceil((model._total_timesteps - begun_at(model)) / rollout)
    epochs, batch = getattr(model, "n_epochs", 1), getattr(model, "batch_size", None) or rollout
    each = epochs * math.ceil(rollout / batch)
    stops = ["target_kl"] if getattr(model, "target_kl", None) is not None else []
    told = reinforced(model, rollouts * each, each, stops, "{} rollouts of {} steps".format(rollouts, rollout))
    told["acts"] = True
    return told


def off_policy(model) -> TrainerLength | None:
    """`gradient_steps` after every `train_freq` steps, once `learning_starts` is passed."""
    frequency, unit = model.train_freq
    if "episode" in str(unit).lower():
        return None
    rollout = frequency * model.n_envs
    each = model.gradient_steps if model.gradient_steps >= 0 else rollout
    begun = begun_at(model)
    rollouts = math.ceil((model._total_timesteps - begun) / rollout)
    idle = min(rollouts, max(0, math.floor((model.learning_starts - begun) / rollout)))
    return reinforced(model, (rollouts - idle) * each, None, [], "train_freq={}".format(frequency))


def begun_at(model):
    """Time steps that were made before this call of `learn`."""
    return getattr(model, "_num_timesteps_at_start", 0)


def reinforced(model, total, each, stops, how) -> TrainerLength:
    stops = stops + (["a callback"] if own_callback(model) else [])
    how = "total_timesteps={}, {}".format(model._total_timesteps, how)
    name = "Stable-Baselines3 " + type(model).__name__
    return TrainerLength(trainer=name, total=number(total), per_epoch=each, may_stop=stops, how=how)


def own_callback(model):
    """Return whether `learn` was called with a callback of the user's, or one that stops: any may return False."""
    for live in outwards(sys._getframe(1)):
        if live.f_code.co_name == "learn" and live.f_locals.get("self") is model:
            given = live.f_locals.get("callback")
            return any(type(one).__name__ not in NEVER_STOP for one in getattr(given, "callbacks", [given]))
    return False


def tianshou(trainer) -> TrainerLength | None:
    """So many gradient steps per sample that is collected; each epoch ends with test episodes."""
    params = trainer.params
    collected, epochs = positive(params.collection_step_num_env_steps), positive(params.max_epochs)
    if collected is None or epochs is None:
        return None
    turns = math.ceil(params.epoch_num_steps / collected)
    each = float(turns * round(params.update_step_num_gradient_steps_per_sample * collected))
    stops = ["stop_fn"] if params.stop_fn is not None else []
    how = "max_epochs={:.0f}, epoch_num_steps={}".format(epochs, params.epoch_num_steps)
    told = TrainerLength(
        trainer="Tianshou trainer", total=number(epochs * each), per_epoch=each, may_stop=stops, how=how
    )
    if params.test_collector is not None:
        told["validation"] = {"batches": None, "batch_size": None, "rhythm": "epoch", "every": 1.0}
    return told


def stoppers(callbacks):
    """Return the names of the callbacks that may end a training: by their name, or the user's own by what they set."""
    return [type(one).__name__ for one in callbacks if one is not None and may_stop(type(one))]


def may_stop(kind):
    if "stop" in kind.__name__.lower():
        return True
    functions = [getattr(one, "__code__", None) for base in kind.__mro__ for one in vars(base).values()]
    own = [code for code in functions if code is not None and not package_of_file(code.co_filename)]
    return any(STOP_WORDS & set(code.co_names) for code in own)


def shortest(limits):
    """Return the least of these seconds; None without one."""
    return min([one for one in map(positive, limits) if one is not None], default=None)


def number(value):
    """Return a finite count, ``inf``, or None."""
    value = known(float, value)
    if value is None or value != value or value < 0:  # noqa: PLR0124 - nan
        return None
    return "inf" if math.isinf(value) else value


def pipeline(iterator) -> TrainerLength | None:
    """Batches of a pipeline's iterator over a DataLoader; the one around it, over its results, is of the same length."""
    batches = float(len(iterator.loader))
    if not hasattr(iterator.loader, "batch_sampler"):
        return None
    how = "{:,.0f} batches".format(batches)
    return TrainerLength(trainer="pipeline", total=batches, per_epoch=None, may_stop=[], how=how)


def lightning_loop(loop) -> TrainerLength:
    """Batches of Lightning's `predict`, `validate` and `test`."""
    limits = loop.max_batches
    total = float(sum(limits)) if isinstance(limits, (list, tuple)) else float(limits)
    how = "{:,.0f} batches".format(total)
    return TrainerLength(trainer="Lightning Trainer", total=number(total), per_epoch=None, may_stop=[], how=how)


DRIVERS = {  # of loops that only run models
    ("transformers", "PipelineIterator"): pipeline,
    ("lightning", "_PredictionLoop"): lightning_loop,
    ("lightning", "_EvaluationLoop"): lightning_loop,
    ("pytorch_lightning", "_PredictionLoop"): lightning_loop,
    ("pytorch_lightning", "_EvaluationLoop"): lightning_loop,
}
TRAINERS = {
    ("lightning", "Trainer"): lightning,
    ("pytorch_lightning", "Trainer"): lightning,
    ("transformers", "Trainer"): hugging_face,
    ("ignite", "Engine"): ignite,
    # Read from its documentation and source, version 2.9.2.
    ("stable_baselines3", "OnPolicyAlgorithm"): on_policy,
    ("stable_baselines3", "OffPolicyAlgorithm"): off_policy,
    ("tianshou", "OffPolicyTrainer"): tianshou,  # version 2.0.1
}
