"""Replaces functions of libraries, so that neither our failure nor a second replacement changes what they do."""

from __future__ import annotations

import functools
import traceback

FAILURES: list[str] = []  # of hooks, for the result
MOST_FAILURES = 5
NAMES = ("__name__", "__qualname__", "__module__", "__doc__")  # so that it is pickled by its name


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


def patch(owner, name, make):
    """Replaces a function or method, where there is one, by ``make(it)``, once."""
    inner = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if inner is None or getattr(inner, "_costgpu", False):
        return
    outer = make(inner)
    try:
        outer._costgpu = True
        outer.__wrapped__ = inner
        outer.autograph_info__ = {}  # TensorFlow's autograph is to call it as it is
        for detail in NAMES:
            setattr(outer, detail, getattr(inner, detail, None))
    except (AttributeError, TypeError):
        pass
    setattr(owner, name, outer)


def patch_before(owner, name, hook):
    """Calls ``hook`` with the same arguments before each call of ``owner.name``."""
    hook = harmless(hook)

    def make(inner):
        def outer(*args, **kwargs):
            hook(*args, **kwargs)
            return inner(*args, **kwargs)

        return outer

    patch(owner, name, make)


def patch_after(owner, name, hook):
    """Calls ``hook`` with the same arguments after each call of ``owner.name``."""
    hook = harmless(hook)

    def make(inner):
        def outer(*args, **kwargs):
            result = inner(*args, **kwargs)
            hook(*args, **kwargs)
            return result

        return outer

    patch(owner, name, make)


def replace(owner, name, make):
    """Puts ``make(what is there)`` in the place of ``owner.name``, where there is something, and returns it."""
    inner = getattr(owner, name, None)
    if inner is None:
        return None
    made = make(inner)
    try:
        functools.update_wrapper(made, inner)
    except (AttributeError, TypeError):
        pass
    setattr(owner, name, made)
    return made
