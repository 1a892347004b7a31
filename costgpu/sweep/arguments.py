"""The template by which settings are put on a script's command line, and settings for people. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from costgpu.errors import UsageError
from costgpu.sweep.space import Setting
from costgpu.sweep.tuner.arguments import PLACE


def check_template(template: str | None, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of ``--args``; None without a template.

    Raises:
        UsageError: It cannot be read, or its names are not those of the parameters.
    """
    if template is None:
        return None
    try:
        words = tuple(shlex.split(template))
    except ValueError as error:
        raise UsageError(f"--args {template!r} cannot be read: {error}.", hint="Quotes come in pairs.") from None
    used = {name for word in words for name in PLACE.findall(word)}
    hint = f"For example: --args '{' '.join(f'--{name} {{{name}}}' for name in names)}'"
    if unknown := used - set(names):
        raise UsageError(f"--args has {{{min(unknown)}}}, which is no parameter of the sweep.", hint=hint)
    if missing := [name for name in names if name not in used]:
        raise UsageError(f"--args has no {{{missing[0]}}}: every trial would get the same.", hint=hint)
    return words


def setting_words(setting: Setting) -> str:
    """For people: ``lr=1e-4 seed=1``."""
    return " ".join(f"{name}={value}" for name, value in setting.items())
