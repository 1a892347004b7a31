"""What other programs took of a script's time, and the times without it. Pure.

The probe leaves out of every interval the seconds in which the script's own thread was ready and had no core. Threads
that it waits for lose theirs, too: it blocks until they are done, or spins (OpenMP does, unless it is told not to).
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.measure.probe.record import ActivityRecord, PhaseRecord

LEAST_LOOKS = 5  # with fewer, CPU seconds have to tell
# Of the seconds in which another thread of the script has no core while its main one has, those in which the latter
# spins for it. Source: two threads beside four busy loops on two cores (benchmarks/README.md, 2026-11-25): 0.74 in
# networks whose ops take milliseconds; more than all where they take microseconds, so a measurement there does not spin.
SPINNING = 0.75
MOST = 0.95  # of the time, that can be taken off: what is left has to be something


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What disturbed a script while it was measured, as shares from 0 to 1; all 0 where the system does not tell."""

    queue: float = 0.0  # of the time in which its threads had no core, the part that is other programs' doing
    team: float = 0.0  # of the time in which it blocked on its own threads, the part in which these had no core
    spinning: float = 0.0  # of its seconds on a core, those for which it only spun
    stolen: float = 0.0  # of its seconds on a core, those that other virtual machines took
    waiting: float = 0.0  # of the time in which it blocked, that in which nothing of its process computed
    share: float = 0.0  # of all of its time, what other programs took

    def undisturbed(self, raw: PhaseRecord) -> PhaseRecord:
        """Return a phase with the intervals that it would have had without other programs."""
        seconds, blocked = list(raw["seconds"]), list(raw["blocked"])
        for index, interval in enumerate(zip(raw["seconds"], raw["waits"], raw["blocked"], raw["queued"], strict=True)):
            whole, wait, off, queued = interval
            team = self.queue * self.team * (1 - self.waiting) * off
            on_core = max(0.0, whole - wait - off)
            taken = team + min(MOST, self.queue * self.spinning + self.stolen) * on_core
            seconds[index] = whole - taken + (1 - self.queue) * queued
            blocked[index] = off - team
        return {**raw, "seconds": seconds, "blocked": blocked}


def neighbours_of(activity: ActivityRecord | None, threads: int) -> Neighbours:
    """Return what disturbed a script.

    Args:
        threads: Threads with which it computes.
    """
    if activity is None or activity["wall"] <= 0 or activity["main_cpu"] <= 0:
        return Neighbours()
    wall, cpu, others = activity["wall"], activity["main_cpu"], max(0.0, activity["queued"] - activity["main_queued"])
    theirs, own = activity["neighbours_cpu"], activity["children_cpu"]
    queue = theirs / (theirs + own) if theirs + own > 0 else 1.0
    off = max(0.0, wall - cpu - activity["main_queued"])
    waiting = activity["alone"] / activity["off"] if activity["off"] >= LEAST_LOOKS else 0.0
    blocked = (1 - waiting) * off
    team = min(1.0, others / blocked) if blocked > 0 else 0.0
    each = min(MOST, others / (wall * max(1, threads - 1)))
    someone = 1 - (1 - each) ** max(1, threads - 1)  # of the other threads has no core
    spun = max(0.0, SPINNING * someone * (cpu + blocked) - team * blocked)
    stolen = activity["stolen"] / (activity["stolen"] + theirs + activity["cpu"]) if activity["stolen"] > 0 else 0.0
    found = Neighbours(queue, team, min(MOST, spun / cpu), stolen, waiting)
    taken = queue * (activity["main_queued"] + team * blocked + found.spinning * cpu) + stolen * cpu
    return Neighbours(queue, team, found.spinning, stolen, waiting, min(MOST, taken / wall))
