"""From the probe's series of beats (fits, rounds, bars, loops) to phases of a profile. Pure."""

from __future__ import annotations

import math
from typing import Any

from costgpu.measure.profile.step_times import extras, step_times
from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import (
    DataLoading,
    GpuPath,
    OptimizerFacts,
    Phase,
    StepTimes,
    StepTotals,
    Total,
    TotalKind,
)

LEAST_BEATS = 2
LEAST_RUN_SECONDS = 1.0  # a script that ended sooner has done nothing that is worth a machine
TREES = "gradient-boosted-trees"
# Estimators of scikit-learn that cuML has on a GPU under the same names, and the benchmark table's kind of each.
# Source: cuML's list of algorithms (docs.rapids.ai, read 2026-11).
ON_CUML = {
    "RandomForestClassifier": "random-forest",
    "RandomForestRegressor": "random-forest",
    "SVC": "svm",
    "SVR": "svm",
    "LinearSVC": "svm",
    "LinearSVR": "svm",
    "LogisticRegression": "linear-model",
    "LinearRegression": "linear-model",
    "Ridge": "linear-model",
    "Lasso": "linear-model",
    "ElasticNet": "linear-model",
    "KMeans": "kmeans",
    "DBSCAN": "dbscan",
    "KNeighborsClassifier": "nearest-neighbours",
    "KNeighborsRegressor": "nearest-neighbours",
    "PCA": "pca",
    "TruncatedSVD": "pca",
    "TSNE": "tsne",
}
BETTER_ON_GPU = {
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
}
GPU_WORDS = {
    "xgboost": "device='cuda'",
    "lightgbm": "a CUDA build of LightGBM and device_type='cuda'",
    "catboost": "task_type='GPU'",
}
NOTHING = "a GPU does nothing for this code as it is written"


def usable(record: dict[str, Any]) -> bool:
    """Whether the record has progress that is not torch's and from which a phase can be made."""
    return _chosen(record) is not None or bool(record.get("loops")) or _whole_run(record)


def beat_phase(record: dict[str, Any]) -> Phase:
    """The phase of a script that no torch optimizer steps.

    Args:
        record: The probe's, with `usable` progress.
    """
    series = _chosen(record)
    if series is not None:
        return _of_series(series, record)
    if record.get("loops"):
        return _of_loops(record["loops"])
    seconds = record["wall_seconds"]
    return Phase(
        label="the whole script",
        total=Total(kind=TotalKind.EXACT, steps=1.0, steps_per_epoch=None, how="it ran to its end"),
        steps_observed=1,
        step=StepTimes(
            count=1, median_seconds=seconds, mean_seconds=seconds, low_seconds=seconds, high_seconds=seconds
        ),
        unit="run",
        gpu=GpuPath.NONE,
        gpu_reason=NOTHING,
    )


def framework_of(record: dict[str, Any]) -> tuple[str, str]:
    """Name and version of what the phase was measured by."""
    series = _chosen(record)
    if series is None:
        return "Python", str(record["python"])
    name = {"sklearn": "scikit-learn", "tqdm": "Python"}.get(series["source"], series["source"])
    if series["source"] == "keras" and series["facts"].get("backend"):
        name = f"keras ({series['facts']['backend']})"
    return name, str(record["versions"].get(series["source"], record["python"] if name == "Python" else ""))


def parallel_share(record: dict[str, Any], cores: int) -> float:
    """Share of the time that more cores would shorten, from the CPU seconds that the script took per second."""
    used = record.get("cpu_seconds", 0.0) / max(record["wall_seconds"], 1e-9)
    if cores <= 1:
        return 1.0 if used > 0.9 else 0.0
    return float(min(1.0, max(0.0, (used - 1.0) / (cores - 1))))


def notes_of(record: dict[str, Any]) -> list[str]:
    """What a reader should know of how it was measured."""
    series = _chosen(record)
    if series is None:
        only = f"Only the loops at {_loops_at(record)} are in it, not what the script does after them."
        return [only] if record.get("loops") else []
    facts, notes = series["facts"], []
    if facts.get("asks_gpu"):
        notes.append("It asks for a GPU and was measured on the CPU.")
    if (facts.get("totals") or {}).get("unknown_loops"):
        notes.append("A loop inside the jitted function has no length that can be read: its FLOPs were counted once.")
    if facts.get("uncounted"):
        notes.append(f"The FLOPs of {series['label'] or 'the step'} could not be counted: {facts['uncounted']}.")
    analysis, counted = facts.get("cost_analysis_flops"), (facts.get("totals") or {}).get("flops")
    if analysis and counted and not 0.5 < analysis / counted < 2.0 and not facts["totals"]["unknown_loops"]:
        notes.append(
            f"JAX's own cost analysis says {analysis:.3g} FLOPs a step, the count of its operations {counted:.3g}."
        )
    return notes


def _loops_at(record: dict[str, Any]) -> str:
    loops = (record.get("loops") or {}).get("loops", [])
    return ", ".join(f"{loop['file']}:{loop['line']}" for loop in loops)


# -- choosing


def _chosen(record: dict[str, Any]) -> dict[str, Any] | None:
    """The series that the phase is made of: the probe ranks them; an outer bar counts once it has moved enough."""
    found: list[dict[str, Any]] = [s for s in record.get("beats") or [] if _has_enough(s, record)]
    if not found:
        return None
    first = found[0]
    if first["source"] == "tqdm" and first["facts"].get("outer"):
        outer = next((s for s in found if s["label"] == first["facts"]["outer"]), None)
        if outer is not None and len(outer["seconds"]) > LEAST_BEATS:
            return outer
    return first


def _has_enough(series: dict[str, Any], record: dict[str, Any]) -> bool:
    if record["status"] == "ended" and series["source"] == "sklearn":
        return int(series["beats"]) >= 1
    return int(series["beats"]) > LEAST_BEATS or (int(series["beats"]) == LEAST_BEATS and record["status"] == "ended")


def _whole_run(record: dict[str, Any]) -> bool:
    return (
        record["status"] == "ended"
        and not {"torch", "jax", "keras", "tensorflow"} & set(record.get("versions") or {})
        and record["wall_seconds"] >= LEAST_RUN_SECONDS
        and record.get("cpu_seconds", 0.0) >= 0.5 * LEAST_RUN_SECONDS
    )


# -- phases


def _of_series(series: dict[str, Any], record: dict[str, Any]) -> Phase:
    raw = _as_phase(series)
    facts = series["facts"]
    ended = record["status"] == "ended"
    step, _ = step_times(raw)
    if not step.count:  # a fit that beats once: from its opening
        each = series["lead"] or record["wall_seconds"]
        step = StepTimes(count=1, median_seconds=each, mean_seconds=each, low_seconds=each, high_seconds=each)
    total = _total(series, raw, record, ended=ended)
    gpu, reason, kind = _gpu(series)
    totals = facts.get("totals") if gpu is GpuPath.COUNTED else None
    parameters = facts.get("parameters")
    optimizer = (
        OptimizerFacts(
            name=str(facts.get("optimizer") or ""),
            parameters=int(parameters),
            tensors=int(facts.get("tensors") or 1),
            momentum=True,
            state_bytes=8 * int(parameters) if "Adam" in str(facts.get("optimizer")) else 0,
        )
        if parameters
        else None
    )
    return Phase(
        label=series["label"] or series["source"],
        total=total,
        steps_observed=series["beats"],
        step=step,
        data=DataLoading(batch_size=facts.get("batch")),
        optimizers=[optimizer] if optimizer else [],
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


def _of_loops(progress: dict[str, Any]) -> Phase:
    loops = progress["loops"]
    whole = math.prod(float(loop["trips"]) for loop in loops)
    passed = progress["to"] - progress["from"]
    each = progress["seconds"] / passed
    rates = _rates(progress["times"]) or [each]
    early = next((loop for loop in loops if loop["early"]), None)
    how = " × ".join(f"{loop['trips']:,.0f} ({loop['file']}:{loop['line']})" for loop in loops)
    if early is not None:
        how += f"; the loop at {early['file']}:{early['line']} may end earlier"
    return Phase(
        label=f"{loops[-1]['file']}:{loops[-1]['line']}",
        total=Total(
            kind=TotalKind.UPPER_BOUND if early is not None else TotalKind.EXACT,
            steps=whole,
            steps_per_epoch=float(loops[-1]["trips"]) if len(loops) > 1 else None,
            how=how,
            loops=[f"{x['file']}:{x['line']} for … in {x['source']}: {x['trips']:,.0f}" for x in loops],
        ),
        steps_observed=max(1, round(passed)),
        step=StepTimes(
            count=len(rates),
            median_seconds=rates[len(rates) // 2],
            mean_seconds=each,
            low_seconds=rates[len(rates) // 10],
            high_seconds=rates[len(rates) * 9 // 10],
        ),
        unit="iteration",
        gpu=GpuPath.NONE,
        gpu_reason=NOTHING,
    )


def _rates(times: list[list[float]]) -> list[float]:
    """Seconds of one iteration in each stretch in which it moved, sorted."""
    found, at, where = [], times[0][0], times[0][1]
    for now, position in times[1:]:
        if position > where:
            found.append((now - at) / (position - where))
            at, where = now, position
    return sorted(found)


def _as_phase(series: dict[str, Any]) -> dict[str, Any]:
    """In the form in which the probe records torch's phases."""
    return {
        "seconds": series["seconds"],
        "special": series["special"],
        "waits": [0.0] * len(series["seconds"]),
        "snapshots": series["snapshots"],
        "ahead": {"periodic": [], "later": []},
        "loader": None,
        "batch": None,
        "optimizers": [],
        "model": {},
        "steps": series["beats"],
    }


def _total(series: dict[str, Any], raw: dict[str, Any], record: dict[str, Any], *, ended: bool) -> Total:
    facts, beats = series["facts"], float(series["beats"])
    per_epoch = facts.get("per_epoch")
    if ended:
        return Total(kind=TotalKind.EXACT, steps=beats, steps_per_epoch=per_epoch, how="it ran to its end")
    if series["source"] == "tqdm":
        return _of_bars(series, record)
    each = series["total"]
    if each is None and series["snapshots"]:
        return total_steps(raw, ended=False)
    around = [loop for loop in series["around"] if loop["trips"] not in (None, 1)]
    where = " × ".join(f"{loop['trips']:,} ({_place(loop)})" for loop in around)
    unread = any(loop["trips"] is None or loop["trips"] == "inf" for loop in series["around"])
    if each is None and series["unit"] == "fit":
        each = 1.0
    if each is None or (unread and series["openings"] > 1):
        how = (
            "the data do not say how long they are"
            if each is None
            else "the loop around it has no length that can be read"
        )
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=per_epoch or each, how=how)
    times = math.prod(float(loop["trips"]) for loop in around) if not unread else 1.0
    if series["openings"] > times and not unread:
        how = (
            f"{each:,.0f} by its own settings, begun {series['openings']} times so far; what repeats it cannot be read"
        )
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=per_epoch or each, how=how)
    steps = max(float(each) * times, beats)
    how = f"{each:,.0f} by its own settings" + (f" × {where}" if where and not unread else "")
    if facts.get("epochs") and per_epoch:
        how = f"epochs={facts['epochs']} × {per_epoch:,} steps" + (f" × {where}" if where and not unread else "")
    whole_fits = series["unit"] == "fit" and bool(where) and not unread  # nothing inside of one counts
    how = where if whole_fits else how
    kind = TotalKind.EXACT
    if facts.get("may_stop") or any((loop.get("position") or (None, None, False))[2] for loop in around):
        kind, how = TotalKind.UPPER_BOUND, how + "; it may stop early"
    inner = None if whole_fits or times <= 1 else float(each)
    return Total(kind=kind, steps=steps, steps_per_epoch=per_epoch or inner, how=how)


def _place(loop: dict[str, Any]) -> str:
    """``train.py:31``, or the library's function that repeats."""
    return f"{loop['file']}:{loop['line']}" if loop["line"] else str(loop["file"])


def _of_bars(series: dict[str, Any], record: dict[str, Any]) -> Total:
    each = series["facts"].get("each")
    if each is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=None, how="the progress bar has no total")
    outer = next((s for s in record["beats"] if s["label"] == series["facts"].get("outer")), None)
    if outer is None:
        return Total(
            kind=TotalKind.EXACT, steps=float(each), steps_per_epoch=None, how=f"the progress bar's total of {each:,}"
        )
    more = outer["facts"].get("each")
    how = f"{more or '?'} ({outer['label']}) × {each:,} ({series['label']}), by its progress bars"
    if more is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=float(each), how=how)
    return Total(kind=TotalKind.EXACT, steps=float(each) * float(more), steps_per_epoch=float(each), how=how)


def _gpu(series: dict[str, Any]) -> tuple[GpuPath, str, str]:
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
        if name in ON_CUML:
            return (
                GpuPath.TABLE,
                f"scikit-learn's {name} runs on CPUs only; the GPU figure is for cuML's",
                ON_CUML[name],
            )
        if name in BETTER_ON_GPU:
            return (
                GpuPath.NONE,
                f"no GPU implementation of scikit-learn's {name}: CPU (XGBoost and LightGBM have one)",
                "",
            )
        return GpuPath.NONE, f"no GPU implementation of scikit-learn's {name}: CPU", ""
    return GpuPath.NONE, NOTHING, ""
