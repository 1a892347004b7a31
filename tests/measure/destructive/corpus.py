# ruff: noqa: PT018
"""How a destructive script is written down: a headed piece of a class's text.

A class is one text of pieces, each of which starts with ``### name flag flag needs=program,program imports=module``.
A script runs in the victim's working folder, with everything of `victim.py`; it prints ``begun`` when it has that, and
``finished`` at its end.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import dataclass

BEGUN, FINISHED = "begun", "finished"
FLAGS = {
    "only-isolated",  # dangerous by nature: it looks for namespaces of its own first, and never runs unprotected
    "unfinished",  # does not reach its last line: it ends or replaces itself, or what it asks for is refused
    "endless",  # goes on until it is ended
    "later",  # a process that it leaves behind does the harm
    "refused",  # where it is measured, what it asks for may be refused, or not be there to be harmed
    "through-us",  # does harm only by what costgpu does afterwards
}
_HEAD = re.compile(r"^### (?P<words>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One way of doing harm."""

    group: str
    name: str
    source: str
    flags: frozenset[str]
    needs: tuple[str, ...] = ()  # programs
    imports: tuple[str, ...] = ()  # Python modules that are not of the standard library

    @property
    def id(self) -> str:
        """For test names."""
        return f"{self.group}-{self.name}"

    @property
    def text(self) -> str:
        """What is written into the file that is run."""
        return f"from victim import *\n\nprint({BEGUN!r}, flush=True)\n{self.source}\nprint({FINISHED!r}, flush=True)\n"

    def missing(self) -> str:
        """What it needs and this machine does not have; empty if it can run."""
        programs = [name for name in self.needs if shutil.which(name) is None]
        return ", ".join(programs + [name for name in self.imports if importlib.util.find_spec(name) is None])


def scripts(group: str, text: str) -> list[Script]:
    """The scripts of a class."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = [_script(group, head["words"], text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]
    assert len({script.name for script in found}) == len(found), group
    return found


def _script(group: str, head: str, source: str) -> Script:
    name, *words = head.split()
    options = dict(word.split("=") for word in words if "=" in word)
    flags = frozenset(word for word in words if "=" not in word)
    assert flags <= FLAGS and options.keys() <= {"needs", "imports"}, head
    return Script(
        group=group,
        name=name,
        source=source.strip() + "\n",
        flags=flags,
        needs=tuple(options["needs"].split(",")) if "needs" in options else (),
        imports=tuple(options["imports"].split(",")) if "imports" in options else (),
    )
