"""Lightning's Trainer, which starts its own processes: what it is asked for, and rank 0 alone in their place."""

from __future__ import annotations

import os

from ..patching import observe, put, wrap
from ..ranks.schemes import sizes_of
from ..ranks.world import WORLD

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


def hooks(recorder):
    return LightningHooks(recorder).callbacks()
