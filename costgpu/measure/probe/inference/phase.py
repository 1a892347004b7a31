"""A phase of inference: its units are calls of models from outside of models."""

from __future__ import annotations

from ..frameworks.trainers import told_by
from ..loops.reach import Reach
from ..loops.safe_eval import Evaluator
from ..loops.script_frames import is_standard, variables_of
from ..loops.source import Source, loops_around
from ..phase import LivePhase
from ..result import describe_batch
from ..schedstat import clock
from .arguments import kind_of, weights_of
from .forward_trace import ForwardTrace
from .generation import GeneratedTokens

MOST_SIZES = 5000
ENOUGH_UNITS = 3
IDLE_SECONDS = 1.0
REPEATS = 3  # another place so often, and the anchor not once: that place is what repeats


class Inference(LivePhase):
    """The anchor is the place and module whose call begins a unit; all else up to its next call is part of the unit."""

    trains = False
    warm_units = 1  # which pays for what is made only once
    looks_ahead = (1,)
    kept_events = ("save", "loader_start")

    def __init__(self, *place, looped, began, preceded, **known):
        super().__init__(*place, **known)
        self.looped = looped
        self.began, self.ended = began, None  # of its first unit, and of the last call so far
        self.preceded = preceded  # when what was before it ended
        self.roots = {}  # id -> module that was called from outside of modules
        self.nests = {}  # (site, id of the module) -> the loops around it, outermost first
        self.since = {}  # the same -> calls since the anchor's last
        self.sizes, self.kind = [], "item"
        self.grows = False  # its calls make the same sequences longer, without a cache
        self.over_modules = False  # its innermost loop is over the modules of one turn
        self.generation = None
        self.generating = False  # whether its unit is a call of `generate`
        self.running = None  # the module that runs where its unit began
        self.may_train = None  # whether the source says that training follows
        self.own_work = False  # whether no optimizer was made when it ended

    def is_anchor(self, site, module, nest=(), direct=False):
        """Return whether this call begins a unit; `direct` if it is part of a `forward` that was called itself."""
        key = (site, id(module))
        if not self.looped:
            key = next((known for known in self.sites if known[1] == id(module)), key)
        self.sites[key] = self.sites.get(key, 0) + 1
        self.nests.setdefault(key, nest)
        self.roots.setdefault(id(module), module)
        if self.anchor is None:
            self.anchor, self.anchor_key = key
        anchor = (self.anchor, self.anchor_key)
        if key == anchor:
            self.over_modules = self.over_modules or (not direct and any(other[0] == site for other in self.since))
            self.since = {}
            return True
        self.since[key] = self.since.get(key, 0) + 1
        outer = self.nests[anchor]
        if self.since[key] >= REPEATS and outer[: len(nest)] == nest:
            self.anchors += REPEATS - 1
            self.move_anchor(key)
            return True
        return False

    def move_anchor(self, key):
        """Begin units at another place from now on; what was timed so far is not of that kind."""
        self.anchor, self.anchor_key = key
        self.since, self.unit_began, self.over_modules = {}, None, False

    @property
    def tried(self):
        """Return whether a model was only tried, as far as is known: a call or two outside of any loop."""
        return not self.looped and self.anchors < ENOUGH_UNITS

    def choose_inner(self, seen, now):
        """Begin anew with units of an inner loop, where a whole turn of the outer one takes too long to be seen twice."""
        if self.anchors != 1 or self.generation is not None or now - self.began <= 0.5 * seen.config["measure_for"]:
            return
        key = max(self.since, key=lambda key: self.since[key], default=None)
        if key is None or self.since[key] < REPEATS:
            return
        seen.stop_trace()
        self.move_anchor(key)
        self.anchors, self.snapshots, self.sizes, self.warm_seconds = 0, [], [], None
        for times in (self.seconds, self.waits, self.own_seconds, self.blocked, self.run_delay):
            del times[:]
        self.special, self.trace = {}, None

    # -- what is seen of its calls

    def call_begins(self, torch, tensor, running, generating):
        """Note what a unit begins with.

        Args:
            tensor: Whose leading dimension counts the items; None without one.
            running: The module that is called; None where that is `generate`.
            generating: The model that generates; None for a call of a module.
        """
        if len(self.sizes) < MOST_SIZES:
            self.sizes.append(int(tensor.shape[0]) if tensor is not None else None)
        if self.anchors == 0:
            self.kind = kind_of(torch, tensor) if running is not None else "prompt"
            self.batch = self.batch or describe_batch(tensor, torch)
        self.running, self.generating = running, generating is not None
        if generating is not None:
            self.generates(generating)

    def call_enters(self, tracing):
        """Tell the tracer what the ops of the call that begins are."""
        if self.generation is None:
            tracing.enter("forward")
        else:
            self.generation.phase_of_ops(tracing)

    def call_ended(self, now):
        """Note that a call has ended."""
        self.ended = now

    def generates(self, module, *, same_loop=False):
        """Return what its units generate, which they may only do from now on."""
        if self.generation is None:
            self.generation = GeneratedTokens(module, same_loop=same_loop)
        return self.generation

    def makes_longer(self):
        """Note that its calls make the same sequences longer."""
        self.grows = True

    def may_prepare(self, seen):
        """Return whether what was seen so far may be no more than preparation."""
        return bool(self.may_train or (seen.optimizers_made and seen.progress.names_training()))

    def is_the_job(self, seen):
        """Take its units for what the script is for."""
        seen.note_first_step(self.began)
        seen.evaluation.forget()
        seen.module_hooks.narrow(list(self.roots.values()))

    def close(self, seen):
        """End it: note whether the script could have left it out, and time one that had hardly a unit."""
        self.own_work = not self.may_prepare(seen)
        if len(self.seconds) == 0 and self.ended is not None and self.unit_began is not None:
            last = self.ended - self.unit_began
            known = last if self.anchors > 1 else self.warm_seconds or last
            going = self.generation if seen.inference.generating is not None else None
            by_parts = going.unit_seconds() if going is not None else None  # of a unit that was not seen to its end
            self.add_interval((known if by_parts is None else by_parts, 0.0, 0.0, 0.0))

    def settle(self, seen, status):
        """End the measurement, and keep the inference that is the job, not what is only beside it."""
        root, now = seen.inference.root, clock()
        if self.is_tracing(seen):
            if root is None and seen.inference.generating is None:
                seen.step_trace.step_made()
            seen.trace_ends()
        self.close(seen)
        calls = [one for one in seen.phases if not one.trains and one.ended is not None]
        busy = sum(one.ended - one.began for one in calls)
        tail = now - self.ended if self.ended is not None and root is None else 0.0
        median = sorted(self.seconds)[len(self.seconds) // 2] if len(self.seconds) else 0.0
        self.tail_seconds = tail if status == "ended" else 0.0
        elsewhere = tail > busy and (self.tried or tail > IDLE_SECONDS + 3 * median)
        if len(calls) == len(seen.phases) and elsewhere and seen.loops.moved():
            seen.nothing_was_work()
        elif seen.first_step is None:
            seen.phases[0].is_the_job(seen)

    # -- what differs from other kinds

    def look_ahead(self, seen, frame):
        super().look_ahead(seen, frame)
        stack, trainings = seen.loop_stack, seen.upcoming_work.trainings
        trainings.look_from([], libraries=seen.optimizers_made > 0)  # those of libraries, too, if there is an optimizer
        self.may_train = False
        for live in stack.frames(frame):
            path = live.f_code.co_filename
            loops = loops_around(live) if trainings.libraries or not stack.is_library(path) else []
            if loops and not is_standard(path):
                evaluator = Evaluator(variables_of(live), live.f_globals, seen.torch)
                reach = Reach(*Source.of_code(live.f_code), evaluator, loops[:1])
                if trainings.trains(reach, *loops[0].body):
                    self.may_train = True
                    break

    def loader_of(self, loaders, earlier):
        return loaders.last_drawn()

    def fed_batches(self, loaders):
        return loaders.batches

    def told_at(self, seen, frame):
        return told_by(frame, "drivers")

    def watch_outer(self, earlier):
        if self.generation is None:
            super().watch_outer(earlier)

    def trace_is_due(self, seen, earlier, *, was_traced):
        """Return whether a trace begins: with the first unit of a generation, too, and anew with a second one."""
        due = earlier == 1 or (self.trace is None and (earlier > 1 or self.generating))
        return due and not seen.first.running

    def make_trace(self, seen):
        trace = ForwardTrace(seen.torch, self.roots.values(), compiled=seen.compiles, running=self.running)
        if self.generation is not None:
            trace.tracer.enter("prefill")
            self.generation.trace_begins()
        return trace

    def is_enough(self, seen, earlier, now):
        if self.upcoming[0] and seen.without_weights is not None:
            return False  # the training that comes later is the job, and is soon reached without weights
        if seen.first_step is None and self.anchors >= ENOUGH_UNITS and not self.may_prepare(seen):
            self.is_the_job(seen)
        return super().is_enough(seen, earlier, now)

    def own_facts(self):
        # one token after the other: no call is an item of its own
        continues = self.grows or (self.kind == "token" and self.generation is None)
        return {
            "sizes": [] if continues else self.sizes,
            "item": "item" if continues else self.kind,
            "over_modules": self.over_modules,
            "weights_dtype": weights_of(self.roots.values())[0],
            "activation_bytes": self.trace.activation_bytes if self.trace is not None else 0,
            "generation": self.generation.record() if self.generation is not None else None,
        }
