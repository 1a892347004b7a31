"""A machine whose time is simulated: a guard, a supervisor that only notes its signals, and a clock to move on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costgpu.job.agent.guard import MachineGuard
from costgpu.job.agent.state_files import Home
from costgpu.job.agent.status import job_status
from costgpu.portable.clock import MachineClock


class SimulatedClock(MachineClock):
    """Moves only when it is told to, or slept on; begins now, as files have real times."""

    def __init__(self) -> None:
        self.epoch, self.elapsed, self.boot = time.time(), 0.0, "boot-1"

    def time(self) -> float:
        return self.epoch + self.elapsed

    def uptime(self) -> float:
        return 1000.0 + self.elapsed

    def boot_id(self) -> str:
        return self.boot

    def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


class FakeSupervisor:
    """A supervisor whose job ends when it is told to, if it `obeys`."""

    pid = 1  # never signalled

    def __init__(self, home: Home) -> None:
        self.home, self.obeys, self.alive, self.kills = home, True, True, 0
        self.signals: list[int] = []

    def is_alive(self) -> bool:
        return self.alive

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if self.obeys:
            self.finish(signalled=True)

    def finish(self, exit_code: int = 0, signalled: bool = False) -> None:
        record = {"exit_code": exit_code, "reason": None, "detail": "", "finished_epoch": time.time()}
        self.home.write("exit.json", {**record, "signalled": signalled})
        self.alive = False

    def read_upload_urls(self) -> dict[str, str]:
        return {}

    def kill_job(self, home: Home) -> None:
        self.alive = False
        self.kills += 1


class SimulatedMachine:
    """One home folder with its guard."""

    def __init__(self, folder: Path) -> None:
        (folder / "work").mkdir(parents=True)
        self.home, self.clock = Home(str(folder)), SimulatedClock()
        self.supervisor = FakeSupervisor(self.home)
        self.restart_daemon()

    def restart_daemon(self) -> None:
        supervisor: Any = self.supervisor
        self.guard = MachineGuard(self.home, self.clock, supervisor_of=lambda _: supervisor)

    def start(self, uploads: dict[str, str] | None = None, running: bool = True, **changes: Any) -> None:
        """Accepts an order with an hour to go; the job is already `running`, or still in its set-up."""
        order: dict[str, Any] = {
            "outputs": [],
            "deadline_epoch": self.clock.time() + 3600,
            "max_duration_seconds": None,
            "idle_seconds": None,
            "grace_seconds": 30.0,
            "spot": False,
            "spot_notice": "",
            "power_off": True,
        }
        self.guard.accept_order(order | changes, {"pid": 1, "started": 1, "secrets": 3}, uploads or {})
        self.home.write("progress.json", {"phase": "setup"})  # as a supervisor does first of all
        if running:
            self.begin_job()

    def begin_job(self) -> None:
        self.home.write("progress.json", {"phase": "running", "job_started_uptime": self.clock.uptime()})

    def advance(self, seconds: float, step: float = 1.0, during: Callable[[], None] = lambda: None) -> str | None:
        """Checks once a second for so long; ends early with the reason when the machine must be powered off."""
        end = self.clock.elapsed + seconds
        while self.clock.elapsed < end:
            self.clock.elapsed = min(end, self.clock.elapsed + step)
            during()
            reason = self.guard.check()
            if self.guard.finalizing is not None:
                self.guard.finalizing.join(60)
            if reason is not None:
                return reason
        return None

    def reason(self) -> str | None:
        """Why the job has ended."""
        found: str | None = job_status(self.home)["reason"]
        return found
