"""Where a model is called from: the place in the script, the loops around it, and whether those train."""

from __future__ import annotations

from ..loops.reach import Reach
from ..loops.safe_eval import Evaluator
from ..loops.script_frames import PROBE_ROOT, is_standard, outwards
from ..loops.source import Source, loops_around
from ..phase import ANYWHERE


class CallPlaces:
    """Reads the live stack around calls of modules."""

    def __init__(self, recorder):
        self.recorder = recorder

    def callers(self, frame):
        """Return the place outside of torch that called a module, and the place outside of any `forward` around it."""
        inside = (self.recorder.loop_stack.torch_root, PROBE_ROOT)
        found = [live for live in outwards(frame) if not live.f_code.co_filename.startswith(inside)]
        near = best = found[0] if found else None
        for live in found[1:]:
            if best.f_code.co_name != "forward" or not isinstance(
                best.f_locals.get("self"), self.recorder.torch.nn.Module
            ):
                break
            best = live
        return near, best

    def outermost_loop(self, frame):
        """Frame and lines of the outermost loop around a call, and whether there is one."""
        frames = self.recorder.loop_stack.frames(frame)
        for live in frames:
            loops = loops_around(live)
            if loops:
                return live, (loops[0].lineno, loops[0].end_lineno), True
        own = [live for live in frames if not self.recorder.loop_stack.is_library(live.f_code.co_filename)]
        return (own or frames or [None])[0], ANYWHERE, False

    def nest(self, frame):
        frames = self.recorder.loop_stack.frames(frame)
        return tuple((live.f_code.co_filename, loop.lineno) for live in frames for loop in loops_around(live))

    def may_train(self, phase):
        """Return whether what was seen so far may be no more than preparation."""
        return bool(phase.may_train or (self.recorder.optimizers_made and self.recorder.progress.names_training()))

    def trains_around(self, frame):
        """Return whether a loop around this place makes training steps.

        Those of libraries are read if there is an optimizer.
        """
        stack, trainings = self.recorder.loop_stack, self.recorder.upcoming_work.trainings
        trainings.look_from([], libraries=self.recorder.optimizers_made > 0)
        for live in stack.frames(frame):
            path = live.f_code.co_filename
            loops = loops_around(live) if trainings.libraries or not stack.is_library(path) else []
            if loops and not is_standard(path):
                evaluator = Evaluator(live.f_locals, live.f_globals, self.recorder.torch)
                reach = Reach(*Source.of_code(live.f_code), evaluator, loops[:1])
                if trainings.trains(reach, *loops[0].body):
                    return True
        return False
