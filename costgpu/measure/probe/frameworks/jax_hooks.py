"""Calls of the script's own jitted JAX functions, timed, with the FLOPs and bytes of what they compute."""

import functools
import math
import os
import sys
import threading

from ..loops.script_frames import package_of_file
from ..patching import harmless, known, patch
from ..schedstat import clock
from .distribution_hooks import DistributionHooks
from .registry import JAX

HEAVY = (
    "dot_general conv_general_dilated gather scatter sort fft cumsum cumlogsumexp cummax argmax argmin"
    " dynamic_update_slice concatenate select_and_scatter_add top_k"
).split()
LEAST_APPLIED = 3  # arrays of a model that is only applied (weights, biases, items): a simulation's own state is fewer


class JaxHooks:
    """Wraps `jax.jit` and `jax.pmap`; only functions of the script's own count, at their outermost call."""

    def __init__(self, progress):
        self.progress = progress
        self.depth = 0
        self.by_hand = False  # whether gradients have been taken outside of jitted functions
        self.differentiated = False  # whether they have been in the one that was called last, while it was traced

    def attach(self, module):
        self.jax = module
        self.progress.runs_models(CountedFunction)
        for name in ("jit", "pmap"):
            patch(module, name, self.make)
        for name in ("grad", "value_and_grad"):
            patch(module, name, self.make_gradient)

    def make_gradient(self, transform):
        def transform_and_follow(*args, **kwargs):
            made = transform(*args, **kwargs)

            @functools.wraps(made)
            def gradient(*args, **kwargs):
                if self.tracing():
                    self.differentiated = True
                elif not self.by_hand:
                    self.by_hand = True
                    for one in self.progress.series:
                        one.trains_after_all()
                return made(*args, **kwargs)

            return gradient

        return transform_and_follow

    def make(self, jit):
        def jit_and_follow(fun=None, *args, **kwargs):
            if fun is None or not callable(fun):
                return lambda inner: jit_and_follow(inner, *args, **kwargs)
            made = jit(fun, *args, **kwargs)
            place = own_function(fun)
            return made if place is None else CountedFunction(made, self, place)

        return jit_and_follow

    def called(self, compiled, place, args, kwargs):
        recorder = self.progress.recorder
        if self.depth or recorder.status != "running" or threading.get_ident() != recorder.thread or self.tracing():
            return compiled(*args, **kwargs)
        series = self.progress.keyed.get(("jax", place))
        shapes = self.shapes(args, kwargs) if series is None else None
        self.differentiated = False
        self.depth += 1
        begin = clock()
        try:
            result = compiled(*args, **kwargs)
            self.jax.block_until_ready(result)
        finally:
            self.depth -= 1
        self.stepped(series, compiled, place, shapes, begin, sys._getframe(2))
        return result

    @harmless
    def stepped(self, series, compiled, place, shapes, begin, frame):
        if series is None:
            facts = {"may_stop": False, "per_epoch": None, "busy": 0.0}
            series = self.progress.open(JAX, "step", None, key=("jax", place), **facts)
        if self.differentiated:
            series.note(differentiated=True)
        if series.steps:
            series.add("busy", clock() - begin)
        if "applied" in series.facts:
            self.evaluates(clock() - begin)
        self.progress.step(series, frame=frame)
        if shapes is not None:
            self.count(series, compiled, shapes)

    def evaluates(self, seconds):
        """Count what is only applied as evaluation beside the steps of the function that updates, if there is one."""
        trained = [one for one in self.progress.series if one.framework is JAX and "applied" not in one.facts]
        for one in sorted(trained, key=lambda one: one.last or 0.0)[-1:]:
            one.add("evaluating", seconds)
            self.progress.event(one, "validation", seconds)

    def tracing(self):
        cores = (self.jax.core, sys.modules.get("jax._src.core"))  # newer ones keep it to themselves
        clean = next((core.trace_state_clean for core in cores if hasattr(core, "trace_state_clean")), None)
        return clean is not None and not clean()

    def shapes(self, args, kwargs):
        """Return the arguments with arrays replaced by their shapes: a donated array is gone after the call."""
        shape = self.jax.ShapeDtypeStruct

        def abstract(value):
            return shape(value.shape, value.dtype) if isinstance(value, self.jax.Array) else value

        return known(self.jax.tree_util.tree_map, abstract, (args, kwargs))  # None of a container that JAX cannot take

    def count(self, series, compiled, shapes):
        begin = clock()
        try:
            traced = compiled.trace(*shapes[0], **shapes[1])
            series.note(totals=JaxprTotals(traced.jaxpr.jaxpr).record())
            given, returned = taken_and_given_back(traced.jaxpr)
            if not self.by_hand and given and (returned == 0 or (returned == 1 and given >= LEAST_APPLIED)):
                series.only_applies(given >= LEAST_APPLIED, items_of(shapes[0]))
            analysis = traced.lower().cost_analysis() or {}
            series.note(cost_analysis_flops=float(analysis.get("flops") or 0.0))
        except Exception as error:  # noqa: BLE001 - an older JAX, or a function that cannot be traced alone
            series.note(uncounted="{}: {}".format(type(error).__name__, error)[:200])
        if series.last is not None:
            series.go_on(series.last + clock() - begin)  # the counting is not the script's work


class CountedFunction:
    """A jitted function that is counted; everything else of it is the original's."""

    def __init__(self, compiled, jax, place):
        self.__dict__.update(_compiled=compiled, _jax=jax, _place=place, __wrapped__=compiled)

    def __call__(self, *args, **kwargs):
        return self._jax.called(self._compiled, self._place, args, kwargs)

    def __getattr__(self, name):
        return getattr(self._compiled, name)

    def __get__(self, instance, owner=None):  # a jitted method
        if instance is None:
            return self
        bound, jax, place = self._compiled.__get__(instance, owner), self._jax, self._place
        return lambda *args, **kwargs: jax.called(bound, place, args, kwargs)


class JaxprTotals:
    """FLOPs and bytes of a jaxpr; loops of known length count with it, element-wise ops are fused into what follows."""

    def __init__(self, jaxpr):
        self.flops = self.convolutions = 0.0
        self.dtypes, self.unknown_loops = {}, False
        # What goes in and comes out: parameters, optimizer state, the batch.
        self.moved, self.kernels = nbytes(jaxpr.invars) + nbytes(jaxpr.outvars), float(len(jaxpr.outvars))
        self.add(jaxpr, 1.0)

    def add(self, jaxpr, times):
        for eqn in jaxpr.eqns:
            name, params = eqn.primitive.name, eqn.params
            if name == "scan":
                self.add(params["jaxpr"].jaxpr, times * params["length"])
            elif name == "while":
                self.unknown_loops = True
                self.add(params["body_jaxpr"].jaxpr, times)
            elif name == "cond":
                self.add(params["branches"][-1].jaxpr, times)
            else:
                inner = [p for p in params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
                for one in inner[:1]:
                    self.add(one if hasattr(one, "eqns") else one.jaxpr, times)
                if not inner:
                    self.one(eqn, name, params, times)

    def one(self, eqn, name, params, times):
        if not (name in HEAVY or name.startswith(("reduce_", "scatter"))):
            return
        flops = 0.0
        if name == "dot_general":
            (contract, _), _ = params["dimension_numbers"]
            left = eqn.invars[0].aval.shape
            flops = 2.0 * size(eqn.outvars[0].aval)
            for axis in contract:
                flops *= left[axis]
        elif name == "conv_general_dilated":
            kernel = eqn.invars[1].aval.shape
            channels = kernel[params["dimension_numbers"].rhs_spec[0]]
            flops = 2.0 * size(eqn.outvars[0].aval) * size(eqn.invars[1].aval) / max(1, channels)
            self.convolutions += flops * times
        if flops:
            dtype = str(eqn.invars[0].aval.dtype)
            self.dtypes[dtype] = self.dtypes.get(dtype, 0.0) + flops * times
        self.flops += flops * times
        self.moved += times * (nbytes(eqn.invars) + nbytes(eqn.outvars))
        self.kernels += 2.0 * times  # and the fused element-wise work behind it

    def record(self):
        dtype = max(self.dtypes, key=self.dtypes.get) if self.dtypes else "float32"
        return {
            "flops": self.flops,
            "bytes": self.moved,
            "kernels": self.kernels,
            "convolutions": self.convolutions,
            "dtype": dtype,
            "unknown_loops": self.unknown_loops,
        }


def taken_and_given_back(closed):
    """Count the arrays that a jaxpr takes or holds, and those that come out again: few if a model is only applied."""
    given = [one.aval for one in closed.jaxpr.invars if getattr(one.aval, "ndim", 0)]
    held = [one for one in closed.consts if getattr(one, "ndim", 0)]
    made = [(one.aval.shape, one.aval.dtype) for one in closed.jaxpr.outvars if getattr(one.aval, "ndim", 0)]
    returned = 0
    for one in given:
        if (one.shape, one.dtype) in made:
            made.remove((one.shape, one.dtype))
            returned += 1
    return len(given) + len(held) if given else 0, returned


def items_of(args):
    """Return the leading dimension of the first argument that is an array itself, and no collection of weights."""
    return next((int(one.shape[0]) for one in args if getattr(one, "shape", ())), None)


def size(aval):
    return float(math.prod(aval.shape))


def nbytes(variables):
    avals = [one.aval for one in variables if hasattr(one, "aval")]
    return sum(known(lambda one=one: size(one) * one.dtype.itemsize, default=0.0) for one in avals)


def own_function(fun):
    """``train_step (train.py:12)`` if the function is of the user's own code; None for a library's."""
    for _ in range(10):
        inner = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None) or getattr(fun, "f", None)
        inner = inner or getattr(fun, "__func__", None) or getattr(fun, "fun", None)
        if inner is None or not callable(inner):
            break
        fun = inner
    code = getattr(fun, "__code__", None) or getattr(type(fun).__dict__.get("__call__"), "__code__", None)
    if code is None or code.co_filename.startswith("<") or package_of_file(code.co_filename):
        return None
    return "{} ({}:{})".format(code.co_name, os.path.basename(code.co_filename), code.co_firstlineno)


def hooks(recorder):
    def attach(module):
        DistributionHooks(recorder.schemes).attach_jax(module)
        JaxHooks(recorder.progress).attach(module)

    return {"jax": attach}
