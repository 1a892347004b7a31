"""One rank of a script that trains in several processes: its first is run in this one, where its steps are seen.

- ``torch.multiprocessing.spawn`` and ``start_processes`` call their function for rank 0, and start no process.
- ``multiprocessing.Process``, where the target trains (a backward pass can be reached from its code), runs it here; the
  others of the same target are not started, and seem to have ended.

What a process group then looks like is said in `ranks.world`.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types

from ..loops.script_frames import PROBE_ROOT, outwards
from ..loops.source import Source
from ..patching import put, wrap

MOST_FUNCTIONS = 300  # that are looked at to see whether a process trains
MADE = ("__init__", "__call__", "__iter__", "run")  # of a class, which code that names it may call without naming them
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")


class EndedProcess:
    """The place of a process that is not started: it has ended, and well."""

    pid, returncode, sentinel, processes = None, 0, -1, ()

    def poll(self, flag=0):
        return 0

    def wait(self, timeout=None):
        return 0

    def join(self, timeout=None, grace_period=None):
        return True

    def pids(self):
        return []

    def close(self):
        pass

    terminate = kill = interrupt = close


class OneRank:
    """What the script asks for in several processes, answered in one."""

    def __init__(self):
        self.pid = os.getpid()
        self.processes = 1  # that train, as asked for
        self.fixed = False  # by a number in the script itself
        self.started = 0  # other processes for the script's own functions
        self.for_no_gpu = False  # it starts one process per GPU, and so none here
        self.here = None  # code of the process that runs in this one
        self.libraries = ()

    def attach(self, torch, libraries):
        self.libraries = tuple(libraries) + (PROBE_ROOT, "<")
        shared = getattr(torch, "multiprocessing", None)
        module = sys.modules.get("torch.multiprocessing.spawn")
        for owner in (shared, module):
            if not isinstance(getattr(owner, "spawn", None), types.ModuleType):
                wrap(owner, "spawn", self.spawn)
            wrap(owner, "start_processes", self.spawn)
        process = sys.modules.get("multiprocessing.process")
        wrap(getattr(process, "BaseProcess", None), "start", self.start)

    def asked(self, processes):
        if isinstance(processes, int):
            self.processes = max(self.processes, processes)

    def spawn(self, inner, fn, args=(), nprocs=1, join=True, *others, **kwargs):
        if nprocs == 0:
            self.for_no_gpu = True
        if os.getpid() != self.pid or nprocs < 1:
            return inner(fn, args, nprocs, join, *others, **kwargs)
        self.asked(nprocs)
        self.look_for_number()
        fn(0, *args)
        return None if join else EndedProcess()

    def start(self, inner, process):
        target = getattr(process, "_target", None) or process.run
        if os.getpid() != self.pid or not self.trains(target):
            self.started += not self.is_library(getattr(code_of(target), "co_filename", None))
            return inner(process)
        code = code_of(target)
        if self.here is not None and self.here is not code:
            return inner(process)
        put(process, _popen=EndedProcess())
        if self.here is code:
            self.processes += 1
            return None
        self.here = code
        self.look_for_number()
        return run_child(process)

    def look_for_number(self):
        """Note whether the script that starts processes asks how many devices there are, or fixes their number."""
        frames = (frame for frame in outwards(sys._getframe(2)) if not self.is_library(frame.f_code.co_filename))
        source = next((Source.of(frame.f_code.co_filename) for frame in frames), None)
        self.fixed = source is not None and "device_count" not in source.text

    def trains(self, target):
        """Return whether a backward pass can be reached from the code of a function of the script's.

        Followed is what its code names: functions and classes of the script, and of those, of its modules and of a
        method's own class the attributes that it names. A process that feeds the training names nothing of it.
        """
        waiting, seen = [(target, None)], set()
        while waiting and len(seen) < MOST_FUNCTIONS:
            value, owner = waiting.pop()
            if isinstance(value, functools.partial):
                value = value.func
            if isinstance(value, types.MethodType):
                value, owner = value.__func__, type(value.__self__)
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if not isinstance(value, types.FunctionType) or (value, owner) in seen:
                continue
            seen.add((value, owner))
            if self.is_library(value.__code__.co_filename):
                continue
            names, attributes = names_in(value.__code__)
            if "backward" in attributes or "backward" in names:
                return True
            for found in [owner, *map(value.__globals__.get, sorted(names))]:
                if isinstance(found, (type, types.ModuleType)):
                    called = (
                        attributes if found is owner or isinstance(found, types.ModuleType) else {*attributes, *MADE}
                    )
                    waiting += self.members(found, called)
                else:
                    waiting.append((found, None))
        return False

    def members(self, owner, names):
        """Return the attributes of a module or a class of the script's, each with the class that it belongs to."""
        found = []
        for base in owner.__mro__ if isinstance(owner, type) else (owner,):
            module = sys.modules.get(base.__module__) if isinstance(base, type) else base
            if not self.is_library(getattr(module, "__file__", None)):
                space = vars(base)
                of_class = owner if isinstance(owner, type) else None
                found += [(space[name], of_class) for name in sorted(names) if name in space]
        return found

    def is_library(self, path):
        return path is None or path.startswith(self.libraries)


def run_child(process):
    return process.run()


def code_of(target):
    while isinstance(target, (functools.partial, types.MethodType)):
        target = target.func if isinstance(target, functools.partial) else target.__func__
    return getattr(target, "__code__", target)


def names_in(code):
    """Return the names of globals and of attributes that a function and those inside it read."""
    names, attributes, waiting = set(), set(), [code]
    while waiting:
        one = waiting.pop()
        for instruction in dis.get_instructions(one):
            kind = names if instruction.opname in GLOBALS else attributes if instruction.opname in ATTRIBUTES else None
            if kind is not None and isinstance(instruction.argval, str):
                kind.add(instruction.argval)
        waiting += [inner for inner in one.co_consts if isinstance(inner, types.CodeType)]
    return names, attributes


ONE_RANK = OneRank()  # one per process; the result takes what it holds
