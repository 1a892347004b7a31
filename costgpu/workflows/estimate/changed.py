"""Runs a script again with changes that would make a cheaper GPU hold it, so that what they save is measured."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import platformdirs

from costgpu.estimator.advice.less_memory import TriedChange, words_of, worth_a_run
from costgpu.estimator.modelled_steps import with_modelled_steps
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.verdict import Preferences
from costgpu.measure import measure_changed
from costgpu.models.prediction import Prediction, Verdict
from costgpu.pricing.hardware import accelerators
from costgpu.units import format_duration
from costgpu.workflows.estimate.measure import ProfileSource, interpreter_of
from costgpu.workflows.reporter import Reporter

MOST_SECONDS = 90.0  # that all runs with changes may take, as long as the answer waits for them


def changes_tried(
    workload: Workload,
    found: ProfileSource,
    python: str | None,
    verdict: Verdict,
    offers: Sequence[Prediction],
    preferences: Preferences,
    reporter: Reporter,
) -> list[TriedChange]:
    """Return the changes with which the script ran again; none for what is no script, or was measured with its weights.

    Args:
        python: The interpreter that was asked for.
    """
    script, profile = found.script, found.profile
    if script is None or not profile.without_weights:
        return []
    tried: list[TriedChange] = []
    waiting = list(worth_a_run(workload, verdict.recommended, offers, preferences))
    end = monotonic() + MOST_SECONDS
    while waiting and monotonic() + profile.wall_seconds <= end:
        changes = waiting.pop(0)
        interpreter = interpreter_of(script, python)
        what = f"Measuring {script.name} again, to {words_of(changes)}"
        with reporter.measuring(what, script.measure_for_seconds, script.start_limit_seconds) as tick:
            measured = measure_changed(
                script, interpreter, platformdirs.user_cache_path("costgpu"), tick, profile, changes
            )
        if measured is None:
            reporter.note(f"What it saves to {words_of(changes)} could not be measured.")
            continue
        changed, how = measured
        after = prepare(
            with_modelled_steps(changed),
            workload.scope,
            year=workload.year,
            speedups=workload.speedups,
            cards=accelerators().values(),
        )
        tried.append(TriedChange(changes=changes, how=how, workload=after))
    if waiting:
        named = "; ".join(map(words_of, waiting))
        limit = format_duration(MOST_SECONDS)
        reporter.note(
            f"More runs of {script.name} would take longer than {limit} together, so this was not tried: to {named}."
        )
    return tried
