"""From the probe's progress series (fits, rounds, bars, loops) to a phase of a profile. Pure."""

from __future__ import annotations

import math

from costgpu.measure.probe.record import (
    Intervals,
    LoopProgress,
    PlainLoop,
    ProbeRecord,
    SeriesFacts,
    SeriesRecord,
    SurroundingLoop,
)
from costgpu.measure.profile.loop_bounds import number
from costgpu.measure.profile.step_times import extras, single_step, step_times, summarize
from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import DataLoading, GpuPath, OptimizerFacts, Phase, StepTotals, Total, TotalKind

LEAST_STEPS = 2
LEAST_RUN_SECONDS = 1.0  # a script that ended sooner has done nothing that is worth a machine
TREES = "gradient-boosted-trees"
# The benchmark table's kinds -> estimators of scikit-learn that cuML has on a GPU under the same names.
# Source: cuML's list of algorithms (docs.rapids.ai, read 2026-11).
ON_CUML = {
    "random-forest": ("RandomForestClassifier", "RandomForestRegressor"),
    "svm": ("SVC", "SVR", "LinearSVC", "LinearSVR"),
    "linear-model": ("LogisticRegression", "LinearRegression", "Ridge", "Lasso", "ElasticNet"),
    "kmeans": ("KMeans",),
    "dbscan": ("DBSCAN",),
    "nearest-neighbours": ("KNeighborsClassifier", "KNeighborsRegressor"),
    "pca": ("PCA", "TruncatedSVD"),
    "tsne": ("TSNE",),
}
BOOSTED = ("HistGradientBoosting", "GradientBoosting")
BETTER_ON_GPU = {f"{name}{what}" for name in BOOSTED for what in ("Classifier", "Regressor")}
GPU_WORDS = {
    "xgboost": "device='cuda'",
    "lightgbm": "a CUDA build of LightGBM and device_type='cuda'",
    "catboost": "task_type='GPU'",
}
NOTHING = "a GPU does nothing for this code as it is written"


def usable(record: ProbeRecord) -> bool:
    """Whether the record has progress that is not torch's and from which a phase can be made."""
    return _chosen(record) is not None or bool(record.get("loops")) or _whole_run(record)


def progress_phase(record: ProbeRecord) -> Phase:
    """The phase of a script that no torch optimizer steps, and whose progress is `usable`."""
    series = _chosen(record)
    if series is not None:
        return _series_phase(series, record)
    if loops := record.get("loops"):
        return _loops_phase(loops)
    return Phase(
        label="the whole script",
        total=Total(kind=TotalKind.EXACT, steps=1.0, steps_per_epoch=None, how="it ran to its end"),
        steps_observed=1,
        step=single_step(record["wall_seconds"]),
        unit="run",
        gpu=GpuPath.NONE,
        gpu_reason=NOTHING,
    )


def framework_of(record: ProbeRecord) -> tuple[str, str]:
    """Name and version of what the phase was measured by."""
    series = _chosen(record)
    if series is None:
        return "Python", str(record["python"])
    name = {"sklearn": "scikit-learn", "tqdm": "Python"}.get(series["source"], series["source"])
    if series["source"] == "keras" and series["facts"].get("backend"):
        name = f"keras ({series['facts']['backend']})"
    return name, str(record["versions"].get(series["source"], record["python"] if name == "Python" else ""))


def parallel_share(record: ProbeRecord, cores: int) -> float:
    """Share of the time that more cores would shorten, from the CPU seconds that the script took per second."""
    used = record.get("cpu_seconds", 0.0) / max(record["wall_seconds"], 1e-9)
    if cores <= 1:
        return 1.0 if used > 0.9 else 0.0
    return float(min(1.0, max(0.0, (used - 1.0) / (cores - 1))))


def notes_of(record: ProbeRecord) -> list[str]:
    """What a reader should know of how it was measured."""
    series = _chosen(record)
    if series is None:
        if not (progress := record.get("loops")):
            return []
        places = ", ".join(f"{loop['file']}:{loop['line']}" for loop in progress["loops"])
        return [f"Only the loops at {places} are in it, not what the script does after them."]
    facts, notes = series["facts"], []
    if facts.get("asks_gpu"):
        notes.append("It asks for a GPU and was measured on the CPU.")
    totals = facts.get("totals") or {}
    if totals.get("unknown_loops"):
        notes.append("A loop inside the jitted function has no length that can be read: its FLOPs were counted once.")
    if facts.get("uncounted"):
        notes.append(f"The FLOPs of {series['label'] or 'the step'} could not be counted: {facts['uncounted']}.")
    analysis, counted = facts.get("cost_analysis_flops"), totals.get("flops")
    if analysis and counted and not 0.5 < analysis / counted < 2.0 and not totals.get("unknown_loops"):
        notes.append(
            f"JAX's own cost analysis says {analysis:.3g} FLOPs a step, the count of its operations {counted:.3g}."
        )
    return notes


def _chosen(record: ProbeRecord) -> SeriesRecord | None:
    """The series that the phase is made of: the probe ranks them; an outer bar counts once it has moved enough."""
    found = [series for series in record.get("series") or [] if _has_enough(series, record)]
    if not found:
        return None
    first = found[0]
    if first["source"] == "tqdm" and first["facts"].get("outer"):
        outer = next((s for s in found if s["label"] == first["facts"]["outer"]), None)
        if outer is not None and len(outer["seconds"]) > LEAST_STEPS:
            return outer
    return first


def _has_enough(series: SeriesRecord, record: ProbeRecord) -> bool:
    ended = record["status"] == "ended"
    if ended and series["source"] == "sklearn":
        return series["steps"] >= 1
    return series["steps"] > LEAST_STEPS or (series["steps"] == LEAST_STEPS and ended)


def _whole_run(record: ProbeRecord) -> bool:
    return (
        record["status"] == "ended"
        and not {"torch", "jax", "keras", "tensorflow"} & set(record.get("versions") or {})
        and record["wall_seconds"] >= LEAST_RUN_SECONDS
        and record.get("cpu_seconds", 0.0) >= 0.5 * LEAST_RUN_SECONDS
    )


def _series_phase(series: SeriesRecord, record: ProbeRecord) -> Phase:
    raw = _intervals(series)
    facts = series["facts"]
    step, _ = step_times(raw)
    if not step.count:  # a fit that steps once: from its opening
        step = single_step(series["lead"] or record["wall_seconds"])
    total = _total(series, raw, record, ended=record["status"] == "ended")
    gpu, reason, kind = _gpu(series)
    totals = facts.get("totals") if gpu is GpuPath.COUNTED else None
    return Phase(
        label=series["label"] or series["source"],
        total=total,
        steps_observed=series["steps"],
        step=step,
        data=DataLoading(batch_size=facts.get("batch")),
        optimizers=_optimizers(facts) if facts.get("parameters") else [],
        saved_tensor_bytes=int(totals["bytes"] / 6) if totals else 0,  # of three passes, the outputs of one
        model_bytes=int(facts.get("model_bytes") or 0),
        extras=extras(raw, step, total, 1.0, 0.0, facts.get("batch")),
        unit={"it": "iteration"}.get(series["unit"], series["unit"]),
        gpu=gpu,
        gpu_reason=reason,
        kind=kind,
        totals=StepTotals(
            flops=totals["flops"],
            bytes_moved=totals["bytes"],
            kernels=totals["kernels"],
            convolutions=totals["convolutions"] / totals["flops"] if totals["flops"] else 0.0,
            dtype=totals["dtype"],
            source="the jitted function's operations" if series["source"] == "jax" else "the layers' shapes",
        )
        if totals
        else None,
    )


def _optimizers(facts: SeriesFacts) -> list[OptimizerFacts]:
    parameters, name = int(facts["parameters"] or 0), str(facts.get("optimizer") or "")
    state = 8 * parameters if "Adam" in name else 0
    tensors = int(facts.get("tensors") or 1)
    return [OptimizerFacts(name=name, parameters=parameters, tensors=tensors, momentum=True, state_bytes=state)]


def _loops_phase(progress: LoopProgress) -> Phase:
    loops = progress["loops"]
    passed = progress["last"] - progress["first"]
    mean = progress["seconds"] / passed
    early = next((loop for loop in loops if loop["early"]), None)
    how = " × ".join(f"{loop['trips']:,.0f} ({_place(loop)})" for loop in loops)
    if early is not None:
        how += f"; the loop at {_place(early)} may end earlier"
    return Phase(
        label=_place(loops[-1]),
        total=Total(
            kind=TotalKind.UPPER_BOUND if early is not None else TotalKind.EXACT,
            steps=math.prod(float(loop["trips"]) for loop in loops),
            steps_per_epoch=float(loops[-1]["trips"]) if len(loops) > 1 else None,
            how=how,
            loops=[f"{_place(loop)} for … in {loop['source']}: {loop['trips']:,.0f}" for loop in loops],
        ),
        steps_observed=max(1, round(passed)),
        step=summarize(_rates(progress["times"]) or [mean], mean),
        unit="iteration",
        gpu=GpuPath.NONE,
        gpu_reason=NOTHING,
    )


def _rates(times: list[tuple[float, float]]) -> list[float]:
    """Seconds of one iteration in each stretch in which it moved."""
    found, (at, where) = [], times[0]
    for now, position in times[1:]:
        if position > where:
            found.append((now - at) / (position - where))
            at, where = now, position
    return found


def _intervals(series: SeriesRecord) -> Intervals:
    """In the form in which the probe records torch's phases."""
    return {
        "steps": series["steps"],
        "seconds": series["seconds"],
        "waits": [0.0] * len(series["seconds"]),
        "special": series["special"],
        "snapshots": series["snapshots"],
        "upcoming": {"periodic": [], "later": []},
        "loader": None,
        "batch": None,
        "optimizers": [],
        "model": {},
    }


def _total(series: SeriesRecord, raw: Intervals, record: ProbeRecord, *, ended: bool) -> Total:
    facts, seen = series["facts"], float(series["steps"])
    per_epoch = facts.get("per_epoch")
    if ended:
        return Total(kind=TotalKind.EXACT, steps=seen, steps_per_epoch=per_epoch, how="it ran to its end")
    if series["source"] == "tqdm":
        return _bars_total(series, record)
    each = series["total"]
    if each is None and series["snapshots"]:
        return total_steps(raw, ended=False)
    if each is None and series["unit"] == "fit":
        each = 1.0
    around = [loop for loop in series["around"] if loop["trips"] not in (None, 1)]
    unread = any(loop["trips"] is None or loop["trips"] == "inf" for loop in series["around"])
    times = 1.0 if unread else math.prod(number(loop["trips"]) or 1.0 for loop in around)
    unknown = ""
    if each is None:
        unknown = "the data do not say how long they are"
    elif unread and series["openings"] > 1:
        unknown = "the loop around it has no length that can be read"
    elif series["openings"] > times and not unread:
        begun = f"begun {series['openings']} times so far"
        unknown = f"{each:,.0f} by its own settings, {begun}; what repeats it cannot be read"
    if each is None or unknown:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=per_epoch or each, how=unknown)
    where = "" if unread else " × ".join(f"{loop['trips']:,} ({_place(loop)})" for loop in around)
    if series["unit"] == "fit" and where:  # nothing inside of a whole fit counts
        how, inner = where, None
    else:
        own = f"epochs={facts['epochs']} × {per_epoch:,} steps" if facts.get("epochs") and per_epoch else ""
        how = (own or f"{each:,.0f} by its own settings") + (f" × {where}" if where else "")
        inner = each if times > 1 else None
    kind = TotalKind.EXACT
    if facts.get("may_stop") or any((loop.get("position") or (None, None, False))[2] for loop in around):
        kind, how = TotalKind.UPPER_BOUND, how + "; it may stop early"
    return Total(kind=kind, steps=max(float(each) * times, seen), steps_per_epoch=per_epoch or inner, how=how)


def _place(loop: SurroundingLoop | PlainLoop) -> str:
    """``train.py:31``, or the library's function that repeats."""
    return f"{loop['file']}:{loop['line']}" if loop["line"] else loop["file"]


def _bars_total(series: SeriesRecord, record: ProbeRecord) -> Total:
    each = series["facts"].get("total")
    if each is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=None, how="the progress bar has no total")
    outer = next((s for s in record["series"] if s["label"] == series["facts"].get("outer")), None)
    if outer is None:
        how = f"the progress bar's total of {each:,}"
        return Total(kind=TotalKind.EXACT, steps=float(each), steps_per_epoch=None, how=how)
    more = outer["facts"].get("total")
    how = f"{more or '?'} ({outer['label']}) × {each:,} ({series['label']}), by its progress bars"
    if more is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=float(each), how=how)
    return Total(kind=TotalKind.EXACT, steps=float(each) * float(more), steps_per_epoch=float(each), how=how)


def _gpu(series: SeriesRecord) -> tuple[GpuPath, str, str]:
    """How its seconds on a GPU can be known, why, and its kind in the benchmark table."""
    source, facts = series["source"], series["facts"]
    if source in ("keras", "tensorflow", "jax"):
        if facts.get("totals"):
            return GpuPath.COUNTED, "", ""
        return GpuPath.NONE, "what its step computes could not be counted, so that no GPU time is known", ""
    if source in GPU_WORDS:
        settings = facts.get("settings") or {}
        if settings.get("booster") == "gblinear":
            return GpuPath.NONE, "XGBoost's gblinear has no GPU implementation that is kept up", ""
        return GpuPath.TABLE, "" if facts.get("asks_gpu") else f"on a GPU it takes {GPU_WORDS[source]}", TREES
    if source == "sklearn":
        name = facts.get("estimator", "")
        if kind := next((kind for kind, names in ON_CUML.items() if name in names), ""):
            return GpuPath.TABLE, f"scikit-learn's {name} runs on CPUs only; the GPU figure is for cuML's", kind
        more = " (XGBoost and LightGBM have one)" if name in BETTER_ON_GPU else ""
        return GpuPath.NONE, f"no GPU implementation of scikit-learn's {name}: CPU{more}", ""
    return GpuPath.NONE, NOTHING, ""
