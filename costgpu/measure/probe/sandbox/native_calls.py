"""Functions of Python's own library that hand paths to native code, and what is called instead of them."""

import importlib
import importlib.machinery
import os


def open_database(guard, connect, path, *args, **kwargs):
    """Open a copy of the database, made with what belongs to it.

    What a URI names is left to the system.
    """
    text = os.fsdecode(path)
    if text not in ("", ":memory:") and not text.startswith("file:"):
        for suffix in ("-wal", "-journal"):
            if os.path.exists(text + suffix):
                guard.write_path(text + suffix, keep=True, create=False)
        path = guard.write_path(path, keep=True)
    return connect(path, *args, **kwargs)


def open_library(guard, dlopen, path, *args):
    """Return a library that the script made is loaded from where it lies."""
    return dlopen(guard.read_path(path) if isinstance(path, str) and os.sep in path else path, *args)


def load_extension(guard, create, spec, *args):
    """Return the same of extension modules."""
    found = guard.read_path(spec.origin) if isinstance(spec.origin, str) else spec.origin
    if found is not spec.origin:
        spec = importlib.machinery.ModuleSpec(spec.name, spec.loader, origin=found)
    return create(spec, *args)


def start_program(guard, fork_exec, args, executables, close_fds, pass_fds, cwd, *others):
    """Return a program cannot see what was diverted: it is told where that lies, as far as its command line names it."""
    if guard.active():
        args = [args[0]] + [diverted_argument(guard, one) for one in args[1:]]
        cwd = cwd if cwd is None else guard.read_path(cwd)
    return fork_exec(args, executables, close_fds, pass_fds, cwd, *others)


def diverted_argument(guard, text):
    try:
        found = guard.read_path(text) if text else text
        inside = found is not text and os.fsdecode(found).startswith(guard.root) and os.path.lexists(found)
    except (OSError, ValueError):
        return text
    return found if inside else text


def native(module, name):
    try:
        return importlib.import_module(module), name
    except ImportError:
        return None, name


# Functions that take paths to native code, and what is called with each of them instead.
NATIVE = [
    (*native("_posixsubprocess", "fork_exec"), start_program),
    (*native("_sqlite3", "connect"), open_database),
    (*native("_ctypes", "dlopen"), open_library),
    (*native("_imp", "create_dynamic"), load_extension),
]
