"""Lines of a program's output, cut from bytes as they arrive, and what one line says about progress. Pure.

A line ends with a newline, a carriage return or a backspace: progress bars are lines that overwrite one another. It
carries the time at which its first byte came, which is right for a program that buffers its output, too: a block is
written at the moment when the line that does not fit any more is printed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from costgpu.errors import UsageError
from costgpu.measure.log.patterns import CONTEXT, PATTERNS, Pattern, Tier

LINE_BYTES = 2000  # of one line; what is longer is no progress line, and patterns take time on it
_ENDS = re.compile(rb"[\r\n\b]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Z]|[=>78cM])")
_EVALUATION = re.compile(r"(?<![a-z])(?:val|valid|validat\w*|eval\w*|test\w*|predict\w*)(?![a-z])", re.IGNORECASE)
_EPOCH_IN_NAME = re.compile(r"\bepoch\W{0,4}(\d+)(?:\s*(?:/|of)\s*(\d+))?", re.IGNORECASE)
_EPOCHS_IN_NAME = re.compile(r"\bepochs?\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_PREFIX = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_USER_GROUPS = {"step", "total", "epoch", "epochs"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end and without escape sequences; `at` is when its first byte came, in seconds."""

    text: str
    at: float


class LineSplitter:
    """Cuts bytes into lines; blank lines are dropped, long ones cut short."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._at: float | None = None

    def feed(self, chunk: bytes, at: float) -> list[Line]:
        """Return the lines that this chunk completes, which came `at` this second."""
        lines: list[Line] = []
        start = 0
        for end in _ENDS.finditer(chunk):
            self._hold(chunk[start : end.start()], at)
            lines += self.close()
            start = end.end()
        self._hold(chunk[start:], at)
        return lines

    def close(self) -> list[Line]:
        """Return what is held as a line, complete or not; nothing is held afterwards."""
        text = _ESCAPES.sub("", self._held.decode("utf-8", "replace"))
        at, self._at = self._at, None
        self._held.clear()
        return [Line(text, at)] if at is not None and text.strip() else []

    def _hold(self, part: bytes, at: float) -> None:
        if part and self._at is None:
            self._at = at
        self._held += part[: LINE_BYTES - len(self._held)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one line says."""

    pattern: Pattern  # that matched
    stream: str  # tells counters apart that the same pattern matches, such as two bars
    at: float
    text: str  # the line, from the match on where what stands before it says nothing
    step: float | None  # the counter; percent for a `percent` unit; None if the lines themselves are to be counted
    total: float | None = None  # what it counts to
    epoch: float | None = None  # of the same line
    epochs: float | None = None  # of the same line
    samples: float | None = None  # in the steps that the line is about
    evaluating: bool = False  # what stands before the counter speaks of validation or a test
    names_epochs: bool = False  # a bar that is called "epochs": its counter counts them


def read_line(line: Line, patterns: tuple[Pattern, ...] = PATTERNS) -> list[Progress]:
    """Return what the patterns see in a line: one entry for each pattern that matches."""
    lowered = line.text.lower()
    likely = [pattern for pattern in patterns if pattern.needle in lowered]
    matches = [(pattern, pattern.regex.search(line.text)) for pattern in likely]
    return [_progress(pattern, match, line) for pattern, match in matches if match is not None]


def epoch_context(line: Line) -> tuple[float, float | None] | None:
    """Return epoch and number of epochs that a line speaks of, in words like ``Epoch 3/90``; None for none."""
    if "poch" not in line.text and "POCH" not in line.text:
        return None
    match = CONTEXT.search(line.text)
    return (float(match["epoch"]), _number(match["epochs"])) if match else None


def _progress(pattern: Pattern, match: re.Match[str], line: Line) -> Progress:
    groups: dict[str, str | None] = match.groupdict()
    for more in pattern.more:
        further = more.search(line.text, match.start())
        if further is not None:
            groups.update({k: v for k, v in further.groupdict().items() if v is not None})
    before = line.text[: match.start()]
    step, total = _number(groups.get("step")), _number(groups.get("total"))
    epoch, epochs = _number(groups.get("epoch")), _number(groups.get("epochs"))
    name, names_epochs = "", False
    if pattern.unit == "percent":
        step, total = _number(groups.get("percent")), 100.0
    if pattern.tier is Tier.USER and pattern.step_group:
        step = _number(match[pattern.step_group])
        if pattern.unit == "epoch":
            total, epoch, epochs = epochs, None, None
    if pattern.named:
        name = _NUMBER.sub("#", before.strip())[-80:]
        if (own := _EPOCH_IN_NAME.search(before)) is not None:
            epoch, epochs = float(own[1]), _number(own[2])
        names_epochs = epoch is None and _EPOCHS_IN_NAME.search(before) is not None
    evaluating = bool(before) and _EVALUATION.search(before) is not None
    return Progress(
        pattern=pattern,
        stream=f"{pattern.name}|{name}|{total}|{evaluating}",
        at=line.at,
        text=(line.text if pattern.named else line.text[match.start() :]).strip(),
        step=step,
        total=total,
        epoch=epoch,
        epochs=epochs,
        samples=_number(groups.get("samples")),
        evaluating=evaluating,
        names_epochs=names_epochs,
    )


def _number(text: str | None) -> float | None:
    """Return a number, perhaps with ``k`` or ``M`` behind it; None for anything else."""
    if not text:
        return None
    scale = _PREFIX.get(text[-1], 1.0)
    try:
        value = float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def user_pattern(text: str) -> Pattern:
    """Return the pattern of ``--step-pattern``.

    Args:
        text: A regular expression. Named groups step, total, epoch and epochs are used; without names, the first group
            is the step; without groups, each matching line is a step.

    Raises:
        UsageError: It is no regular expression, or has other groups.
    """
    hint = r"For example: --step-pattern 'step (?P<step>\d+)/(?P<total>\d+)'"
    try:
        regex = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--step-pattern '{text}' is not a regular expression: {error}.", hint=hint) from None
    if not text or regex.match(""):
        raise UsageError(f"--step-pattern '{text}' matches every line, also an empty one.", hint=hint)
    names = set(regex.groupindex)
    if names - _USER_GROUPS:
        raise UsageError(
            f"--step-pattern has a group named {min(names - _USER_GROUPS)!r}.",
            hint=f"It may have {', '.join(sorted(_USER_GROUPS))}. {hint}",
        )
    if names and not names & {"step", "epoch"}:
        raise UsageError(
            f"--step-pattern has {' and '.join(sorted(names))}, but neither step nor epoch: nothing would be counted.",
            hint=hint,
        )
    by_epoch = "epoch" in names and "step" not in names
    group: int | str = "epoch" if by_epoch else "step" if names else 1 if regex.groups else 0
    return Pattern(
        name="--step-pattern",
        label="--step-pattern",
        regex=regex,
        tier=Tier.USER,
        unit="epoch" if by_epoch else "step",
        step_group=group,
        per_epoch=names >= {"epoch", "total"},
    )
