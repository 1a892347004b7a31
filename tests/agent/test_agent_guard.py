"""What ends a job early, and what ends its machine, in real processes; `tests/unit/agent/test_guard.py` has the rest."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.job.agent.observe import machine_stats
from costgpu.job.agent.observe.idle import is_active, read_counters
from costgpu.models.job import EndReason, JobPhase
from tests.agent.harness import LISTENS, Machine
from tests.until import until


def test_a_job_that_does_nothing_is_ended(machine: Machine) -> None:
    machine.run(LISTENS, idle_seconds=1.0)
    status = machine.follow()
    assert status.reason is EndReason.IDLE
    assert "nothing happened" in status.detail


def test_a_working_process_is_not_idle() -> None:
    before = read_counters(os.getpid(), 0, 0.0)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until(lambda: is_active(before, read_counters(os.getpid(), 0, 1.0)))
    finally:
        child.kill()
        child.wait()


def test_the_busiest_gpu_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ncase $1 in --query-gpu=utilization.gpu) echo 0; echo 97;; esac\n")
    tool.chmod(0o755)
    assert machine_stats.gpu_percent() == 0.0
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_stats.gpu_percent() == 97.0


def test_with_no_job_and_no_client_the_machine_goes(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(unclaimed_seconds=0.5)
    machine.host.install()
    assert until(machine.off) == "agent unclaimed\n"
    assert machine.ended_by() == "agent unclaimed"
    until(lambda: not machine.ours())  # and nothing starts it again


def test_before_and_while_the_setup_runs_the_phase_says_so(machine: Machine) -> None:
    waits = "import os, time\nwhile not os.path.exists('on'):\n    time.sleep(0.05)\n"
    machine.run(waits, setup="touch up; while [ ! -e ready ]; do sleep 0.05; done")
    until((machine.home / "work/up").exists)
    assert machine.host.status().phase is JobPhase.SETUP
    (machine.home / "work/ready").touch()
    until(lambda: machine.host.status().phase is JobPhase.RUNNING)
    (machine.home / "work/on").touch()
    assert machine.follow().phase is JobPhase.FINISHED
