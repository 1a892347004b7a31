"""YAML as values that know their lines: plain data, no aliases, no tags, one document."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costgpu.errors import UsageError
from costgpu.files import DEEPEST, FileKind, read_text
from costgpu.units import shortened

TASK_FILE = FileKind(most_bytes=2**20, error=UsageError, hint="A task file is a short YAML text.")
NULLS = ("", "~", "null", "Null", "NULL")
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")

LONGEST_KEY = 60


@dataclass(slots=True)
class Value:
    """A value, as it is written.

    Attributes:
        content: Text, None for an empty value, a list, or a mapping.
        line: Where it begins, from 1.
        plain: Whether it is a text without quotes.
    """

    content: str | list[Value] | dict[str, Value] | None
    line: int
    plain: bool = False


def read_yaml(path: Path) -> Value:
    """Read a file of one YAML document.

    Raises:
        UsageError: There is none, it is no YAML, or it has what no task needs.
    """
    import yaml

    text = read_text(path, TASK_FILE)
    if text is None:
        raise TASK_FILE.unreadable(path, os.strerror(2))
    try:
        return _build(path, yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or "it has characters that YAML does not allow"
        tabs = " YAML is indented with blanks, not with tabs." if "\t" in text else ""
        raise UsageError(f"{path}{where} is not YAML: {why}.", hint=f"Correct the file.{tabs}") from None


def _build(path: Path, events: Iterable[Any]) -> Value:
    """Build the value of a document, without recursion."""

    def wrong(line: int, why: str, hint: str) -> UsageError:
        return UsageError(f"{path}, line {line}: {why}.", hint=hint)

    root: list[Value] = []
    open_values: list[tuple[list[Value], int, bool]] = [(root, 1, False)]
    for event in events:
        kind, line = type(event).__name__, event.start_mark.line + 1
        if kind == "AliasEvent":
            raise wrong(line, f"aliases (*{shortened(event.anchor)}) are not read", "Write the value out.")
        if getattr(event, "tag", None) is not None:
            raise wrong(line, f"tags ({shortened(event.tag)}) are not read", "Leave the tag out.")
        if kind == "DocumentStartEvent" and root:
            raise wrong(
                line,
                "a second document begins, and one file is one job",
                "Write each task of a pipeline into a file of its own, and run them one after the other.",
            )
        if kind == "ScalarEvent":
            plain = event.implicit[0]
            text = None if plain and event.value in NULLS else event.value
            open_values[-1][0].append(Value(text, line, plain))
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            if len(open_values) > DEEPEST:
                raise wrong(line, f"more than {DEEPEST} levels", "A task file needs a few.")
            open_values.append(([], line, kind == "MappingStartEvent"))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            items, line, is_mapping = open_values.pop()
            open_values[-1][0].append(Value(_mapping(items, wrong) if is_mapping else items, line))
    return root[0] if root else Value(None, 1, plain=True)


def _mapping(items: list[Value], wrong: Callable[[int, str, str], UsageError]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key.content, str):
            raise wrong(key.line, "a key is a text", "Write key: value.")
        if key.content in found:
            first = found[key.content].line
            raise wrong(
                key.line, f"{shortened(key.content)} is there twice, first in line {first}", "Keep one of them."
            )
        if key.content == "<<":
            raise wrong(key.line, "merge keys (<<) are not read", "Write the values out.")
        found[key.content] = Value(value.content, key.line, value.plain)
    return found


@dataclass(slots=True)
class Section:
    """A mapping of a task file that is read key by key; `close` refuses what nobody has read.

    Attributes:
        file: For messages.
        values: By key.
        name: Of this part of the file, with a dot behind it; empty for all of it.
    """

    file: str
    values: Mapping[str, Value]
    name: str = ""
    _read: set[str] = field(default_factory=set)

    def wrong(self, key: str, why: str, hint: str = "") -> UsageError:
        """Return an error that names a key and its line."""
        named = key if key.isprintable() and len(key) <= LONGEST_KEY else shortened(key)
        return UsageError(f"{self.file}, line {self.values[key].line}: {self.name}{named} {why}.", hint=hint)

    def get(self, key: str) -> Value | None:
        """Return a value; None if it is not there, or empty."""
        self._read.add(key)
        value = self.values.get(key)
        return None if value is None or value.content is None else value

    def text(self, key: str) -> str | None:
        """Return a text or number as it is written."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value.content, str):
            raise self.wrong(key, "is not a text")
        return value.content

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        text = self.text(key)
        if text is None or text.lower() in (*TRUE, *FALSE):
            return None if text is None else text.lower() in TRUE
        raise self.wrong(key, f"is {shortened(text)}, neither true nor false")

    def whole(self, key: str, most: int = 10**6) -> int | None:
        """Return a whole number."""
        text = self.text(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
            raise self.wrong(key, f"is {shortened(text)}, and not a number from 1 to {most:,}")
        return int(text)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return one text, or a list of them."""
        value = self.get(key)
        if value is None:
            return ()
        items = value.content if isinstance(value.content, list) else [value]
        if any(not isinstance(item.content, str) for item in items):
            raise self.wrong(key, "is not a list of texts")
        return tuple(str(item.content) for item in items)

    def section(self, key: str) -> Section | None:
        """Return a mapping below."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value.content, dict):
            raise self.wrong(key, "is not a mapping of keys to values")
        return Section(self.file, value.content, f"{self.name}{key}.")

    def variables(self, key: str) -> tuple[str, ...]:
        """Return ``KEY=VALUE``, and ``KEY`` for what the shell must have, of a mapping or a list."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value.content, list):
            return self.texts(key)
        return tuple(self._variables(key))

    def _variables(self, key: str) -> Iterator[str]:
        below = self.section(key)
        for name, value in below.values.items() if below is not None else ():
            assert below is not None  # noqa: S101 - it has values
            if value.plain and str(value.content).lower() in (*TRUE, *FALSE):
                raise below.wrong(name, "is a truth value, and variables are texts", "Put it in quotes.")
            text = below.text(name)
            yield name if text is None else f"{name}={text}"

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse keys that mean what costgpu does not do: key -> what it does instead."""
        for key, reason in reasons.items():
            value = self.get(key)
            if value is not None and not (value.plain and str(value.content).lower() in FALSE):
                raise self.wrong(key, "is not supported", reason)

    def tell(self, reasons: Mapping[str, str], note: Callable[[str], None]) -> None:
        """Note keys that need nothing here: key -> why."""
        for key, reason in reasons.items():
            value = self.get(key)
            if value is not None and not (value.plain and str(value.content).lower() in FALSE):
                note(f"{self.file}, line {value.line}: {self.name}{key}: {reason}")

    def close(self) -> None:
        """Refuse what nobody has read."""
        for key in self.values:
            if key not in self._read:
                raise self.wrong(key, "is not known", "Nothing in a task file is ignored: correct it, or take it out.")
