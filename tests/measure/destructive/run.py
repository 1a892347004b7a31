# ruff: noqa: PTH105, PTH115, PTH208
"""Runs one script of the corpus, unprotected or measured, and says what it changed.

Measurements run in a process of their own: a script may end what measures it. That process is forked from one that
has imported everything (``python -m tests.measure.destructive.run``), asked over its standard input, a line of JSON each.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.measure.destructive.corpus import BEGUN, FINISHED, Script
from tests.measure.destructive.tree import Snapshot, Victim, build, differences, remove
from tests.until import until

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60.0  # no measurement takes so long: one that does hangs
START_LIMIT_SECONDS = 30.0
GONE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one run."""

    changed: list[str]  # what is not as it was
    answer: dict[str, Any] = field(default_factory=dict)  # of the measurement; see `_measure`
    output: str = ""
    left: list[str] = field(default_factory=list)  # processes that it left

    @property
    def begun(self) -> bool:
        """Whether the script got past its own start: else it proves nothing."""
        return BEGUN in self.output.splitlines()

    @property
    def finished(self) -> bool:
        """Whether the script came to its last line."""
        return FINISHED in self.output.splitlines()

    @property
    def skipped(self) -> bool:
        """Whether the script saw that it had better not run."""
        return any(line.startswith("skipped: ") for line in self.output.splitlines())

    @property
    def faults(self) -> list[str]:
        """Everything that a measurement must not do."""
        raised = self.answer.get("raised")
        return [*self.changed, *self.left, *([f"costgpu raised {raised}"] if raised else [])]


class Runner:
    """A victim, and the process that measures scripts on it."""

    def __init__(self, folder: Path) -> None:
        self.victim = build(folder)
        self.answer = self.victim.base / "answer.json"
        self.pid = 0  # what measures now
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.measure.destructive.run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            cwd=REPOSITORY,
            text=True,
            bufsize=1,
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == "ready\n"
        self.before: Snapshot = self.victim.snapshot()

    def close(self) -> None:
        """Ends the process and removes the victim."""
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(LIMIT_SECONDS)
        assert self.server.stdout is not None
        self.server.stdout.close()
        self.victim.remove()

    def _write(self, script: Script) -> Path:
        path = self.victim.base / "scripts" / f"{script.id}.py"
        path.write_text(script.text)
        return path

    def _settle(self) -> list[str]:
        """Compares, and makes the tree again if it has changed."""
        changed = differences(self.before, self.victim.snapshot())
        if changed:
            self.victim.restore()
            self.before = self.victim.snapshot()
        return changed

    def unprotected(self, script: Script) -> Ran:
        """Runs a script as a user would, and waits for its harm."""
        assert "only-isolated" not in script.flags
        fake = self.victim.cache / "measurements/1-fake"
        fake.mkdir()
        environment = {**_environment(), **self.victim.environment}
        output = self.victim.base / "output"
        with output.open("wb") as stream:
            child = subprocess.Popen(
                [sys.executable, self._write(script)],
                cwd=self.victim.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if "endless" in script.flags:
                until(lambda: differences(self.before, self.victim.snapshot()), GONE_SECONDS)  # by it, or a child of it
            else:
                child.wait(LIMIT_SECONDS)
            if "later" in script.flags:
                until(lambda: differences(self.before, self.victim.snapshot()), GONE_SECONDS)
        except AssertionError:
            pass  # it did no harm: the caller sees that
        finally:
            end_processes(self.victim)
            child.wait()
        remove(fake)
        return Ran(self._settle(), output=output.read_text(errors="replace"))

    def start(self, script: Script, level: str | None) -> int:
        """Begins to measure a script; returns the process that does so. `finish` must follow."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        if self.pid:  # of a test that failed before its end
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.finish()
        self.answer.unlink(missing_ok=True)
        asked = {
            "script": str(self._write(script)),
            "workdir": str(self.victim.work),
            "cache": str(self.victim.cache),
            "level": level,
            "endless": "endless" in script.flags,
            "answer": str(self.answer),
            "environment": {**self.victim.environment, "VICTIM_MEASURED": "yes"},
        }
        self.server.stdin.write(json.dumps(asked) + "\n")
        self.pid = int(self.server.stdout.readline())
        return self.pid

    def finish(self) -> Ran:
        """Waits until the measurement has ended, by itself or killed, and everything with it; then compares."""
        assert self.server.stdout is not None
        answer: dict[str, Any] = {}
        if not select.select([self.server.stdout], [], [], LIMIT_SECONDS)[0]:
            answer = {"raised": f"nothing within {LIMIT_SECONDS:g} s: it hangs"}
            os.kill(self.pid, signal.SIGKILL)
            end_processes(self.victim, besides=self.server.pid)
        self.server.stdout.readline()
        self.pid = 0
        if self.answer.exists():
            answer = answer or json.loads(self.answer.read_text())
        else:  # it was ended: then all must end by itself
            with contextlib.suppress(AssertionError):
                until(lambda: not self.processes(), GONE_SECONDS)
        left = [f"left running: {' '.join(process.cmdline())}" for process in self.processes()]
        output, changed = self.output(), self._settle()
        end_processes(self.victim, besides=self.server.pid)
        for folder in self.measurements():
            remove(folder)
        return Ran(changed, answer, output, left)

    def measured(self, script: Script, level: str | None) -> Ran:
        """Measures a script at a level of isolation; None for what costgpu does by itself."""
        self.start(script, level)
        return self.finish()

    def processes(self) -> list[psutil.Process]:
        """What runs of the victim's scripts and their measurement."""
        return processes_of(self.victim, besides=self.server.pid)

    def measurements(self) -> list[Path]:
        """The folders that costgpu has made."""
        return list((self.victim.cache / "measurements").iterdir())

    def output(self) -> str:
        """What the measured script has printed."""
        with contextlib.suppress(OSError, IndexError):
            return (self.measurements()[0] / "output.log").read_text(errors="replace")
        return ""


def _environment() -> dict[str, str]:
    """Ours, without places that are not below the home."""
    return {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}


def processes_of(victim: Victim, besides: int = 0) -> list[psutil.Process]:
    """What runs of the victim's scripts: by its environment, its folder or its command line."""
    found, base = [], os.fsencode(victim.base)
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) in (os.getpid(), besides):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            place = Path("/proc", name)
            about = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if base in about or base in os.readlink(os.fsencode(place / "cwd")):
                found.append(psutil.Process(int(name)))
    return found


def end_processes(victim: Victim, besides: int = 0) -> None:
    for _ in range(100):
        living = processes_of(victim, besides)
        for process in living:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not living:
            return
        psutil.wait_procs(living, timeout=0.2)
    raise AssertionError("processes of a script could not be ended")


class Ended(Exception):
    """A script that would never end has done enough."""


def _measure(asked: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in this process."""
    from costgpu.measure.isolation.levels import Isolation
    from costgpu.measure.session import Request, run_probe
    from tests.measure.harness import HERE

    isolation: dict[str, Any] = {"isolation": Isolation(asked["level"])} if asked["level"] is not None else {}
    request = Request(
        script=Path(asked["script"]),
        module=None,
        arguments=[],
        workdir=Path(asked["workdir"]),
        measure_for_seconds=5.0,
        start_limit_seconds=START_LIMIT_SECONDS,
        **isolation,
    )
    began = time.monotonic()

    def progress(seconds: float, stepping: bool) -> None:
        if asked["endless"] and any(BEGUN.encode() in log.read_bytes() for log in logs.glob("*/output.log")):
            if "begun" in seen:  # it has been at it for a tick, and goes on until it is ended
                raise Ended
            seen.add("begun")

    seen, logs = set[str](), Path(asked["cache"]) / "measurements"
    try:
        outcome = run_probe(request, HERE, Path(asked["cache"]), progress)
    except Ended:
        return {"isolation": asked["level"], "seconds": time.monotonic() - began}
    except BaseException as error:  # noqa: BLE001 - reported to the test
        return {"raised": f"{type(error).__name__}: {error}"}
    return {
        "returncode": outcome.returncode,
        "timed_out": outcome.timed_out,
        "status": outcome.record.get("status") if outcome.record else None,
        "isolation": str(outcome.isolation),
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    """Answers requests; each is measured in a fork."""
    import tests.measure.harness  # noqa: F401 - imported once, before the forks

    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stdin.close()
            os.environ.update(asked["environment"])
            tempfile.tempdir = asked["environment"]["TMPDIR"]  # found by trying, else, which is a change
            answer = _measure(asked)
            temporary = asked["answer"] + ".new"
            Path(temporary).write_text(json.dumps(answer))
            os.replace(temporary, asked["answer"])
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("done", flush=True)


if __name__ == "__main__":
    main()
