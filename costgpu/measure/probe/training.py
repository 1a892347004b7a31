"""A phase of training: its units are steps of optimizers, or backward passes where there is none."""

from __future__ import annotations

import sys

from .frameworks.trainers import told_by
from .loops.growing_sizes import elements_of, followed, sizes_at
from .op_tracer import StepTrace
from .patching import harmless
from .phase import LivePhase
from .ranks.world import WORLD
from .schedstat import clock

LEAST_SECONDS = 1.0  # a shorter first step is no answer by itself
MOST_TRACED = 8
MOST_LATE_SECONDS = 0.5
MOST_IDLE = 50  # steps of others, each after a backward pass: no critic makes so many
HELD_HERE = 2  # references to an optimizer that only this phase holds, as `sys.getrefcount` counts them
LOOKS_FOR_MEMBERS = 20  # steps at which it is looked for loops over several optimizers
QUICK_SHARE = 0.25  # of the first step's time: the first did something once, and another one can be traced


class Training(LivePhase):
    """The anchor is the place and optimizer whose steps count."""

    def __init__(self, *place, **known):
        super().__init__(*place, **known)
        self.runners, self.strangers = set(), 0  # optimizers that stepped twice in a row; steps since the anchor's last
        self.last_here = self.backwards_here = None  # of the last step at the anchor's place
        self.variables = {}  # of the loops around the anchor's last step
        self.members = set()  # loops over its optimizers

    def follow(self, entry, before):
        """Note the script's frame that a library calls, and whether that is one more call after the phase before."""
        self.entry = entry
        if before is not None and entry is not None and before.entry is not None:
            if before.entry.f_code is entry.f_code:
                self.call = before.call + (before.entry is not entry)

    def is_anchor(self, site, optimizer, backwards, new=False):
        """Count a step at its place, and return whether it ends an interval: the first place and optimizer do.

        Optimizers that step at one place one after the other, without a backward pass in between, make one step.

        Args:
            backwards: Backward passes so far.
            new: Whether this optimizer was made after the last step that ended an interval.
        """
        one = id(optimizer)
        self.sites[site, one] = self.sites.get((site, one), 0) + 1
        if optimizer is not None:
            self.optimizers.setdefault(one, optimizer)
        by_hand = self.anchor_key == id(None) != one  # backward passes were counted until it made its first optimizer
        if self.anchor is None or by_hand:
            self.anchor, self.anchor_key, self.sites = site, one, {(site, one): 1}
            self.forget_epochs()
        if site != self.anchor:
            return False
        same_round, self.backwards_here = backwards == self.backwards_here, backwards
        if by_hand and same_round:
            return False
        if self.last_here == one and not same_round:
            self.runners.add(one)
        self.last_here = one
        if one != self.anchor_key:
            self.strangers += not same_round
            if same_round or not self.is_replaced(one, new):
                return False
            self.members = set()
        self.anchor_key, self.strangers = one, 0
        return True

    def is_replaced(self, one, new):
        """Return whether another optimizer, which stepped after a backward pass of its own, has taken the anchor's place.

        It has if nobody holds the anchor any more, if both step several times in a row (those of clients, or of an
        epoch each), or if the anchor has been idle for long. A critic and a generator step in turns: they are one step.
        """
        runs = self.anchor_key in self.runners and (new or one in self.runners)
        dropped = new and sys.getrefcount(self.optimizers.get(self.anchor_key)) <= HELD_HERE
        return runs or dropped or self.strangers > MOST_IDLE

    def look_around(self, variables, *, counts):
        """Note which loop is over the optimizers of one step: the outermost whose variable has changed since the anchor's.

        Args:
            variables: Of `LoopStack.variables`, where an optimizer steps at the anchor's place.
            counts: Whether it is the anchor.
        """
        if counts:
            self.variables = variables
        elif not self.members:
            changed = [place for place, held in variables.items() if self.variables.get(place, held) != held]
            if changed:
                self.members = set(changed[:1])
                self.forget_epochs()

    def forget_epochs(self):
        """Forget the epochs, since what was taken for an outer loop is the one that steps."""
        self.outer = None
        if self.loader is None:
            for interval in [n for n, event in self.special.items() if event.pop("opened", None) and not event]:
                del self.special[interval]

    # -- what differs from other kinds

    def begins_count(self, seen, frame, earlier):
        if self is not seen.phases[0]:
            return
        WORLD.collectives.step_made()
        if earlier == 0:
            if seen.first.is_slow():
                self.trace, self.first_traced = seen.first.whole_trace(), True
            seen.data_parts.look(frame)
        elif earlier == 1 and self.first_traced:  # unless other optimizers step after it, or the next step is quick
            if len(self.sites) > 1 or (self.seconds and self.seconds[-1] < QUICK_SHARE * seen.first.seconds):
                self.trace, self.first_traced = None, False

    def settle(self, seen, status):
        """Take the first step's trace where there is no other, and its time where there is no second step."""
        first, window = seen.first, seen.config["measure_for"]
        missing = self.trace is None or (self.trace_steps == 0 and not self.untraceable)
        if first.trace is not None and not self.first_traced and missing:
            self.trace, self.first_traced = first.whole_trace(), True
        evaluating = status == "cut" and seen.is_evaluating()
        least = LEAST_SECONDS if status == "ended" else max(LEAST_SECONDS, window)
        alone = self.first_traced and not self.seconds and self.anchors == 1
        if alone and (evaluating or first.seconds >= least):
            self.first = first.times
            if evaluating:
                self.special[0] = {"validation": clock() - seen.last}

    def loader_of(self, loaders, earlier):
        return loaders.feeds(earlier == 0)

    def fed_batches(self, loaders):
        return loaders.batches - loaders.batches_beside

    def told_at(self, seen, frame):
        return told_by(frame, "trainers") or seen.progress.fit_length()

    def counted_snapshots(self):
        """Return the snapshots, in which the loops over optimizers are told: they do not multiply the steps."""
        for loop in (loop for shot in self.snapshots for loop in shot["loops"]):
            loop["optimizers"] = loop["optimizers"] or (loop["path"], loop["line"]) in self.members
        return self.snapshots

    def choose_outer(self, seen, frame, loops):
        loops = [loop for loop in loops if not loop["optimizers"] and (loop["path"], loop["line"]) not in self.members]
        super().choose_outer(seen, frame, loops)

    def trace_is_due(self, seen, earlier, *, was_traced):
        return self.trace is None and earlier >= 1 and not was_traced

    def begin_trace(self, seen, *, late=False):
        super().begin_trace(seen, late=late)
        if seen.tracing is not None:
            seen.tracing.resume()

    def make_trace(self, seen):
        count_saved, compiled = seen.config.get("saved_hooks", True), seen.compiles
        return StepTrace(
            seen.torch,
            self.optimizers.values(),
            count_saved=count_saved,
            compiled=compiled,
            backwards=seen.backwards,
        )

    @harmless
    def compare_sizes(self, seen, frame):
        """Note what the traced steps make of a loop's variable, and how much more or less a late step computes."""
        trace = seen.step_trace
        rows = list(trace.tracer.rows.values())
        trace.note_sizes(sizes_at(seen.loop_stack, frame, rows))
        if trace is self.late:
            early = elements_of(self.trace.tracer.rows.values()) / max(1, self.trace_steps)
            self.growth = elements_of(rows) / trace.steps / early if early else 1.0
            self.followed = followed(self.trace.sizes, trace.sizes)

    def is_enough(self, seen, earlier, now):
        alone = earlier == 0 and self.first_traced and seen.first.seconds > seen.config["hard_limit"]
        enough = alone or super().is_enough(seen, earlier, now)
        if enough and self.may_trace_again():
            self.begin_trace(seen, late=True)
            return False
        return enough

    def may_trace_again(self):
        """Return whether there is a late step to compare with the traced one, and it is quick enough to be traced, too."""
        seen = sorted(self.seconds)
        quick = bool(seen) and seen[len(seen) // 2] * self.turn() < MOST_LATE_SECONDS
        return quick and self.trace is not None and self.late is None and not (self.first_traced or self.untraceable)

    def turn(self):
        """Return steps that hold one whole turn of every optimizer (a critic that steps five times per generator)."""
        anchor = (self.anchor, self.anchor_key)
        anchors = self.sites.get(anchor, 1)
        others = [n for key, n in self.sites.items() if key != anchor]
        longest = max([1] + [round(anchors / n) for n in others if n and n * MOST_TRACED >= anchors])
        return min(MOST_TRACED, longest)
