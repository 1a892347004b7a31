"""Runs a command without the probe, reads its lines as they come, and ends it when enough has been seen.

Its output goes through a pipe, so that we know when each line came, and into a log. A pseudo-terminal would make more
programs print at once, but also colours, pagers and questions. Instead Python is told not to buffer, programs that use
C's stdio are started through ``stdbuf`` where there is one, and what still comes in blocks is read as such.

To end it, it is asked first (SIGTERM: it may remove its temporary files, and a client of containers passes it on);
then everything that it has started is killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

import psutil

from costgpu.errors import ScriptNotFound
from costgpu.measure.footprint.gather import gather
from costgpu.measure.footprint.watch import FileWatch
from costgpu.measure.isolation.layers import SizeLimit
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.isolation.start import IsolatedCommand, start_isolated
from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import Line, LineSplitter
from costgpu.measure.log.patterns import Pattern
from costgpu.measure.probe.activity import runs
from costgpu.measure.probe.record import ActivityRecord
from costgpu.measure.probe.schedstat import machine_times, own_cores, thread_times, threads_of
from costgpu.measure.process_tree import adopting, end_everything, interruptible, own_children, uninterrupted
from costgpu.measure.scratch import Scratch
from costgpu.measure.session import Outcome, child_environment, hard_limit_seconds
from costgpu.portable.processes import some_descendants
from costgpu.portable.supervise import ask_group

ENOUGH_LINES = 5  # of progress; with fewer it is watched for half as long again
LONGER = 1.5
LOG_BYTES = 64 << 20  # of the output that is kept
TAIL_LINES = 12
READ_BYTES = 1 << 16
TICK_SECONDS = 0.1
WEIGH_SECONDS = 0.5
GRACE_SECONDS = 3.0  # to end itself when asked to
LOOKS = sys.platform.startswith("linux")  # where the states of threads can be read
SILENT_SECONDS = 2.0  # after it has ended, for what it left behind and still prints


class ProcessMonitor:
    """One run of a command, and what it printed."""

    def __init__(self, patterns: tuple[Pattern, ...], measure_for: float, start_limit: float) -> None:
        self.log = ProgressLog(patterns)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.started_at = 0.0  # on the monotonic clock
        self.wall_seconds = 0.0
        self.peak_rss_bytes = 0  # of the command and all its descendants together
        self.stopped = False  # by us
        self.too_large: int | None = None  # bytes that it may write, if it was ended because it wrote more
        self._measure_for, self._start_limit = measure_for, start_limit
        self._splitter = LineSplitter()
        self._size: SizeLimit | None = None
        self._first: float | None = None
        self._last_byte = self._weighed_at = self._looked_at = self._cpu = 0.0
        self._kept = 0
        self._open = True
        self._run_delays: dict[str, float] = {}  # seconds without a core of each of its threads, ended or not
        self._looks = self._quiet = 0
        self._begun: tuple[float, float, float, float] | None = None  # time and sums at the first line of progress
        self._now = (0.0, 0.0, 0.0, 0.0)  # the same at the last look

    def run(
        self,
        command: Sequence[str],
        workdir: Path,
        scratch: Scratch,
        progress: Callable[[float, bool], None],
        isolation: Isolation | None = None,
    ) -> Outcome:
        """Run it until it ends or enough has been seen; nothing of it is left.

        Raises:
            ScriptNotFound: The system cannot start it.
            ConfigError: This machine does not give the isolation that is asked for.
            KeyboardInterrupt: After everything has been ended.
        """
        before, marker = own_children(), uuid.uuid4().hex
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with (
            os.fdopen(reader, "rb", buffering=0) as source,
            scratch.log.open("wb") as output,
            interruptible(),
            contextlib.closing(FileWatch(workdir, scratch.folder / "watches.json")) as watch,
            adopting(),
        ):
            try:
                environment = child_environment(marker)
                started = start_isolated(
                    IsolatedCommand(
                        unbuffered(command), workdir, environment, writer, scratch, named=command[1:], watch=watch
                    ),
                    isolation,
                )
            except OSError as error:
                raise ScriptNotFound(
                    f"{command[0]} does not start: {error.strerror}.", hint="Can it be run by hand?"
                ) from error
            finally:
                os.close(writer)
            self.started_at = self._last_byte = time.monotonic()
            child = started.process
            self._size = SizeLimit(scratch.folder, *started.elsewhere(scratch.folder))
            try:
                self._follow(child, source, output, progress, watch)
            finally:
                self.wall_seconds = time.monotonic() - self.started_at
                with uninterrupted():
                    ask_group(child, GRACE_SECONDS, lambda _: self._read_last(source, output))
                    survivors = end_everything(child.pid, marker, before)
                    child.wait()
                    watch.drain()
                    changes = started.close(scratch)
        return Outcome(
            record=None,
            returncode=child.returncode,
            timed_out=self.stopped,
            log=scratch.log,
            scratch=scratch.folder,
            isolation=started.isolation,
            changes=changes,
            too_large=self.too_large,
            survivors=survivors,
            footprint=gather(watch, scratch, changes, started.isolation),
        )

    def _follow(
        self,
        child: subprocess.Popen[bytes],
        source: RawIOBase,
        output: BinaryIO,
        progress: Callable[[float, bool], None],
        watch: FileWatch,
    ) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while True:
                if not self._open:
                    time.sleep(TICK_SECONDS)
                elif selector.select(TICK_SECONDS):
                    self._open = self._read(source, output)
                    if not self._open:
                        selector.unregister(source)
                now = time.monotonic()
                self._weigh(child, now)
                self._look(child, now)
                watch.look(child.pid)
                if child.poll() is not None and (not self._open or now - self._last_byte > SILENT_SECONDS):
                    self._take(self._splitter.close())
                    return
                if self._size is not None and self._size.exceeded():
                    self.too_large = self._size.limit_bytes
                if self._enough(now) or self.too_large:
                    self.stopped = True
                    return
                progress(now - self.started_at, self._first is not None)

    def _read(self, source: RawIOBase, output: BinaryIO) -> bool:
        """One block: into the log, and line by line into the counters. False at the end."""
        now = time.monotonic()
        chunk = source.read(READ_BYTES)
        if not chunk:
            return chunk is None  # nothing there after all
        self._last_byte = now
        self._keep(chunk, output)
        self._take(self._splitter.feed(chunk, now))
        return True

    def _keep(self, chunk: bytes, output: BinaryIO) -> None:
        if chunk and self._kept < LOG_BYTES:
            output.write(chunk[: LOG_BYTES - self._kept])
            output.flush()
            self._kept += len(chunk)

    def _take(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self.tail.append(line.text)
            if self.log.read(line) and self._first is None:
                self._first = line.at

    def _enough(self, now: float) -> bool:
        """Return whether what was seen will do, or nothing can be expected any more."""
        best = self.log.best(now)
        if best is None:
            since = self.started_at if self._first is None else self._first
            return now - since > self._start_limit
        if now - self.started_at > self._start_limit + hard_limit_seconds(self._measure_for):
            return True
        if best.complete:  # a bar of the preparations, or the end is near
            return False
        watched = now - best.samples[0].at
        return watched > self._measure_for * (1.0 if len(best.samples) >= ENOUGH_LINES else LONGER)

    def _weigh(self, child: subprocess.Popen[bytes], now: float) -> None:
        if now - self._weighed_at < WEIGH_SECONDS:
            return
        self._weighed_at = now
        total, cpu = 0, 0.0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(child.pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
                    cpu += sum(process.cpu_times()[:4])  # user, system, and those of children that have ended
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        self._cpu = max(self._cpu, cpu)

    def _look(self, child: subprocess.Popen[bytes], now: float) -> None:
        """Note whether anything of it computes."""
        if self._first is None or now - self._looked_at < TICK_SECONDS:
            return
        self._looked_at = now
        processes = [child.pid, *some_descendants(child.pid)]
        threads = [f"{pid}/task/{thread}" for pid in processes for thread in threads_of(pid)]
        self._run_delays.update(
            (thread, max(thread_times(thread)[1], self._run_delays.get(thread, 0.0))) for thread in threads
        )
        used, _ = machine_times() or (0.0, 0.0)
        self._now = (now, self._cpu, sum(self._run_delays.values()), used)
        if self._begun is None:
            self._begun = self._now
        else:
            self._looks += LOOKS
            self._quiet += LOOKS and child.poll() is None and not any(map(runs, processes))

    @property
    def activity(self) -> ActivityRecord | None:
        """Return what it did since the first line of progress; None if it was not seen after that."""
        if self._begun is None:
            return None
        wall, cpu, run_delay, used = (now - then for now, then in zip(self._now, self._begun, strict=True))
        nothing = dict.fromkeys(ActivityRecord.__annotations__, 0)
        seen = {"wall": wall, "cores": len(own_cores()), "cpu": cpu, "run_delay": run_delay}
        looks = {"looks": self._looks, "off": self._looks, "quiet": self._quiet}
        return cast("ActivityRecord", nothing | seen | looks | {"neighbours_cpu": max(0.0, used - cpu)})

    def _read_last(self, source: RawIOBase, output: BinaryIO) -> None:
        """Keep what it prints while it ends."""
        if self._open:
            with contextlib.suppress(OSError):
                self._keep(source.read(READ_BYTES) or b"", output)
        time.sleep(TICK_SECONDS / 5)


def unbuffered(command: Sequence[str]) -> list[str]:
    """With line-wise output of programs that leave buffering to C's stdio, where ``stdbuf`` is there to do that."""
    wrapper = shutil.which("stdbuf")
    return [wrapper, "-oL", "-eL", *command] if wrapper else list(command)
