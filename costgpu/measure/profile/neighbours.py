"""What other programs took of a script's time, and the times without it. Pure.

The probe leaves out of every interval the seconds in which the script's own thread was ready and had no core. Threads
that it waits for lose theirs, too: it blocks until they are done, or spins (OpenMP does, unless it is told not to).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from costgpu.measure.probe.record import ActivityRecord, Loader, PhaseRecord
from costgpu.measure.probe.schedstat import LEAST_SAMPLE_SECONDS
from costgpu.models.workload import Phase

LEAST_LOOKS = 5  # with fewer, CPU seconds have to tell
# Of the seconds in which another thread of the script has no core while its main one has, those in which the latter
# spins for it. Source: two threads beside four busy loops on two cores (benchmarks/README.md, 2026-11-25): 0.74 in
# networks whose ops take milliseconds; more than all where they take microseconds, so a measurement there does not spin.
SPINNING = 0.75
MOSTLY = 0.5  # of the looks at a program
FULL = 0.9  # of what the cores can do: below it a program finds one when it needs one
MOST = 0.95  # of the time, that can be taken off: what is left has to be something


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What disturbed a script while it was measured, as shares from 0 to 1; all 0 where the system does not tell."""

    queue: float = 0.0  # of the time in which its threads had no core, the part that is other programs' doing
    lost: float = 0.0  # of the time in which its main thread was not on a core, that in which it was ready for one
    team: float = 0.0  # of the time in which it blocked on its own threads, the part in which these had no core
    spinning: float = 0.0  # of its seconds on a core, those for which it only spun
    stolen: float = 0.0  # of its seconds on a core, those that other virtual machines took
    waiting: float = 0.0  # of the time in which it blocked, that in which nothing of its process computed
    share: float = 0.0  # of all of its time, what other programs took

    def undisturbed(self, raw: PhaseRecord) -> PhaseRecord:
        """Return a phase with the intervals that it would have had without other programs."""
        loader = raw["loader"] or Loader()
        busy, asleep = loader.get("fetch_seconds") or 0.0, loader.get("fetch_waits") or 0.0
        run_delay = loader.get("fetch_run_delay") or 0.0
        starved = (
            self.queue * run_delay / (busy + asleep + run_delay) if loader.get("workers") and run_delay > 0 else 0.0
        )
        if loader.get("fetch_seconds") is not None and not loader.get("workers"):
            loader = {**loader, "fetch_seconds": busy + (1 - self.queue * self.lost) * asleep, "fetch_waits": 0.0}
        intervals = [
            self._interval(*times, starved)
            for times in zip(raw["seconds"], raw["waits"], raw["blocked"], raw["run_delay"], strict=True)
        ]
        seconds, waits, blocked = ([interval[place] for interval in intervals] for place in range(3))
        before = sum(raw["seconds"])
        rest = min(1.0, sum(seconds) / before) if before > 0 else 1.0
        special = {
            at: {**event, "validation": rest * event["validation"]} if "validation" in event else event
            for at, event in raw["special"].items()
        }
        times = {"seconds": seconds, "waits": waits, "blocked": blocked, "special": special}
        return cast("PhaseRecord", {**raw, **times, "loader": loader or None})

    def _interval(
        self, seconds: float, wait: float, blocked: float, run_delay: float, starved: float
    ) -> tuple[float, float, float]:
        team, on_core = self.queue * self.team * (1 - self.waiting) * blocked, max(0.0, seconds - wait - blocked)
        spun = min(MOST, self.queue * self.spinning + self.stolen) * on_core
        own = (1 - self.queue) * run_delay  # its own processes had its core: no other machine would be without them
        return seconds - starved * wait - team - spun + own, (1 - starved) * wait, blocked - team

    def undisturbed_phase(self, phase: Phase) -> Phase:
        """Return a phase of which only the seconds of whole steps are known, without what other programs took."""
        rest = 1 - self.share if self.queue > 0 else 1.0  # nothing is taken off where the queue is not known
        step = replace(
            phase.step,
            **{
                name: rest * getattr(phase.step, name)
                for name in ("median_seconds", "mean_seconds", "low_seconds", "high_seconds")
            },
        )
        extras = [replace(extra, seconds_each=rest * extra.seconds_each) for extra in phase.extras]
        return replace(phase, step=step, extras=extras)


def neighbours_of(activity: ActivityRecord | None, threads: int) -> Neighbours:
    """Return what disturbed a script.

    Args:
        threads: Threads with which it computes.
    """
    if activity is None or activity["wall"] < LEAST_SAMPLE_SECONDS:  # its shares are those of a moment after the steps
        return Neighbours()
    if activity["main_cpu"] <= 0:
        return neighbours_of_program(activity, activity["cores"]) if activity["run_delay"] > 0 else _unknown(activity)
    wall, cpu, main = activity["wall"], activity["main_cpu"], activity["main_run_delay"]
    others, off = max(0.0, activity["run_delay"] - main), max(0.0, wall - cpu - main)
    waiting = activity["alone"] / activity["off"] if activity["off"] >= LEAST_LOOKS else 0.0
    blocked = (1 - waiting) * off
    team = min(1.0, others / blocked) if blocked > 0 else 0.0
    each = min(MOST, others / (wall * max(1, threads - 1)))
    someone = 1 - (1 - each) ** max(1, threads - 1)  # of the other threads has no core
    spinning = min(MOST, max(0.0, SPINNING * someone * (cpu + blocked) - team * blocked) / cpu)
    queue, stolen = queue_share(activity["neighbours_cpu"], activity["children_cpu"]), 0.0
    if activity["stolen"] > 0:
        stolen = activity["stolen"] / (activity["stolen"] + activity["neighbours_cpu"] + activity["cpu"])
    taken = queue * (main + team * blocked + spinning * cpu) + stolen * cpu
    return Neighbours(
        queue=queue,
        lost=main / (main + off) if main > 0 else 0.0,
        team=team,
        spinning=spinning,
        stolen=stolen,
        waiting=waiting,
        share=min(MOST, taken / wall),
    )


def _unknown(activity: ActivityRecord) -> Neighbours:
    """Return what other programs may have taken where the scheduler tells nothing: it is known, and not taken off."""
    both = activity["neighbours_cpu"] + activity["cpu"]
    if both < FULL * activity["cores"] * activity["wall"] or both <= 0:
        return Neighbours()
    return Neighbours(share=min(MOST, activity["neighbours_cpu"] / both))


def queue_share(theirs: float, own: float) -> float:
    """Return the part of the time without a core that is other programs' doing, by the seconds that these computed."""
    return theirs / (theirs + own) if theirs + own > 0 else 1.0


def neighbours_of_program(activity: ActivityRecord | None, cores: int) -> Neighbours:
    """Return what disturbed a program that is watched from outside, by the threads of all of its processes together."""
    if activity is None or activity["run_delay"] <= 0 or activity["wall"] < LEAST_SAMPLE_SECONDS:
        return Neighbours()
    if activity["off"] >= LEAST_LOOKS and activity["quiet"] > MOSTLY * activity["off"]:
        return Neighbours()  # what it waits for takes its time, and what queues beside it may be anything
    # Of what computes all the time, both are the same; threads side by side lose the one, and what sleeps the other.
    share = min(
        activity["run_delay"] / (activity["run_delay"] + activity["cpu"]), activity["run_delay"] / activity["wall"]
    )
    own = max(0.0, activity["cpu"] + activity["run_delay"] - cores * activity["wall"])  # it has more threads than cores
    queue = queue_share(activity["neighbours_cpu"], own)
    return Neighbours(queue=queue, share=min(MOST, queue * share))
