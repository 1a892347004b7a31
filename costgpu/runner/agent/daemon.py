"""The guard of the machine: starts the job when told to, ends it when it must, and the machine after it.

One thread looks once a second and answers one request at a time; hashing and uploading have their own. Everything that
matters is in files, so a daemon that was killed is followed by one that goes on where it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

from . import limits
from .job_environment import OUTPUTS_VARIABLE
from .observe import machine_stats
from .observe.idle import IdleWatch
from .observe.spot_notice import POLL_SECONDS, NoticeWatch
from .observe.watchdog import lifetime_left, watchdog_delay
from .outputs import upload_at_shutdown, workdir
from .outputs.finalize_outputs import settle
from .power import power_off
from .rpc import SOCKET, in_memory
from .state_files import Home, setting
from .status import LOGS, job_status
from .supervisor import read_secrets

_STUCK_SECONDS = 10.0  # a supervisor that has not finished so long after the grace is taken for dead


class Daemon:
    """One machine's guard."""

    def __init__(self, home: Home, program: str) -> None:
        self.home, self.program = home, program
        self.state: dict[str, Any] = home.read("state.json") or {}
        self.order: dict[str, Any] | None = home.read("order.json")
        self.tick = setting("TICK_SECONDS", 1.0)
        self.contact_seen: int | None = None
        self.contact_until = machine_stats.uptime()  # until when a client is known to be busy with this machine
        self.met = False
        self.idle: IdleWatch | None = None
        self.notice: NoticeWatch | None = None
        self.uploads: dict[str, str] = {}
        self.reserve_at = -1e9
        self.reserve = 0.0
        self.settling: threading.Thread | None = None
        self.stopping = False
        self.stopped = False  # by systemd
        self.saving = threading.Lock()

    # --- life ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the machine is off or a newer agent takes over."""
        with open(self.home.file("agent.lock"), "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # one is enough
            self._prepare()
            if self.home.remote:
                signal.signal(signal.SIGTERM, self._note_stop)
            listener = self._listen()
            while not self.stopping:
                if self.stopped:
                    upload_at_shutdown.leave(self)
                try:
                    ready, _, _ = select.select([listener], [], [], self.tick)
                    if ready:
                        self._answer(listener)
                    self._look()
                except Exception:
                    traceback.print_exc()
                    time.sleep(0.2)

    def _note_stop(self, *_: object) -> None:
        self.stopped = True

    def _prepare(self) -> None:
        os.chdir(self.home.path)  # the socket's name must be short
        os.makedirs(self.home.work, exist_ok=True)
        for name in ("claimed", *LOGS):
            os.close(os.open(self.home.file(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
        self.home.keep_ballast()
        self._protect()

    @staticmethod
    def _protect() -> None:
        """The job is to run out of memory before its guard does."""
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
                stream.write("-900")
        except OSError:
            pass

    @staticmethod
    def _listen() -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.lexists(SOCKET):
            os.unlink(SOCKET)
        before = os.umask(0o077)
        listener.bind(SOCKET)
        os.umask(before)
        listener.listen(16)
        return listener

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            connection.settimeout(10.0)
            request = json.loads(stream.readline().decode())
            try:
                reply = self._handle(request)
            except Exception as error:
                traceback.print_exc()
                reply = {"error": "%s: %s" % (type(error).__name__, error)}
            stream.write(json.dumps(reply).encode() + b"\n")

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        method = request["method"]
        if method == "ping":
            return {"pid": os.getpid(), "program": self.program}
        if method == "start":
            return self._start(request)
        if method == "cancel":
            self._cancel()
            return {}
        if method == "collected":
            self.save(collected_uptime=machine_stats.uptime(), collected_boot=machine_stats.boot_id())
            return {}
        if method == "stop":
            self.stopping = True
            return {}
        return {"error": "unknown method %r" % method}

    def save(self, **changes: Any) -> None:
        """Changes of the state, on disk before anything else is done."""
        with self.saving:
            self.state.update(changes)
            self.home.write("state.json", self.state)

    # --- the job -------------------------------------------------------------------------------------------------

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.order is not None:
            return {"already": True}
        order = dict(request["order"])
        secrets = in_memory({"secrets": request["secrets"], "uploads": request["uploads"]})
        hold, go = os.pipe()
        command = [sys.executable, "-I", self.program, "supervise", str(secrets), str(hold)]
        child = subprocess.Popen(command, pass_fds=(secrets, hold), start_new_session=True, stdin=subprocess.DEVNULL)
        os.close(hold)
        os.close(secrets)
        started = machine_stats.process(child.pid)
        remaining = order["deadline_epoch"] - time.time()
        order.update(
            supervisor={"pid": child.pid, "started": started.started if started else 0, "secrets": secrets},
            boot_id=machine_stats.boot_id(),
            deadline_uptime=machine_stats.uptime() + remaining,
            whole_seconds=min(remaining, lifetime_left(self.home)),
        )
        try:
            self.home.write("order.json", order)
            self.order = order
            self.uploads = dict(request["uploads"])
        finally:
            os.close(go)  # the supervisor goes on, and finds its order or nothing
        return {"already": False}

    def _cancel(self) -> None:
        if self.order is not None and not self.home.exists("exit.json"):
            detail = "It was cancelled."
            self._end(limits.Ending("cancelled", detail, min(self.order["grace_seconds"], max(0.0, self._remaining()))))

    def _end(self, ending: limits.Ending) -> None:
        """Asks the supervisor to end the job; the reason is recorded first, and never replaced."""
        if self.state.get("ending") or self.order is None:
            return
        self.save(ending={**ending._asdict(), "uptime": machine_stats.uptime()})
        self.signal_supervisor(signal.SIGTERM)

    def signal_supervisor(self, number: int) -> None:
        """If it lives."""
        assert self.order is not None
        supervisor = self.order["supervisor"]
        if machine_stats.is_alive(supervisor["pid"], supervisor["started"]):
            os.kill(supervisor["pid"], number)

    def _supervisor_lives(self) -> bool:
        assert self.order is not None
        supervisor = self.order["supervisor"]
        return self.order["boot_id"] == machine_stats.boot_id() and machine_stats.is_alive(
            supervisor["pid"], supervisor["started"]
        )

    def _bury(self, detail: str) -> None:
        """The supervisor is gone without a record: nothing of its job may go on, and somebody must say so."""
        assert self.order is not None
        pid = self.order["supervisor"]["pid"]
        mark = OUTPUTS_VARIABLE + "=" + self.home.work
        for _ in range(100):
            left = (
                machine_stats.marked(mark)
                + machine_stats.same_service()
                + [entry.pid for entry in machine_stats.descendants(pid)]
            )
            if self._supervisor_lives():
                left.append(pid)
            for each in left:
                try:
                    os.kill(each, signal.SIGKILL)
                except OSError:
                    pass
            if not left:
                break
            time.sleep(0.05)
        if not self.home.exists("exit.json"):
            record = {"exit_code": 137, "reason": "job_failed", "detail": detail, "finished_epoch": time.time()}
            self.home.write("exit.json", {**record, "signalled": bool(self.state.get("ending"))})

    # --- once a second -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._reap()
        self._notice_contact()
        if self.order is None:
            if self._since_contact() >= setting("UNCLAIMED_SECONDS", 900.0):
                self._power_off("unclaimed")
        elif not self.home.exists("exit.json"):
            self._guard_job()
        else:
            self._guard_end()

    @staticmethod
    def _reap() -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def _notice_contact(self) -> None:
        try:
            found = os.stat(self.home.file("contact")).st_mtime_ns
        except OSError:
            return
        if found == self.contact_seen:
            return
        first, self.contact_seen = self.contact_seen is None, found
        age = max(0.0, time.time() - found / 1e9) if first else 0.0  # an old contact, and a new daemon
        try:
            with open(self.home.file("contact"), encoding="ascii") as stream:
                hold = float(stream.read() or 0.0)
        except (OSError, ValueError):
            hold = 0.0
        self.contact_until = machine_stats.uptime() - age + hold

    def _since_contact(self) -> float:
        return machine_stats.uptime() - self.contact_until

    def _remaining(self) -> float:
        """Seconds until the machine must be off, by the strictest of its clocks."""
        assert self.order is not None
        left = [self.order["deadline_epoch"] - time.time(), lifetime_left(self.home)]
        if self.order["boot_id"] == machine_stats.boot_id():
            left.append(self.order["deadline_uptime"] - machine_stats.uptime())
        return float(min(left))

    def _guard_job(self) -> None:
        assert self.order is not None
        if not self._supervisor_lives():
            time.sleep(0.1)
            if not self.home.exists("exit.json"):
                rebooted = self.order["boot_id"] != machine_stats.boot_id()
                self._bury("The machine was restarted." if rebooted else "The job's supervisor was killed.")
            return
        ending = self.state.get("ending")
        if ending:
            if machine_stats.uptime() - ending["uptime"] > ending["grace_seconds"] + setting(
                "STUCK_SECONDS", _STUCK_SECONDS
            ):
                self._bury("The job's supervisor did not answer.")
            elif self._remaining() < 5.0:
                self._shorten(ending)
            return
        why = limits.why_end(self._facts())
        if why is not None:
            self._end(why)

    def _shorten(self, ending: dict[str, Any]) -> None:
        """The deadline comes before the grace is over."""
        if ending["grace_seconds"] > 0:
            self.save(ending={**ending, "grace_seconds": 0.0, "uptime": machine_stats.uptime()})
            self.signal_supervisor(signal.SIGTERM)

    def _facts(self) -> limits.Facts:
        assert self.order is not None
        order = self.order
        progress = self.home.read("progress.json") or {}
        began = progress.get("job_started_uptime")
        idle_limit = order["idle_seconds"]
        if self.idle is None and idle_limit is not None:
            self.idle = IdleWatch(order["supervisor"]["pid"], max(self.tick, min(10.0, idle_limit / 5)))
        if self.notice is None and order["spot"]:
            self.notice = NoticeWatch(order.get("spot_notice"), setting("NOTICE_SECONDS", POLL_SECONDS))
            self.notice.start()
        free, least = self._disk()
        remaining = self._remaining()
        return limits.Facts(
            remaining=remaining,
            reserve=self._reserve(remaining),
            grace=order["grace_seconds"],
            job_seconds=None if began is None else machine_stats.uptime() - began,
            max_duration=order["max_duration_seconds"],
            idle_seconds=self.idle.idle_seconds(sum(self.home.size(name) for name in LOGS)) if self.idle else 0.0,
            idle_limit=idle_limit,
            free_bytes=free,
            least_free_bytes=least,
            notice=self.notice.words if self.notice else "",
        )

    def _reserve(self, remaining: float) -> float:
        """Looks at the outputs now and then, if they must be uploaded before the deadline."""
        assert self.order is not None
        now = machine_stats.uptime()
        if now - self.reserve_at >= 60.0:
            size = None
            if self.secret_uploads() and remaining < 3600.0:
                size = sum(each.size for each in workdir.find_outputs(self.home, self.order["outputs"]).outputs)
            self.reserve = limits.reserve_seconds(self.order["grace_seconds"], self.order["whole_seconds"], size)
            self.reserve_at = now
        return self.reserve

    def _disk(self) -> tuple[int, int]:
        found = os.statvfs(self.home.path)
        least = limits.least_free(found.f_blocks * found.f_frsize)
        return found.f_bavail * found.f_frsize, int(setting("LEAST_FREE_BYTES", least))

    def secret_uploads(self) -> dict[str, str]:
        """Upload addresses: ours, or those that the supervisor keeps in memory since a daemon before us."""
        if not self.uploads and self.order is not None and self._supervisor_lives():
            supervisor = self.order["supervisor"]
            try:
                descriptor = os.open("/proc/%d/fd/%d" % (supervisor["pid"], supervisor["secrets"]), os.O_RDONLY)
                self.uploads = read_secrets(descriptor)["uploads"]
                os.close(descriptor)
            except (OSError, ValueError, KeyError):
                pass
        return self.uploads

    # --- after the job -------------------------------------------------------------------------------------------

    def _guard_end(self) -> None:
        assert self.order is not None
        if self.notice is not None:
            self.notice.stop()
        if self.settling is None:
            self.met = self._since_contact() < setting("CONTACT_SECONDS", 30.0)
            uploads = {} if self.state.get("uploaded") else self.secret_uploads()
            self.settling = threading.Thread(target=self._settle, args=(uploads,), daemon=True)
            self.settling.start()
        if self._since_contact() < setting("CONTACT_SECONDS", 30.0):
            self.met = True
        why = limits.why_power_off(
            limits.After(
                power_off=self.order["power_off"],
                reason=str(job_status(self.home)["reason"]),
                since_contact=self._since_contact(),
                met=self.met,
                since_uploaded=self._since("uploaded"),
                since_collected=self._since("collected"),
                remaining=self._remaining(),
                last_seconds=limits.last_seconds(
                    watchdog_delay(self.home, self.order["deadline_epoch"]), self.order["whole_seconds"]
                ),
                linger=setting("LINGER_SECONDS", 120.0),
                patience=setting("PATIENCE_SECONDS", 900.0),
            )
        )
        if why is not None:
            self._power_off(why)

    def _since(self, what: str) -> float | None:
        at = self.state.get(what + "_uptime")
        if at is None:
            return None
        return machine_stats.uptime() - float(at) if self.state.get(what + "_boot") == machine_stats.boot_id() else 0.0

    def _settle(self, uploads: dict[str, str]) -> None:
        """In its own thread."""
        assert self.order is not None
        self.save(**settle(self.home, self.order, uploads, lambda: self._remaining() < 5.0))

    def _power_off(self, reason: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the end of the machine need not wait for this
        power_off(self.home, reason)
        self.stopping = True
