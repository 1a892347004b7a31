"""What Ignite's Engine says of its length and its evaluations."""

from __future__ import annotations

import gc
import math
import sys

from ..patching import known
from ..record import TrainerLength, Validation
from . import trainers


def engine_length(engine) -> TrainerLength | None:
    state = engine.state
    each, epochs = trainers.positive(state.epoch_length), trainers.positive(state.max_epochs)
    if each is None or epochs is None:
        return None
    total, how = trainers.number(each * epochs), "max_epochs={:.0f}, epoch_length={:.0f}".format(epochs, each)
    handlers = [one[0] for some in engine._event_handlers.values() for one in some]
    handlers = [one._parent() if hasattr(one, "_parent") else one for one in handlers]  # of one for some events only
    clocks = [one for one in handlers if trainers.is_kind(one, "TimeLimit")]
    seconds = trainers.shortest([getattr(one, "limit_sec", None) for one in clocks])
    stops = ["TimeLimit"][: len(clocks)] + stops_of(engine, handlers)
    told = TrainerLength(trainer="Ignite Engine", total=total, per_epoch=each, may_stop=stops, how=how, seconds=seconds)
    told["validation"] = known(validation_of, engine, trainers.positive(total), each)
    return told


def stops_of(engine, handlers):
    """Return what may end an engine's run: its handlers, and an EarlyStopping, which usually hangs on the evaluator."""
    found = []
    functions = [
        one for one in handlers if trainers.STOP_WORDS & set(getattr(getattr(one, "__code__", None), "co_names", ()))
    ]
    if "ignite.handlers.early_stopping" in sys.modules:
        kind = sys.modules["ignite.handlers.early_stopping"].EarlyStopping
        found += [one for one in gc.get_objects() if type(one) is kind and one.trainer is engine]
    return trainers.stoppers(handlers) + [type(one).__name__ for one in found] + [one.__name__ for one in functions]


def validation_of(engine, steps, per_epoch) -> Validation | None:
    """By the handlers that name a DataLoader: they run an evaluator over it. None without one."""
    found = []
    for event, handlers in engine._event_handlers.items():
        name = str(getattr(event, "name", event)).rpartition(".")[2].lower()
        each = {"epoch": per_epoch, "iteration": 1, "completed": steps}.get(name.partition("_")[0])
        if not each:
            continue
        for handler, args, kwargs in handlers:
            free, every = closure_of(handler), 1
            if "event_filter" in free:  # for some events only
                every = trainers.positive(closure_of(free["event_filter"]).get("every"))
                handler = free.get("handler")
            for loader in loaders_of(handler, [*args, *kwargs.values()]) if every else ():
                found.append((each * every, trainers.length(loader), trainers.batch_size_of(loader)))
    if not found:
        return None
    between = min(one for one, _, _ in found)
    sizes = [(number and number * between / one, size) for one, number, size in found]
    pace = ("epoch", between / per_epoch) if between % per_epoch == 0 else ("steps", between)
    return trainers.validation(
        trainers.paced(*pace, steps and math.floor(steps / between + 1e-9), steps, per_epoch), sizes
    )


def closure_of(function):
    """Return the variables of the functions around this one that it uses; empty for what is no plain function."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return {
        name: known(getattr, cell, "cell_contents")
        for name, cell in zip(names, getattr(function, "__closure__", None) or ())
    }


def loaders_of(handler, arguments):
    """DataLoaders that a handler is given, or names."""
    owner, function = getattr(handler, "__self__", None), getattr(handler, "__func__", handler)
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    spaces = [getattr(function, "__globals__", {}), getattr(owner, "__dict__", {})]
    named = [space[name] for space in spaces for name in names if name in space]
    return [one for one in [*arguments, *closure_of(function).values(), *named] if trainers.is_kind(one, "DataLoader")]
