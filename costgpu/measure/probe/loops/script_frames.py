"""Finds frames on the live stack: the user's own line, a library's function, and loops of libraries."""

from __future__ import annotations

import inspect
import math
import os
import sys

PROBE_ROOT = os.path.abspath(__file__).rpartition(os.sep + "measure" + os.sep)[0] + os.sep  # with `portable`
STANDARD = os.path.dirname(os.__file__) + os.sep
INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep, "_costgpu" + os.sep)
# Packages that call a function of the user's once per item: what is seen inside of it is the user's.
CARRIERS = ("tqdm", "rich", "pandas", "polars", "swifter", "joblib", "multiprocess", "billiard")
# Command lines and starters of jobs: they call the user's function once, and not again and again.
STARTERS = (
    *("click", "typer", "fire", "absl", "hydra", "tyro", "jsonargparse", "sacred", "invoke", "ray", "accelerate"),
    *("cyclopts", "defopt", "argh", "plac", "submitit", "anyio", "trio", "nest_asyncio", "tenacity", "backoff"),
)
TRANSFERS = tuple("urllib http ftplib urllib3 requests httpx aiohttp boto3 botocore gdown wget".split())
SEARCHERS = ("optuna", "hyperopt", "skopt", "bayes_opt", "ray", "flaml", "nevergrad", "ax", "smac", "wandb", "zoofs")
# Package -> function that makes the trials, and its argument that says how many.
TRIALS = {
    "optuna": ("_optimize_sequential", "n_trials"),
    "hyperopt": ("fmin", "max_evals"),
    "skopt": ("base_minimize", "n_calls"),
}
ENDS_TRIALS = ("timeout", "callbacks", "callback", "early_stop_fn", "loss_threshold")
OURS = 3  # references of a frame's variables: the frame's, the reader's, and that of the call that counts
MOST_FRAMES_APART = 12  # between a transfer and the user's function that it reports to


def library_roots(*package_files):
    """Return the folders that hold what is installed: Python's own, those on the path, and those of these packages."""
    roots = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))] + [
        os.path.dirname(STANDARD)
    ]
    for path in package_files:
        roots += [os.path.dirname(os.path.dirname(one)) for one in (path, os.path.realpath(path))]
    return tuple(sorted({root + os.sep for root in roots}))


def outwards(frame):
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def variables_of(frame):
    """Return the variables of a live frame by name.

    Before Python 3.13 a function's frame keeps what it told until it is asked again: old values, and memory of tensors.
    """
    told = frame.f_locals
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return told
    found = dict(told)
    own = any(live is frame for live in outwards(sys._getframe()))  # and no other thread runs it meanwhile
    if own and sys.getrefcount(told) <= OURS:  # else the script has it from `locals()`
        told.clear()
    return found


def own_place():
    """``train.py:31``, where the user's own code is on the stack; empty if it is not."""
    for frame in outwards(sys._getframe(1)):
        path = frame.f_code.co_filename
        if not path.startswith((PROBE_ROOT, "<")) and not package_of_file(path):
            return place_of(frame)
    return ""


def place_of(frame):
    return "{}:{}".format(os.path.basename(frame.f_code.co_filename), frame.f_lineno)


def package_of_file(path):
    """Return the package that a file belongs to, if it is installed or part of Python; empty for the user's own."""
    for folder in INSTALLED:
        if folder in path:
            return path.rpartition(folder)[2].partition(os.sep)[0].partition(".")[0]
    if path.startswith(STANDARD):
        return path[len(STANDARD) :].partition(os.sep)[0].partition(".")[0]
    return ""


def driver(frame):
    """Return the user's own frame that makes this call, or else the name of the library that does.

    Of the standard library and of what only carries a function of the user's, the caller is the driver; a transfer
    drives even what the user's code does for it.
    """
    own, apart = None, 0
    for live in outwards(frame):
        path = live.f_code.co_filename
        if path.startswith((PROBE_ROOT, "<")):
            continue
        package = package_of_file(path)
        if package in TRANSFERS or (package and own is None and package not in CARRIERS and not is_standard(path)):
            return None, package
        if not package and own is None:
            own = live
        apart += own is not None
        if apart > MOST_FRAMES_APART:
            break
    return own, "" if own is not None else "a library"


def is_standard(path):
    return path.startswith(STANDARD) and not any(folder in path for folder in INSTALLED)


def locals_of(names, *file_endings, frame=None):
    """Variables of the nearest function of one of these names that is in such a file, from a frame on; or empty."""
    for depth, live in enumerate(outwards(frame or sys._getframe(1))):
        path = live.f_code.co_filename.replace("\\", "/")
        if live.f_code.co_name in names and path.endswith(file_endings):
            return dict(variables_of(live))
        if depth == 40:
            break
    return {}


def called_by_libraries(frames):
    """Return the user's frames that a library calls, outermost first, each with the package and the frames of it."""
    found, own, between = [], False, []
    for live in frames:
        path = live.f_code.co_filename
        if path.startswith((PROBE_ROOT, "<")):
            continue
        name = package_of_file(path)
        if not name:
            if own and between:
                found.append((live, package_of_file(between[-1].f_code.co_filename), between))
            own, between = True, []
        elif name not in CARRIERS and name not in STARTERS and not is_standard(path):
            between.append(live)
    return found


def library_loops(place=None):
    """Return the loops of scikit-learn and of searches for hyperparameters around this place, outermost first."""
    found, searchers = [], {}
    for frame in outwards(place or sys._getframe(1)):
        package = package_of_file(frame.f_code.co_filename)
        if package in SEARCHERS:
            counted = package in TRIALS and frame.f_code.co_name == TRIALS[package][0]
            if package not in searchers and (counted or package != "optuna"):
                searchers[package] = {"trips": None, "position": (None, None, False), "trials": True}
                searchers[package].update(file=package, line=0)
                found.append(searchers[package])
            if counted:  # where it says how many: each may be of another length
                local = variables_of(frame)
                count = local.get(TRIALS[package][1])
                count = count if type(count) is int and count < sys.maxsize else None
                ends = any(local.get(name) not in (None, []) for name in ENDS_TRIALS)
                searchers[package].update(trips=count, position=(count, None, ends))
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        count = (
            COUNTS.get(name)
            if "model_selection" in path
            else METAS.get(os.path.basename(path))
            if name == "fit"
            else None
        )
        if count is not None and package == "sklearn":
            try:
                trips = int(count(variables_of(frame)))
                ends = path.endswith("_rfe.py") or bool(variables_of(frame).get("is_auto_select"))
            except Exception:  # noqa: BLE001 - another version keeps it elsewhere
                trips, ends = None, False
            what = type(variables_of(frame).get("self")).__name__ if name == "fit" else name
            found.append({"trips": trips, "file": what, "line": 0, "position": (trips, None, ends)})
    return found[::-1]


def count_splits(local):
    return local["cv"].get_n_splits(local["X"], local["y"], local.get("groups"))


COUNTS = {
    "cross_validate": count_splits,
    "cross_val_predict": count_splits,
    "validation_curve": lambda local: count_splits(local) * len(local["param_range"]),
    "learning_curve": lambda local: len(local["train_test_proportions"]),
    "evaluate_candidates": lambda local: local["n_candidates"] * local["n_splits"] + bool(local["self"].refit),
}


def count_eliminations(local):
    """Return the fits of RFECV, which ends with as many features as were best."""
    search, features = local["self"], local["X"].shape[1]
    step = max(1, int(search.step * features)) if 0 < search.step < 1 else int(search.step)
    each = math.ceil((features - min(search.min_features_to_select, features)) / step) + 1
    return (count_splits(local) + 1) * each


# Estimators of scikit-learn that fit others, by their file -> how many fits (cross-validations) their own has at most.
METAS = {
    "_rfe.py": count_eliminations,
    # sets of features, each tried by a cross-validation; a tolerance may end it
    "_sequential.py": lambda local: sum(local["n_features"] - at for at in range(local["n_iterations"])),
    "calibration.py": count_splits,
}
