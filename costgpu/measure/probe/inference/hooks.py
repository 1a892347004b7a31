"""Puts calls around the outermost calls of modules, `generate()`, and gradients that no backward pass takes."""

from __future__ import annotations

import contextlib
import sys
from functools import partial

from ..patching import harmless, replace, wrap

LOOKS_UP = "_frames_up"  # how torch.jit.script is told in which caller's frame a class finds its names
OUR_FRAMES = 2  # between it and that caller


class Hook:
    """A hook of a module, of which nothing is left where that is pickled: a saved model, or another process."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        return self.call(*args)

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything and does nothing


def always(register, hook):
    """Have a hook called after each forward pass, also one that fails; in torch before 2.1 not after those."""
    try:
        return register(hook, always_call=True)
    except TypeError:
        return register(hook)


class ModuleHooks:
    """Hooks of all modules, while nothing trains; of compiled ones their own, since Dynamo guards on the global ones."""

    def __init__(self, follower, torch):
        self.follower, self.torch = follower, torch
        self.handles = []
        self.compiled = False
        self.narrowed = False  # to the models that are known; a hook of every module costs 4 us a call
        self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)
        wrap(torch.autograd, "grad", self.gradients)
        for name in ("script", "trace"):
            wrap(getattr(torch, "jit", None), name, self.scripted)
        root = torch.__file__.rpartition("__init__")[0]
        for name in ("no_grad", "inference_mode"):
            replace(getattr(torch, name, None), "__enter__", partial(self.without_gradients, root))

    def without_gradients(self, root, inner):
        """Return a test after training says so; what torch does without gradients inside of a step does not count."""

        def __enter__(context):
            if (not self.handles and not self.compiled) or self.narrowed:
                path = sys._getframe(1).f_code.co_filename
                if not path.startswith(root) or path.endswith("_contextlib.py"):
                    self.attach()
            return inner(context)

        return __enter__

    def scripted(self, inner, *args, **kwargs):
        """TorchScript would compile the hooks of a model with it."""
        if LOOKS_UP in getattr(getattr(inner, "__code__", None), "co_varnames", ()) and len(args) < 3:
            kwargs[LOOKS_UP] = kwargs.get(LOOKS_UP, 0) + OUR_FRAMES
        narrowed = self.narrowed
        if narrowed:
            self.detach()
        try:
            return inner(*args, **kwargs)
        finally:
            if narrowed:
                self.attach()

    def gradients(self, inner, *args, **kwargs):
        """Update from gradients of one's own are not inference."""
        self.detach()
        harmless(self.follower.gradients_taken)()
        return inner(*args, **kwargs)

    def hooks(self):
        follower, is_compiling = self.follower, self.is_compiling
        enter, leave = harmless(follower.enter), harmless(follower.leave)

        def before(module, args):
            if not is_compiling() and (follower.root is None or follower.root is module):
                enter(module, args, sys._getframe(2))  # beyond Hook

        def after(module, args, result):
            if not is_compiling() and follower.root is module:
                leave(module)

        return Hook(before), Hook(after)

    def attach(self):
        """Follow every module, unless it is known what the script calls here."""
        phase = self.follower.phase
        if self.narrowed and (phase is None or not phase.holds(sys._getframe(1))):
            self.detach()
        module = sys.modules.get("torch.nn.modules.module")
        register = getattr(module, "register_module_forward_pre_hook", None)
        if self.handles or self.compiled or register is None:
            return
        before, after = self.hooks()
        self.handles = [register(before)]
        self.handles.append(always(module.register_module_forward_hook, after))

    def detach(self):
        """Nothing of ours is left in its modules."""
        handles, self.handles, self.narrowed = self.handles, [], False
        for handle in handles:
            handle.remove()
        self.follower.forget_call()

    @harmless
    def narrow(self, modules):
        """Follow these modules only."""
        if self.narrowed or self.compiled or not self.handles:
            return
        before, after = self.hooks()
        made = [one.register_forward_pre_hook(before) for one in modules]
        made += [always(one.register_forward_hook, after) for one in modules]
        for handle in self.handles:
            handle.remove()
        self.handles, self.narrowed = made, True

    @harmless
    def compiles(self, result):
        """`torch.compile` was called, with this result."""
        self.detach()
        self.compiled = True
        if isinstance(result, self.torch.nn.Module):
            before, after = self.hooks()
            result.register_forward_pre_hook(before)
            result.register_forward_hook(after)


def attach_generate(recorder, module):
    """When ``transformers.generation.utils`` has been imported."""

    def generate(inner, model, *args, **kwargs):
        follower = recorder.inference
        follower.generate_begins(model, args, kwargs, sys._getframe(2))
        try:
            return inner(model, *args, **kwargs)
        finally:
            follower.generate_ends(model)

    wrap(module.GenerationMixin, "generate", generate)
