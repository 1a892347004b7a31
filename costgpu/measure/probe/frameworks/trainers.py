"""What a trainer on the stack says of its own length: Lightning, Hugging Face's Trainer, Ignite, Stable-Baselines3."""

from __future__ import annotations

import gc
import itertools
import math
import sys

from ..loops.script_frames import outwards, package_of_file
from ..record import Told
from .saving_hooks import hugging_face_saves, lightning_saves

# What a callback says to a trainer that is to end.
STOP_WORDS = {"should_training_stop", "should_epoch_stop", "should_stop", "stop_training", "terminate"}

NEVER_STOP = ("NoneType", "ConvertCallback", "ProgressBarCallback", "CheckpointCallback")  # of Stable-Baselines3


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
    stops = stoppers([*(trainer.callbacks or ()), trainer.lightning_module])
    stops += ["max_time"] if any(type(one).__name__ == "Timer" for one in trainer.callbacks or ()) else []
    manual = not getattr(trainer.lightning_module, "automatic_optimization", True)
    if manual:
        epochs = trainer.max_epochs
        total = epochs * batches if epochs and epochs > 0 and math.isfinite(batches) else None
        epoch = batches if math.isfinite(batches) else None
    how = "max_epochs={}, max_steps={}".format(trainer.max_epochs, trainer.max_steps)
    told = Told(trainer="Lightning Trainer", total=number(total), per_epoch=epoch, may_stop=stops, how=how)
    told["saves"] = lightning_saves(getattr(trainer, "checkpoint_callbacks", ()))
    return told


def hugging_face(trainer) -> Told:
    state, args = trainer.state, trainer.args
    total = state.max_steps if state.max_steps and state.max_steps > 0 else None
    epochs = state.num_train_epochs or args.num_train_epochs
    stops = stoppers(trainer.callback_handler.callbacks)
    epoch = total / epochs if total and epochs and args.max_steps <= 0 else None
    how = "max_steps={}".format(args.max_steps) if args.max_steps > 0 else "num_train_epochs={:g}".format(epochs)
    told = Told(trainer="Hugging Face Trainer", total=number(total), per_epoch=epoch, may_stop=stops, how=how)
    told["saves"] = hugging_face_saves(state, args)
    return told


def ignite(engine) -> Told | None:
    state = engine.state
    length, epochs = state.epoch_length, state.max_epochs
    if length is None or epochs is None:
        return None
    total, how = number(float(length) * epochs), "max_epochs={}, epoch_length={}".format(epochs, length)
    return Told(trainer="Ignite Engine", total=total, per_epoch=length, may_stop=ignite_stops(engine), how=how)


def ignite_stops(engine):
    """What may end an engine's run: its handlers, and an EarlyStopping, which usually hangs on the evaluator."""
    handlers = [one[0] for some in engine._event_handlers.values() for one in some]
    found = [one for one in handlers if type(one).__name__ == "TimeLimit"]
    functions = [one for one in handlers if STOP_WORDS & set(getattr(getattr(one, "__code__", None), "co_names", ()))]
    if "ignite.handlers.early_stopping" in sys.modules:
        kind = sys.modules["ignite.handlers.early_stopping"].EarlyStopping
        found += [one for one in gc.get_objects() if type(one) is kind and one.trainer is engine]
    return stoppers(handlers) + [type(one).__name__ for one in found] + [one.__name__ for one in functions]


def on_policy(model) -> Told:
    """Rollouts of `n_steps` in each environment, each read `n_epochs` times in batches (A2C: once, whole)."""
    rollout = model.n_steps * model.n_envs
    rollouts = math.ceil((model._total_timesteps - begun_at(model)) / rollout)
    epochs, batch = getattr(model, "n_epochs", 1), getattr(model, "batch_size", None) or rollout
    each = epochs * math.ceil(rollout / batch)
    stops = ["target_kl"] if getattr(model, "target_kl", None) is not None else []
    return reinforced(model, rollouts * each, each, stops, "{} rollouts of {} steps".format(rollouts, rollout))


def off_policy(model) -> Told | None:
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


def reinforced(model, total, each, stops, how) -> Told:
    stops = stops + (["a callback"] if own_callback(model) else [])
    how = "total_timesteps={}, {}".format(model._total_timesteps, how)
    name = "Stable-Baselines3 " + type(model).__name__
    return Told(trainer=name, total=number(total), per_epoch=each, may_stop=stops, how=how)


def own_callback(model):
    """Whether `learn` was called with a callback of the user's, or one that stops: any may return False."""
    for live in outwards(sys._getframe(1)):
        if live.f_code.co_name == "learn" and live.f_locals.get("self") is model:
            given = live.f_locals.get("callback")
            return any(type(one).__name__ not in NEVER_STOP for one in getattr(given, "callbacks", [given]))
    return False


def stoppers(callbacks):
    """Names of the callbacks that may end a training: by their name, or the user's own by what they set."""
    return [type(one).__name__ for one in callbacks if one is not None and may_stop(type(one))]


def may_stop(kind):
    if "stop" in kind.__name__.lower():
        return True
    functions = [getattr(one, "__code__", None) for base in kind.__mro__ for one in vars(base).values()]
    own = [code for code in functions if code is not None and not package_of_file(code.co_filename)]
    return any(STOP_WORDS & set(code.co_names) for code in own)


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
    # Read from its documentation and source, version 2.9.2.
    ("stable_baselines3", "OnPolicyAlgorithm"): on_policy,
    ("stable_baselines3", "OffPolicyAlgorithm"): off_policy,
}
