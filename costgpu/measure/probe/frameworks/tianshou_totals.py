"""What Tianshou's trainers say of their length. Read from its source, version 2.0.1."""

from __future__ import annotations

import math

from ..record import TrainerLength
from .trainers import number, positive


def trainer_length(trainer) -> TrainerLength | None:
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
