"""What the script calls to spread a model over ranks; each kind is one sighting, with its place and its sizes."""

from __future__ import annotations

import sys
from functools import partial

from ..loops.script_frames import own_place
from ..patching import harmless, observe, wrap

CALLS = {  # module -> a function or a class of it, scheme, and what it is called
    "torch.distributed.optim.zero_redundancy_optimizer": (
        "ZeroRedundancyOptimizer",
        "zero1",
        "ZeroRedundancyOptimizer",
    ),
    "torch.distributed.tensor.parallel": ("parallelize_module", "tensor", "parallelize_module"),
    "torch.distributed.pipelining": ("PipelineStage", "pipeline", "PipelineStage"),
}


class Schemes:
    """All sightings, in the order in which they were first made."""

    def __init__(self):
        self.found = []
        self.meshes = []  # [sizes, names] of device meshes
        self.comm_hooks = []  # names of communication hooks
        self.global_batch = False  # the framework divides the batch among the ranks
        self.sampler_inserted = False  # the framework gives every rank its part of the data

    def batch_is_divided(self):
        """Note that the framework divides the batch among the ranks."""
        self.global_batch = True

    def data_are_divided(self, divided=True):
        """Note whether the framework gives every rank its part of the data."""
        self.sampler_inserted = divided

    def sight(self, scheme, what, parameters=(), units=(), place=None):
        """Add a model, or a part of one, to the sighting of this kind.

        Args:
            scheme: A value of costgpu's `Scheme`.
            what: The name of what was called.
            parameters: (size, whether it takes a gradient) of each.
            units: Sizes of the units that are gathered at once, where parameters are sharded.
            place: Where it is in the source; None for the line that is being run.
        """
        same = next((one for one in self.found if one["what"] == what), None)
        if same is None:
            place = own_place() if place is None else place
            same = {"what": what, "place": place, "schemes": {}, "parameters": 0, "trained": 0, "unit": 0, "units": 0}
            self.found.append(same)
            self.global_batch |= what.startswith("nn.DataParallel")
        size = sum(size for size, _ in parameters)
        same["schemes"][scheme] = same["schemes"].get(scheme, 0) + size
        same["parameters"] += size
        same["trained"] += sum(size for size, trained in parameters if trained)
        same["unit"] = max([same["unit"], *units])
        same["units"] += sum(1 for size in units if size)

    def attach(self, torch):
        """Watch what torch has from the beginning."""
        self.on_construction(getattr(torch.nn.parallel, "DistributedDataParallel", None), "ddp")
        self.on_construction(torch.nn.DataParallel, "data_parallel", "nn.")

        def register(one, state, hook, *_, **__):
            self.comm_hooks.append(str(getattr(hook, "__name__", hook)))

        def make_mesh(inner, *args, **kwargs):
            mesh = inner(*args, **kwargs)
            note(mesh)
            return mesh

        @harmless
        def note(mesh):
            names = getattr(mesh, "mesh_dim_names", None) or ()
            self.meshes.append([[int(size) for size in mesh.mesh.shape], [str(name) for name in names]])

        parallel = getattr(torch.nn.parallel, "DistributedDataParallel", None)
        observe(parallel, "register_comm_hook", register, before=True)
        for owner in ("torch.distributed", "torch.distributed.device_mesh"):
            wrap(sys.modules.get(owner), "init_device_mesh", make_mesh)

    def on_construction(self, kind, scheme, package=""):
        """Note each object of a class that wraps a whole model."""

        def note(one, module, *_, **__):
            self.sight(scheme, package + kind.__name__, sizes_of(module.parameters()))

        observe(kind, "__init__", note, before=True)

    def on_call(self, name, scheme, what, owner):
        """Note each call of a function or construction of a class, before it is made."""
        kind = getattr(owner, name, None)
        place = (kind, "__init__") if isinstance(kind, type) else (owner, name)
        observe(*place, lambda *_, **__: self.sight(scheme, what), before=True)

    def callbacks(self):
        """Return what to do after a module has been imported, by the module's name."""
        return {module: partial(self.on_call, *call) for module, call in CALLS.items()}


def sizes_of(parameters):
    """(size, whether it takes a gradient) of each."""
    return [(int(one.numel()), bool(one.requires_grad)) for one in parameters]
