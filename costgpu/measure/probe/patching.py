"""Replaces functions of libraries, so that neither our failure nor a second replacement changes what they do."""

from __future__ import annotations

import functools
import traceback

FAILURES: list[str] = []  # of hooks, for the result
MOST_FAILURES = 5


def attribute(value, name, default=None):
    """Return an attribute of the user's object, or the default: looking it up may raise anything (a dot-dict's KeyError)."""
    return known(getattr, value, name, default, default=default)


def known(read, *given, default=None):
    """Return what `read` says, or the default: objects of libraries and of the user's may raise anything."""
    try:
        return read(*given)
    except Exception:  # noqa: BLE001 - another version of a library, a stand-in, or the user's own
        return default


def harmless(hook):
    """For what we do on behalf of the measurement: if it fails on something unheard of, the script goes on uncounted."""

    def call(*args, **kwargs):
        try:
            return hook(*args, **kwargs)
        except Exception:  # noqa: BLE001 - objects of any library's next version, and of the user's own
            if len(FAILURES) < MOST_FAILURES:
                FAILURES.append(traceback.format_exc()[-1500:])
            return None

    return call


def put(owner, /, **values):
    """Set attributes of a library's object or of the script's: in place of its own, or as a mark of ours."""
    for name, value in values.items():
        setattr(owner, name, value)


def replace(owner, name, make):
    """Put ``make(what is there)`` in the place of ``owner.name``, where there is something, and return it."""
    inner = getattr(owner, name, None)
    if owner is None or inner is None:  # None itself has an __init__
        return None
    made = make(inner)
    try:
        functools.update_wrapper(made, inner)  # also so that it is pickled by its name
    except (AttributeError, TypeError):
        pass
    put(owner, **{name: made})
    return made


def wrap(owner, name, call):
    """Have every call of ``owner.name`` made as ``call(what was there, ...)``: for what is not called in every step."""

    def make(inner):
        def outer(*args, **kwargs):
            return call(inner, *args, **kwargs)

        return outer

    replace(owner, name, make)


def patch(owner, name, make):
    """Replace a function, or a method that the class itself defines, by ``make(it)``, once."""
    inner = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if owner is not None and inner is not None and not getattr(inner, "_costgpu", False):
        made = replace(owner, name, make)
        put(made, _costgpu=True, autograph_info__={})  # TensorFlow's autograph is to call it as it is


def observe(owner, name, hook, *, before=False):
    """Call ``hook`` with the same arguments after (or before) each call of ``owner.name``."""
    hook = harmless(hook)

    def make(inner):
        def outer(*args, **kwargs):
            if before:
                hook(*args, **kwargs)
            result = inner(*args, **kwargs)
            if not before:
                hook(*args, **kwargs)
            return result

        return outer

    patch(owner, name, make)
