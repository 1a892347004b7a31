"""A prediction for spot machines, with what their interruptions add. Pure.

The interval takes the rate's and the run's together, as independent errors. What would take more than `MOST_FACTOR` times
as long as without interruptions is not done there; the interval's upper end stops there, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.interruptions import daly_interval, expected_seconds, sustained_factor
from costgpu.models.defaults import DISK_BYTES_PER_SECOND
from costgpu.models.offer import InterruptionRate
from costgpu.models.prediction import Checkpoints, Interruptions, Range
from costgpu.models.workload import ExtraKind, Phase, Rhythm
from costgpu.units import format_duration

MOST_FACTOR = 10.0
HARDLY_DONE = "it would hardly come to its end"
LEAST_SAVE_SECONDS = 1.0  # of a checkpoint that nobody saw: files are opened, synced and renamed (assumed)
LEAST_INTERVAL_SECONDS = 60.0  # more often is no advice
FLOAT32_BYTES = 4


def checkpoints_of(phase: Phase, steps: float, epochs: float, *, whole: bool = True) -> Checkpoints:
    """Return what the last phase saves again and again in so many steps; with an assumed length where nothing was seen."""
    found = []
    for extra in phase.extras:
        if extra.kind is not ExtraKind.CHECKPOINT or extra.rhythm is Rhythm.RUN:
            continue
        if count := extra.count(steps, epochs, whole=whole):
            found.append(Checkpoints(seconds_each=extra.seconds_each, count=count, measured=extra.measured))
    if found:
        return max(found, key=lambda one: one.count or 0.0)
    return Checkpoints(seconds_each=max(LEAST_SAVE_SECONDS, _state_bytes(phase) / DISK_BYTES_PER_SECOND), count=None)


def _state_bytes(phase: Phase) -> float:
    """Model and optimizer, as a checkpoint holds them; 0 for inference, which keeps its results."""
    if not phase.unit.trains:
        return 0.0
    parameters = sum(optimizer.parameters for optimizer in phase.optimizers)
    state = sum(optimizer.state_bytes for optimizer in phase.optimizers)
    return max(phase.model_bytes, FLOAT32_BYTES * parameters) + state


@dataclass(frozen=True, slots=True)
class _Job:
    """What is predicted, as pieces between checkpoints; its methods give wall clock seconds."""

    checkpoints: Checkpoints
    overhead_seconds: float
    setup_seconds: float
    restart_seconds: float
    whole: bool

    def as_written(self, run: float, rate: float, best_interval: float) -> float:
        """With its own checkpoints; if none was seen, without any, or with the best ones if only a part is predicted."""
        count = self.checkpoints.count
        if count is None:
            return self._seconds(run, rate, math.inf) if self.whole else self.at_best(run, rate, best_interval)
        return self._seconds(run, rate, self.work(run) / count)

    def work(self, run: float) -> float:
        """Return the seconds of the run that count between two checkpoints."""
        return max(0.0, run - self.setup_seconds) if self.whole else run

    def at_best(self, run: float, rate: float, best_interval: float) -> float:
        """With a checkpoint at every best interval instead."""
        return self._seconds(self._without_saves(run), rate, best_interval, self.checkpoints.seconds_each)

    def bare(self, run: float, rate: float) -> float:
        """Without any checkpoint; infinite for a part of a job of unknown length."""
        return self._seconds(self._without_saves(run), rate, math.inf) if self.whole else math.inf

    def _without_saves(self, run: float) -> float:
        saving = (self.checkpoints.count or 0.0) * self.checkpoints.seconds_each
        return max(run - saving, self.setup_seconds if self.whole else 0.0)

    def _seconds(self, run: float, rate: float, interval: float, save: float = 0.0) -> float:
        if not self.whole:
            factor = sustained_factor(
                rate, restart_seconds=self.restart_seconds, checkpoint_seconds=save, interval_seconds=interval
            )
            return run * factor
        return expected_seconds(
            self.work(run),
            rate,
            restart_seconds=self.overhead_seconds + self.setup_seconds,
            checkpoint_seconds=save,
            interval_seconds=interval,
        )


def interrupted(
    rate: InterruptionRate,
    checkpoints: Checkpoints,
    run: Range,
    *,
    machines: int,
    overhead_seconds: float,
    restart_seconds: float,
) -> Interruptions:
    """Return what interruptions make of a run.

    Args:
        run: Seconds of the run without them, the script's set-up and its checkpoints included.
        overhead_seconds: Boot and installation before the run; 0 where only a part of a job is predicted.
        restart_seconds: Boot, installation and the script's set-up.
    """
    whole = overhead_seconds > 0
    job = _Job(checkpoints, overhead_seconds, max(0.0, restart_seconds - overhead_seconds), restart_seconds, whole)
    low, middle, high = (
        machines * per_hour / 3600 for per_hour in (rate.low_per_hour, rate.per_hour, rate.high_per_hour)
    )
    best = max(LEAST_INTERVAL_SECONDS, daly_interval(checkpoints.seconds_each, 1 / middle))
    plain = run.plus(overhead_seconds)
    most = MOST_FACTOR * plain.value
    value = min(job.as_written(run.value, middle, best), most)
    rarely = min(job.at_best(run.value, low, best), job.as_written(run.value, low, best), value)
    often = min(job.as_written(run.value, high, best), most)
    short, long = (min(job.as_written(end, middle, best), most) for end in (run.low, run.high))
    wall = Range(
        value=value,
        low=max(min(plain.low, value), value / math.exp(math.hypot(_log(value, rarely), _log(value, short)))),
        high=min(value * math.exp(math.hypot(_log(often, value), _log(long, value))), max(most, value)),
    )
    count = checkpoints.count
    return Interruptions(
        rate=rate,
        checkpoints=checkpoints,
        restart_seconds=restart_seconds,
        interval_seconds=None if count is None else job.work(run.value) / count,
        best_interval_seconds=best,
        expected=middle * value,
        undisturbed_seconds=plain,
        wall_seconds=wall,
        best_seconds=job.at_best(run.value, middle, best),
        bare_seconds=job.bare(run.value, middle),
    )


def _log(one: float, other: float) -> float:
    return math.log(one / other) if one > 0 and other > 0 else 0.0


def never_done(found: Interruptions) -> str:
    """Return why the job is not done on such machines; empty if it is."""
    if found.factor < MOST_FACTOR * (1 - 1e-9):  # it is cut off there
        return ""
    mean = format_duration(3600 / found.rate.per_hour)
    saves = "without checkpoints" if found.interval_seconds is None else "with so few checkpoints"
    return f"{HARDLY_DONE} {saves} on machines that are taken back every {mean} or so (assumed)"
