"""How the seconds of a progress series on a GPU can be known: from sums, from the benchmark table, or not at all. Pure."""

from __future__ import annotations

from costgpu.measure.probe.record import SeriesRecord
from costgpu.models.workload import GpuPath

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


def gpu_path(series: SeriesRecord) -> tuple[GpuPath, str, str]:
    """Return how its seconds on a GPU can be known, why, and its kind in the benchmark table."""
    source, facts = series["source"], series["facts"]
    if source == "log":
        return (GpuPath.TABLE if facts["kind"] else GpuPath.NONE), facts["gpu_reason"], facts["kind"]
    if source in ("keras", "tensorflow", "jax"):
        if facts.get("totals"):
            return GpuPath.COUNTED, "", ""
        return GpuPath.NONE, "what its step computes could not be counted, so that no GPU time is known", ""
    if facts.get("inference") and source not in ("keras", "jax"):
        name = facts.get("estimator") or source
        return GpuPath.NONE, f"no measured figure for predictions of {name} on a GPU", ""
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
