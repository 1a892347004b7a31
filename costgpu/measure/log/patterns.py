"""How programs print their progress: one pattern for each format, and other facts.

They are read from ``patterns.toml`` and, for programs that are no longer developed, from ``frozen_patterns.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any


class Tier(IntEnum):
    """How much a match means; a lower one is chosen first."""

    USER = 0
    FRAMEWORK = 1  # nothing else prints such lines
    BAR = 2  # a progress bar, or the habit of many training scripts
    EPOCH_AND_STEP = 3
    STEP_OF_TOTAL = 4
    BRACKET = 5
    STEP = 6
    EPOCH = 7
    PERCENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One format."""

    name: str
    label: str  # for people
    regex: re.Pattern[str]  # searched in the line; with a group ``step`` or ``percent``
    tier: Tier  # how specific
    unit: str = "step"  # what the counter counts
    framework: str = "log lines"  # for the profile
    needle: str = ""  # lower-case text without which the regex is not tried; empty to try always
    more: tuple[re.Pattern[str], ...] = ()  # searched from the match on, for more groups
    per_epoch: bool = False  # the total is an epoch's, by the format's convention
    whole: bool = False  # the total is the whole training's, by the format's convention
    announced: Sequence[str] = ("", "")  # the fact that tells the total of the whole training, and whose it is
    named: bool = False  # what stands before the match is the name of the bar
    kind: str = ""  # kind of work, if only one kind prints such lines
    no_gpu: str = ""  # why a GPU does nothing for this program; empty if that is not known
    step_group: int | str = ""  # the group of a user's pattern that counts; 0 for none


@dataclass(frozen=True, slots=True)
class Fact:
    """What else a log tells: a text without which the regex is not tried, and a regex with a group ``value``."""

    name: str
    needle: str
    regex: re.Pattern[str]


_DATA, _FROZEN = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("patterns.toml", "frozen_patterns.toml")
)


def _compile(text: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    for name, part in _DATA["parts"].items():
        text = text.replace(f"{{{name}}}", part)
    return re.compile(text, re.IGNORECASE if ignore_case else 0)


def _pattern(
    *, tier: str, regex: str, more: list[str] | None = None, ignore_case: bool = False, **other: Any
) -> Pattern:
    further = tuple(_compile(text, ignore_case=ignore_case) for text in more or [])
    return Pattern(tier=Tier[tier], regex=_compile(regex, ignore_case=ignore_case), more=further, **other)


PATTERNS = tuple(_pattern(**row) for row in _FROZEN["pattern"] + _DATA["pattern"])
FACTS = tuple(Fact(row["name"], row["needle"], _compile(row["regex"])) for row in _DATA["fact"] + _FROZEN["fact"])
CONTEXT = _compile(_DATA["context"], ignore_case=True)
"""The epoch, and perhaps the number of epochs, that the lines around a counter speak of."""

MAY_STOP: list[str] = _DATA["may_stop"]
"""Facts that say that a training may end before its total."""

NETS: dict[str, str] = _FROZEN["nets"]
"""Names of nets in logs -> kind of work in the benchmark table."""
