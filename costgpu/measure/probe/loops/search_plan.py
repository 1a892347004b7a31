"""What a search of scikit-learn fits in all: its candidates, what they say of how long a fit takes, and the refit."""

from __future__ import annotations

import math
import statistics

from ..patching import known
from .script_frames import count_splits, locals_of

# Parameters that a fit's time is taken to be linear in, at the end of their names (``forest__n_estimators``).
TRAIN_SIZE = "train size"
HELD = ("candidate_params", "param_range", "train_test_proportions")
LENGTHS = frozenset(
    "n_estimators max_iter iterations num_iterations num_boost_round n_epochs epochs max_epochs n_iter n_init".split()
)
MOST_CANDIDATES = 2000  # of more it is not told how many are unlike those that were tried
LOOKS_EVERY = 10  # candidates, after the first so many


class SearchPlan:
    """The fits of one search, or of one curve over a parameter or over parts of the data; `facts` are for the record.

    Args:
        held: What tells this call from another one.
        rounds: (candidates, resources of each) of every round; the one that goes on has `scale` resources.
    """

    def __init__(self, held, candidates, folds, what="candidates", refit=False, rounds=None, scale=1.0, resource=""):
        self.held, self.candidates, self.folds, self.refit = held, candidates, folds, refit
        self.rounds, self.scale, self.resource = rounds or [(len(candidates), 1.0)], scale, resource
        self.lengths = [length_of(one, resource) for one in candidates]
        self.tried, self.done, self.outside = {}, 0, 0
        told = None not in self.lengths and (len(set(self.lengths)) > 1 or len(self.rounds) > 1)
        self.facts = {
            "what": what,
            "candidates": self.rounds[0][0],
            "folds": folds,
            "refit": refit,
            "fits": float(folds * sum(count for count, _ in self.rounds) + refit),
            "planned": self.planned() if told else [],
            "seen": [],
            "tried": 0,
            "unlike": 0.0,
            "names": [],
        }

    def planned(self):
        """Fits by their length: [length, number of fits]; of later rounds of halving, the candidates' mean."""
        mean, fits = statistics.fmean(self.lengths), {}
        for count, resource in self.rounds:
            known = self.lengths if count == len(self.candidates) else [mean] * count
            for length in known:
                fits[length * resource] = fits.get(length * resource, 0) + self.folds
        if self.refit:  # on all of the data, of which each fold leaves out a part
            longest = mean * max(resource for _, resource in self.rounds) * self.folds / max(1, self.folds - 1)
            fits[longest] = fits.get(longest, 0) + 1
        return [[length, float(count)] for length, count in fits.items()]

    def goes_on(self, before):
        """Another search (another round of halving) at the same place came before, whose times are kept with its own."""
        if before is not None and before is not self.facts:
            self.facts["seen"][:0] = before["seen"]

    def is_inside(self, searches):
        """Note how many searches go on around it."""
        self.outside = searches

    def is_over(self, scoring):
        """Return True if only the refit is left, with `scoring` fits of other searches going on."""
        return self.refit and scoring == self.outside and self.done >= self.folds * len(self.candidates)

    def fitted(self, candidate, estimator, *, kept):
        """Note a fit that has ended; `kept` if its time is among those of the series."""
        facts = self.facts
        self.done += 1
        if kept:
            facts["seen"].append((length_of(candidate, self.resource) or 1.0) * self.scale)
        if ends_by_itself(estimator):
            facts["planned"] = []  # a higher limit would take no longer
        key = key_of(candidate)
        if key not in self.tried:
            self.tried[key] = candidate
            facts["tried"] = len(self.tried)
            if len(self.candidates) <= MOST_CANDIDATES and (
                len(self.tried) <= LOOKS_EVERY or len(self.tried) % LOOKS_EVERY == 0
            ):
                self.look_ahead()

    def look_ahead(self):
        """Count the candidates left that have new values of parameters which say nothing of a fit's length."""
        known, names, unlike = {}, set(), 0
        for candidate in self.tried.values():
            for name, value in candidate.items():
                known.setdefault(name, []).append(comparable(value))
        others = [one for one in self.candidates if key_of(one) not in self.tried]
        for candidate in others:
            new = [name for name in candidate if not is_length(name) and not within(candidate[name], known.get(name))]
            names.update(new)
            unlike += bool(new)
        self.facts["unlike"] = unlike / max(1, len(self.candidates))
        self.facts["names"] = sorted(names)[:5]


def read_plan(current, frame):
    """Return the plan of the search whose candidates are fitted around a frame, `current` if it is its; None without one."""
    names = ("evaluate_candidates", "validation_curve", "learning_curve")
    local = locals_of(names, "model_selection/_search.py", "model_selection/_validation.py", frame=frame)
    held = next((local[name] for name in HELD if name in local), None)
    if held is None or (current is not None and current.held is held):
        return current if held is not None else None
    if "train_test_proportions" in local:
        return SearchPlan(held, [{TRAIN_SIZE: len(train)} for train, _ in held], 1, "parts of the data")
    if "param_range" in local:
        values = [{local["param_name"]: value} for value in held]
        return SearchPlan(held, values, int(count_splits(local)), "values")
    search = vars(local["self"])
    more = {"refit": bool(search.get("refit"))}
    halving = locals_of(("_run_search",), "_search_successive_halving.py", frame=frame)
    if halving:
        more["rounds"] = rounds_of(halving)
        more["scale"], more["resource"] = more["rounds"][halving["itr"]][1], search.get("resource", "")
    return SearchPlan(held, held, int(local["n_splits"]), **more)


def key_of(candidate):
    return tuple(sorted((name, comparable(value)) for name, value in candidate.items()))


def rounds_of(halving):
    """(candidates, resources of each) of every round of a search by successive halving."""
    search = halving["self"]
    count, found = search.n_candidates_[0], []
    for at in range(halving["n_iterations"]):
        power = at
        if search.aggressive_elimination:
            power = max(0, at - halving["n_required_iterations"] + halving["n_possible_iterations"])
        found.append((count, float(min(int(search.factor**power * search.min_resources_), search.max_resources_))))
        count = math.ceil(count / search.factor)
    return found


def is_length(name):
    return name.rsplit("__", 1)[-1] in LENGTHS or name == TRAIN_SIZE


def length_of(candidate, resource=""):
    """Return the number of parts of a candidate's fit; None if it does not say. A halving's own resource comes on top."""
    values = [value for name, value in candidate.items() if is_length(name) and name != resource]
    if not values:
        return 1.0 if resource else None
    numbers = [comparable(value) for value in values]
    return math.prod(numbers) if all(isinstance(one, float) and one > 0 for one in numbers) else None


def comparable(value):
    """Return a number, a word or nothing as it is; of anything else its identity, since comparing it could do anything."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    kind = type(value)
    if kind in (int, float) or (kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0):
        return known(float, value, default=id(value))
    return id(value) if kind not in (tuple, list) else repr([comparable(one) for one in value])


def within(value, known):
    """Return whether a value is among those that are known, or between them."""
    value = comparable(value)
    if not known or value in known:
        return bool(known)
    numbers = [one for one in known if isinstance(one, float)]
    return isinstance(value, float) and bool(numbers) and min(numbers) <= value <= max(numbers)


def ends_by_itself(estimator):
    """Return whether a fit stopped before its limit of iterations."""

    def compare():
        made, limit = vars(estimator).get("n_iter_"), vars(estimator).get("max_iter")
        return (max(map(float, made)) if hasattr(made, "__len__") else float(made)) < float(limit)

    return known(compare, default=False)
