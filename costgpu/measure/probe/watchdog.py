"""A thread beside the script that watches over the measurement."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback

from .loops.script_frames import PROBE_ROOT
from .schedstat import clock


class Watchdog(threading.Thread):
    """Ends the measurement when no step comes to do it, and this process when its parent is gone."""

    def __init__(self, recorder):
        super().__init__(name="costgpu-watchdog", daemon=True)
        self.recorder, self.parent = recorder, os.getppid()

    def run(self):
        recorder, config = self.recorder, self.recorder.config
        while True:
            time.sleep(0.2)
            if os.getppid() != self.parent:
                if os.getpgrp() == os.getpid():
                    os.killpg(os.getpid(), signal.SIGKILL)
                os._exit(1)
            now = clock()
            if recorder.status != "running":
                continue
            recorder.activity.look(in_step=not recorder.in_loader)
            recorder.trip_wires.look()
            idle = recorder.inference.idle(now)
            if idle and recorder.module_hooks.narrowed:
                recorder.module_hooks.detach()
                recorder.module_hooks.attach()
            if recorder.phase is None or idle:
                recorder.loops.look()
            if recorder.first_step is None:
                if now - recorder.started > config["start_limit"]:
                    seen = recorder.inference.conclude() or recorder.progress.leading() or recorder.loops_count()
                    self.finish("cut" if seen else "never_stepped")
                elif now - recorder.started > config["measure_for"] and recorder.loops_count():
                    recorder.note_first_step(recorder.started)
                    self.finish("cut")
                elif recorder.inference.cannot_wait(now) and recorder.inference.conclude():
                    self.finish("cut")
            elif now - recorder.first_step > config["hard_limit"] or (
                now - recorder.first_step > config["measure_for"]
                and self.idle(now)
                and recorder.enough(now - recorder.first_step)
            ):
                self.finish("cut")

    def idle(self, now):
        """Return whether the current gap between steps is far longer than a step: validation, or something that hangs."""
        last, phase = self.recorder.last, self.recorder.phase
        if phase is None:
            return True
        if last is None or not phase.seconds:
            return False
        return now - last > 3 * (sum(phase.seconds) / len(phase.seconds)) + 1.0

    def finish(self, status):
        recorder = self.recorder
        detail = {"where": main_stack(recorder.thread)}
        if recorder.last is not None:
            detail["cut_in_validation"] = recorder.is_evaluating()
        for _ in range(5):
            with contextlib.suppress(RuntimeError):  # the main thread changed a dictionary meanwhile
                recorder.finish(status, **detail)


def main_stack(thread):
    """Return where the script is now: its own frames, innermost last."""
    frame = sys._current_frames().get(thread)
    entries = traceback.extract_stack(frame) if frame is not None else []
    entries = [e for e in entries if not e.filename.startswith((PROBE_ROOT, "<frozen"))]
    library = (os.path.dirname(os.__file__), "site-packages")
    own = [e for e in entries if library[0] not in e.filename and library[1] not in e.filename]
    return ["{}:{} in {}: {}".format(e.filename, e.lineno, e.name, e.line) for e in (own or entries)[-6:]]
