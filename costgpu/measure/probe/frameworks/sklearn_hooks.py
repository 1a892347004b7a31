"""Fits of scikit-learn: the trees of an ensemble, the fits of a search, or whole fits."""

import threading

from ..loops.progress_series import harmless, own_place, patched, repeats
from ..op_tracer import clock


class Fits:
    """The outermost fit that is going on, and what can be counted inside it."""

    def __init__(self, beats):
        self.beats = beats
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

        patched(module, "_fit_context", make)

    def counted(self, inner, method):
        fits = self

        def fit(estimator, *args, **kwargs):
            level = getattr(fits.depth, "level", 0)
            outermost = level == 0 and threading.get_ident() == fits.beats.recorder.thread
            fits.depth.level = level + 1
            if outermost:
                fits.going = (estimator, own_place(), clock())
            try:
                return inner(estimator, *args, **kwargs)
            finally:
                fits.depth.level = level
                if outermost:
                    since, fits.going = fits.going[2], None
                    fits.ended(estimator, args, since)

        for name in ("__name__", "__doc__", "__qualname__", "__module__", "__wrapped__"):
            try:
                setattr(fit, name, getattr(inner, name, getattr(method, name, None)))
            except (AttributeError, TypeError):
                continue
        return fit

    @harmless
    def ended(self, estimator, args, since):
        if light(estimator) or self.scoring:
            return  # what searches and cross-validates counts its fits itself
        inside = [
            one
            for one in self.beats.series
            if one.source == "sklearn" and one.unit != "fit" and one.last is not None and one.last >= since
        ]
        if inside:
            for one in inside:
                self.beats.close(one)
            return  # its trees were counted
        name, place = type(estimator).__name__, own_place()
        key = ("fit", name, place)
        before = self.beats.keyed.get(key)
        ended = before.last if before is not None else None
        series = self.beats.open(
            "sklearn",
            "fit",
            None,
            key=key,
            estimator=name,
            module=type(estimator).__module__,
            settings=settings_of(estimator),
            rows=rows_of(args),
            columns=columns_of(args),
            may_stop=False,
        )
        if not series.beats:
            series.opened = since
        series.last = ended  # from one end to the next: what the script does between its fits is part of them
        self.beats.beat(series)

    # -- what is inside of a fit

    def attach_forest(self, module):
        self.count(module, "_parallel_build_trees", "tree", lambda model: model.n_estimators)

    def attach_boosting(self, module):
        """The stages of GradientBoosting*; each is one tree per class."""
        owner = getattr(module, "BaseGradientBoosting", None)
        if owner is not None:
            self.count(owner, "_fit_stage", "stage", lambda model: model.n_estimators, stops="n_iter_no_change")

    def attach_grower(self, module):
        """Trees of HistGradientBoosting*."""
        owner = getattr(module, "TreeGrower", None)
        if owner is not None:
            self.count(owner, "grow", "tree", trees_of_histograms, stops="early_stopping")

    def attach_network(self, module):
        """Epochs of MLPClassifier and MLPRegressor with SGD or Adam; the loss may end them any time."""
        owner = getattr(module, "BaseMultilayerPerceptron", None)
        if owner is not None:
            self.count(owner, "_update_no_improvement_count", "epoch", lambda model: model.max_iter, stops="tol")

    def attach_search(self, module):
        """Fits of GridSearchCV and its kin, and of cross_val_score."""
        self.count(module, "_fit_and_score", "search fit", None)

    def count(self, owner, name, unit, total, stops=None):
        fits = self

        @harmless
        def beat(first=None, *_):
            going = fits.going
            if unit == "search fit":
                whose = going[0] if going is not None else first
                fits.beats.beat(fits.inner_series(whose, unit, total, stops))
            elif going is not None and not fits.searching():
                fits.beats.beat(fits.inner_series(going[0], unit, total, stops))

        def make(inner):
            def counted(*args, **kwargs):
                if unit != "search fit":
                    result = inner(*args, **kwargs)
                else:
                    fits.scoring += 1
                    try:
                        result = inner(*args, **kwargs)
                    finally:
                        fits.scoring -= 1
                beat(*args)
                return result

            return counted

        patched(owner, name, make)

    def searching(self):
        """Whether a search (a cross-validation) goes on whose fits are counted, and not the trees inside them."""
        return self.scoring and any(
            one.unit == "search fit" and one.open and one.source == "sklearn" for one in self.beats.series
        )

    def inner_series(self, estimator, unit, total, stops):
        beats = self.beats
        name = type(estimator).__name__
        key = (unit, name, self.going[1] if self.going is not None else own_place())
        with beats.lock:
            known = beats.keyed.get(key)
            if known is not None and known.open:
                return known
            place = key[2]
        if unit == "search fit":
            loops = repeats()
            count = loops[-1]["trips"] if loops else None
            for one in beats.series:
                if one.source == "sklearn":
                    beats.close(one)
        model = estimator
        if hasattr(estimator, "param_grid") or hasattr(estimator, "param_distributions"):
            model = estimator.estimator
        while hasattr(model, "steps") and getattr(model, "steps", None):  # the last step of a pipeline
            model = model.steps[-1][1]
        if unit != "search fit":
            count = None if varies_length(estimator) else safe_count(total, model)
        made = beats.open(
            "sklearn",
            unit,
            count,
            key=key,
            estimator=type(model).__name__,
            module=type(model).__module__,
            settings=settings_of(model),
            rows=None,
            columns=None,
            may_stop=bool(stops and getattr(estimator, stops, None) not in (None, False)),
        )
        made.label = place or made.label
        if unit == "search fit" and made.around and not made.around[-1]["line"]:
            made.around = made.around[:-1]  # it is the total
        return made


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


def settings_of(estimator):
    try:
        found = estimator.get_params(deep=False)
    except Exception:  # noqa: BLE001 - not an estimator after all
        return {}
    return {str(k): str(v)[:100] for k, v in found.items() if isinstance(v, (str, int, float, bool)) or v is None}


def rows_of(args):
    try:
        return int(args[0].shape[0]) if hasattr(args[0], "shape") else len(args[0])
    except Exception:  # noqa: BLE001 - sparse, lazy or missing
        return None


def columns_of(args):
    try:
        return int(args[0].shape[1])
    except Exception:  # noqa: BLE001 - one-dimensional, or a list
        return None
