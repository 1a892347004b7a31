"""Changes a training as it runs, so that what the change saves is measured: the script itself stays as it is.

What a change is put into is looked for when the first optimizer is made. How each was done, in words that a reader can
write into the script, is kept; what found nothing to change is not there.
"""

from __future__ import annotations

import gc
import types

import torch
from torch.utils.checkpoint import checkpoint

from ..patching import known, put

CHECKPOINTING, EIGHT_BIT_STATES, HALF_SEQUENCES = "checkpointing", "eight_bit_states", "half_sequences"
LORA, QLORA, FOUR_BIT_WEIGHTS = "lora", "qlora", "four_bit_weights"
# How models of libraries are told to checkpoint: the method, and arguments for it, as far as it takes any.
DOORS = {
    "gradient_checkpointing_enable": {"gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "enable_gradient_checkpointing": {},
    "set_grad_checkpointing": {},
}
LEAST_LAYERS = 4  # of one class in a list, that are taken for the layers of a model
# Of bitsandbytes' optimizers: parameters with fewer elements, and those of embeddings, keep states in fp32; others have one
# scale in fp32 for each block of so many elements. Sources: its documentation ("8-bit optimizers"), its `optim.optimizer`.
LEAST_IN_8_BITS, BLOCK = 4096, 256
LEAST_COLUMNS = 4  # of integers in a batch, that are taken for a sequence


class ScriptChanges:
    """Makes the changes that are asked for.

    Adapters and quantized weights come with the model, as its library loads it (`frameworks.pretrained_weights`).

    Args:
        names: Their names.
    """

    def __init__(self, names):
        self.names = frozenset(names)
        self.how = {}  # name of a change that was made -> how
        self.frozen = set()  # ids of parameters beside which adapters are trained
        self.attached = False

    # -- models

    @property
    def adapts(self):
        """Return whether adapters are to be trained instead of weights."""
        return bool(self.names & {LORA, QLORA})

    @property
    def quantizes(self):
        """Return whether weights are to be held in 4 bits."""
        return bool(self.names & {QLORA, FOUR_BIT_WEIGHTS})

    def loaded(self, frozen, how):
        """Note that a model was loaded with what was asked for of it; `frozen` parameters do not train any more."""
        self.frozen.update(map(id, frozen))
        for name in self.names & {LORA, QLORA, FOUR_BIT_WEIGHTS}:
            self.how.setdefault(name, how)

    # -- trainings

    def optimizer_made(self, optimizer):
        """Change the training of these parameters."""
        values = [value for group in optimizer.param_groups for value in group["params"]]
        for value in values:
            if id(value) in self.frozen:
                value.requires_grad_(False)
        if CHECKPOINTING in self.names and not self.attached:
            self.attached = True
            how = self.checkpoint({id(value) for value in values})
            if how:
                self.how.setdefault(CHECKPOINTING, how)
        if EIGHT_BIT_STATES in self.names and "betas" in getattr(optimizer, "defaults", {}):
            self.hold_in_8_bits(optimizer)

    def checkpoint(self, trained):
        """Checkpoint activations of the models that hold these parameters, and return how; empty where there are none."""
        modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
        for door, arguments in DOORS.items():
            models = [one for one in modules if hasattr(type(one), door) and holds(one, trained)]
            if [one for one in models if opened(getattr(one, door), arguments)]:
                return "model.{}()".format(door)
        layers = [layer for group in layers_of(modules, trained) for layer in group]
        for layer in layers:
            put(layer, forward=checkpointed(layer.forward))
        if not layers:
            return ""
        names = " and ".join(sorted({type(layer).__name__ for layer in layers}))
        return "torch.utils.checkpoint.checkpoint() around each {}".format(names)

    def hold_in_8_bits(self, optimizer):
        """Have an optimizer's states be those of its 8-bit version; nothing is computed here."""
        tables = {
            id(value)
            for one in gc.get_objects()
            if issubclass(type(one), torch.nn.Embedding)
            for value in one.parameters(recurse=False)
        }

        def step(optimizer, closure=None, **_):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in optimizer.param_groups:
                for value in group["params"]:
                    if value.grad is not None and not optimizer.state[value]:
                        wide = value.numel() < LEAST_IN_8_BITS or id(value) in tables
                        optimizer.state[value].update(states_of(value, wide=wide))
            return loss

        put(optimizer, step=types.MethodType(torch.optim.Optimizer.profile_hook_step(step), optimizer))
        self.how.setdefault(EIGHT_BIT_STATES, "bitsandbytes.optim.{}8bit".format(type(optimizer).__name__))

    # -- data

    def batch(self, batch):
        """Return the batch that the script gets."""
        return self.halved(batch) if HALF_SEQUENCES in self.names else batch

    def halved(self, value):
        """Return a batch with the first half of each of its sequences."""
        if isinstance(value, torch.Tensor):
            whole = not (value.is_floating_point() or value.is_complex())
            if not whole or value.dim() != 2 or value.shape[1] < LEAST_COLUMNS:
                return value
            self.how.setdefault(HALF_SEQUENCES, "{} tokens".format(value.shape[1] // 2))
            return value[:, : value.shape[1] // 2]
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(self.halved(one) for one in value)
        if hasattr(value, "keys") and hasattr(value, "__setitem__"):
            for key in list(value.keys()):
                value[key] = self.halved(value[key])
        return value


def holds(module, trained):
    return any(id(value) in trained for value in module.parameters())


def opened(door, arguments):
    """Call a library's own method, with arguments or, where it takes none, without, and return whether that worked."""

    def open_(given):
        door(**given)
        return True

    return known(open_, arguments, default=False) or known(open_, {}, default=False)


def layers_of(modules, trained):
    """Return the layers of models that hold these parameters, by the list that they are in; none is inside another one."""
    found = []
    for one in modules:
        if isinstance(one, (torch.nn.ModuleList, torch.nn.Sequential)) and len(one) >= LEAST_LAYERS:
            layers = [layer for layer in one if any(True for _ in layer.children()) and holds(layer, trained)]
            if len(layers) >= LEAST_LAYERS and len({type(layer) for layer in layers}) == 1:
                found.append((one, layers))
    inner = {id(part) for _, layers in found for layer in layers for part in layer.modules()}
    return [layers for holder, layers in found if id(holder) not in inner]


def checkpointed(inner):
    def forward(*args, **kwargs):
        if not torch.is_grad_enabled():
            return inner(*args, **kwargs)
        return checkpoint(inner, *args, use_reentrant=False, **kwargs)

    return forward


def states_of(value, *, wide):
    """Return the states of one parameter: two of its size, and the scales of their blocks."""
    like = {"device": value.device}
    if wide:
        return {name: torch.zeros(value.shape, **like) for name in ("state1", "state2")}
    blocks = -(-value.numel() // BLOCK)
    held = {name: torch.zeros(value.shape, dtype=torch.uint8, **like) for name in ("state1", "state2")}
    return {**held, **{name: torch.zeros(blocks, **like) for name in ("absmax1", "absmax2")}}
