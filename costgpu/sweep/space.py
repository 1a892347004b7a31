"""What a sweep tries, as its options say it: points of a grid, and values that Ray Tune draws. Pure.

Values of a grid stay the texts that the user wrote, so that a script sees ``1e-4`` and not ``0.0001``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from costgpu.errors import UsageError
from costgpu.sweep.tuner.arguments import NAME

MANY_TRIALS = 200  # more than that are asked about
MOST_TRIALS = 100_000
_INTEGER = re.compile(r"[+-]?[0-9]{1,15}")  # exact as floats

Setting = Mapping[str, str]
"""The value of each parameter for one trial, by name."""


class Distribution(StrEnum):
    """How values of a parameter are drawn."""

    UNIFORM = "uniform"
    LOG_UNIFORM = "log_uniform"
    INTEGER = "integer"  # uniform, both ends included
    CHOICE = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxis:
    """A parameter of which every value is tried."""

    name: str
    values: tuple[str, ...]

    @property
    def domain(self) -> list[object]:
        """Return a function of Ray Tune and its arguments."""
        return ["grid_search", list(self.values)]

    @property
    def example(self) -> str:
        """Return the first value."""
        return self.values[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomAxis:
    """A parameter of which values are drawn."""

    name: str
    distribution: Distribution
    low: float = 0.0
    high: float = 0.0  # not below `low`
    choices: tuple[str, ...] = ()

    @property
    def domain(self) -> list[object]:
        """Return a function of Ray Tune and its arguments."""
        if self.distribution is Distribution.CHOICE:
            return ["choice", list(self.choices)]
        if self.distribution is Distribution.INTEGER:
            return ["randint", int(self.low), int(self.high) + 1]
        return ["loguniform" if self.distribution is Distribution.LOG_UNIFORM else "uniform", self.low, self.high]

    @property
    def example(self) -> str:
        """Return the first choice, or the middle of the range."""
        if self.distribution is Distribution.CHOICE:
            return self.choices[0]
        if self.distribution is Distribution.INTEGER:
            return str((int(self.low) + int(self.high)) // 2)
        middle = self.low / 2 + self.high / 2
        if self.distribution is Distribution.LOG_UNIFORM:
            middle = math.exp((math.log(self.low) + math.log(self.high)) / 2)
        return f"{middle:.10g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a sweep tries: every point of the grid, with `draws` random draws of the other parameters for each."""

    grid: tuple[GridAxis, ...] = ()
    random: tuple[RandomAxis, ...] = ()
    draws: int = 1  # draws for each point of the grid; 1 without random parameters
    seed: int = 0  # of the draws: the same seed gives the same settings

    @property
    def axes(self) -> tuple[GridAxis | RandomAxis, ...]:
        """All parameters, in the order in which they were given."""
        return (*self.grid, *self.random)

    @property
    def points(self) -> int:
        """Number of points of the grid; 1 without one."""
        return math.prod(len(axis.values) for axis in self.grid)

    @property
    def trials(self) -> int:
        """Number of settings."""
        return self.points * self.draws

    @property
    def domains(self) -> dict[str, list[object]]:
        """Return each parameter in the words of Ray Tune."""
        return {axis.name: axis.domain for axis in self.axes}

    @property
    def example(self) -> Setting:
        """Return a setting to measure and to show: Ray Tune draws the others on the machine."""
        return {axis.name: axis.example for axis in self.axes}


def parse_space(grid: Sequence[str], random_: Sequence[str], draws: int | None, seed: int) -> Space:
    """Return the space of ``--grid``, ``--param`` and ``--random``.

    Raises:
        UsageError: A text is not understood, a name stands twice, or the options do not go together.
    """
    drawn = tuple(_random_axis(text) for text in random_)
    space = Space(grid=tuple(map(_grid_axis, grid)), random=drawn, draws=1 if draws is None else draws, seed=seed)
    names = Counter(axis.name for axis in space.axes)
    if not names:
        raise UsageError(
            "Which settings are to be tried?", hint="--grid lr=1e-4,3e-4 or --random 20 --param lr=1e-5..1e-2:log"
        )
    name, count = names.most_common(1)[0]
    if count > 1:
        raise UsageError(f"The parameter {name} is given twice.", hint="Give all of its values at once.")
    if drawn and draws is None:
        raise UsageError("How often are the values of --param to be drawn?", hint="--random 20 draws 20 of them.")
    if draws is not None and not drawn:
        raise UsageError("--random draws values of --param, and there is none.", hint="--param dropout=0.0..0.5")
    if draws is not None and draws < 1:
        raise UsageError(f"--random {draws} is not a number of draws.")
    if space.trials > MOST_TRIALS:
        raise UsageError(
            f"These are {space.trials:,} trials; a sweep has {MOST_TRIALS:,} at most.",
            hint="Draw some of them: --random 100 with --param instead of --grid.",
        )
    return space


def _split(text: str, option: str) -> tuple[str, str]:
    name, sign, values = text.partition("=")
    name = name.strip()
    if not sign or re.fullmatch(NAME, name) is None:
        raise UsageError(f"{option} {text!r} is not NAME=VALUES.", hint="For example: --grid lr=1e-4,3e-4")
    return name, values


def _grid_axis(text: str) -> GridAxis:
    name, listed = _split(text, "--grid")
    values = tuple(value.strip() for value in listed.split(","))
    if not listed.strip():
        raise UsageError(f"--grid {text!r} has no values.", hint=f"For example: --grid {name}=1,2")
    value, count = Counter(values).most_common(1)[0]
    if count > 1:
        raise UsageError(f"--grid {name} has the value {value!r} twice.")
    return GridAxis(name=name, values=values)


def _random_axis(text: str) -> RandomAxis:
    name, listed = _split(text, "--param")
    hint = f"A range: {name}=0.0..0.5, {name}=1e-5..1e-2:log; a choice: {name}=relu|gelu"
    if "|" in listed:
        choices = tuple(value.strip() for value in listed.split("|"))
        if len(set(choices)) != len(choices):
            raise UsageError(f"--param {text!r} has a value twice.", hint=hint)
        return RandomAxis(name=name, distribution=Distribution.CHOICE, choices=choices)
    span, sign, kind = listed.partition(":")
    low_text, dots, high_text = (part.strip() for part in span.partition(".."))
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise UsageError(f"--param {text!r} is neither a range nor a choice.", hint=hint) from None
    if not dots or (sign and kind.strip() != "log") or not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"--param {text!r} is neither a range nor a choice.", hint=hint)
    if not low < high:
        raise UsageError(f"--param {name}: {low_text} is not below {high_text}.", hint=hint)
    if not math.isfinite(high - low):
        raise UsageError(f"--param {name}: a range as wide as that cannot be drawn from.", hint=hint)
    if sign and low <= 0:
        raise UsageError(f"--param {name}: a logarithmic range begins above 0.", hint=hint)
    integers = _INTEGER.fullmatch(low_text) and _INTEGER.fullmatch(high_text)
    kinds = Distribution.LOG_UNIFORM if sign else Distribution.INTEGER if integers else Distribution.UNIFORM
    return RandomAxis(name=name, distribution=kinds, low=low, high=high)
