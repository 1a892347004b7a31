"""Fits of scikit-learn: the trees of an ensemble, the fits of a search, or whole fits."""

import functools
import sys
import threading

from ..loops.progress_series import LEAST_STEPS
from ..loops.script_frames import library_loops, own_place
from ..loops.search_plan import TRAIN_SIZE, read_plan
from ..patching import harmless, known, observe, wrap
from ..schedstat import clock
from .predict_hooks import Predictions
from .registry import SKLEARN

GROWER, NETWORK = "sklearn.ensemble._hist_gradient_boosting.grower", "sklearn.neural_network._multilayer_perceptron"
PARTS = (  # what each call of a class's (or module's) function is, the setting that says how many, and what may end them
    ("sklearn.ensemble._forest", "", "_parallel_build_trees", "tree", "n_estimators", ""),
    # GradientBoosting*: a stage is one tree per class.
    ("sklearn.ensemble._gb", "BaseGradientBoosting", "_fit_stage", "stage", "n_estimators", "n_iter_no_change"),
    (GROWER, "TreeGrower", "grow", "tree", "max_iter", "early_stopping"),  # HistGradientBoosting*
    # With SGD or Adam; the loss may end them any time.
    (NETWORK, "BaseMultilayerPerceptron", "_update_no_improvement_count", "epoch", "max_iter", "tol"),
)

FITS_OTHERS = ("sklearn.model_selection", "sklearn.feature_selection", "sklearn.calibration")


class Depth(threading.local):
    """How deep one thread is in calls of `fit`, and how many fits of searches it has made."""

    level = fitted = 0

    def enter(self):
        self.level += 1
        return self.level - 1

    def leave(self):
        self.level -= 1

    def fit_made(self):
        self.fitted += 1


class EstimatorFits:
    """The outermost fit that is going on, and what can be counted inside it."""

    def __init__(self, progress):
        self.progress = progress
        self.predictions = Predictions(progress, self)  # with what has been fitted
        self.depth = Depth()
        self.scoring = 0  # fits of searches and cross-validations that are going on
        self.plan = None  # of the search whose candidates are fitted
        self.refitting = None  # depth of the fit with the best of them
        self.going = None  # (estimator, since) of the outermost fit of the main thread

    # -- whole fits

    def attach_base(self, module):
        """When ``sklearn.base`` has been imported: every fit goes through its `_fit_context`."""

        def counting_context(context, *args, **kwargs):
            decorate = context(*args, **kwargs)

            def decorator(method):
                inner = decorate(method)
                counts = getattr(method, "__name__", "") in ("fit", "fit_transform", "fit_predict")
                return self.counted(inner) if counts else inner

            return decorator

        wrap(module, "_fit_context", counting_context)

    def counted(self, inner):
        @functools.wraps(inner)
        def fit(estimator, *args, **kwargs):
            level = self.depth.enter()
            begin = clock()
            outermost = level == 0 and threading.get_ident() == self.progress.recorder.thread
            if outermost:
                self.going = (estimator, own_place(), clock())
            if self.plan is not None and self.plan.is_over(self.scoring):
                self.refitting = level
            try:
                return inner(estimator, *args, **kwargs)
            finally:
                self.depth.leave()
                if self.refitting == level:
                    self.search_step(estimator, {}, None)
                    self.plan = self.refitting = None
                elif level and not self.scoring and self.going is not None and is_part(estimator, self.going[0]):
                    self.search_step(estimator, {}, begin)
                if outermost:
                    since, self.going = self.going[2], None
                    self.ended(estimator, since)

        return fit

    @harmless
    def ended(self, estimator, since):
        light = hasattr(estimator, "transform") and not hasattr(
            estimator, "predict"
        )  # a scaler: its fit is preparation
        if light or self.scoring:
            return  # what searches and cross-validates counts its fits itself
        inside = [
            one
            for one in self.progress.series
            if one.framework is SKLEARN and one.unit != "fit" and one.last is not None and one.last >= since
        ]
        if inside:
            for one in inside:
                one.close()
            return  # its trees were counted
        name = type(estimator).__name__
        key = ("fit", name, own_place())
        before = self.progress.keyed.get(key)
        ended = before.last if before is not None else None
        series = self.progress.open(SKLEARN, "fit", None, key=key, estimator=name, may_stop=False)
        if not series.steps:
            series.begin(since)
        series.go_on(ended)  # from one end to the next: what the script does between its fits is part of them
        self.progress.step(series)

    # -- what is inside of a fit

    def attach_parts(self):
        """Return what counts the parts of estimators' fits, by the module to attach it to."""

        def attach(owner, name, *part):
            def step(*_, **__):
                fits = [one for one in self.progress.series if one.unit == "search fit" and one.open]
                searching = self.scoring and any(
                    one.steps >= LEAST_STEPS for one in fits
                )  # its fits are counted instead
                if self.going is not None and not searching:
                    self.progress.step(self.inner_series(self.going[0], *part))

            return lambda module: observe(getattr(module, owner, None) if owner else module, name, step)

        return {module: attach(*part) for module, *part in PARTS}

    def attach_search(self, module):
        """Return the fits of GridSearchCV and its kin, and of cross_val_score."""

        def fit_and_score(inner, *args, **kwargs):
            begin, before, self.scoring = clock(), self.depth.fitted, self.scoring + 1
            self.note_plan()
            try:
                result = inner(*args, **kwargs)
            finally:
                self.scoring -= 1
            if self.depth.fitted == before:  # else what it fitted was a search, whose fits were counted
                candidate = kwargs.get("parameters") or {TRAIN_SIZE: len(kwargs.get("train", ()))}
                self.search_step(args[0] if args else kwargs.get("estimator"), candidate, begin)
            return result

        wrap(module, "_fit_and_score", fit_and_score)
        wrap(module, "_fit_and_predict", fit_and_score)

    @harmless
    def note_plan(self):
        plan = read_plan(self.plan, self.frame())
        if plan is not None and plan is not self.plan:
            self.plan = plan
            plan.is_inside(self.scoring - 1)

    def frame(self):
        """Return the innermost frame of the script's own thread: a search may fit in others."""
        return sys._current_frames().get(self.progress.recorder.thread)

    @harmless
    def search_step(self, estimator, candidate, begin):
        """Count a fit of a search that began at `begin`; None for the refit, which goes on from the last fit."""
        self.depth.fit_made()
        series = self.search_series(self.going[0] if self.going is not None else estimator)
        if series.last is None:
            series.go_on(begin)
        kept = len(series.seconds)
        self.progress.step(series)
        if self.plan is not None and begin is not None:
            self.plan.fitted(candidate, innermost(estimator), kept=len(series.seconds) > kept)

    def find(self, unit, estimator, open_series):
        """Return the open series of what this estimator's fit is made of; `open_series` makes it of its key and its name."""
        place = self.going[1] if self.going is not None else own_place()
        key = (unit, type(estimator).__name__, place)
        known = self.progress.keyed.get(key)
        if known is None or not known.open:
            known = open_series(key, type(innermost(estimator)).__name__)
            known.label_with(place or known.label)
        return known

    def inner_series(self, estimator, unit, limit, stops):
        def open_series(key, name):
            fitted = innermost(estimator)
            at_once = getattr(fitted, "n_trees_per_iteration_", 1) if unit == "tree" else 1  # a stage is all of them
            length = known(lambda: float(getattr(fitted, limit) * at_once))
            may_stop = bool(stops and getattr(estimator, stops, None) not in (None, False))
            inside = bool(self.scoring) or type(self.going[0]).__module__.startswith(FITS_OTHERS)
            for one in self.progress.series:
                if one.unit == "search fit" and not inside:
                    one.close()
            return self.progress.open(
                SKLEARN, unit, length, key=key, estimator=name, may_stop=may_stop, inside=inside, search=self.facts()
            )

        return self.find(unit, estimator, open_series)

    def search_series(self, estimator):
        def open_series(key, name):
            for one in self.progress.series:
                if one.framework is SKLEARN and not one.facts.get("inside"):
                    one.close()
            loops = library_loops(self.frame())
            total = loops[-1]["trips"] if loops else None
            ends = bool(loops) and loops[-1].get("position", (None, None, False))[2]
            facts = {"estimator": name, "may_stop": ends, "search": self.facts()}
            made = self.progress.open(SKLEARN, "search fit", total, key=key, **facts)
            if made.around and not made.around[-1]["line"]:
                made.is_of(made.total, around=made.around[:-1])  # it is the total
            return made

        found = self.find("search fit", estimator, open_series)
        if self.plan is not None:
            self.plan.goes_on(found.facts.get("search"))
            found.note(search=self.plan.facts)
            found.is_of(self.plan.facts["fits"])
        return found

    def facts(self):
        return self.plan.facts if self.plan is not None else None


def innermost(estimator):
    """Return the estimator that a search (a selection of features, a calibration) fits, and the last step of a pipeline."""
    while True:
        if type(estimator).__module__.startswith(FITS_OTHERS) and hasattr(estimator, "estimator"):
            estimator = estimator.estimator
        elif getattr(estimator, "steps", None):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def is_part(estimator, whole):
    """Return whether a fit is one of those that another estimator's own consists of."""
    parted = type(whole).__module__.startswith(FITS_OTHERS) and not hasattr(whole, "cv_results_")
    return parted and type(estimator) is type(innermost(whole)) and estimator is not whole


# The benchmark table's kinds -> estimators that cuML has on a GPU under the same names.
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


BETTER_ON_GPU = frozenset(
    prefix + kind for prefix in ("HistGradientBoosting", "GradientBoosting") for kind in ("Classifier", "Regressor")
)


def on_gpu(facts):
    name = facts.get("estimator", "")
    kind = next((kind for kind, names in ON_CUML.items() if name in names), "")
    if kind:
        return kind, "scikit-learn's {} runs on CPUs only; the GPU figure is for cuML's".format(name)
    more = " (XGBoost and LightGBM have one)" if name in BETTER_ON_GPU else ""
    return "", "no GPU implementation of scikit-learn's {}: CPU{}".format(name, more)


def hooks(recorder):
    def attach_base(module):
        recorder.fits.attach_base(module)
        recorder.fits.predictions.attach_estimators(SKLEARN, module)

    search = {"sklearn.model_selection._validation": recorder.fits.attach_search}
    return {"sklearn.base": attach_base, **search, **recorder.fits.attach_parts()}
