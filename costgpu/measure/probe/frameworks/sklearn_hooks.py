"""Fits of scikit-learn: the trees of an ensemble, the fits of a search, or whole fits."""

import threading

from ..loops.script_frames import library_loops, own_place
from ..op_tracer import clock
from ..patching import harmless, patch, patch_after


class SklearnHooks:
    """The outermost fit that is going on, and what can be counted inside it."""

    def __init__(self, progress):
        self.progress = progress
        self.depth = threading.local()
        self.scoring = 0  # fits of searches and cross-validations that are going on
        self.going = None  # (estimator, since) of the outermost fit of the main thread

    # -- whole fits

    def attach_base(self, module):
        """When ``sklearn.base`` has been imported: every fit goes through its `_fit_context`."""
        fits = self

        def make(context):
            def counting_context(*args, **kwargs):
                decorate = context(*args, **kwargs)

                def decorator(method):
                    inner = decorate(method)
                    if getattr(method, "__name__", "") not in ("fit", "fit_transform", "fit_predict"):
                        return inner
                    return fits.counted(inner, method)

                return decorator

            return counting_context

        patch(module, "_fit_context", make)

    def counted(self, inner, method):
        fits = self

        def fit(estimator, *args, **kwargs):
            level = getattr(fits.depth, "level", 0)
            outermost = level == 0 and threading.get_ident() == fits.progress.recorder.thread
            fits.depth.level = level + 1
            if outermost:
                fits.going = (estimator, own_place(), clock())
            try:
                return inner(estimator, *args, **kwargs)
            finally:
                fits.depth.level = level
                if outermost:
                    since, fits.going = fits.going[2], None
                    fits.ended(estimator, since)

        for name in ("__name__", "__doc__", "__qualname__", "__module__", "__wrapped__"):
            try:
                setattr(fit, name, getattr(inner, name, getattr(method, name, None)))
            except (AttributeError, TypeError):
                continue
        return fit

    @harmless
    def ended(self, estimator, since):
        if light(estimator) or self.scoring:
            return  # what searches and cross-validates counts its fits itself
        inside = [
            one
            for one in self.progress.series
            if one.source == "sklearn" and one.unit != "fit" and one.last is not None and one.last >= since
        ]
        if inside:
            for one in inside:
                one.open = False
            return  # its trees were counted
        name = type(estimator).__name__
        key = ("fit", name, own_place())
        before = self.progress.keyed.get(key)
        ended = before.last if before is not None else None
        series = self.progress.open("sklearn", "fit", None, key=key, estimator=name, may_stop=False)
        if not series.steps:
            series.opened = since
        series.last = ended  # from one end to the next: what the script does between its fits is part of them
        self.progress.step(series)

    # -- what is inside of a fit

    def attach_forest(self, module):
        self.count(module, "_parallel_build_trees", "tree", lambda model: model.n_estimators)

    def attach_boosting(self, module):
        """The stages of GradientBoosting*; each is one tree per class."""
        owner = getattr(module, "BaseGradientBoosting", None)
        self.count(owner, "_fit_stage", "stage", lambda model: model.n_estimators, stops="n_iter_no_change")

    def attach_grower(self, module):
        """Trees of HistGradientBoosting*."""
        self.count(getattr(module, "TreeGrower", None), "grow", "tree", trees_of_histograms, stops="early_stopping")

    def attach_network(self, module):
        """Epochs of MLPClassifier and MLPRegressor with SGD or Adam; the loss may end them any time."""
        owner = getattr(module, "BaseMultilayerPerceptron", None)
        self.count(owner, "_update_no_improvement_count", "epoch", lambda model: model.max_iter, stops="tol")

    def count(self, owner, name, unit, total, stops=None):
        """Each call of `owner.name` is one of the parts that a fit is made of."""

        def step(*_, **__):
            if self.going is not None and not self.searching():
                self.progress.step(self.inner_series(self.going[0], unit, total, stops))

        if owner is not None:
            patch_after(owner, name, step)

    def attach_search(self, module):
        """Fits of GridSearchCV and its kin, and of cross_val_score."""

        @harmless
        def step(estimator=None, *_):
            self.progress.step(self.search_series(self.going[0] if self.going is not None else estimator))

        def make(inner):
            def fit_and_score(*args, **kwargs):
                self.scoring += 1
                try:
                    result = inner(*args, **kwargs)
                finally:
                    self.scoring -= 1
                step(*args)
                return result

            return fit_and_score

        patch(module, "_fit_and_score", make)

    def searching(self):
        """Whether a search (a cross-validation) goes on whose fits are counted, and not the trees inside them."""
        return self.scoring and any(
            one.unit == "search fit" and one.open and one.source == "sklearn" for one in self.progress.series
        )

    def place(self):
        return self.going[1] if self.going is not None else own_place()

    def open_series(self, key):
        known = self.progress.keyed.get(key)
        return known if known is not None and known.open else None

    def inner_series(self, estimator, unit, total, stops):
        key = (unit, type(estimator).__name__, self.place())
        known = self.open_series(key)
        if known is not None:
            return known
        model = innermost(estimator)
        made = self.progress.open(
            "sklearn",
            unit,
            None if varies_length(estimator) else safe_count(total, model),
            key=key,
            estimator=type(model).__name__,
            may_stop=bool(stops and getattr(estimator, stops, None) not in (None, False)),
        )
        made.label = key[2] or made.label
        return made

    def search_series(self, estimator):
        key = ("search fit", type(estimator).__name__, self.place())
        known = self.open_series(key)
        if known is not None:
            return known
        for one in self.progress.series:
            if one.source == "sklearn":
                one.open = False
        loops = library_loops()
        name = type(innermost(estimator)).__name__
        total = loops[-1]["trips"] if loops else None
        made = self.progress.open("sklearn", "search fit", total, key=key, estimator=name, may_stop=False)
        made.label = key[2] or made.label
        if made.around and not made.around[-1]["line"]:
            made.around = made.around[:-1]  # it is the total
        return made


def innermost(estimator):
    """The estimator that a search tries, and the last step of a pipeline."""
    if hasattr(estimator, "param_grid") or hasattr(estimator, "param_distributions"):
        estimator = estimator.estimator
    while getattr(estimator, "steps", None):
        estimator = estimator.steps[-1][1]
    return estimator


def light(estimator):
    """Scalers, encoders and the like: their fits are preparation."""
    return hasattr(estimator, "transform") and not hasattr(estimator, "predict")


def varies_length(search):
    """Whether a search tries several numbers of trees (stages, epochs)."""
    tried = str(getattr(search, "param_grid", "")) + str(getattr(search, "param_distributions", ""))
    return any(name in tried for name in ("n_estimators", "max_iter"))


def trees_of_histograms(model):
    return model.max_iter * getattr(model, "n_trees_per_iteration_", 1)


def safe_count(total, estimator):
    try:
        return float(total(estimator))
    except Exception:  # noqa: BLE001 - an estimator of the user's own may lack it
        return None
