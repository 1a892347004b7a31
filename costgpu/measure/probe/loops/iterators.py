"""How many items a live iterator gives in all, past the iterators that hide it."""

from __future__ import annotations

import builtins
import inspect
import math
import types

from .generators import items_of
from .live_values import MISSING, MOST_DEEP, Unknown, one_return, own_value, package_of
from .script_frames import variables_of
from .splitters import folds, setting_of

MOST_LAYERS = 20


def live_length(value, evaluator, layers=0):
    """Return the length of an object; math.inf for an endless one. Raises Unknown; nothing is drawn from an iterator."""
    if layers > MOST_LAYERS:
        raise Unknown("too many layers")
    module = package_of(value)
    if module == "tensorflow" and hasattr(value, "cardinality"):
        length = int(value.cardinality())
        if length == -2:
            raise Unknown("no length")
        return math.inf if length == -1 else length
    if module == "itertools":
        if type(value).__name__ in ("count", "cycle"):
            return math.inf
        raise Unknown(type(value).__name__)
    if isinstance(value, types.GeneratorType):
        return length_of_generator(value, evaluator, layers)
    if type(value) in (enumerate, zip, map, reversed) or type(value).__name__ in BUILTIN_ITERATORS:
        return length_of_builtin(value, evaluator, layers)
    bar = length_of_bar(value, evaluator, layers)
    if bar is not None:
        return bar
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - the user's objects may raise anything
        return length_of_iterable(value, evaluator)


BUILTIN_ITERATORS = ("list_iterator", "tuple_iterator", "range_iterator", "longrange_iterator")


def length_of_builtin(value, evaluator, layers):
    """Return what `enumerate`, `zip`, `map` and the iterators of lists were made of, from how they would be copied."""
    if type(value).__module__ != "builtins":
        raise Unknown("no length")
    made, given = value.__reduce__()[:2]
    if made is enumerate:
        return live_length(given[0], evaluator, layers + 1)
    if made in (zip, map):
        inner = given if made is zip else given[1:]
        if made is zip and len(given) == 1 and isinstance(given[0], tuple):
            inner = given[0]
        return evaluator.shortest(inner, length=lambda one: live_length(one, evaluator, layers + 1))
    if made is builtins.iter or made is reversed:
        return len(given[0])
    raise Unknown("no length")


def length_of_bar(value, evaluator, layers):
    """Return the length of a progress bar (tqdm's, or one like it) around an iterable; None for anything else."""
    inner = own_value(value, "iterable")
    total = own_value(value, "total")
    if inner is MISSING or total is MISSING or inspect.getattr_static(type(value), "__iter__", None) is None:
        return None
    return total if type(total) in (int, float) else live_length(inner, evaluator, layers + 1)


def length_of_generator(value, evaluator, layers):
    """Return the items of a generator that was made already: by the object it goes through, or by its source."""
    frame = value.gi_frame
    if frame is None:
        raise Unknown("a generator that has ended")
    local, name = variables_of(frame), value.gi_code.co_name
    owner = local.get(value.gi_code.co_varnames[0]) if value.gi_code.co_argcount else None
    if name == "split" and owner is not None:
        given = {"X": local.get("X"), "groups": local.get("groups")}
        found = folds(type(owner), setting_of(owner), lambda one: evaluator.length(given[one]), given.get)
        if found is not None:
            return found
    if name == "__iter__" and owner is not None:
        try:
            return live_length(owner, evaluator, layers + 1)
        except Unknown:
            pass
    return items_of(value.gi_code, evaluator.within(local, frame.f_globals))


def items_of_object(value, evaluator):
    """Return the items of an object, from the source of its `__len__` of one `return`, or of its `__iter__`.

    Raises Unknown.
    """
    sizes = inspect.getattr_static(type(value), "__len__", None)
    if sizes is not None:
        return evaluator.read_property(sizes, value)
    bar = length_of_bar(value, evaluator, 0)
    return length_of_iterable(value, evaluator) if bar is None else bar


def length_of_iterable(value, evaluator):
    """Return the items of an object without a length, from the source of its `__iter__`; raises Unknown."""
    made = inspect.getattr_static(type(value), "__iter__", None)
    if not isinstance(made, types.FunctionType) or not made.__code__.co_argcount:
        raise Unknown("no length")
    inside = {made.__code__.co_varnames[0]: value}
    if inspect.isgeneratorfunction(made):
        return items_of(made.__code__, evaluator.within(inside, made.__globals__))
    if evaluator.depth >= MOST_DEEP:
        raise Unknown("too deep")
    return evaluator.within(inside, made.__globals__, deeper=1).trips(one_return(made)[1])
