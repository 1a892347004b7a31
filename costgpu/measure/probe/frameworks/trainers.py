"""What trainers of any framework say of their length, and what their readers have in common."""

from __future__ import annotations

import itertools
import math

from ..loops.safe_eval import Evaluator
from ..loops.script_frames import outwards, package_of_file, variables_of
from ..patching import attribute, known
from ..record import Validation
from .registry import FRAMEWORKS

# What a callback says to a trainer that is to end.
STOP_WORDS = {"should_training_stop", "should_epoch_stop", "should_stop", "stop_training", "terminate"}

MOST_FRAMES = 80
NEARLY = 0.02  # by which a number of evaluations may be off before the rhythm is stretched to it


def told_by(frame, role):
    """Return what the innermost object on the stack that has a reader says of its length; None without one.

    Args:
        role: ``trainers`` or ``drivers``, of the frameworks' entries. A reader may raise for another version of it.
    """
    readers = {
        (package, kind): (framework, read)
        for framework in FRAMEWORKS
        for package in framework.packages
        for kind, read in getattr(framework, role).items()
    }
    for live in itertools.islice(outwards(frame), MOST_FRAMES):
        owner = variables_of(live).get("self")
        for kind in type(owner).__mro__:
            framework, read = readers.get((kind.__module__.partition(".")[0], kind.__name__), (None, ""))
            found = known(getattr(framework.module(), read), owner) if framework is not None else None
            if found is not None:
                return found
    return None


def stoppers(callbacks):
    """Return the names of the callbacks that may end a training: by their name, or the user's own by what they set."""
    return [type(one).__name__ for one in callbacks if one is not None and may_stop(type(one))]


def may_stop(kind):
    if "stop" in kind.__name__.lower():
        return True
    functions = [getattr(one, "__code__", None) for base in kind.__mro__ for one in vars(base).values()]
    own = [code for code in functions if code is not None and not package_of_file(code.co_filename)]
    return any(STOP_WORDS & set(code.co_names) for code in own)


def shortest(limits):
    """Return the least of these seconds; None without one."""
    return min([one for one in map(positive, limits) if one is not None], default=None)


def number(value):
    """Return a finite count, ``inf``, or None."""
    value = known(float, value)
    if value is None or value != value or value < 0:  # noqa: PLR0124 - nan
        return None
    return "inf" if math.isinf(value) else value


def positive(value):
    """Return a finite number above 0; None for anything else that an attribute may hold."""
    if isinstance(value, (str, bytes, bool)):
        return None
    value = known(float, value)
    return value if value is not None and 0 < value < math.inf else None


def is_kind(one, name):
    """Return whether this is an object of a library's class of that name, or of one that is derived from it."""
    return any(kind.__name__ == name for kind in type(one).__mro__)


def length(value):
    """Return the batches of a loader or samples of a data set; None without a length."""
    return positive(known(Evaluator({}, {}).length, value))


def batch_size_of(loader):
    size = attribute(loader, "batch_size")
    return positive(size if size is not None else attribute(attribute(loader, "batch_sampler"), "batch_size"))


def paced(rhythm, every, times, steps, per_epoch):
    """Return the rhythm, stretched where the training ends amid it: ``(rhythm, every)``, or None if it never comes.

    Args:
        times: How often it comes in all; None if that is not known.
        steps: Steps of the whole training, None if not known; `per_epoch` of an epoch.
    """
    if times is None or not steps:
        return rhythm, float(every)
    if times < 1:
        return None
    epochs = steps / per_epoch if per_epoch else None
    amount = steps if rhythm == "steps" else epochs
    if amount is not None and abs(amount / every - times) <= NEARLY * times:
        return rhythm, float(every)
    if epochs is not None and epochs == round(epochs) and rhythm == "epoch":
        return rhythm, epochs / times
    return "steps", steps / times


def per_epoch_pace(steps, per_epoch, delay=0.0, first=0):
    """At the end of each epoch, the last of which may be cut off by the number of steps."""
    if not steps:
        return "epoch", 1.0
    epochs = steps / per_epoch if per_epoch else 1.0  # the last: of a stream that seems to have no end
    last, begin = min(math.ceil(epochs - 1e-9), 10**6), max(1, math.ceil(delay))
    times = max(0, last - begin + 1) if epochs >= delay else 0
    return paced("epoch", 1, times + first, steps, per_epoch)


def validation(pace, sizes) -> Validation | None:
    """Return what is told of evaluations of these parts: (batches, samples in one), each None if not known."""
    if pace is None or positive(pace[1]) is None:
        return None
    batches = [number for number, _ in sizes]
    known_sizes = bool(sizes) and all(number and size for number, size in sizes)
    total = sum(batches) if sizes and None not in batches else None
    size = round(sum(number * size for number, size in sizes) / total) if known_sizes else None
    return Validation(batches=total, batch_size=size or None, rhythm=pace[0], every=pace[1])
