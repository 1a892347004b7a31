"""The guard: once a second it decides whether the job must end, and after it the machine."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ...portable.clock import MachineClock
from . import limits
from .observe.idle import IdleWatch
from .observe.spot_notice import POLL_SECONDS, NoticeWatch
from .outputs.checkpoint_upload import ARCHIVE, CheckpointUploads, upload_last_checkpoint
from .outputs.find_outputs import find_outputs
from .outputs.upload import finalize_outputs
from .power import lifetime_left, watchdog_delay
from .state_files import Home, setting
from .status import LOGS, job_end, job_status
from .supervisor_process import SupervisorProcess

_STUCK_SECONDS = 10.0  # a supervisor that has not finished so long after the grace is taken for dead
_RESERVE_SECONDS = 60.0  # how often the outputs are measured for the time that their upload needs
_LAST_SECONDS = 5.0  # so close to the deadline nothing is waited for any more


class MachineGuard:
    """Watches one machine and its job.

    Attributes:
        order: What runs here; None before the start.
        state: What the daemon has to remember; always on disk before anything else is done.
        finalizing: The thread that prepares and uploads the outputs; None before the job's end.
    """

    def __init__(
        self,
        home: Home,
        clock: MachineClock,
        tick: float = 1.0,
        supervisor_of: Callable[[Mapping[str, Any]], SupervisorProcess] = SupervisorProcess,
    ) -> None:
        self.home, self.clock, self.tick = home, clock, tick
        self._supervisor_of = supervisor_of
        self.state: dict[str, Any] = home.read("state.json") or {}
        self.order: dict[str, Any] | None = home.read("order.json")
        self.finalizing: threading.Thread | None = None
        self._saving = threading.Lock()
        self._uploads: dict[str, str] = {}
        self._contact_seen: int | None = None
        self._contact_until = clock.uptime()  # until when a client is known to be busy with this machine
        self._client_seen = False
        self._idle: IdleWatch | None = None
        self._notice: NoticeWatch | None = None
        self._checkpoints: CheckpointUploads | None = None
        self._began: float | None = None
        self._reserve_at = float("-inf")
        self._reserve = 0.0

    @property
    def supervisor(self) -> SupervisorProcess:
        """Return the supervisor of the order that runs here."""
        assert self.order is not None
        return self._supervisor_of(self.order)

    def save(self, **changes: Any) -> None:
        """Write changes of the state to disk; where that is impossible, they hold as long as this process lives."""
        with self._saving:
            self.state.update(changes)
            try:
                self.home.write("state.json", self.state)
            except OSError:
                traceback.print_exc()

    # --- requests ------------------------------------------------------------------------------------------------

    def accept_order(self, order: Mapping[str, Any], supervisor: Mapping[str, Any], uploads: Mapping[str, str]) -> None:
        """Record the order, with the supervisor that will run it and the limits as this machine counts them."""
        remaining = order["deadline_epoch"] - self.clock.time()
        accepted = {
            **order,
            "supervisor": supervisor,
            "boot_id": self.clock.boot_id(),
            "accepted_uptime": self.clock.uptime(),
            "deadline_uptime": self.clock.uptime() + remaining,
            "whole_seconds": min(remaining, lifetime_left(self.home, self.clock)),
            "uploads_checkpoints": ARCHIVE in uploads,
        }
        self.home.write("order.json", accepted)
        self.order = accepted
        self._uploads = dict(uploads)

    def cancel(self) -> None:
        """End the job as its user wishes; do nothing if it is over."""
        if self.order is not None and job_end(self.home) is None:
            grace = min(self.order["grace_seconds"], max(0.0, self.remaining_seconds()))
            self._terminate_job(limits.Termination("cancelled", "It was cancelled.", grace))

    def record_collected(self) -> None:
        """Record that a client has fetched and verified outputs and logs."""
        self.save(collected_uptime=self.clock.uptime(), collected_boot=self.clock.boot_id())

    def upload_urls(self) -> dict[str, str]:
        """Presigned addresses: the daemon's own, or those that the supervisor has kept since an earlier daemon."""
        if not self._uploads and self.order is not None:
            self._uploads = self.supervisor.read_upload_urls()
        return self._uploads

    # --- once a second -------------------------------------------------------------------------------------------

    def check(self) -> str | None:
        """Look at everything once; the reason if the machine must be powered off now."""
        self._read_contact()
        if self.order is None:
            return "unclaimed" if self._since_contact() >= setting("UNCLAIMED_SECONDS", 900.0) else None
        if job_end(self.home) is None:
            self._check_job(self.order)
            return None
        return self._check_finished(self.order)

    def remaining_seconds(self) -> float:
        """Until the machine must be off, by the strictest of its clocks."""
        assert self.order is not None
        left = [self.order["deadline_epoch"] - self.clock.time(), lifetime_left(self.home, self.clock)]
        if self.order["boot_id"] == self.clock.boot_id():
            left.append(self.order["deadline_uptime"] - self.clock.uptime())
        return float(min(left))

    def _read_contact(self) -> None:
        try:
            found = os.stat(self.home.file("contact")).st_mtime_ns
        except OSError:
            return
        if found == self._contact_seen:
            return
        first, self._contact_seen = self._contact_seen is None, found
        age = max(0.0, self.clock.time() - found / 1e9) if first else 0.0  # an old contact, and a new daemon
        self._contact_until = self.clock.uptime() - age + self.home.contact_hold()

    def _since_contact(self) -> float:
        return self.clock.uptime() - self._contact_until

    def _check_job(self, order: dict[str, Any]) -> None:
        if not self.supervisor.is_alive():
            self.clock.sleep(0.1)  # its record may be on its way
            if job_end(self.home) is None:
                rebooted = order["boot_id"] != self.clock.boot_id()
                self._record_lost("The machine was restarted." if rebooted else "The job's supervisor was killed.")
            return
        ending = self.state.get("ending")
        if not ending:
            termination = limits.job_termination(self._job_conditions(order))
            if termination is not None:
                self._terminate_job(termination)
            return
        stuck = ending["grace_seconds"] + setting("STUCK_SECONDS", _STUCK_SECONDS)
        if self.clock.uptime() - ending["uptime"] > stuck:
            self._record_lost("The job's supervisor did not answer.")
        elif self.remaining_seconds() < _LAST_SECONDS and ending["grace_seconds"] > 0:
            self.save(ending={**ending, "grace_seconds": 0.0, "uptime": self.clock.uptime()})
            self.supervisor.signal(signal.SIGTERM)

    def _terminate_job(self, termination: limits.Termination) -> None:
        """Ask the supervisor to end the job; the reason is recorded first, and never replaced."""
        if not self.state.get("ending"):
            self.save(ending={**termination._asdict(), "uptime": self.clock.uptime()})
            self.supervisor.signal(signal.SIGTERM)

    def _record_lost(self, detail: str) -> None:
        """End the job of a supervisor that is gone without a record, and write the record here."""
        self.supervisor.kill_job(self.home)
        if job_end(self.home) is None:
            record = {"exit_code": 137, "reason": "job_failed", "detail": detail, "finished_epoch": self.clock.time()}
            self.home.write("exit.json", {**record, "signalled": bool(self.state.get("ending"))})

    def _job_conditions(self, order: dict[str, Any]) -> limits.JobConditions:
        began = self._job_began(order)
        idle_limit = order["idle_seconds"]
        if self._began is None and (self.home.read("progress.json") or {}).get("phase") == "meeting":
            self._idle = idle_limit = None  # it waits for another machine, and for no longer than a meeting may take
        if self._idle is None and idle_limit is not None:
            self._idle = IdleWatch(self.supervisor.pid, max(self.tick, min(10.0, idle_limit / 5)), self.clock)
        if self._checkpoints is None and began is not None and order.get("uploads_checkpoints"):
            self._checkpoints = CheckpointUploads(self.home, order, self.upload_urls(), self.clock)
            self._checkpoints.start()
        if self._notice is None and order["spot"]:
            self._notice = NoticeWatch(order["spot_notice"], setting("NOTICE_SECONDS", POLL_SECONDS))
            self._notice.start()
        free, min_free = self._disk()
        remaining = self.remaining_seconds()
        return limits.JobConditions(
            remaining=remaining,
            reserve=self._upload_reserve(order, remaining),
            grace=order["grace_seconds"],
            job_seconds=None if began is None else self.clock.uptime() - began,
            max_duration=order["max_duration_seconds"],
            idle_seconds=self._idle.idle_seconds(sum(self.home.size(name) for name in LOGS)) if self._idle else 0.0,
            idle_limit=idle_limit,
            free_bytes=free,
            min_free_bytes=min_free,
            notice=self._notice.words if self._notice else "",
        )

    def _job_began(self, order: dict[str, Any]) -> float | None:
        """Uptime at which the job itself began, None before. Once known it stays, should the job remove the file."""
        if self._began is None:
            progress = self.home.read("progress.json")
            if progress is None:
                return float(order["accepted_uptime"])  # it may only be on its way
            self._began = progress.get("job_started_uptime")
        return self._began

    def _disk(self) -> tuple[int | None, int]:
        """Free bytes, None if the job has removed the home; and how many must stay free."""
        try:
            disk = os.statvfs(self.home.path)
        except OSError:
            return None, 0
        least = setting("LEAST_FREE_BYTES", limits.min_free_bytes(disk.f_blocks * disk.f_frsize))
        return disk.f_bavail * disk.f_frsize, int(least)

    def _upload_reserve(self, order: dict[str, Any], remaining: float) -> float:
        """Seconds to keep free before the deadline; the outputs are measured now and then if they must be uploaded."""
        now = self.clock.uptime()
        if now - self._reserve_at >= _RESERVE_SECONDS:
            size = None
            if self.upload_urls() and remaining < 3600.0:
                size = sum(each.size for each in find_outputs(self.home, order["outputs"]).outputs)
            self._reserve = limits.reserve_seconds(order["grace_seconds"], order["whole_seconds"], size)
            self._reserve_at = now
        return self._reserve

    # --- after the job -------------------------------------------------------------------------------------------

    def _check_finished(self, order: dict[str, Any]) -> str | None:
        if self._notice is not None:
            self._notice.stop()
        if self._since_contact() < setting("CONTACT_SECONDS", 30.0):
            self._client_seen = True
        if not order.get("keep_outputs", True) and "collected_uptime" not in self.state and self._needs_nobody():
            self.record_collected()
        if self.finalizing is None:
            uploads = {} if self.state.get("uploaded") else self.upload_urls()
            late = lambda: self.remaining_seconds() < _LAST_SECONDS  # noqa: E731
            self.finalizing = threading.Thread(target=self.finalize, args=(order, uploads, late), daemon=True)
            self.finalizing.start()
        return limits.power_off_reason(
            limits.FinishedConditions(
                power_off=order["power_off"],
                reason=str(job_status(self.home)["reason"]),
                since_contact=self._since_contact(),
                client_seen=self._client_seen,
                since_uploaded=self._since("uploaded"),
                since_collected=self._since("collected"),
                remaining=self.remaining_seconds(),
                last_seconds=limits.last_seconds(
                    watchdog_delay(self.home, order["deadline_epoch"]), order["whole_seconds"]
                ),
                linger=setting("LINGER_SECONDS", 120.0),
                patience=setting("PATIENCE_SECONDS", 900.0),
            )
        )

    def _needs_nobody(self) -> bool:
        """Return whether a machine whose outputs are not wanted may end; what a failed job has said is kept for a while."""
        ended = job_end(self.home)
        patience = setting("PATIENCE_SECONDS", 900.0)
        return ended is not None and (ended.exit_code == 0 or self.clock.time() - ended.finished_epoch >= patience)

    def finalize(self, order: dict[str, Any], uploads: dict[str, str], give_up: Callable[[], bool]) -> None:
        """Upload what the finished job has left and compute checksums; what it goes on from comes first."""
        alone = self._checkpoints is None or self._checkpoints.stop()
        if ARCHIVE in uploads and job_status(self.home)["reason"] == "preempted":
            try:
                uploads = upload_last_checkpoint(self.home, order, uploads, give_up, self.clock, alone)
            except Exception:
                traceback.print_exc()
        self.save(**finalize_outputs(self.home, order, uploads, give_up, self.clock))

    def _since(self, event: str) -> float | None:
        at = self.state.get(event + "_uptime")
        if at is None:
            return None
        return self.clock.uptime() - float(at) if self.state.get(event + "_boot") == self.clock.boot_id() else 0.0
