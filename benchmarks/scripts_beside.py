"""What `costgpu estimate` tells of the work beside a script's steps and of its seconds here, against its real run.

For `benchmarks.scripts_survey`. A row's column ``beside`` has what a run to the end did in all:
``validation 20|checkpoint 4``, or ``none``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.scripts_survey import Answer

KINDS = ("validation", "checkpoint")
"""Kinds of work beside the steps that are counted."""
SHARE, SPARE = 0.2, 1.0
"""Error that a count may have: a share of the real one, or one more or less."""


def counted(beside: str) -> dict[str, float]:
    """Return how often a real run did each kind of work, from the column ``beside``."""
    pairs = (part.rsplit(" ", 1) for part in beside.split("|") if part and part != "none")
    return {**dict.fromkeys(KINDS, 0.0), **{kind: float(times) for kind, times in pairs}}


def told(phases: list[dict[str, Any]], real_steps: float | None) -> dict[str, float] | None:
    """Return how often each kind comes in the whole job, by an answer's phases; None where it does not know the length.

    Args:
        real_steps: Steps of the real run, where the answer only claims a bound: the work is told for those.
    """
    times = dict.fromkeys(KINDS, 0.0)
    for phase in phases:
        total = phase["total"]
        if total["steps"] is None:
            return None
        steps = total["steps"] if real_steps is None else min(total["steps"], real_steps)
        for extra in phase["extras"]:
            if extra["kind"] not in KINDS:
                continue
            amount = {
                "steps": steps,
                "epoch": steps / total["steps_per_epoch"] if total["steps_per_epoch"] else 0.0,
                "run": extra["every"],
            }[extra["rhythm"]]
            times[extra["kind"]] += amount / extra["every"]
    return times


def bounded(phases: list[dict[str, Any]]) -> frozenset[str]:
    """Return the kinds of which an answer says that they come at most so often: saves of what is better than before."""
    extras = [extra for phase in phases for extra in phase["extras"]]
    return frozenset(extra["kind"] for extra in extras if extra["note"].endswith("at most that often"))


def names_evaluations(note: str) -> bool:
    """Return whether a note names evaluations that were not reached and whose seconds are not known."""
    return note.startswith(("Not seen in ", "Its trainer evaluates "))


def verdict(answer: Answer) -> str:
    """``right``, ``named`` (in a sentence alone), ``whole`` (its time is its own), ``wrong`` or ``not known``."""
    told_times = answer.beside
    if told_times is None:
        return "not known"
    real = counted(answer.script.beside)
    off = []
    for kind in KINDS:
        error = told_times[kind] - real[kind]
        within = abs(error) <= max(SPARE * bool(real[kind]), SHARE * real[kind])
        off += [] if within or (error > 0 and kind in answer.at_most) else [kind]
    if off == ["validation"] and answer.named and not told_times["validation"]:
        return "named"
    return "right" if not off else "whole" if answer.ended else "wrong"


def words(times: dict[str, float] | None, at_most: frozenset[str] = frozenset(), named: str = "") -> str:
    """Counts for people, with the sentence that names what is in no figure."""
    if times is None:
        return "not known"
    counts = [(f"{kind} {count:,.0f}", kind in at_most) for kind, count in times.items() if count]
    figures = ", ".join(f"{text} at most" if bound else text for text, bound in counts) or "none"
    return f"{figures}. {named}" if named else figures


def seconds(answer: Answer) -> list[str]:
    """The cells of the table of seconds: predicted, its 80 % interval, real, their ratio, and whether it is inside."""
    here, real = answer.here or {}, answer.real_seconds or 0.0
    interval = f"{here['low']:,.0f}-{here['high']:,.0f}"
    inside = "yes" if here["low"] <= real <= here["high"] else "no"
    inside += ", and what it names is in no figure" if verdict(answer) == "named" else ""
    return [f"{here['value']:,.0f}", interval, f"{real:,.0f}", f"{here['value'] / real:.2f}", inside]


def section(answers: list[Answer]) -> list[str]:
    """Return what is told of the work beside the steps, and of the seconds on the machine that measured."""
    judged = [(answer, verdict(answer)) for answer in answers]
    verdicts = Counter(judgement for _, judgement in judged)
    lines = ["", f"Work beside the steps: {', '.join(f'{n} {name}' for name, n in verdicts.most_common())}."]
    lines[-1] += (
        " Named is what a sentence tells of and no figure has; whole is a job whose time is its own, for it ended."
    )
    counts = [
        [
            answer.script.name,
            words(counted(answer.script.beside)),
            words(answer.beside, answer.at_most, answer.named),
            judgement,
        ]
        for answer, judgement in judged
    ]
    lines += table(["script", "real", "told", "verdict"], counts)
    times = [[a.script.name, *seconds(a)] for a in answers if a.here and a.real_seconds]
    if times:
        lines += ["", f"Seconds of {len(times)} whole jobs on the machine that measured them, with the defaults."]
        lines += table(["script", "predicted", "80 % interval", "real", "predicted / real", "inside"], times)
    return lines


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table, after an empty one."""
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (header, *rows))
    return ["", first, "|---" * len(header) + "|", *others]
