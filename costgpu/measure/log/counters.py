"""The counters in a program's log: what each counts, and which of them is the training's. Pure.

A counter is a stream of lines that one pattern matches. It counts if it mostly rises; where it starts again, or where
the epoch beside it rises, an epoch has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from costgpu.measure.log.lines import Line, Progress, epoch_context, read_line
from costgpu.measure.log.patterns import FACTS, PATTERNS, Pattern, Tier

MOST_SAMPLES = 20000  # of one stream; beyond it every other one is dropped
MOST_STREAMS = 400  # a log with more has a pattern match in noise
FEW = 3  # so many steps forward prove a counter; fewer only where nothing else counts
QUIET_GAPS, QUIET_SHARE = 5.0, 0.3  # a counter that has been silent for so long is not the one that is running
RESETS_PER_RISE = 0.5  # a number that falls more often than that is no counter


class Sample(NamedTuple):
    """One reading of a counter; `epoch` is of the same line or of the last line that named one."""

    at: float
    step: float
    epoch: float | None
    samples: float | None


@dataclass(slots=True)
class CounterReadings:
    """The readings of one counter."""

    pattern: Pattern  # that matches its lines
    first: Progress  # what its first line says; the total and what stands before the counter are the same in all
    samples: list[Sample] = field(default_factory=list)  # each differs from the one before
    epochs: float | None = None  # the number of epochs that its own lines tell
    rises: int = 0  # readings above the one before, or in a later epoch
    falls: int = 0  # readings below the one before, in no later epoch
    restarts: int = 0  # readings that are not above the one before: an epoch has begun between them
    lines: int = 0  # all lines that matched
    beside: set[str] = field(default_factory=set)  # patterns that matched the same lines

    def add(self, found: Progress, epoch: float | None) -> None:
        """Add a reading; `epoch` is that of the lines around it."""
        self.lines += 1
        counted = found.step if found.step is not None else float(self.lines)
        epoch = found.epoch if found.epoch is not None else epoch
        self.epochs = found.epochs or self.epochs
        if self.samples:
            last = self.samples[-1]
            later = epoch is not None and last.epoch is not None and epoch > last.epoch
            if counted == last.step and not later:
                return
            self.restarts += counted < last.step or (later and counted == last.step)
            self.rises += counted > last.step or later
            self.falls += counted < last.step and not later
        self.samples.append(Sample(found.at, counted, epoch, found.samples))
        if len(self.samples) > MOST_SAMPLES:
            self.samples[:] = self.samples[::2]

    @property
    def total(self) -> float | None:
        """Return what it counts to; None if its lines do not tell."""
        return self.first.total

    @property
    def counts(self) -> bool:
        """Return whether it can be a counter at all."""
        return self.rises > 0 and self.falls <= max(1.0, RESETS_PER_RISE * self.rises)

    @property
    def complete(self) -> bool:
        """Return whether it has reached its total, and not begun again."""
        return self.total is not None and self.samples[-1].step >= self.total and self.restarts == 0


class ProgressLog:
    """Reads lines one by one, and knows at any time which counter is the training's."""

    def __init__(self, patterns: tuple[Pattern, ...] = PATTERNS) -> None:
        self.patterns = patterns
        self.streams: dict[str, CounterReadings] = {}
        self.facts: dict[str, str] = {}
        self.lines = 0
        self.epochs: float | None = None
        self.unreadable = ""
        self.last_at = 0.0
        self._epoch: float | None = None

    def read(self, line: Line) -> bool:
        """Return whether the line says anything about progress."""
        self.lines += 1
        for fact in FACTS:
            if fact.needle in line.text and (match := fact.regex.search(line.text)) is not None:
                self.facts.setdefault(fact.name, match["value"])
        context = epoch_context(line)
        if context is not None:
            self._epoch, self.epochs = context[0], context[1] or self.epochs
        hit = False
        matches = read_line(line, self.patterns)
        names = {found.pattern.name for found in matches}
        for found in matches:
            if found.step is None and found.pattern.step_group != 0:
                self.unreadable = found.text
            elif found.stream in self.streams or len(self.streams) < MOST_STREAMS:
                stream = self.streams.setdefault(found.stream, CounterReadings(found.pattern, found))
                stream.beside |= names
                stream.add(found, self._epoch)
                self.last_at, hit = line.at, True
        return hit

    def best(self, now: float | None = None) -> CounterReadings | None:
        """Return the counter of the training, by all that has been read until `now`; None if nothing counts yet."""
        counters = [stream for stream in self.streams.values() if stream.counts]
        end = self.last_at if now is None else max(now, self.last_at)
        return min(counters, key=lambda stream: _rank(stream, end), default=None)

    def outer(self, inner: CounterReadings) -> CounterReadings | None:
        """Return the bar around the bar of the training, if there is one: it moves when that one starts again."""
        for stream in self.streams.values():
            if stream is inner or not stream.pattern.named or not stream.total or stream.first.evaluating:
                continue
            moved = stream.samples[-1].step - stream.samples[0].step
            follows = moved == 0 == inner.restarts or (moved > 0 and abs(moved - inner.restarts) <= 1)
            if follows and stream.samples[0].at <= inner.samples[0].at:
                return stream
        return None

    def others(self, chosen: CounterReadings) -> list[CounterReadings]:
        """Return counters in other lines than those of the chosen one, best first."""
        found = [
            stream
            for stream in self.streams.values()
            if stream.counts
            and stream.rises >= FEW
            and not stream.first.evaluating
            and chosen.pattern.name not in stream.beside
            and stream.pattern.tier not in (Tier.EPOCH, Tier.PERCENT)
        ]
        return sorted(found, key=lambda stream: _rank(stream, self.last_at))


def _rank(stream: CounterReadings, now: float) -> tuple[bool, bool, bool, int, bool, int]:
    """Rank by what trains, what is running, what is proven, what is specific, what has most readings; least is best."""
    first, last = stream.samples[0].at, stream.samples[-1]
    gaps = sorted(later.at - earlier.at for earlier, later in pairwise(stream.samples[-50:]))
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    silent = now - last.at > max(QUIET_GAPS * usual, QUIET_SHARE * (now - first))
    over = stream.complete and not stream.pattern.per_epoch and last.epoch is None  # a bar of the preparations
    return (
        stream.first.evaluating,
        silent or over,
        stream.rises < FEW,
        stream.pattern.tier,
        stream.first.names_epochs,
        -stream.rises,
    )
