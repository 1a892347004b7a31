"""Measures the scripts of tests/scripts with the interpreter that runs the tests, or that MEASURED_PYTHON names."""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from costgpu.measure.failures import explain
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.profile.profile_builder import build_profile
from costgpu.measure.session import Outcome, Request, run_probe
from costgpu.models.workload import WorkloadProfile
from tests.unit.measure.records import CREATED, MACHINE

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
HERE = Interpreter(os.environ.get("MEASURED_PYTHON", sys.executable), "3", "tests")


def request(
    script: str | Path,
    *arguments: str,
    workdir: Path,
    steps: int | None = 60,
    seconds: float = 600.0,
    limit: float = 300.0,
) -> Request:
    """A short measurement, by the number of steps: a busy machine sees the same, only later.

    Args:
        script: A path, a name in tests/scripts, or what is to be written into ``train.py``.
    """
    path = SCRIPTS / script if "\n" not in str(script) else workdir / "train.py"
    if "\n" in str(script):
        path.write_text(str(script))
    return Request(
        script=path,
        module=None,
        arguments=list(arguments),
        workdir=workdir,
        measure_for_seconds=seconds,
        start_limit_seconds=limit,
        steps=steps,
    )


@functools.cache
def has(package: str) -> bool:
    """Whether the interpreter that measures has this package."""
    words = [HERE.path, "-c", f"import importlib.util as i, sys; sys.exit(i.find_spec({package!r}) is None)"]
    return subprocess.run(words, check=False).returncode == 0


def running(words: str) -> list[int]:
    """Processes whose command line has these words, in whatever namespace they are."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if words in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def run(asked: Request, cache: Path, **way: Any) -> Outcome:
    """One measurement without the micro-benchmark."""
    return run_probe(asked, HERE, cache, lambda seconds, stepping: None, **way)


def profile_of(asked: Request, cache: Path, **way: Any) -> tuple[WorkloadProfile, Outcome]:
    """The profile of a script that can be measured."""
    outcome = run(asked, cache, **way)
    error = explain(outcome, asked, HERE)
    assert error is None, (error, outcome.log.read_text()[-3000:])
    assert outcome.record is not None
    assert not outcome.record.get("probe_errors"), outcome.record["probe_errors"]
    words = asked.arguments
    profile = build_profile(
        outcome.record,
        MACHINE,
        script=asked.name,
        arguments=words,
        created=CREATED,
        version="test",
        launch=asked.launch,
    )
    return profile, outcome
