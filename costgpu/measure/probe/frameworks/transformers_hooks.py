"""Hugging Face's Trainer and `generate`."""

from __future__ import annotations

from functools import partial

from ..inference.hooks import attach_generate
from ..patching import observe
from ..ranks.schemes import sizes_of


def attach_trainer(schemes, module):
    """Hugging Face's Trainer, which copies the model to all GPUs that it sees, unless a launcher gives it one of them."""

    def trains(trainer, *_, **__):
        arguments = trainer.args
        if arguments.parallel_mode.name != "DISTRIBUTED" and not getattr(arguments, "use_cpu", False):
            schemes.sight("data_parallel", "Hugging Face Trainer on all GPUs", sizes_of(trainer.model.parameters()))

    observe(getattr(module, "Trainer", None), "train", trains, before=True)


def hooks(recorder):
    def attach(module):
        recorder.saving.time(getattr(module, "Trainer", None), "_save_checkpoint")
        attach_trainer(recorder.schemes, module)

    return {"transformers.trainer": attach, "transformers.generation.utils": partial(attach_generate, recorder)}
