"""Secrets on the command line of `costgpu run`: others can see them there, and arguments are recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from costgpu.workflows.runs.request import RunRequest

_NAME = re.compile(r"api.?key|access.?key|token$|secret|passw|credential|(^|[-_])key$", re.IGNORECASE)
_URL = re.compile(r"\w+://[^/\s:@]*:[^/\s@]+@")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


def visible_secrets(request: RunRequest) -> Iterator[tuple[str, str]]:
    """Yield what looks like a secret, in words that do not repeat it, and what to do about it."""
    for word in request.env:
        name, sign, value = word.partition("=")
        if sign and value and _NAME.search(name):
            yield (
                f"The value of -e {name} stands in this computer's list of processes until the command ends.",
                f"-e {name} alone takes it from the environment; --env-file takes it from a file.",
            )
    for word, following in pairwise([*request.command, ""]):
        option = _OPTION.fullmatch(word)
        given = option is not None and (option.group(2) or (following and not following.startswith("-")))
        if (option is not None and given and _NAME.search(option.group(1))) or _URL.search(word):
            name = option.group(1) if option is not None else "An argument"
            yield (
                f"{name} looks like a secret: arguments stand in the ledger and in the machine's list of processes.",
                "Let the script read it from a variable: -e KEY.",
            )
    if request.setup is not None and _URL.search(request.setup):
        yield (
            "--setup has a password in a URL, and stands in the ledger.",
            "Use a variable in it, such as $TOKEN, and give that with -e TOKEN.",
        )
