"""What a search of scikit-learn fits in all: its candidates, what they say of how long a fit takes, and the refit."""

from __future__ import annotations

import math
import statistics

from .script_frames import locals_of

# Parameters that a fit's time is taken to be linear in, at the end of their names (``forest__n_estimators``).
LENGTHS = frozenset(
    "n_estimators max_iter iterations num_iterations num_boost_round n_epochs epochs max_epochs n_iter n_init".split()
)
MOST_CANDIDATES = 2000  # of more it is not told how many are unlike those that were tried
LOOKS_EVERY = 10  # candidates, after the first so many


class SearchPlan:
    """The fits of one call of a search's `fit`; `facts` are for the record and stay up to date."""

    def __init__(self, local, halving):
        search = vars(local["self"])
        self.candidates, self.folds = local["candidate_params"], int(local["n_splits"])
        self.resource = search.get("resource", "") if halving else ""
        self.lengths = [length_of(one, self.resource) for one in self.candidates]
        self.rounds = rounds_of(halving, len(self.candidates))
        self.scale = self.rounds[halving["itr"]][1] if halving else 1.0
        self.refit = bool(search.get("refit"))
        self.tried, self.done, self.outside = {}, 0, 0
        told = None not in self.lengths and (len(set(self.lengths)) > 1 or len(self.rounds) > 1)
        self.facts = {
            "candidates": self.rounds[0][0],
            "folds": self.folds,
            "refit": self.refit,
            "fits": float(self.folds * sum(count for count, _ in self.rounds) + self.refit),
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

    def is_over(self, scoring):
        """Whether all candidates have been fitted and the best is to be, `scoring` fits of other searches going on."""
        return self.refit and scoring == self.outside and self.done >= self.folds * len(self.candidates)

    def fitted(self, parameters, estimator, *, kept):
        """Note a fit that has ended; `kept` if its time is among those of the series."""
        facts = self.facts
        self.done += 1
        if kept:
            facts["seen"].append((length_of(parameters, self.resource) or 1.0) * self.scale)
        if ends_by_itself(estimator):
            facts["planned"] = []  # a higher limit would take no longer
        if id(parameters) not in self.tried:
            self.tried[id(parameters)] = parameters
            facts["tried"] = len(self.tried)
            if len(self.candidates) <= MOST_CANDIDATES and (
                len(self.tried) <= LOOKS_EVERY or len(self.tried) % LOOKS_EVERY == 0
            ):
                self.look_ahead()

    def look_ahead(self):
        """How many of the others have values, of what says nothing of a fit's length, that no candidate so far had."""
        known, names, unlike = {}, set(), 0
        for candidate in self.tried.values():
            for name, value in candidate.items():
                known.setdefault(name, []).append(comparable(value))
        others = [one for one in self.candidates if id(one) not in self.tried]
        for candidate in others:
            new = [name for name in candidate if not is_length(name) and not within(candidate[name], known.get(name))]
            names.update(new)
            unlike += bool(new)
        self.facts["unlike"] = unlike / max(1, len(self.candidates))
        self.facts["names"] = sorted(names)[:5]


def read_plan(current):
    """The plan of the search whose candidates are fitted around this place, `current` if it is its; None without one."""
    local = locals_of(("evaluate_candidates",), "model_selection/_search.py")
    if "candidate_params" not in local or "n_splits" not in local:
        return None
    if current is not None and current.candidates is local["candidate_params"]:
        return current
    return SearchPlan(local, locals_of(("_run_search",), "_search_successive_halving.py"))


def rounds_of(halving, candidates):
    """(candidates, resources of each) of every round of a search by successive halving; one round of any other."""
    if not halving:
        return [(candidates, 1.0)]
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
    return name.rsplit("__", 1)[-1] in LENGTHS


def length_of(candidate, resource=""):
    """The number of parts of a candidate's fit; None if it does not say. A halving's own resource comes on top."""
    values = [value for name, value in candidate.items() if is_length(name) and name != resource]
    if not values:
        return 1.0 if resource else None
    numbers = [comparable(value) for value in values]
    return math.prod(numbers) if all(isinstance(one, float) and one > 0 for one in numbers) else None


def comparable(value):
    """A number, a word or nothing as it is; of anything else its identity, since comparing it could do anything."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    kind = type(value)
    if kind in (int, float) or kind.__module__ == "numpy":
        try:
            return float(value)
        except (TypeError, ValueError):
            return id(value)
    return id(value) if kind not in (tuple, list) else repr([comparable(one) for one in value])


def within(value, known):
    """Whether a value is among those that are known, or between them."""
    value = comparable(value)
    if not known or value in known:
        return bool(known)
    numbers = [one for one in known if isinstance(one, float)]
    return isinstance(value, float) and bool(numbers) and min(numbers) <= value <= max(numbers)


def ends_by_itself(estimator):
    """Whether a fit stopped before its limit of iterations."""
    try:
        made, limit = vars(estimator).get("n_iter_"), vars(estimator).get("max_iter")
        most = max(float(one) for one in made) if hasattr(made, "__len__") else float(made)
        return most < float(limit)
    except (TypeError, ValueError):
        return False
