"""What ends a job early, and what ends its machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from costgpu.models.job import EndReason, JobPhase
from costgpu.runner.agent.observe import machine_stats as table
from tests.agent.harness import Machine, until

LISTENS = """
import signal, sys, time
def save(*_):
    open('checkpoint', 'w').write('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open('up', 'w').close()
time.sleep(300)
"""


def test_the_longest_duration_counts_from_the_job_not_from_its_setup(machine: Machine) -> None:
    machine.run(LISTENS, setup="sleep 8.5", max_duration_seconds=8.0, grace_seconds=30.0)
    status = machine.follow()
    assert (status.reason, status.exit_code) == (EndReason.MAX_DURATION, 0)
    assert (machine.home / "work/checkpoint").exists()


def test_before_the_deadline_the_job_saves_and_at_it_the_machine_goes(machine: Machine) -> None:
    deadline = time.time() + 60
    machine.run(LISTENS, deadline_epoch=deadline, power_off=False)
    status = machine.follow()
    assert status.reason is EndReason.DEADLINE
    assert status.finished_epoch is not None
    assert status.finished_epoch < deadline - 0.5  # time was left for the outputs
    assert until(machine.ended_by) == "agent deadline"
    assert (machine.home / "ended_by").stat().st_mtime < deadline + 0.5


def test_the_watchdogs_count_of_the_lifetime_counts_too(machine: Machine) -> None:
    """The wall clock may be a day behind: then the deadline seems far away."""
    machine.host.install()
    up = int(table.uptime())
    (machine.home / "limits").write_text("9999999999 100 900\n")
    (machine.home / "life").write_text(f"0 {table.boot_id()} {up}\n")
    machine.run(LISTENS, grace_seconds=30.0)
    until((machine.home / "work/up").exists)
    assert machine.host.status().reason is None
    (machine.home / "new").write_text(f"82 {table.boot_id()} {int(table.uptime())}\n")
    (machine.home / "new").replace(machine.home / "life")  # 18 s are left, and 20 are for the outputs
    assert machine.follow().reason is EndReason.DEADLINE
    assert (machine.home / "work/checkpoint").exists()
    assert until(machine.ended_by, 12 + 15) == "agent deadline"


def test_a_job_that_does_nothing_is_ended(machine: Machine) -> None:
    machine.run(LISTENS, idle_seconds=1.0)
    status = machine.follow()
    assert status.reason is EndReason.IDLE
    assert "nothing happened" in status.detail


@pytest.mark.parametrize("work", ["print(n, flush=True); time.sleep(0.05)", "sum(range(300000))"])
def test_output_or_work_is_not_idle(machine: Machine, work: str) -> None:
    machine.run(
        f"import time\nend = time.time() + 10\nn = 0\nwhile time.time() < end:\n    n += 1; {work}", idle_seconds=8.0
    )
    assert machine.follow().reason is EndReason.SUCCEEDED


def test_a_busy_gpu_is_not_idle(new_machine: Callable[..., Machine], tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "nvidia-smi").write_text("#!/bin/sh\ncase $1 in --query-gpu=utilization.gpu) echo 0; echo 97;; esac\n")
    (shims / "nvidia-smi").chmod(0o755)
    machine = new_machine()
    machine.transport.environment["PATH"] = f"{shims}:{os.environ['PATH']}"
    machine.run("import time; time.sleep(5)", idle_seconds=2.0)
    assert machine.follow().reason is EndReason.SUCCEEDED


def test_a_nearly_full_disk_ends_the_job(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(least_free_bytes=1e18)
    machine.run(LISTENS)
    status = machine.follow()
    assert status.reason is EndReason.DISK_FULL
    assert "MiB" in status.detail


def test_no_limit_after_the_end_changes_the_reason(machine: Machine) -> None:
    machine.run("pass", max_duration_seconds=8.0, idle_seconds=8.0)
    assert machine.follow().reason is EndReason.SUCCEEDED
    time.sleep(8.5)
    assert machine.host.status().reason is EndReason.SUCCEEDED


def test_with_no_job_and_no_client_the_machine_goes(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(unclaimed_seconds=12.0)
    machine.host.install()
    for _ in range(13):
        time.sleep(1.0)
        machine.host.status()  # a client is there
    assert machine.ended_by() == ""
    assert until(machine.ended_by, 12 + 15) == "agent unclaimed"
    assert until(machine.off) == "agent unclaimed\n"
    assert "costgpu: agent unclaimed: powering off" in (machine.home / "console.log").read_text()
    until(lambda: not machine.ours())  # and nothing starts it again


def test_without_a_bucket_the_outputs_wait_for_a_client(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(contact_seconds=0.1, linger_seconds=0.2, patience_seconds=0.5)
    machine.run("open('model', 'w').write('weights')")
    machine.follow()
    time.sleep(1.5)
    assert machine.ended_by() == ""
    assert [entry.path for entry in machine.host.outputs().files] == ["model"]


def test_once_all_is_collected_a_client_that_dies_does_not_keep_the_machine(
    new_machine: Callable[..., Machine],
) -> None:
    machine = new_machine(contact_seconds=0.5, linger_seconds=4.0)
    machine.run("open('model', 'w').write('weights')")
    machine.follow()
    collected = time.time()
    machine.host.collected()
    assert until(machine.ended_by) == "agent succeeded"
    assert (machine.home / "ended_by").stat().st_mtime - collected >= 3.9  # the client ends it, if it lives


def test_no_auto_shutdown_leaves_the_machine_alone(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(contact_seconds=0.1, linger_seconds=0.2)
    machine.run("pass", power_off=False)
    machine.follow()
    machine.host.collected()
    time.sleep(1.0)
    assert machine.ended_by() == ""


def test_a_daemon_killed_after_the_end_still_powers_off(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(contact_seconds=0.5, linger_seconds=60.0)
    machine.run("pass")
    machine.follow()
    machine.host.collected()
    os.kill(machine.daemon(), signal.SIGKILL)
    assert until(machine.ended_by) == "agent succeeded"


def test_a_power_off_that_fails_is_tried_again(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(unclaimed_seconds=10.0)
    (machine.home / "poweroff").write_text(
        '#!/bin/sh\nh=${0%/*}\n[ -e "$h/tried" ] || { touch "$h/tried"; exit 1; }\necho "$1" >"$h/off"\n'
    )
    machine.host.install()
    until(machine.off, 10 + 15)


def test_a_full_disk_does_not_lose_the_exit_code(machine: Machine, tmp_path: Path) -> None:
    """The records are written even if the job has used up the last byte: an allowance is kept for them."""
    machine.host.install()
    assert until(lambda: (machine.home / "ballast").stat().st_size) == 4 << 20
    from costgpu.runner.agent.state_files import Home

    home = Home(str(machine.home))
    refusals = iter([OSError(28, "No space left on device")])
    real = home._replace

    def replace(name: str, data: bytes) -> None:
        if (machine.home / "ballast").exists():
            raise next(refusals)
        real(name, data)

    home._replace = replace  # type: ignore[method-assign]
    home.write("exit.json", {"exit_code": 3})
    assert home.read("exit.json") == {"exit_code": 3}


def test_before_and_while_the_setup_runs_the_phase_says_so(machine: Machine) -> None:
    waits = "import os, time\nwhile not os.path.exists('on'):\n    time.sleep(0.05)\n"
    machine.run(waits, setup="touch up; while [ ! -e ready ]; do sleep 0.05; done")
    until((machine.home / "work/up").exists)
    assert machine.host.status().phase is JobPhase.SETUP
    (machine.home / "work/ready").touch()
    until(lambda: machine.host.status().phase is JobPhase.RUNNING)
    (machine.home / "work/on").touch()
    assert machine.follow().phase is JobPhase.FINISHED
