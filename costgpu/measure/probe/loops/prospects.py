"""Whether a script has yet to begin with what it is for, as far as its imports and its own sources tell.

A progress bar or a loop of a script that will train is what comes before the training; of a script that only borrows
a function of a framework it is the work itself. What cannot be told is taken to be yet to come.
"""

from __future__ import annotations

import ast
import os
import sys

from .live_values import own_value
from .script_frames import package_of_file
from .source import Source
from .syntax import dotted

# What says as much as the `telling` names of a framework, unless the script defines a function of that name itself.
TELLING_OF_OTHERS = frozenset(
    "fit fit_transform train learn predict generate minimize train_model finetune fine_tune transcribe encode".split()
)
# One of these is in every script that trains with an optimizer of torch's, by hand or by a library.
USES_OPTIMIZERS = frozenset("backward step fit train Trainer learn minimize grad run main launch finetune".split())
# scikit-learn's modules that fit no model; from any other an estimator is taken.
HELPERS = frozenset(
    "datasets metrics model_selection preprocessing utils feature_extraction exceptions impute base inspection".split()
)
SEARCHES = frozenset("GridSearchCV RandomizedSearchCV HalvingGridSearchCV cross_val_score cross_validate".split())
MOST_FILES = 200


class Prospects:
    """What the script's own sources name, its local modules included, whether or not they are imported yet."""

    def __init__(self, frameworks):
        self.frameworks = frameworks
        self.imported, self.names, self.defined, self.helpers_only = set(), set(), set(), True
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        waiting, seen = [main] if main else [], set()
        files = [own_value(one, "__file__") for one in list(sys.modules.values())]  # of lazy modules, as they are
        waiting += [one for one in files if isinstance(one, str)]
        while waiting and len(seen) < MOST_FILES:
            path = waiting.pop(0)
            if not path or not path.endswith(".py") or path in seen or (path != main and package_of_file(path)):
                continue
            seen.add(path)
            source = Source.of(path)
            if source is not None:
                waiting += self.read(source.tree, os.path.dirname(path))

    def read(self, tree, folder):
        """Add what a file names; the files of local modules that it imports."""
        local = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    local += self.import_of(one.name, (), folder)
            elif isinstance(node, ast.ImportFrom):
                local += self.import_of(node.module or "", [one.name for one in node.names], folder)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.defined.add(node.name)
            elif isinstance(node, ast.Attribute):
                self.names.add(node.attr)
                if dotted(node).startswith("sklearn.") and node.attr not in HELPERS:
                    self.helpers_only &= dotted(node).split(".")[1] in HELPERS
            elif isinstance(node, ast.Name):
                self.names.add(node.id)
        return local

    def import_of(self, module, names, folder):
        top, _, rest = module.partition(".")
        self.imported.add(top)
        self.names.update(names)
        self.names.update(module.split(".")[1:])
        if top == "sklearn" and (rest or names):
            self.helpers_only &= {rest.partition(".")[0]} <= HELPERS if rest else set(names) <= HELPERS
        inside = os.path.join(folder, *module.split(".")) if module else folder
        found = [inside + ".py", os.path.join(inside, "__init__.py")]
        found += [os.path.join(inside, name + ".py") for name in names]
        return [path for path in found if os.path.isfile(path)]

    def await_training(self):
        """Return whether a framework is at hand, or named, that the script has more than a helper of."""
        computing = [one.name for one in self.frameworks if one.computes]
        named = [name for name in computing if name in self.imported]
        loaded = [name for name in computing if name in sys.modules]
        if not named and not loaded:
            return False
        if named == ["sklearn"] and not set(loaded) - {"sklearn"}:
            return not self.helpers_only or bool(self.names & SEARCHES)
        telling = frozenset().union(*(one.telling for one in self.frameworks))
        return bool(self.names & telling or (self.names & TELLING_OF_OTHERS) - self.defined)
