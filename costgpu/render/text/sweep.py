"""A sweep as text: what is going to be tried, how far it is, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from costgpu.errors import CostGpuError, NoFiniteMetric, NoMetric, TrialsFailed
from costgpu.models.run import Plan
from costgpu.render.document import document, picked
from costgpu.render.phrases import counted, with_interval
from costgpu.render.text.layout import Column, labelled, table, wrap
from costgpu.render.text.run import plan_text
from costgpu.sweep.arguments import setting_words
from costgpu.sweep.bundle import Sweep
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results, Trial, TrialStatus
from costgpu.sweep.schedule import SweepTime
from costgpu.sweep.space import Distribution, RandomAxis
from costgpu.sweep.tuner.arguments import arguments_of
from costgpu.sweep.tuner.trial_process import trial_name
from costgpu.units import format_duration, format_percent, format_usd

BEST_ROWS = 10
STATUS_WORDS = {
    TrialStatus.NOT_STARTED: "not started",
    TrialStatus.RUNNING: "running",
    TrialStatus.SUCCEEDED: "finished",
    TrialStatus.STOPPED: "stopped by ASHA",
    TrialStatus.FAILED: "failed",
    TrialStatus.NO_METRIC: "no metric",
    TrialStatus.ENDED: "ended early",
}
_SETTING_WIDTH, _AXIS_WIDTH = 30, 60


def sweep_plan_text(
    plan: Plan, now: datetime, sweep: Sweep, time: SweepTime | None, argv: Sequence[str], folder: str
) -> str:
    """Return the plan of the run, with what is tried in it.

    Args:
        time: None if the length of a trial is not known.
        argv: The script and the arguments that all trials have.
        folder: Where the results come home to.
    """
    example = arguments_of(sweep.space.example, sweep.template)
    words = " ".join(("python", *argv, *example))
    space, drawn = sweep.space, ""
    if space.random:
        points = f"{space.points} of the grid x " if space.grid else ""
        drawn = f" ({points}{counted(space.draws, 'random draw')}, seed {space.seed})"
    where = f" on {counted(plan.spec.nodes, 'machine')}" if plan.spec.nodes > 1 else ""
    share = f", {sweep.gpus_per_trial:g} of a GPU each" if 0 < sweep.gpus_per_trial < 1 else ""
    settings = [f"{axis.name}={_shortened(','.join(axis.values))}" for axis in space.grid]
    settings += [f"{axis.name} {_range(axis)}" for axis in space.random]
    rows = [
        ("sweep", f"{space.trials:,} trials{drawn}, {sweep.concurrent} at once{where}{share}"),
        ("settings", "; ".join(settings)),
        (
            "metric",
            f"{sweep.metric.pattern}, the {'lowest' if sweep.metric.mode is Mode.MIN else 'highest'} is the best",
        ),
    ]
    if sweep.asha is not None:
        first, factor = sweep.asha.grace, sweep.asha.factor
        rule = (
            f"ends trials that are not among the best 1/{factor} after {first}, {first * factor}, {first * factor**2}"
        )
        if time is None or time.least_share is None:
            saves = "; what that saves is not known before (--asha-max: reports of a full trial)"
        elif time.least_share < 1:
            saves = f": between nothing and {format_percent(1 - time.least_share)} of the work is saved"
        else:
            saves = ": saves nothing"
        rows.append(("asha", f"{rule}, ... reports{saves}"))
    if time is not None:
        span = with_interval(time.trial_seconds, format_duration)
        shared = "; what sharing the machine costs is in the estimate's interval" if time.sharing else ""
        rows.append(("one trial", f"{span} with the machine for itself, {counted(time.rounds, 'round')}{shared}"))
    rows.append(("example", f"{words}, sent from {plan.spec.workdir}"))
    kept = f"; of each trial {', '.join(sweep.outputs)} and its log" if sweep.outputs else ""
    rows.append(("results", f"{folder}, with a folder for each trial{kept}"))
    return plan_text(plan, now, rows)


def _shortened(text: str) -> str:
    return text if len(text) <= _AXIS_WIDTH else f"{text[:_AXIS_WIDTH]}..."


def _range(axis: RandomAxis) -> str:
    if axis.distribution is Distribution.CHOICE:
        return f"one of {_shortened('|'.join(axis.choices))}"
    kind = {Distribution.LOG_UNIFORM: ", logarithmic", Distribution.INTEGER: ", integers"}.get(axis.distribution, "")
    return f"from {axis.low:g} to {axis.high:g}{kind}"


def number_text(value: float | None) -> str:
    """Return a value of the metric: five significant digits."""
    return "" if value is None else f"{value:.5g}"


def _status(trial: Trial) -> str:
    words = STATUS_WORDS[trial.status]
    return f"{words} ({trial.exit_code})" if trial.status is TrialStatus.FAILED and trial.exit_code else words


def columns(metric: str) -> tuple[Column[Trial], ...]:
    """Return the columns of a table of trials."""
    return (
        Column("TRIAL", lambda trial: str(trial.number), right=True),
        Column("SETTING", lambda trial: setting_words(trial.setting), width=_SETTING_WIDTH),
        Column(f"BEST {metric}"[:14], lambda trial: number_text(trial.best), right=True),
        Column("AT REPORT", lambda trial: f"{trial.best_report}/{trial.reports}" if trial.reports else "", right=True),
        Column("STATUS", _status, width=16),
    )


def counts_text(results: Results) -> str:
    """``12 trials: 3 finished, 9 stopped by ASHA``."""
    parts = [f"{results.count(status)} {words}" for status, words in STATUS_WORDS.items() if results.count(status)]
    return f"{counted(len(results.trials), 'trial')}: {', '.join(parts)}"


def progress_text(results: Results, metric: str) -> str:
    """One line: how far it is, and the best so far."""
    done = len(results.trials) - results.count(TrialStatus.NOT_STARTED, TrialStatus.RUNNING)
    best = results.best
    so_far = f"; best {metric} {number_text(best.best)} ({setting_words(best.setting)})" if best is not None else ""
    return f"{done} of {len(results.trials)} trials over, {results.count(TrialStatus.RUNNING)} running{so_far}"


def live_rows(results: Results, metric: str, most: int) -> list[str]:
    """Return the live table: what runs, then the best of what is over."""
    running = [trial for trial in results.trials if trial.status is TrialStatus.RUNNING]
    over = [trial for trial in results.ranked if trial.status is not TrialStatus.RUNNING]
    return table(columns(metric), [*running, *over][: max(0, most - 1)])


def end_text(trial: Trial, results: Results, metric: str) -> str:
    """Return a line of a log: the end of a trial."""
    value = f", best {metric} {number_text(trial.best)} of {counted(trial.reports, 'report')}" if trial.reports else ""
    words = setting_words(trial.setting)
    line = f"{trial_name(trial.number, len(results.trials))} ({words}) {_status(trial)}{value}"
    return f"{line}\n{trial.tail}" if trial.status is TrialStatus.FAILED and trial.tail else line


def results_text(results: Results, metric: str, folder: str | None) -> str:
    """Return what came of it: the best settings first.

    Args:
        folder: Where the results are; None if nothing came home.
    """
    lines = [counts_text(results) + "."]
    best = results.best
    if best is None:
        lines.append("No trial has a value of the metric.")
    else:
        lines.append(
            wrap(
                f"Best: {setting_words(best.setting)}, {metric} {number_text(best.best)} at report {best.best_report}."
            )
        )
        lines += ["", *table(columns(metric), results.ranked[:BEST_ROWS])]
        if len(results.ranked) > BEST_ROWS:
            lines.append(f"... and {len(results.ranked) - BEST_ROWS} more")
    if folder is not None:
        lines += ["", labelled("table", f"{folder}/trials.csv"), labelled("page", f"{folder}/sweep.html")]
        if best is not None:
            lines.append(labelled("best", f"{folder}/{trial_name(best.number, len(results.trials))}"))
    return "\n".join(lines)


def outcome_error(results: Results, metric: Metric) -> CostGpuError | None:
    """Return what is wrong with a sweep as a whole, and what to do; None if nothing is."""
    if results.outcome == "failed":
        last = next((trial.tail for trial in reversed(results.trials) if trial.tail), "")
        return TrialsFailed(
            f"Every trial has failed. The last one said:\n{last}" if last else "Every trial has failed.",
            hint="Each trial's folder has its whole log.",
        )
    if results.outcome != "no_metric" and results.best is None and any(trial.reports for trial in results.trials):
        return NoFiniteMetric(
            f"No trial has a finite value of {metric.name}: all are NaN or infinite.",
            hint="Try smaller learning rates, or look for what diverges in the log of a trial.",
        )
    if results.outcome != "no_metric":
        return None
    last = results.detail.strip()
    said = f"It has said last:\n{last}" if last else "It has printed nothing."
    return NoMetric(
        f"A trial has come to its end without a line that matches {metric.pattern}, so the sweep was ended. {said}",
        hint="Change --metric, or let the script print the metric, as in: print(f'val_loss={loss:.4f}')",
    )


def trials_question(plan: Plan, trials: int) -> str:
    """Return what a large sweep takes, as a question."""
    prediction, lease = plan.prediction, plan.options[0].lease
    takes = "how long they take is not known"
    if prediction is not None:
        takes = f"about {format_duration(prediction.wall_seconds.value)}"
    most = plan.spec.nodes * lease.worst_cost_usd
    cap = f", {format_usd(most)} at most" if most else ""
    return f"Run {trials:,} trials ({takes}{cap})?"


def results_value(results: Results, metric: Metric, folder: str) -> dict[str, Any]:
    """Return the results as a part of a document; values that are not finite are null."""
    best, count = results.best, len(results.trials)
    names = ("number", "setting", "status", "best", "best_report", "last", "reports", "seconds", "exit_code", "host")
    return {
        "folder": folder,
        "metric": metric,
        "outcome": results.outcome or None,
        "best": None if best is None else best.number,
        "trials": [{"name": trial_name(trial.number, count), **picked(trial, *names)} for trial in results.trials],
    }


def sweep_plan_json(plan: Plan, now: datetime, sweep: Sweep, time: SweepTime | None, folder: str) -> str:
    """Return the plan as a versioned document; the prediction in it is that of the whole sweep."""
    told = {
        "folder": folder,
        "metric": sweep.metric,
        "asha": sweep.asha,
        "trials": sweep.space.trials,
        "concurrent": sweep.concurrent,
        "gpus_per_trial": sweep.gpus_per_trial,
        "time": time,
        "space": sweep.space,
    }
    return document("costgpu.plan", at=now, plan=plan, sweep=told)
