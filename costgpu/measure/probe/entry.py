"""Entry point: runs the script as Python would, or the micro-benchmark."""

import builtins
import importlib.abc
import importlib.util
import io
import json
import os
import signal
import sys
import traceback
import types

from .frameworks.boosting_hooks import attach_catboost, attach_lightgbm, attach_xgboost
from .frameworks.jax_hooks import Jax
from .frameworks.keras_hooks import Keras
from .frameworks.sklearn_hooks import Fits
from .loops.loop_stack import HERE
from .loops.tqdm_and_loops import attach_tqdm
from .op_tracer import clock
from .recorder import Recorder
from .sandbox.file_guard import Guard
from .watchdog import Watchdog


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when a module has been imported, and leaves the import itself to the finders that exist."""

    def __init__(self, callbacks):
        self.callbacks, self.asking = callbacks, set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.callbacks or name in self.asking:
            return None
        self.asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            callback = self.callbacks.pop(name, None)  # not before: a script may only ask whether it is there
            if callback is not None:
                callback(module)

        spec.loader.exec_module = exec_module
        return spec


def guard_safetensors(guard):
    def attach(module):
        for name, position in (("save_file", 1), ("save_model", 1)):
            inner = getattr(module, name, None)
            if inner is None:
                continue

            def save(*args, _inner=inner, _at=position, **kwargs):
                args = list(args)
                if len(args) > _at:
                    args[_at] = guard.write_path(args[_at], keep=False, always=True)
                elif "filename" in kwargs:
                    kwargs["filename"] = guard.write_path(kwargs["filename"], keep=False, always=True)
                return _inner(*args, **kwargs)

            setattr(module, name, save)

    return attach


def frameworks(recorder):
    """Module -> what to do when it has been imported."""
    beats = recorder.beats
    keras, fits = Keras(beats), Fits(beats)
    recorder.fits = fits
    return {
        "torch": recorder.attach,
        "keras": keras.attach,
        "tf_keras": keras.attach,
        "tensorflow.python.eager.polymorphic_function.polymorphic_function": keras.attach_functions,
        "jax": Jax(beats).attach,
        "xgboost.core": attach_xgboost(beats),
        "lightgbm.basic": attach_lightgbm(beats),
        "catboost.core": attach_catboost(beats),
        "sklearn.base": fits.attach_base,
        "sklearn.ensemble._forest": fits.attach_forest,
        "sklearn.ensemble._gb": fits.attach_boosting,
        "sklearn.ensemble._hist_gradient_boosting.grower": fits.attach_grower,
        "sklearn.model_selection._validation": fits.attach_search,
        "sklearn.neural_network._multilayer_perceptron": fits.attach_network,
        "tqdm.std": attach_tqdm(beats),
    }


def die_with_parent():
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except Exception:  # noqa: BLE001 - not Linux; the watchdog looks after it
        pass


def read_script(path):
    with io.open(path, "rb") as stream:
        return stream.read()


def run_script(config, recorder):
    """Runs the script as `python script.py` or `python -m module` would."""
    if config.get("module"):
        import runpy

        sys.path.insert(0, os.getcwd())
        sys.argv = [config["module"], *config["args"]]
        runpy.run_module(config["module"], run_name="__main__", alter_sys=True)
        return
    path = config["script"]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    sys.argv = [path, *config["args"]]
    code = compile(read_script(path), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__ = path, builtins
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - this is what the probe is for


SITE = """# Installs costgpu's guard in the Python processes that a measured script starts, then the site's own file.
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
try:
    sys.path.insert(0, os.path.join(os.path.dirname(here), "probe.pyz"))
    from _costgpu_probe.guard import Guard
    Guard(os.path.dirname(here)).install()
except Exception as error:
    sys.stderr.write("costgpu: no guard in this process: {}\\n".format(error))
finally:
    sys.path.pop(0)
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    pass
"""


def guard_children(scratch):
    folder = os.path.join(scratch, "site")
    os.makedirs(folder, exist_ok=True)
    with io.open(os.path.join(folder, "sitecustomize.py"), "w") as stream:
        stream.write(SITE)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + before if before else "")


def run(config):
    die_with_parent()
    guard_children(config["scratch"])
    guard = Guard(config["scratch"])
    recorder = Recorder(config, guard)
    os.register_at_fork(after_in_child=lambda: setattr(recorder, "status", "child"))
    guard.install()
    sys.meta_path.insert(0, AfterImport({**frameworks(recorder), "safetensors.torch": guard_safetensors(guard)}))
    sys.path.pop(0)  # the probe's own folder
    watchdog = Watchdog(recorder)
    watchdog.start()
    recorder.started = clock()
    try:
        run_script(config, recorder)
    except SystemExit as stop:
        code = stop.code
        if code in (None, 0):
            recorder.finish("ended")
        recorder.finish(
            "exited",
            code=code if isinstance(code, int) else 1,
            message="" if isinstance(code, int) else str(code),
        )
    except BaseException as error:  # noqa: BLE001 - reported to the parent, which explains it
        missing = error.name if isinstance(error, ImportError) else None
        tracing = recorder.tracing is not None
        trail = traceback.format_exception(type(error), error, error.__traceback__)
        ours = [line for line in trail if HERE not in line and "runpy" not in line]
        sys.stderr.write("".join(ours))
        recorder.finish(
            "crashed",
            kind=type(error).__name__,
            message=str(error)[-2000:],
            missing=missing,
            trail="".join(ours)[-4000:],
            while_tracing=tracing,
            no_module=isinstance(error, ModuleNotFoundError),
            bases=[base.__name__ for base in type(error).__mro__],
        )
    recorder.finish("ended")


def bench(seconds=1.5):
    """This machine's speed through torch, all windows of each figure: fp32 GEMM, memory copy, the smallest call.

    They take turns, so that a neighbour who comes for a few seconds slows some windows of each and all of none.
    """
    import torch

    threads = torch.get_num_threads()
    size = 1024
    left, right = torch.randn(size, size), torch.randn(size, size)
    source = torch.zeros(1 << 26, dtype=torch.uint8).view(torch.float32)
    target = torch.empty_like(source)

    def window(work, amount):
        work()  # what the others have left in the caches
        repeats, begin = 0, clock()
        while repeats == 0 or clock() - begin < seconds / 12:
            work()
            repeats += 1
        return amount * repeats / (clock() - begin) / 1e9

    tiny = torch.zeros(8)
    gemm, copy, calls, start = [], [], [], clock()
    while len(gemm) < 5 or clock() - start < 3 * seconds:
        gemm.append(window(lambda: torch.mm(left, right), 2 * size**3))
        copy.append(window(lambda: target.copy_(source), 2 * source.numel() * 4))
        calls.append(window(lambda: tiny.add_(1.0), 1e9))
    return {
        "threads": threads,
        "gemm_gflops": sorted(gemm),
        "copy_gbps": sorted(copy),
        "op_seconds": sorted(1.0 / rate for rate in calls),
    }


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "bench":
        sys.path.pop(0)
        sys.stdout.write(json.dumps(bench()) + "\n")
        return
    with io.open(sys.argv[2]) as stream:
        config = json.load(stream)
    os.chdir(config["cwd"])
    run(config)
