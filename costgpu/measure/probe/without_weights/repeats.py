"""Equal micro-batches of a step: two are answered op by op, and of the others the model's answer is that of the second.

So a step of sixteen takes little longer than one of two. What is skipped is traced as the second one was, and its backward
pass ends at the model's answer: gradients are there from those before it, and memory has had its peak.
"""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..patching import replace
from ..ranks.world import WORLD
from .shapes import describe
from .untouched import SMALL

LEAST_ANSWERED = 2  # micro-batches of a step
PLAIN = (int, float, str, bool, type(None))


class Repeats:
    """Follows the calls of models from outside of models; the recorder tells where micro-batches and steps end."""

    def __init__(self, recorder, untouched):
        self.recorder, self.untouched = recorder, untouched
        self.inside = False
        self.skipped = 0  # micro-batches in all
        self.forget()

    def forget(self):
        """Begin a step."""
        self.calls, self.pattern = [], None  # of this micro-batch; of two equal ones before it
        self.last, self.done = None, 0
        self.before = self.one = None  # counts of the trace: at the first call of the last answered one, and at its end
        self.skipping = False

    def attach(self):
        replace(torch.nn.Module, "__call__", self.called)

    def called(self, inner):
        def __call__(module, *args, **kwargs):
            trains = module.training and torch.is_grad_enabled() and not self.recorder.backwards_going
            if self.inside or not trains or WORLD.ranks > 1:  # whose wrappers count on every part
                return inner(module, *args, **kwargs)
            key = self.key_of(module, args, kwargs)
            known = self.known(key)
            if known is not None:
                return self.made_as(known)
            tracing = self.recorder.tracing
            if not self.calls and tracing is not None:
                self.before = tracing.counts()
            self.inside = True
            try:
                result = inner(module, *args, **kwargs)
            finally:
                self.inside = False
            self.calls.append((key, form_of(result)))
            return result

        return __call__

    def key_of(self, module, args, kwargs):
        """Return what tells one call from another: the module, and the shapes of what it is given; None if it has others."""
        flat, tree = tree_flatten((args, kwargs))
        if not all(isinstance(one, (torch.Tensor, *PLAIN)) for one in flat):
            return None
        return id(module), str(tree), tuple(map(describe, flat))

    def known(self, key):
        """Return the form of the answer to a call that came in the same place before; None if it is to be computed."""
        place = len(self.calls)
        if self.done < LEAST_ANSWERED or not self.pattern or place >= len(self.pattern):
            return None
        same, form = self.pattern[place]
        if key is None or key != same or form is None:
            self.pattern = None
            return None
        tracing = self.recorder.tracing
        if not self.skipping and tracing is not None:
            tracing.mute()
        self.skipping = True
        self.calls.append((key, form))
        return form

    def made_as(self, form):
        """Return an answer of the same form, through which a backward pass takes no way into the model."""
        specs, tree = form
        return tree_unflatten([self.tensor(*one[1:]) if one[0] else one[1] for one in specs], tree)

    def tensor(self, shape, strides, dtype, size, grad):
        small = size <= SMALL
        made = torch.ones(shape, dtype=dtype) if small else self.untouched.make(shape, strides, dtype)
        return made.requires_grad_(True).clone() if grad else made  # a copy may be changed in place

    def part_ends(self, tracing):
        """Note the end of a micro-batch's backward pass."""
        calls, self.calls = self.calls, []
        if self.skipping:
            self.skipping = False
            self.skipped += 1
            if tracing is not None:
                tracing.unmute()
                tracing.add_again(self.before, self.one)
            return
        self.done += 1
        self.pattern = calls if calls and calls == self.last else None
        self.last = calls
        if tracing is not None:
            self.one = tracing.counts()
            if self.before is None:
                self.pattern = None  # what others would be told by is not known


def form_of(result):
    """Return shapes and nesting of an answer; None where it holds something else, which may matter."""
    flat, tree = tree_flatten(result)
    specs = []
    for one in flat:
        if isinstance(one, torch.Tensor):
            size = one.numel() * one.element_size()
            specs.append((True, tuple(one.shape), tuple(one.stride()), one.dtype, size, one.requires_grad))
        elif isinstance(one, PLAIN):
            specs.append((False, one))
        else:
            specs.append((False, None))  # a cache of keys and values: nobody goes on from it in training
    return specs, tree
