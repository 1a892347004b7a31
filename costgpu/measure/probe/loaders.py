"""DataLoaders of the script: which were opened, which feed the training, and what was drawn of each."""

from __future__ import annotations

import sys

from .loops.script_frames import outwards
from .loops.source import Source
from .patching import known

LOOKS_PER_LOADER, MOST_FRAMES = 3, 6
VALIDATION = "validation"  # among the loaders that were drawn from: without gradients
FIT = 0  # among the loaders that were opened: a fit says itself that an epoch begins


class Loaders:
    """All DataLoaders that were read, and what happened to them since the last counted step."""

    def __init__(self):
        self.by_iterator = {}  # id of the iterator -> loader
        self.by_line = {}  # (code, line of the loop that reads it) -> loader
        self.batches_by_loader = {}
        self.batches = self.batches_beside = 0  # of all loaders, and those of them that an evaluation drew
        self.starting, self.starts = (
            {},
            {},
        )  # seconds until a loader's workers gave a batch: iterators and loaders, by id
        self.looks = {}
        self.opened, self.drawn = [], {}
        self.feeding = self.fed_before = None  # the last step, and the one before

    def open(self, iterator, loader, seconds):
        """Note that a loader was opened in so many seconds."""
        self.by_iterator[id(iterator)] = loader
        anew = getattr(loader, "num_workers", 0) and not getattr(loader, "persistent_workers", False)
        self.starting[id(iterator)] = seconds if anew else None
        self.opened.append(id(loader))

    def fit_begins_epoch(self):
        self.opened.append(FIT)

    def fetched(self, iterator, waited):
        """`next` has taken `waited` seconds."""
        begun = self.starting.pop(id(iterator), None)
        if begun is not None:
            self.starts.setdefault(id(self.by_iterator.get(id(iterator))), begun + waited)

    def draw(self, iterator, *, validates, libraries, evaluates=False):
        """One batch was drawn: it `validates` without gradients, and `evaluates` in an evaluation that is known."""
        loader = self.by_iterator.get(id(iterator))
        self.batches += 1
        if validates or evaluates:
            self.batches_beside += 1
        elif loader is not None:
            self.feeding = loader
        self.batches_by_loader[id(loader)] = self.batches_by_loader.get(id(loader), 0) + 1
        self.drawn[id(loader)] = self.drawn.get(id(loader), 0) + 1
        if validates and loader is not None:
            self.drawn[VALIDATION] = self.drawn.get(VALIDATION, 0) + 1
        if loader is not None and self.looks.get(id(loader), 0) < LOOKS_PER_LOADER:
            self.looks[id(loader)] = self.looks.get(id(loader), 0) + 1
            self.note_line(loader, sys._getframe(3), libraries)  # of the code that asked the iterator

    def batches_of(self, loader):
        """Batches that were drawn of a loader, and of those that were made anew for the same data; of any, the most."""
        if loader is None:
            return max(self.batches_by_loader.values(), default=0)

        def is_same(one):  # the same items: one data set, and as many batches of it
            return one is loader or known(lambda: one.dataset is loader.dataset and len(one) == len(loader))

        same = {id(one) for one in self.by_iterator.values() if is_same(one)}
        return sum(self.batches_by_loader.get(one, 0) for one in same | {id(loader)})

    def note_line(self, loader, frame, libraries):
        for _, live in zip(range(MOST_FRAMES), outwards(frame)):
            if not live.f_code.co_filename.startswith(libraries):
                source, scope = Source.of_code(live.f_code)
                for line in source.loops_at(scope, live.f_lineno) if scope is not None else ():
                    self.by_line[(live.f_code, line)] = loader
                return

    def last_drawn(self):
        """Return the loader that the last training batch came from; None without one."""
        training = [i for i in self.drawn if i != VALIDATION]
        return next((one for one in self.by_iterator.values() if training and id(one) == training[-1]), None)

    def feeds(self, first):
        """Return the loader of the training, after its `first` step or a later one.

        None for what is read beside the steps.
        """
        return self.feeding if first or self.feeding is self.fed_before else None

    def was_opened(self, training):
        """Return whether an epoch of the training loader has begun; without one only a fit says so itself."""
        return id(training) in self.opened or FIT in self.opened

    def forget(self):
        """Forget the interval that a counted step has ended."""
        self.opened, self.drawn = [], {}
        self.feeding, self.fed_before = None, self.feeding
