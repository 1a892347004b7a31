"""What Stable-Baselines3's algorithms say of their length. Read from its documentation and source, version 2.9.2."""

from __future__ import annotations

import math
import sys

from ..loops.script_frames import outwards, variables_of
from ..record import TrainerLength
from .trainers import number

NEVER_STOP = ("NoneType", "ConvertCallback", "ProgressBarCallback", "CheckpointCallback")


def on_policy_length(model) -> TrainerLength:
    """Rollouts of `n_steps` in each environment, each read `n_epochs` times in batches (A2C: once, whole)."""
    rollout = model.n_steps * model.n_envs
    rollouts = math.ceil((model._total_timesteps - begun_at(model)) / rollout)
    epochs, batch = getattr(model, "n_epochs", 1), getattr(model, "batch_size", None) or rollout
    each = epochs * math.ceil(rollout / batch)
    stops = ["target_kl"] if getattr(model, "target_kl", None) is not None else []
    told = reinforced(model, rollouts * each, each, stops, "{} rollouts of {} steps".format(rollouts, rollout))
    told["acts"] = True
    return told


def off_policy_length(model) -> TrainerLength | None:
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
        if live.f_code.co_name == "learn" and variables_of(live).get("self") is model:
            given = variables_of(live).get("callback")
            return any(type(one).__name__ not in NEVER_STOP for one in getattr(given, "callbacks", [given]))
    return False
