"""How much of the time nothing of a program computes: it sleeps, or waits for network, disk or other programs. Pure.

No machine makes that shorter, and no number of cores. Time in which the program was ready and had no core is not in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from costgpu.measure.probe.record import ActivityRecord, PhaseRecord
from costgpu.measure.profile.neighbours import LEAST_LOOKS, Neighbours
from costgpu.measure.profile.step_times import SPIKE, seconds_beside

BUSY_SHARE = 0.25  # of the time without a core, from which on a reader should know of it
LEAST_SHARE = 0.05  # of a step; less is what barriers between threads and other machines on the same host cost


def run_delay_of_all(activity: ActivityRecord | None) -> float:
    """Return the seconds in which threads of the script were ready and had no core, added up."""
    return activity["run_delay"] if activity is not None else 0.0


def notes_of_queue(activity: ActivityRecord | None, found: Neighbours) -> list[str]:
    """Return what to say of a machine that had no core for the script for much of the time."""
    notes = []
    if found.share >= BUSY_SHARE:
        notes.append(
            f"Other programs took {found.share:.0%} of the script's time on this machine: that is taken off, as far as"
            " it can be told, and the intervals are wider."
        )
    share = activity["main_run_delay"] / activity["wall"] if activity is not None and activity["wall"] > 0 else 0.0
    if (1 - found.queue) * share >= BUSY_SHARE:
        notes.append(
            f"The script was ready to run and had no core for {min(share, 1):.0%} of the time, since processes of its own"
            " kept this machine busy: its times are longer than on a machine with more cores."
        )
    return notes


def waiting_of_phase(raw: PhaseRecord, used: Sequence[int], activity: ActivityRecord | None) -> float:
    """Return the seconds of a plain step (of the intervals `used`) in which the script's process waits.

    A step with an evaluation or a save beside it waits for as large a share of its own time.
    With a GPU the script's thread waits for that, too, and the two cannot be told apart: 0.
    """
    blocked = raw.get("blocked") or []
    some = [i for i in used if i < len(blocked)]
    if raw["device"] != "cpu" or activity is None or not some:
        return 0.0
    whole, beside = raw["seconds"], seconds_beside(raw)
    own = {i: max(0.0, whole[i] - beside.get(i, 0.0)) for i in some}
    ceiling = SPIKE * statistics.median(own.values())
    seconds = statistics.fmean(min(blocked[i] * own[i] / (whole[i] or 1.0), ceiling) for i in some)
    seconds *= _share_in_steps(activity)
    step = statistics.fmean(min(each, ceiling) for each in own.values())
    return seconds if seconds > LEAST_SHARE * step else 0.0


def waiting_share(activity: ActivityRecord | None) -> float:
    """Return the share of the time in which neither the process nor what it has started computes."""
    if activity is None or activity["wall"] <= 0:
        return 0.0
    off = max(0.0, activity["wall"] - activity["main_cpu"] - activity["main_run_delay"])
    share = off / activity["wall"] * _share_of_off(activity, activity["quiet"])
    return min(1.0, share) if share > LEAST_SHARE else 0.0


def _share_in_steps(activity: ActivityRecord) -> float:
    """Share of a plain step off its core in which the script's thread waited: what happens between epochs says nothing.

    Unless no plain step was off its core when it was looked at, as where a policy acts in each of them.
    """
    if activity["step_off"] >= LEAST_LOOKS or activity["off"] > activity["step_off"] > 0:
        return activity["step_alone"] / max(1, activity["step_off"])
    return _share_of_off(activity, activity["alone"])


def _share_of_off(activity: ActivityRecord, idle_looks: int) -> float:
    """Return the share of the time off its core in which the script's thread waited for nothing that computes here."""
    if activity["off"] >= LEAST_LOOKS:
        return idle_looks / activity["off"]
    off = activity["wall"] - activity["main_cpu"] - activity["main_run_delay"]
    others = activity["cpu"] - activity["main_cpu"]
    return min(1.0, max(0.0, 1 - others / off)) if off > 0 else 0.0
