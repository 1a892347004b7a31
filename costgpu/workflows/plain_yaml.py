"""YAML that means what it shows: one document of plain data, without aliases and tags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from costgpu.errors import UsageError
from costgpu.units import shortened

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


def plain_yaml(path: Path, text: str) -> yaml.Node | None:
    """Return the root of a document, whose nodes know their lines; None if it is empty.

    Raises:
        UsageError: It is no YAML, or has what a file of plain data does not need.
    """
    try:
        _check_plain(path, yaml.parse(text, Loader=_LOADER))
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or "it has characters that YAML does not allow"
        tabs = " YAML is indented with blanks, not with tabs." if "\t" in text else ""
        raise UsageError(f"{path}{where} is not YAML: {why}.", hint=f"Correct the file.{tabs}") from None
    return root


def _check_plain(path: Path, events: Iterable[Any]) -> None:
    """Refuse what makes a file mean more than it shows, before it is built in memory."""
    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        why = hint = ""
        if isinstance(event, yaml.AliasEvent):
            why, hint = f"aliases (*{shortened(str(event.anchor))}) are not read", "Write the value out."
        elif getattr(event, "tag", None) is not None:
            why, hint = f"tags ({shortened(event.tag)}) are not read", "Leave the tag out."
        elif isinstance(event, yaml.ScalarEvent) and _UNUSABLE.search(event.value):
            why, hint = f"{shortened(event.value)} has a character that no system takes", "Take it out."
        elif documents > 1:
            why, hint = "a second document begins, and one file is one job", "Write each task into a file of its own."
        if why:
            raise UsageError(f"{path}, line {event.start_mark.line + 1}: {why}.", hint=hint)
