"""Which calls train: of what is on the live stack of a step, of what makes a backward pass, and of trainers of libraries."""

import ast
import functools
import inspect
import types

from ..patching import known
from .call_binding import LengthOnly, bind, evaluated, plain_function
from .live_values import MISSING
from .reach import Reach
from .safe_eval import Evaluator, Unknown
from .script_frames import package_of_file
from .source import Source, made_last, training_functions
from .syntax import dotted

MOST_DEEP = 3
FITS = ("fit", "train", "learn", "fit_one_cycle", "fine_tune")
TRAINERS = tuple(
    "lightning pytorch_lightning transformers trl keras ignite stable_baselines3 sb3_contrib skorch fastai deepxde"
    " sentence_transformers setfit pytorch_tabnet".split()
)
LENGTHS = ("epochs", "max_epochs", "num_train_epochs", "total_timesteps", "iterations", "n_epoch")
WRAPS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS  # takes whatever comes, as a decorator's function does


class Trainings:
    """Follows calls from a place in the script to what trains."""

    def __init__(self, torch, loop_stack):
        self.torch, self.loop_stack = torch, loop_stack
        self.seen = set()  # code of functions that led to a step
        self.live = set()  # of these, what is further in than the statement that is looked at
        self.libraries = False
        self.named = {}  # trees of files -> names of their functions that make a backward pass

    def note(self, frames):
        """Note that these frames, outermost first, led to a step."""
        self.seen |= {live.f_code for live in frames if live.f_code.co_name != "<module>"}

    def look_from(self, frames, *, libraries=False):
        """Look next at a statement in the last of these frames; calls are followed into `libraries`, too, if asked for."""
        self.libraries = libraries
        self.live = self.seen - {live.f_code for live in frames}

    def trains(self, reach, *nodes, depth=0, around=()):
        """Return whether a call in these statements, as far as they are reached, makes a training step."""
        calls = (node for node in reach.nodes(*nodes) if isinstance(node, ast.Call))
        return any(self.call_trains(call, reach, depth, around) for call in calls)

    def call_trains(self, call, reach, depth=0, around=()):
        name = dotted(call.func).rsplit(".", 1)[-1]
        method = isinstance(call.func, ast.Attribute)
        if name == "backward" and method:
            return True
        function, bound, kind = self.resolve(call, reach)
        if function is None:
            # an object of which nothing is known may as well have a method of this name for something else
            common = name == "step" or any(hasattr(one, name) for one in (dict, list, set, str, self.torch.nn.Module))
            plain = not method or dotted(call.func).startswith(("self.", "cls.")) or not common
            return plain and self.is_named(reach.source, name)
        path = function.__code__.co_filename
        package = package_of_file(path)
        if self.leads_to_step(function, kind):
            return True
        if package in TRAINERS and name in FITS:
            return True
        function = within_wrapper(function) or function
        if (package and not self.libraries) or path.startswith(self.loop_stack.torch_root) or function in around:
            return False
        source, scope = Source.of_code(function.__code__)
        if scope is None:
            return False
        if depth >= MOST_DEEP:
            return self.is_named(source, function.__name__)
        found = known(bind, function, bound, call, reach.evaluator)
        local = {} if bound is None else dict(zip(function.__code__.co_varnames, [bound]))
        variables = Evaluator(local, function.__globals__, self.torch) if found is None else found[2]
        inside = Reach.of_call(source, scope, variables)
        if not all(map(reach.constants.fixed, [*call.args, *(one.value for one in call.keywords)])):
            inside.constants.stored.update(function.__code__.co_varnames[bound is not None :])
        return self.trains(inside, *scope.body, depth=depth + 1, around=(*around, function))

    def times(self, statement, going, reach):
        """Return how many times as long as the call in `going` one like it in this statement trains; raises Unknown.

        Both must be written alike, with the objects that they are methods of, but for a number of epochs or the like.
        """
        (now, length), (then, later) = self.recipe(going, reach), self.recipe(statement, reach)
        if now != then or length is later:  # the same object, which may have come to its end
            raise Unknown("another kind of training")
        times = reach.evaluator.number(later) / reach.evaluator.number(length)
        if times != 1 and "total_timesteps" in now:
            raise Unknown("the first ones may be without steps")
        return times

    def recipe(self, statement, reach):
        """Return how a statement's call that trains is written, and its length."""
        nodes = [node for node in reach.nodes(statement) if isinstance(node, ast.Call)]
        calls = [node for node in nodes if isinstance(node.func, ast.Attribute) and self.call_trains(node, reach)]
        if len(calls) != 1 or not isinstance(statement, (ast.Expr, ast.Assign)):
            raise Unknown("no single call")
        call, owner = calls[0], calls[0].func.value
        function = self.resolve(call, reach)[0]
        if function is None or package_of_file(function.__code__.co_filename) not in TRAINERS:
            raise Unknown("what it trains on may be other data by then")
        made = owner if isinstance(owner, ast.Call) else call_made_last(owner, call.lineno, reach)
        written, lengths = [call.func.attr], []
        for part in [call] if made is None else [call, made]:
            given = [ast.dump(one) for one in part.args]
            for one in part.keywords:
                lengths += [one.value] if one.arg in LENGTHS else []
                written += [one.arg] if one.arg in LENGTHS else []
                given += [str(one.arg) + ast.dump(one.value)] if one.arg not in LENGTHS else []
            for one in (*part.args, *(keyword.value for keyword in part.keywords)):
                reach.refuse_changing(one)
            written.append(given)
        written.append(dotted(made.func) if made is not None else dotted(owner))
        if len(lengths) != 1:
            raise Unknown("no single length")
        return written, lengths[0]

    def is_named(self, source, name):
        if source.tree not in self.named:
            self.named[source.tree] = training_functions(source.tree)
        return name in self.named[source.tree]

    def leads_to_step(self, function, kind):
        """Return whether a step was made in this function, or in what it is a subclass's version of."""
        inner = within_wrapper(function)
        if inner is not None:
            return self.leads_to_step(inner, None)
        versions = [plain_function(vars(base).get(function.__name__))[0] for base in getattr(kind, "__mro__", ())]
        return any(one is not None and one.__code__ in self.live for one in [function, *versions])

    def resolve(self, call, reach):
        """Return the Python function that a call is of, what it is bound to, and its class; None where it is not known."""
        evaluator, func = reach.evaluator, call.func
        value, kind = evaluated(evaluator, func), None
        if isinstance(func, ast.Attribute):
            owner = evaluated(evaluator, func.value)
            kind = owner if isinstance(owner, type) else type(owner)
            if owner is MISSING or isinstance(owner, LengthOnly):
                made = (
                    func.value if isinstance(func.value, ast.Call) else call_made_last(func.value, call.lineno, reach)
                )
                kind = evaluated(evaluator, made.func) if made is not None else None
                kind = kind if isinstance(kind, type) else None
                value = inspect.getattr_static(kind, func.attr, None) if kind is not None else value
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, type):
            kind, value = value, inspect.getattr_static(value, "__init__", None)
        elif not isinstance(value, (types.FunctionType, types.MethodType, staticmethod, classmethod)):
            if isinstance(value, self.torch.nn.Module):
                return None, None, None
            kind, bound = type(value), value
            value = inspect.getattr_static(kind, "__call__", None)
            value = types.MethodType(value, bound) if isinstance(value, types.FunctionType) else None
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        return (*plain_function(value), kind)


def call_made_last(node, line, reach):
    """Return the call that was assigned to a name last before a line; None for anything else."""
    made = made_last(reach.scope, reach.source.segment(node), line, reach.source)
    return made if isinstance(made, ast.Call) else None


def within_wrapper(function):
    """Return what a decorator's function calls, which hides it; None for any other function."""
    held = [known(getattr, cell, "cell_contents") for cell in function.__closure__ or ()]
    found = [one for one in held if isinstance(one, types.FunctionType)]
    return found[0] if len(found) == 1 and function.__code__.co_flags & WRAPS == WRAPS else None
