"""What Keras, TensorFlow and JAX are told of several devices; each is measured on those of this machine."""

from __future__ import annotations

import re
import sys

from ..loops.script_frames import package_of_file
from ..patching import harmless, observe, put, wrap

TENSOR_AXES = re.compile(r"^(tp|tensor|model|mp|mdl|sp|seq|ep|expert)", re.IGNORECASE)
PIPELINE_AXES = re.compile(r"^(pp|pipe|stage)", re.IGNORECASE)
KERAS = {"DataParallel": "ddp", "ModelParallel": "tensor"}
TENSORFLOW = {  # module below tensorflow.python.distribute -> class, what it is called, scheme
    "mirrored_strategy": ("MirroredStrategy", "MirroredStrategy", "ddp"),
    "collective_all_reduce_strategy": ("CollectiveAllReduceStrategy", "MultiWorkerMirroredStrategy", "ddp"),
    "parameter_server_strategy_v2": ("ParameterServerStrategyV2", "ParameterServerStrategy", "other"),
}


class DistributionHooks:
    """Tells `Schemes`. The batch of all these is that of all devices together."""

    def __init__(self, schemes):
        self.schemes = schemes

    def of_tensorflow(self):
        """Return what to do after a module has been imported, by the module's name."""
        return {
            "tensorflow.python.distribute." + name: self.on_construction(kind, what, scheme)
            for name, (kind, what, scheme) in TENSORFLOW.items()
        }

    def see(self, scheme, what):
        self.schemes.batch_is_divided()
        self.schemes.sight(scheme, what)

    def on_construction(self, kind, what, scheme):
        def attach(module):
            owner = getattr(module, kind, None)
            observe(owner, "__init__", lambda *_, **__: self.see(scheme, "tf.distribute." + what), before=True)

        return attach

    def attach_keras(self, module):
        def chosen(distribution, *_, **__):
            name = type(distribution).__name__
            if name in KERAS:
                self.see(KERAS[name], "keras.distribution." + name)

        owner = getattr(module, "distribution", None)
        observe(owner, "set_distribution", chosen)
        for base in getattr(getattr(owner, "DataParallel", None), "__mro__", ()):
            observe(base, "scope", chosen, before=True)

    def attach_jax(self, module):
        observe(getattr(module, "distributed", None), "initialize", lambda *_, **__: self.see("ddp", "jax.distributed"))
        note, see = harmless(self.made_mesh), harmless(self.see)

        def pmap(inner, *args, **kwargs):  # not observed: `jax_hooks` replaces it, too, and once only
            see("ddp", "jax.pmap")
            return inner(*args, **kwargs)

        wrap(module, "pmap", pmap)
        mesh = getattr(getattr(module, "sharding", None), "Mesh", None)
        inner = getattr(mesh, "__new__", None)

        def make_mesh(inner, *args, **kwargs):
            made = inner(*args, **kwargs)
            note(made)
            return made

        def __new__(kind, *args, **kwargs):
            made = inner(kind, *args, **kwargs)
            if not package_of_file(sys._getframe(1).f_code.co_filename):  # the script's own, and not one of jax
                note(made)
            return made

        wrap(module, "make_mesh", make_mesh)
        if inner is not None:
            put(mesh, __new__=__new__)

    def made_mesh(self, mesh):
        names = [str(name) for name in mesh.axis_names]
        tensor = next((name for name in names if TENSOR_AXES.match(name)), None)
        pipeline = next((name for name in names if PIPELINE_AXES.match(name)), None)
        scheme = "pipeline" if pipeline else "tensor" if tensor else "ddp"
        if scheme == "ddp" and any("fsdp" in name.lower() for name in names):
            scheme = "fsdp"
        self.see(scheme, "a Mesh of {}".format(", ".join(names)))


def hooks(recorder):
    return DistributionHooks(recorder.schemes).of_tensorflow()
