"""YAML as sections that know their lines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from costgpu.errors import UsageError
from costgpu.files import FileKind, read_text
from costgpu.units import shortened
from costgpu.workflows.plain_yaml import plain_yaml

TASK_FILE = FileKind(most_bytes=2**20, error=UsageError, hint="A task file is a short YAML text.")
LONGEST_KEY = 60
_NULL, _BOOL, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "merge"))
_VARIABLE, TAG = re.compile("[A-Za-z_][A-Za-z0-9_]*"), re.compile("[^=]+")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def read_yaml(path: Path) -> Section | None:
    """Read a file of one YAML mapping; None if it holds another value, or nothing.

    Raises:
        UsageError: There is none, it is no YAML, or it has what no task needs.
    """
    text = read_text(path, TASK_FILE)
    if text is None:
        raise TASK_FILE.unreadable(path, os.strerror(2))
    root = plain_yaml(path, text)
    return Section(str(path), root) if isinstance(root, yaml.MappingNode) and root.value else None


class Section:
    """A mapping of a task file that is read key by key; `close` refuses what nobody has read.

    Args:
        file: For messages.
        name: Of this part of the file, with a dot behind it; empty for all of it.
    """

    def __init__(self, file: str, node: yaml.MappingNode, name: str = "") -> None:
        self.file, self.name = file, name
        self.values: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        self._read: set[str] = set()
        for key, value in node.value:
            text = str(key.value) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
            line = key.start_mark.line + 1
            self._lines.setdefault(text, line)
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                raise self.wrong(text, "is no key that is read", "Write key: value; merge keys (<<) are not read.")
            if text in self.values:
                raise self.wrong(text, f"is there twice, the second time in line {line}", "Keep one of them.")
            self.values[text] = value

    def wrong(self, key: str, why: str, hint: str = "") -> UsageError:
        """Return an error that names a key and its line."""
        return UsageError(f"{self.at(key)} {why}.", hint=hint)

    def at(self, key: str) -> str:
        """Return file, line and name of a key."""
        named = key if key.isprintable() and len(key) <= LONGEST_KEY else shortened(key)
        where = f"{self.file}, line {self._lines[key]}" if key in self._lines else self.file
        return f"{where}: {self.name}{named}"

    def get(self, key: str) -> yaml.Node | None:
        """Return a value; None if it is not there, or empty."""
        self._read.add(key)
        value = self.values.get(key)
        return None if value is None or value.tag == _NULL else value

    def text(self, key: str) -> str | None:
        """Return a text or number as it is written."""
        value = self.get(key)
        if value is not None and not isinstance(value, yaml.ScalarNode):
            raise self.wrong(key, "is not a text")
        return None if value is None else str(value.value)

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        text = self.text(key)
        if text is None or text.lower() in (*_TRUE, *_FALSE):
            return None if text is None else text.lower() in _TRUE
        raise self.wrong(key, f"is {shortened(text)}, neither true nor false")

    def whole(self, key: str, most: int) -> int | None:
        """Return a whole number."""
        text = self.text(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
            raise self.wrong(key, f"is {shortened(text)}, and not a number from 1 to {most:,}")
        return int(text)

    def items(self, key: str) -> list[yaml.Node]:
        """Return the values of a list, or the one value."""
        value = self.get(key)
        return [] if value is None else list(value.value) if isinstance(value, yaml.SequenceNode) else [value]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return one text, or a list of them."""
        items = self.items(key)
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self.wrong(key, "is not a list of texts")
        return tuple(str(item.value) for item in items)

    def section(self, key: str) -> Section | None:
        """Return a mapping below."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, yaml.MappingNode):
            raise self.wrong(key, "is not a mapping of keys to values")
        return Section(self.file, value, f"{self.name}{key}.")

    def mapping(self, key: str) -> Section | None:
        """Return a mapping below; None if the value is something else."""
        return self.section(key) if isinstance(self.get(key), yaml.MappingNode) else None

    def variables(self, key: str, name_of: re.Pattern[str] = _VARIABLE) -> tuple[str, ...]:
        """Return ``KEY=VALUE``, and ``KEY`` for what the shell must have, of a mapping or a list."""
        below = self.mapping(key)
        found: dict[str, str] = {}
        for text in self.texts(key) if below is None else below.values:
            part, at = (self, key) if below is None else (below, text)
            name = text.partition("=")[0] if below is None else text
            if not name_of.fullmatch(name):
                raise part.wrong(at, f"has {shortened(name)}, which is no name")
            if name in found:
                raise part.wrong(at, f"has {shortened(name)} twice", "Keep one of them.")
            if below is not None:
                if below.values[name].tag == _BOOL:
                    raise below.wrong(name, "is a truth value, and variables are texts", "Put it in quotes.")
                value = below.text(name)
                text = name if value is None else f"{name}={value}"
            if "${{" in text:
                hint = "Write the name alone, and export the variable here, or give it by --env-file."
                raise part.wrong(at, "has ${{ ... }}, which nobody fills in", hint)
            found[name] = text
        return tuple(found.values())

    def judge(self, kinds: Mapping[str, Mapping[str, str]], note: Callable[[str], None]) -> None:
        """Refuse keys that mean what costgpu does not do, and note those that need nothing: key -> why."""
        for kind, reasons in kinds.items():
            for key, reason in reasons.items():
                value = self.get(key)
                if value is None or not value.value or (value.tag == _BOOL and value.value.lower() in _FALSE):
                    continue
                if kind == "refused":
                    raise self.wrong(key, "is not supported", reason)
                note(f"{self.at(key)}: {reason}")

    def close(self) -> None:
        """Refuse what nobody has read."""
        for key in self.values:
            if key not in self._read:
                raise self.wrong(key, "is not known", "Nothing in a task file is ignored: correct it, or take it out.")
