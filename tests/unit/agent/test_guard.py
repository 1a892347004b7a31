"""What ends a job early, and what ends its machine: the daemon's guard in simulated time."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from costgpu.job.agent import guard as guard_module
from costgpu.job.agent.observe import idle, machine_stats
from costgpu.job.agent.observe.idle import Counters, IdleWatch
from costgpu.job.agent.outputs import upload
from costgpu.job.agent.power import power_off
from costgpu.job.agent.state_files import Home
from tests.unit.agent.simulation import SimulatedClock, SimulatedMachine

URLS = {"outputs": "https://b/outputs", "logs": "https://b/logs"}


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "home")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a job has used up, to be changed by a test; nothing by default."""
    used = SimpleNamespace(cpu=0.0, gpu_percent=0.0)
    monkeypatch.setattr(idle, "read_counters", lambda _, logs, at: Counters(at, used.cpu, 0, 0, logs))
    monkeypatch.setattr(machine_stats, "gpu_percent", lambda: used.gpu_percent)
    return used


# --- the job -----------------------------------------------------------------------------------------------------------


def test_the_maximum_duration_counts_from_the_job_not_from_its_setup(machine: SimulatedMachine) -> None:
    machine.start(running=False, max_duration_seconds=60.0)
    machine.advance(300)
    assert machine.supervisor.signals == []
    machine.begin_job()
    machine.advance(59)
    assert machine.reason() is None
    machine.advance(1)
    assert machine.supervisor.signals == [signal.SIGTERM]
    assert machine.reason() == "max_duration"
    assert machine.guard.state["ending"]["grace_seconds"] == 30.0


@pytest.mark.parametrize("later", [False, True])
def test_a_job_that_takes_its_progress_away_has_its_limit_all_the_same(machine: SimulatedMachine, later: bool) -> None:
    machine.start(max_duration_seconds=60.0)
    machine.advance(10 if later else 0)
    (Path(machine.home.path) / "progress.json").unlink()
    machine.advance(59 - machine.clock.elapsed)
    assert machine.reason() is None
    machine.advance(1)
    assert machine.reason() == "max_duration"


def test_before_the_deadline_the_job_saves_and_at_it_the_machine_goes(machine: SimulatedMachine) -> None:
    machine.start(power_off=False)
    machine.advance(3600 - 91)
    assert machine.reason() is None
    machine.advance(1)
    assert machine.reason() == "deadline"  # grace and a minute for the outputs
    assert machine.advance(100) == "deadline"
    assert machine.clock.elapsed == 3600 - 10


def test_the_watchdogs_count_of_the_lifetime_counts_too(machine: SimulatedMachine) -> None:
    """The wall clock may be a day behind: then the deadline seems far away."""
    home, deadline = Path(machine.home.path), machine.clock.time() + 86400
    (home / "limits").write_text(f"{deadline:.0f} 100 900\n")
    (home / "life").write_text("0 boot-1 1000\n")
    machine.start(deadline_epoch=deadline)
    machine.advance(79)
    assert machine.reason() is None
    machine.advance(1)  # 20 s are left, and as many are for the outputs
    assert machine.reason() == "deadline"
    assert machine.advance(20) == "deadline"


def test_where_the_provider_acts_at_the_deadline_the_agent_waits_beyond_it(machine: SimulatedMachine) -> None:
    deadline = machine.clock.time() + 3600
    Path(machine.home.file("limits")).write_text(f"{deadline + 60:.0f} 7200 900\n")
    machine.start(deadline_epoch=deadline)
    assert machine.advance(3640) is None
    assert machine.reason() == "deadline"
    assert machine.advance(10) == "deadline"  # shortly before the watchdog


def test_a_job_that_does_nothing_is_ended(machine: SimulatedMachine, counters: SimpleNamespace) -> None:
    machine.start(idle_seconds=300.0)
    machine.advance(299)
    assert machine.reason() is None
    machine.advance(20)
    assert machine.reason() == "idle"
    assert "nothing happened" in machine.guard.state["ending"]["detail"]


def test_work_output_or_a_busy_gpu_is_not_idle(machine: SimulatedMachine, counters: SimpleNamespace) -> None:
    def work() -> None:
        counters.cpu += 0.1

    def write() -> None:
        with Path(machine.home.file("stdout.log")).open("a") as log:
            log.write("x")

    machine.start(idle_seconds=60.0)
    machine.advance(200, during=work)
    machine.advance(200, during=write)
    counters.gpu_percent = 97.0
    machine.advance(200)
    assert machine.reason() is None
    counters.gpu_percent = 0.0
    machine.advance(80)
    assert machine.reason() == "idle"


def test_waiting_for_another_machine_is_not_idle(machine: SimulatedMachine, counters: SimpleNamespace) -> None:
    progress = Path(machine.home.file("progress.json"))
    machine.start(idle_seconds=60.0)
    progress.write_text('{"phase": "meeting"}')
    machine.advance(200)
    progress.write_text('{"phase": "setup"}')
    machine.advance(50)
    assert machine.reason() is None
    machine.advance(20)
    assert machine.reason() == "idle"


def test_the_idle_watch_measures_at_its_interval_only(counters: SimpleNamespace) -> None:
    clock = SimulatedClock()
    watch = IdleWatch(1, 10.0, clock)
    clock.sleep(9)
    counters.cpu = 5.0
    assert watch.idle_seconds(0) == 9.0
    clock.sleep(1)
    assert watch.idle_seconds(0) == 0.0


def test_a_nearly_full_disk_ends_the_job(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.start()
    machine.advance(2)
    assert machine.reason() is None
    monkeypatch.setenv("COSTGPU_AGENT_LEAST_FREE_BYTES", "1e18")
    machine.advance(1)
    assert machine.reason() == "disk_full"
    assert "MiB" in machine.guard.state["ending"]["detail"]


def test_the_providers_notice_ends_a_spot_job(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    notice = SimpleNamespace(words="", start=lambda: None, stop=lambda: None)
    monkeypatch.setattr(guard_module, "NoticeWatch", lambda *_: notice)
    machine.start(spot=True, grace_seconds=600.0)
    machine.advance(10)
    assert machine.reason() is None
    notice.words = "terminate"
    machine.advance(1)
    assert machine.reason() == "preempted"
    assert machine.guard.state["ending"]["grace_seconds"] == 60.0


def test_without_spot_nobody_asks(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "NoticeWatch", lambda *_: pytest.fail("asked"))
    machine.start(spot=False)
    machine.advance(10)
    assert machine.reason() is None


def test_the_deadline_cuts_a_grace_short(machine: SimulatedMachine) -> None:
    machine.start(max_duration_seconds=60.0, grace_seconds=600.0)
    machine.supervisor.obeys = False
    machine.advance(61)
    machine.clock.epoch += 3600 - 66  # the wall clock was behind, and is set
    machine.advance(1)
    assert machine.supervisor.signals == [signal.SIGTERM, signal.SIGTERM]
    assert machine.guard.state["ending"]["grace_seconds"] == 0.0


def test_a_supervisor_that_does_not_answer_is_killed_with_its_job(machine: SimulatedMachine) -> None:
    machine.start()
    machine.supervisor.obeys = False
    machine.guard.cancel()
    machine.advance(30 + 10)
    assert machine.supervisor.kills == 0
    machine.advance(1)
    assert machine.supervisor.kills == 1
    assert machine.reason() == "cancelled"
    assert (machine.home.read("exit.json") or {})["exit_code"] == 137


@pytest.mark.parametrize(("boot", "detail"), [("boot-1", "supervisor was killed"), ("boot-2", "was restarted")])
def test_a_job_without_its_supervisor_is_lost(machine: SimulatedMachine, boot: str, detail: str) -> None:
    machine.start()
    machine.supervisor.alive = False
    machine.clock.boot = boot
    machine.advance(1)
    assert machine.supervisor.kills == 1
    record = machine.home.read("exit.json") or {}
    assert (record["exit_code"], record["reason"]) == (137, "job_failed")
    assert detail in record["detail"]


def test_no_limit_after_the_end_changes_the_reason(machine: SimulatedMachine, counters: SimpleNamespace) -> None:
    machine.start(max_duration_seconds=8.0, idle_seconds=8.0)
    machine.supervisor.finish()
    machine.advance(60)
    machine.guard.cancel()
    assert machine.reason() == "succeeded"
    assert "ending" not in machine.guard.state


# --- the machine -------------------------------------------------------------------------------------------------------


def test_with_no_job_and_no_client_the_machine_goes(machine: SimulatedMachine) -> None:
    machine.home.record_contact()
    assert machine.advance(3000, step=10.0, during=machine.home.record_contact) is None
    assert machine.advance(899) is None
    assert machine.advance(1) == "unclaimed"


def test_a_client_that_said_that_it_would_be_busy_is_waited_for(machine: SimulatedMachine) -> None:
    machine.home.record_contact(hold_seconds=600.0)
    assert machine.advance(1499) is None
    assert machine.advance(10) == "unclaimed"


def test_without_a_bucket_the_outputs_wait_for_a_client(machine: SimulatedMachine) -> None:
    machine.start()
    machine.supervisor.finish()
    assert machine.advance(3500, step=10.0) is None
    assert machine.advance(100) == "deadline"


def test_once_all_is_collected_a_client_that_dies_does_not_keep_the_machine(machine: SimulatedMachine) -> None:
    machine.start()
    machine.home.record_contact()
    machine.supervisor.finish()
    machine.advance(1)
    machine.guard.record_collected()
    assert machine.advance(118) is None  # the client ends it, if it lives
    assert machine.advance(5) == "succeeded"


def test_a_client_that_looks_on_but_never_ends_the_machine_does_not_keep_it(machine: SimulatedMachine) -> None:
    machine.start()
    machine.supervisor.finish()
    machine.guard.record_collected()
    assert machine.advance(890, step=10.0, during=machine.home.record_contact) is None
    assert machine.advance(20, during=machine.home.record_contact) == "succeeded"


def test_a_daemon_that_restarts_after_the_end_still_powers_off(machine: SimulatedMachine) -> None:
    machine.start()
    machine.supervisor.finish(exit_code=3)
    machine.guard.record_collected()
    machine.advance(0)
    machine.restart_daemon()
    assert machine.advance(200) == "job_failed"


@pytest.mark.parametrize(("code", "after"), [(0, 120), (3, 900)])
def test_nobody_waits_for_outputs_that_are_not_wanted_and_what_a_failed_job_said_is_kept_for_a_while(
    machine: SimulatedMachine, code: int, after: float
) -> None:
    machine.start(keep_outputs=False)
    machine.supervisor.finish(exit_code=code)
    assert machine.advance(after - 10) is None
    assert machine.advance(20) == ("job_failed" if code else "succeeded")


def test_no_auto_shutdown_leaves_the_machine_alone(machine: SimulatedMachine) -> None:
    machine.start(power_off=False)
    machine.supervisor.finish()
    machine.guard.record_collected()
    assert machine.advance(3500, step=10.0) is None


def test_uploaded_outputs_end_the_machine_at_once_if_no_client_is_there(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(upload, "upload_archive", lambda url, *_: sent.append(url))
    machine.start(uploads=URLS)
    machine.advance(60)
    machine.supervisor.finish()
    assert machine.advance(2) == "succeeded"
    assert sent == [*URLS.values()]


def test_a_failed_upload_leaves_the_outputs_here_until_the_deadline(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise upload.UploadFailed("HTTP 403 AccessDenied")

    monkeypatch.setattr(upload, "upload_archive", refuse)
    machine.start(uploads=URLS)
    machine.supervisor.finish()
    assert machine.advance(3500, step=10.0) is None
    assert "HTTP 403" in machine.guard.state["trouble"]
    assert machine.advance(100) == "deadline"


def test_a_power_off_that_fails_is_tried_again(tmp_path: Path) -> None:
    command = tmp_path / "poweroff"
    command.write_text(
        '#!/bin/sh\nh=${0%/*}\n[ -e "$h/tried" ] || { touch "$h/tried"; exit 1; }\necho "$1" >"$h/off"\n'
    )
    command.chmod(0o755)
    clock = SimulatedClock()
    power_off(Home(str(tmp_path)), "unclaimed", clock)
    assert (tmp_path / "off").read_text() == (tmp_path / "ended_by").read_text() == "agent unclaimed\n"
    assert clock.elapsed == 5.0
    assert "costgpu: agent unclaimed: powering off" in (tmp_path / "console.log").read_text()


def test_a_full_disk_does_not_lose_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that writes on takes every byte that becomes free: a record is written where its room is already."""
    home = Home(str(tmp_path))
    home.reserve_disk()
    assert home.size("ballast") == home.size("ballast-of-the-end") == 4 << 20
    real = Home._replace

    def replace(self: Home, name: str, data: bytes, ballast: str = "") -> None:
        if not ballast:
            raise OSError(28, "No space left on device")
        real(self, name, data, ballast)

    monkeypatch.setattr(Home, "_replace", replace)
    home.write("state.json", {"ending": {}})
    with pytest.raises(OSError, match="No space"):
        home.write("state.json", {"ending": {"grace_seconds": 0.0}})
    home.write("exit.json", {"exit_code": 3})
    assert (home.read("exit.json"), home.read("state.json")) == ({"exit_code": 3}, {"ending": {}})
    assert not any(map(home.exists, ("ballast", "ballast-of-the-end")))
