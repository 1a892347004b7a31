"""Entry point: runs the script as Python would, or the micro-benchmark."""

import builtins
import errno
import importlib.abc
import importlib.util
import io
import json
import os
import signal
import sys
import time
import traceback
import types
from functools import partial

from ...portable.supervise import PARENT_DEATH_SIGNAL, control
from .frameworks.accelerate_hooks import set_launch_environment
from .frameworks.pretrained_weights import PretrainedWeights
from .frameworks.registry import FRAMEWORKS, PACKAGES
from .loops.script_frames import PROBE_ROOT, package_of_file
from .patching import harmless, put
from .recorder import Recorder
from .sandbox import fake_nvidia
from .sandbox.child_processes import follow_child_processes, follow_hdf5, follow_safetensors
from .sandbox.files import Files
from .sandbox.overlay_renames import rename_folders
from .sandbox.reads import Reads
from .schedstat import clock
from .watchdog import Watchdog


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when a module has been imported, and leaves the import itself to the finders that exist."""

    def __init__(self, recorder, callbacks):
        self.recorder, self.callbacks, self.asking = recorder, callbacks, set()
        self.importing = False
        self.waiting = [one for one in FRAMEWORKS if one.hooks]
        for package in PACKAGES & sys.modules.keys():  # an interpreter may start with some of them
            self.attach(package)

    @harmless
    def attach(self, package):
        """Have the hooks of the frameworks that come with a package called after the imports that they wait for."""
        for framework in [one for one in self.waiting if package in one.packages]:
            self.waiting.remove(framework)
            for module, hook in getattr(framework.module(), "hooks", lambda _: {})(self.recorder).items():
                self.callbacks.setdefault(module, []).append(hook)

    def find_spec(self, name, path=None, target=None):
        if name in PACKAGES:
            self.attach(name)
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
            outermost, self.importing = not self.importing, True
            begin, busy = clock(), time.process_time()
            try:
                run(module)
            finally:
                if outermost:
                    self.importing = False
                    self.recorder.imported(clock() - begin, time.process_time() - busy)
            for callback in self.callbacks.pop(name, ()):  # not before: a script may only ask whether it is there
                callback(module)

        put(spec.loader, exec_module=exec_module)
        return spec


def run_script(config):
    """Run the script as `python script.py` or `python -m module` would."""
    if config.get("module"):
        import runpy

        sys.path.insert(0, os.getcwd())
        sys.argv = [config["module"], *config["args"]]
        runpy.run_module(config["module"], run_name="__main__", alter_sys=True)
        return
    path = config["script"]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    sys.argv = [path, *config["args"]]
    with io.open(path, "rb") as stream:
        code = compile(stream.read(), path, "exec", dont_inherit=True)
    module = types.ModuleType("__main__")
    put(module, __file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - this is what the probe is for


def run(config):
    control(PARENT_DEATH_SIGNAL, signal.SIGKILL)()  # where this is not Linux, the watchdog looks after it
    files = Files(config["scratch"])
    reads = Reads(config["scratch"])
    recorder = Recorder(config, files, reads)
    os.register_at_fork(after_in_child=recorder.forked)
    follow_child_processes(config["scratch"])
    rename_folders()
    sys.addaudithook(reads.audit)
    sys.addaudithook(files.audit)
    after = {"safetensors.torch": [follow_safetensors], "h5py._hl.files": [follow_hdf5]}
    for module, hooks in PretrainedWeights(recorder).callbacks().items():
        after[module] = after.get(module, []) + hooks
    if config["fake_cuda"]:
        fake_nvidia.put_program(config["scratch"], config["gpus"])
        after["pynvml"] = [partial(fake_nvidia.attach_nvml, config["gpus"])]
    sys.meta_path.insert(0, AfterImport(recorder, after))
    sys.path.pop(0)  # the probe's own folder
    watchdog = Watchdog(recorder)
    watchdog.start()
    recorder.start()
    if config["accelerate"] is not None:
        set_launch_environment(config["accelerate"], int(os.environ.get("WORLD_SIZE", "1")))
    try:
        run_script(config)
    except SystemExit as stop:
        code = stop.code
        if code not in (None, 0):
            number, message = (code & 0xFF, "") if isinstance(code, int) else (1, str(code))
            if message:
                sys.stderr.write(message + "\n")  # as the interpreter does
            recorder.finish("exited", code=number, message=message)
    except BaseException as error:  # noqa: BLE001 - reported to the parent, which explains it
        trail = traceback.format_exception(type(error), error, error.__traceback__)
        ours = [line for line in trail if PROBE_ROOT not in line and "runpy" not in line]
        sys.stderr.write("".join(ours))
        recorder.finish(
            "crashed",
            kind=type(error).__name__,
            raised_in=raised_in(error),
            message=str(error)[-2000:],
            refused_path=refused_path(error),
            missing=error.name if isinstance(error, ImportError) else None,
            trail="".join(ours)[-4000:],
            while_tracing=recorder.tracing is not None,
            no_module=isinstance(error, ModuleNotFoundError),
            bases=[base.__name__ for base in type(error).__mro__],
        )
    recorder.finish("ended")


def raised_in(error):
    """Whose code raised it: ``script``, ``probe``, or the name of a library."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    path = trace.tb_frame.f_code.co_filename if trace is not None else ""
    return "probe" if path.startswith(PROBE_ROOT) else package_of_file(path) or "script"


def refused_path(error):
    """Return the absolute path that the system did not let it change; None for another error."""
    refused = isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES, errno.EROFS, errno.EXDEV)
    named = refused and isinstance(error.filename, (str, bytes))
    return os.path.abspath(os.fsdecode(error.filename)) if named else None


def main():
    with io.open(sys.argv[2]) as stream:
        config = json.load(stream)
    run(config)
