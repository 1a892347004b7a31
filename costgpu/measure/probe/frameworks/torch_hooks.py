"""Puts our calls into torch once the script has imported it."""

import multiprocessing
import os
import sys
import time
import types

from ..op_tracer import clock
from ..sandbox.fake_cuda import FakeCuda
from .gpu_requests import GPU_REQUESTS


class TorchHooks:
    """Wraps torch's optimizers, backward passes, data loading, saving and modules; each call goes to the recorder."""

    def __init__(self, recorder, guard):
        self.recorder, self.guard = recorder, guard
        self.in_backward = False

    def attach(self, torch):
        self.attach_optimizers(torch)
        self.attach_backward(torch)
        self.attach_data(torch)
        self.attach_saving(torch)
        self.attach_modules(torch)
        GPU_REQUESTS.attach(torch)
        if self.recorder.config.get("fake_cuda"):
            FakeCuda(GPU_REQUESTS, self.recorder.libraries).attach(torch)

    def attach_optimizers(self, torch):
        recorder, hooks = self.recorder, self
        optimizer = torch.optim.Optimizer
        made = optimizer.__init__

        def __init__(self, *args, **kwargs):
            recorder.optimizers_made += 1
            made(self, *args, **kwargs)
            if not hooked and not hasattr(self, "_costgpu_step"):
                hooks.wrap_step(self)

        optimizer.__init__ = __init__
        module = sys.modules.get("torch.optim.optimizer")
        hooked = hasattr(module, "register_optimizer_step_post_hook")
        if hooked:
            module.register_optimizer_step_pre_hook(lambda opt, args, kwargs: recorder.enter_optimizer())
            module.register_optimizer_step_post_hook(lambda opt, args, kwargs: recorder.step(opt, sys._getframe(1)))

    def hook_again(self, kind):
        """The compiler of torch 2.1 to 2.3 takes the step hooks off every optimizer, and says that they are on."""
        hook = getattr(kind, "profile_hook_step", None)
        step = vars(kind).get("step")
        if hook is not None and getattr(step, "hooked", False):
            if getattr(step, "__code__", None) is not hook(lambda one: None).__code__:
                kind.step = hook(step)
                kind.step.hooked = True
        for derived in kind.__subclasses__():
            self.hook_again(derived)

    def wrap_step(self, optimizer):
        """Torch before 2.0 has no global step hooks."""
        inner, recorder = optimizer.step, self.recorder
        optimizer._costgpu_step = True

        def step(_, *args, **kwargs):
            recorder.enter_optimizer()
            result = inner(*args, **kwargs)
            recorder.step(optimizer, sys._getframe(1))
            return result

        optimizer.step = types.MethodType(step, optimizer)  # schedulers of that time take it apart

    def attach_backward(self, torch):
        inner, recorder, hooks = torch.autograd.backward, self.recorder, self

        def backward(*args, **kwargs):
            nested, hooks.in_backward = hooks.in_backward, True
            tracing = recorder.tracing
            if tracing is not None:
                tracing.pause()
                tracing.phase = "backward"
            try:
                return inner(*args, **kwargs)
            finally:
                hooks.in_backward = nested
                recorder.backwards += 1
                if tracing is not None:
                    tracing.phase = "forward"
                    tracing.resume()
                if not nested:
                    recorder.after_backward()

        torch.autograd.backward = backward

    def attach_data(self, torch):
        data = sys.modules.get("torch.utils.data.dataloader")
        if data is None:
            return
        recorder, iterator = self.recorder, data._BaseDataLoaderIter
        following, start = iterator.__next__, data.DataLoader.__iter__

        def __next__(it):
            tracing = recorder.tracing
            if tracing is not None:
                tracing.pause()
                tracing.muted += 1
            begin = clock()
            try:
                batch = following(it)
            finally:
                recorder.wait += clock() - begin
                if tracing is not None:
                    tracing.muted -= 1
            recorder.batch_drawn(it, batch)
            if tracing is not None:
                tracing.resume()
            return batch

        def __iter__(loader):
            begin = clock()
            try:
                it = start(loader)
            finally:
                recorder.add("loader_start", clock() - begin)
            recorder.loaders.open(it, loader)
            return it

        iterator.__next__ = __next__
        iterator.next = __next__
        data.DataLoader.__iter__ = __iter__
        fetchers = sys.modules.get("torch.utils.data._utils.fetch")
        try:  # shared with the workers, which inherit it by fork
            recorder.fetch = [
                multiprocessing.Value("d", 0.0),
                multiprocessing.Value("l", 0),
                multiprocessing.Value("d", 0.0),
            ]
        except OSError:
            recorder.fetch = None
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            fetcher = getattr(fetchers, name, None)
            if fetcher is not None and recorder.fetch is not None:
                fetcher.fetch = self.timed_fetch(fetcher.fetch)

    def timed_fetch(self, inner):
        seconds, count, waited = self.recorder.fetch

        def fetch(fetcher, index):
            worker = os.getpid() != recorder_pid
            begin, cpu = clock(), time.process_time()
            result = inner(fetcher, index)
            wall, busy = clock() - begin, time.process_time() - cpu
            with seconds.get_lock():
                seconds.value += busy if worker else wall
                waited.value += max(0.0, wall - busy) if worker else 0.0
                count.value += 1
            return result

        recorder_pid = os.getpid()
        return fetch

    def attach_saving(self, torch):
        recorder, guard = self.recorder, self.guard

        def timed(inner):
            def save(obj, f, *args, **kwargs):
                begin = clock()
                if isinstance(f, (str, bytes, os.PathLike)):
                    f = guard.write_path(f, keep=False, always=True)
                try:
                    return inner(obj, f, *args, **kwargs)
                finally:
                    recorder.add("save", clock() - begin)

            return save

        torch.save = timed(torch.save)
        storage = getattr(torch, "UntypedStorage", None)
        for owner in [torch] + ([storage] if storage is not None else []):
            inner_from_file = getattr(owner, "from_file", None)
            if inner_from_file is not None:
                self.guard_mapping(owner, inner_from_file)
        if hasattr(torch, "jit"):
            torch.jit.save = timed(torch.jit.save)
            for name in ("ScriptModule", "RecursiveScriptModule"):
                scripted = getattr(torch.jit, name, None)
                if scripted is not None and "save" in vars(scripted):
                    scripted.save = timed(scripted.save)

    def guard_mapping(self, owner, inner):
        """A shared mapping writes to its file behind Python's back."""
        guard = self.guard

        def from_file(filename, shared=False, *args, **kwargs):
            if shared:
                filename = os.fspath(guard.write_path(filename, keep=True))
            return inner(filename, shared, *args, **kwargs)

        owner.from_file = from_file if isinstance(owner, type(os)) else staticmethod(from_file)

    def attach_modules(self, torch):
        recorder, module = self.recorder, torch.nn.Module
        train, busy = module.train, [False]

        def set_mode(self, mode=True):
            if busy[0]:
                return train(self, mode)
            busy[0] = True
            try:
                return train(self, mode)
            finally:
                busy[0] = False
                recorder.mode_changed(mode)

        module.train = set_mode
        cast = getattr(torch, "autocast", None)
        if cast is not None:
            entered, made = cast.__enter__, cast.__init__

            def __init__(self, *args, **kwargs):  # CUDA autocast disables itself here: keep what was asked for
                given = dict(zip(("device_type", "dtype", "enabled"), args))
                self._costgpu_enabled = bool(kwargs.get("enabled", given.get("enabled", True)))
                made(self, *args, **kwargs)

            cast.__init__ = __init__

            def __enter__(self):
                enabled = bool(getattr(self, "_costgpu_enabled", getattr(self, "_enabled", True)))
                dtype = str(getattr(self, "fast_dtype", "")).replace("torch.", "")
                recorder.autocast[(str(getattr(self, "device", "")), dtype, enabled)] = True
                return entered(self)

            cast.__enter__ = __enter__
        if hasattr(torch, "compile"):
            compiled = torch.compile

            def compile_(*args, **kwargs):
                recorder.compiled += 1
                try:
                    return compiled(*args, **kwargs)
                finally:
                    self.hook_again(torch.optim.Optimizer)

            torch.compile = compile_
