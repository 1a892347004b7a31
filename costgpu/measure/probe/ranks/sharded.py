"""Models whose parameters are sharded: `FullyShardedDataParallel` and `fully_shard`, as they are called."""

from __future__ import annotations

import sys

from ..patching import harmless, put, replace, wrap
from .schemes import sizes_of
from .world import WORLD

FULLY_SHARD = (  # modules that have it, in torch 2.4 to 2.13
    "torch.distributed.fsdp",
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed.fsdp._fully_shard._fully_shard",
    "torch.distributed._composable",
    "torch.distributed._composable.fsdp",
    "torch.distributed._composable.fsdp.fully_shard",
)
STRATEGIES = {
    "SHARD_GRAD_OP": "fsdp_grad_op",
    "NO_SHARD": "ddp",
    "HYBRID_SHARD": "hsdp",
    "_HYBRID_SHARD_ZERO2": "hsdp",
}


class Sharded:
    """Tells `Schemes` of each unit."""

    def __init__(self, schemes):
        self.schemes = schemes
        self.attached = set()
        self.units = None  # sizes of the units made by the constructor that is running; None outside of one

    def callbacks(self):
        """Return what to do after a module has been imported, by the module's name."""
        return {"torch.distributed.fsdp": self.attach, "torch.distributed._composable.fsdp": self.attach}

    def attach(self, module):
        kind, inner = getattr(module, "FullyShardedDataParallel", None), getattr(module, "fully_shard", None)
        if kind is not None and kind not in self.attached:
            self.attached.add(kind)
            wrap(kind, "__init__", self.construct)
        if inner is not None and inner not in self.attached:
            made = replace(module, "fully_shard", self.make_fully_shard)
            self.attached.update((inner, made))
            for name in FULLY_SHARD:
                if getattr(sys.modules.get(name), "fully_shard", None) is inner:
                    put(sys.modules[name], fully_shard=made)

    def construct(self, inner, one, module, *args, **kwargs):
        """Return the outermost constructor makes those of the module's parts, each of which is a unit."""
        # without those that belong to a unit that has been made already
        flat = ("_is_flat_param", "_fsdp_flattened")
        loose = sizes_of(p for p in module.parameters() if not any(getattr(p, name, False) for name in flat))
        if not WORLD.has_gpu:
            kwargs.update(device_id=WORLD.torch.device("cpu"), sync_module_states=False)  # rank 0 has what others get
        around, self.units = self.units, []
        try:
            result = inner(one, module, *args, **kwargs)
        finally:
            inside, self.units = self.units, around
        whole = sum(size for size, _ in loose)
        if around is not None:
            around.append(
                whole
            )  # with its own parts, which are units of their own: of the largest, no less is gathered
            return result
        strategy = kwargs.get("sharding_strategy", args[1] if len(args) > 1 else None)
        scheme = STRATEGIES.get(getattr(strategy, "name", None), "fsdp")
        units = [whole - sum(inside), *inside]
        harmless(self.schemes.sight)(scheme, "FullyShardedDataParallel", loose, units)
        return result

    def make_fully_shard(self, inner):
        def fully_shard(module, *args, **kwargs):
            modules = module if isinstance(module, (list, tuple)) else [module]
            loose = sizes_of(p for one in modules for p in one.parameters() if not hasattr(p, "_local_tensor"))
            result = inner(module, *args, **kwargs)
            note(loose, kwargs.get("mesh", args[0] if args else None), kwargs.get("reshard_after_forward", True))
            return result

        @harmless
        def note(loose, mesh, reshard):
            scheme = "hsdp" if getattr(mesh, "ndim", 1) == 2 else "fsdp_grad_op" if reshard is False else "fsdp"
            self.schemes.sight(scheme, "fully_shard", loose, [sum(size for size, _ in loose)])

        return fully_shard
