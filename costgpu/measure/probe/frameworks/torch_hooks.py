"""Puts our calls into torch once the script has imported it, and notes what the script asks of a GPU."""

import multiprocessing
import os
import sys
import time
import types

from ..loops.script_frames import outwards
from ..patching import known, put, replace, wrap
from ..ranks.sharded import Sharded
from ..sandbox.fake_cuda import FakeCuda
from ..sandbox.files import note_overwritten
from ..schedstat import clock, cpu_clock, run_delay
from .one_rank import ONE_RANK

ATTENTION_PACKAGES = ("flash_attn", "flash_attn_interface", "xformers")


class GpuRequests:
    """What the script asks for that only matters on a GPU, as far as torch's own settings do not say it."""

    def __init__(self):
        self.fake_cuda = False
        self.devices = set()  # indices of CUDA devices that the script names
        self.attention = {}  # kernels that it chooses, in order
        self.failures = []  # of our own patches

    def cuda_is_faked(self):
        self.fake_cuda = True

    def attention_kernels(self):
        """Return the kernels that it chose and packages that it brought along, when the script has set what it sets."""
        packages = [name for name in ATTENTION_PACKAGES if sys.modules.get(name) is not None]
        return list(dict.fromkeys([*self.attention, *packages]))


GPU_REQUESTS = GpuRequests()  # one per process; the result takes what it holds


class TorchHooks:
    """Wraps torch's optimizers, backward passes, data loading, saving and modules; each call goes to the recorder."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.mode_calls = 0  # that are going on, one in the other

    def attach(self, torch):
        self.attach_optimizers(torch)
        self.attach_backward(torch)
        self.attach_data(torch)
        self.attach_saving(torch)
        self.attach_modules(torch)
        ONE_RANK.attach(torch, self.recorder.libraries)
        if self.recorder.config.get("fake_cuda"):
            FakeCuda(GPU_REQUESTS, self.recorder.libraries, self.recorder.config["gpus"]).attach(torch)

    def attach_optimizers(self, torch):
        recorder, hooks = self.recorder, self
        optimizer = torch.optim.Optimizer
        made = optimizer.__init__

        def __init__(self, *args, **kwargs):
            made(self, *args, **kwargs)
            recorder.optimizer_made(self)
            if not hooked and not hasattr(self, "_costgpu_step"):
                hooks.wrap_step(self)

        put(optimizer, __init__=__init__)
        module = sys.modules.get("torch.optim.optimizer")
        hooked = hasattr(module, "register_optimizer_step_post_hook")
        if hooked:
            module.register_optimizer_step_pre_hook(lambda opt, args, kwargs: recorder.optimizer_enters())
            module.register_optimizer_step_post_hook(lambda opt, args, kwargs: recorder.step(opt, sys._getframe(1)))

    def hook_again(self, kind):
        """Attach the step hooks again: the compiler of torch 2.1 to 2.3 unhooks them, and says that they are hooked."""
        hook = getattr(kind, "profile_hook_step", None)
        step = vars(kind).get("step")
        if hook is not None and getattr(step, "hooked", False):
            if getattr(step, "__code__", None) is not hook(lambda one: None).__code__:
                put(kind, step=hook(step))
                put(kind.step, hooked=True)
        for derived in kind.__subclasses__():
            self.hook_again(derived)

    def wrap_step(self, optimizer):
        """Torch before 2.0 has no global step hooks."""
        inner, recorder = optimizer.step, self.recorder

        def step(_, *args, **kwargs):
            recorder.optimizer_enters()
            result = inner(*args, **kwargs)
            recorder.step(optimizer, sys._getframe(1))
            return result

        # schedulers of that time take it apart
        put(optimizer, step=types.MethodType(step, optimizer), _costgpu_step=True)

    def attach_backward(self, torch):
        inner, recorder = torch.autograd.backward, self.recorder

        def backward(*args, **kwargs):
            tracing = recorder.backward_begins()
            try:
                return inner(*args, **kwargs)
            finally:
                recorder.backward_ends(tracing, sys._getframe(1))

        put(torch.autograd, backward=backward)

    def attach_data(self, torch):
        data = sys.modules.get("torch.utils.data.dataloader")
        if data is None:
            return
        recorder, iterator = self.recorder, data._BaseDataLoaderIter
        following, start = iterator.__next__, data.DataLoader.__iter__

        def __next__(it):
            tracing = recorder.batch_asked()
            begin, busy = clock(), cpu_clock()
            try:
                batch = following(it)
            finally:
                waited = clock() - begin
                recorder.batch_awaited(it, waited, max(0.0, waited - (cpu_clock() - busy)), tracing)
            return recorder.batch_fetched(it, batch, tracing)

        def __iter__(loader):
            begin = clock()
            try:
                it = start(loader)
            finally:
                started = clock() - begin
                recorder.add("loader_start", started)
            recorder.loader_opened(it, loader, started)
            return it

        put(iterator, __next__=__next__, next=__next__)
        put(data.DataLoader, __iter__=__iter__)
        fetchers = sys.modules.get("torch.utils.data._utils.fetch")
        try:  # shared with the workers, which inherit it by fork
            methods = multiprocessing.get_all_start_methods()
            context = multiprocessing.get_context(methods[0])  # by its name: the script may still choose the default
            # of all fetches, and of the first of each worker of each iterator, which may open files or build an index
            recorder.fetches_are_timed(context.Array("d", 4), context.Array("d", 4))
        except OSError:
            return
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            replace(getattr(fetchers, name, None), "fetch", self.timed_fetch)

    def timed_fetch(self, inner):
        recorder, begun = self.recorder, "_costgpu_fetched"

        def fetch(fetcher, index):
            figures = recorder.fetch if hasattr(fetcher, begun) else recorder.first_fetch
            put(fetcher, **{begun: True})
            worker = os.getpid() != recorder_pid
            before = run_delay() if worker else 0.0
            begin, cpu = clock(), time.process_time()
            result = inner(fetcher, index)
            wall, busy = clock() - begin, time.process_time() - cpu
            lost = min(run_delay() - before, max(0.0, wall - busy)) if worker else 0.0
            took = (busy if worker else min(busy, wall), 1, max(0.0, wall - busy - lost), lost)
            with figures.get_lock():
                figures[:] = [one + more for one, more in zip(figures, took)]
            return result

        recorder_pid = os.getpid()
        return fetch

    def attach_saving(self, torch):
        recorder = self.recorder

        def timed(inner):
            def save(obj, f, *args, **kwargs):
                begin = clock()
                note_overwritten(f)
                try:
                    return inner(obj, f, *args, **kwargs)
                finally:
                    if not recorder.saving.inside:
                        recorder.saved(clock() - begin, size_of(f))

            return save

        scripts = getattr(torch, "jit", None)
        replace(torch, "save", timed)
        replace(scripts, "save", timed)
        for name in ("ScriptModule", "RecursiveScriptModule"):
            kind = getattr(scripts, name, None)
            if kind is not None and "save" in vars(kind):
                replace(kind, "save", timed)

    def mode_call(self, more):
        """Count a call of `train` that begins or ends (-1), and return how many go on."""
        self.mode_calls += more
        return self.mode_calls

    def a_library_is_imported(self, frame):
        """Return whether this is called while a library is imported: what that compiles, the script may never call."""
        bodies = (live.f_code.co_filename for live in outwards(frame) if live.f_code.co_name == "<module>")
        return next(bodies, "").startswith(self.recorder.libraries)

    def attach_modules(self, torch):
        recorder, hooks = self.recorder, self

        def make_train(train):
            def set_mode(module, mode=True):
                outermost = hooks.mode_call(1) == 1  # else of the module that this one is part of
                try:
                    return train(module, mode)
                finally:
                    hooks.mode_call(-1)
                    if outermost:
                        recorder.evaluation.mode_changed(module, mode)

            return set_mode

        def make_init(made):
            def __init__(cast, *args, **kwargs):  # CUDA autocast disables itself here: keep what was asked for
                given = dict(zip(("device_type", "dtype", "enabled"), args))
                put(cast, _costgpu_enabled=bool(kwargs.get("enabled", given.get("enabled", True))))
                made(cast, *args, **kwargs)

            return __init__

        def make_enter(entered):
            def __enter__(cast):
                enabled = bool(getattr(cast, "_costgpu_enabled", getattr(cast, "_enabled", True)))
                dtype = str(getattr(cast, "fast_dtype", "")).replace("torch.", "")
                recorder.autocast_entered(str(getattr(cast, "device", "")), dtype, enabled)
                return entered(cast)

            return __enter__

        def compile_(compiled, *args, **kwargs):
            if not hooks.a_library_is_imported(sys._getframe(2)):
                recorder.compiling()
            try:
                result = compiled(*args, **kwargs)
            finally:
                hooks.hook_again(torch.optim.Optimizer)
            if recorder.compiles:
                recorder.module_hooks.compiles(result)
            return result

        replace(torch.nn.Module, "train", make_train)
        cast = getattr(torch, "autocast", None)
        replace(cast, "__init__", make_init)
        replace(cast, "__enter__", make_enter)
        wrap(torch, "compile", compile_)


def size_of(target):
    """Return the bytes of what was just saved to a path or a stream; 0 if that cannot be told."""
    is_path = isinstance(target, (str, bytes, os.PathLike))
    return float(known(lambda: os.path.getsize(target) if is_path else target.tell(), default=0))


def hooks(recorder):
    return {"torch": recorder.attach, **recorder.schemes.callbacks(), **Sharded(recorder.schemes).callbacks()}
