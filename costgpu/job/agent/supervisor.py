"""The parent of the job: prepares, starts and ends it, kills what it leaves behind, and records how it ended.

A process of its own, so that the daemon may die and come back. It adopts whatever the job leaves behind (subreaper), so
that nothing the job started outlives it. All signals that matter are blocked and waited for: nothing is polled.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...portable.clock import boot_id, uptime
from ...portable.processes import arguments_of, descendants
from ...portable.supervise import adopt_orphans, prefer_for_oom, reap
from . import job_environment, launchers, meeting
from .end_words import exit_words, leftover_words
from .observe.machine_stats import gpu_count
from .state_files import Home
from .status import LOGS

KILL_SECONDS = 10.0  # what is then still there cannot be killed
LEFTOVER_SECONDS = 1.0  # for what the job leaves behind when it ends by itself
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


class JobNotRun(Exception):
    """The job is over before it began: set-up failed, was ended, or the machine is unusable."""

    def __init__(self, exit_code: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.exit_code, self.reason, self.detail = exit_code, reason, detail


class Supervisor:
    """Runs one order to its end."""

    def __init__(self, home: Home, order: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        self.home, self.order, self.secrets = home, order, secrets
        self.hard_at: float | None = None  # when SIGKILL comes; None as long as nobody asked for the end
        self.soft_at = 0.0  # when everything, and not only the main process, gets SIGTERM
        self.main: int | None = None
        self.command: Sequence[str] = ()  # the job's own
        self.by_signal = False  # whether a signal has ended the last command
        self.progress: dict[str, Any] = {"boot_id": boot_id(), "started_epoch": time.time(), "phase": "setup"}
        self.environment = job_environment.base_environment(home)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.stdout, self.stderr = [os.open(home.file(name), flags, 0o644) for name in LOGS]

    def run(self) -> None:
        """Everything, and the record of its end."""
        reason: str | None = None
        detail = ""
        try:
            self._note_progress()
            code = self._prepare_and_run()
            if self.hard_at is not None and not (self.home.read("state.json") or {}).get("ending"):
                reason, detail = "job_failed", "It was ended from outside: the machine was shut down or restarted."
            else:
                detail = exit_words(code, self.command, by_signal=self.by_signal)
        except JobNotRun as ended:
            code, reason, detail = ended.exit_code, ended.reason, ended.detail
        except Exception as error:
            code, reason, detail = (
                125,
                "machine_unusable",
                "The job could not be run: %s: %s" % (type(error).__name__, error),
            )
        names = self._leftover_commands(code)
        left_behind = any(descendants(os.getpid()))
        left = self._kill_leftovers()
        if names:
            detail = (detail + " " + leftover_words(names, self.secrets.values())).strip()
        if left:
            detail = (detail + " %d of its processes cannot be ended." % left).strip()
        record = {"exit_code": code, "reason": reason, "detail": detail, "finished_epoch": time.time()}
        record.update(signalled=self.hard_at is not None, left_behind=left_behind)
        self.home.write("exit.json", record)

    def _prepare_and_run(self) -> int:
        def step(argv: Sequence[str], more: Mapping[str, str]) -> int:
            return self._execute(argv, {**self.environment, **more}, self.stderr)

        self._meet("reach")  # before anything that may take longer on one machine than on another
        try:
            python, *variables = job_environment.choose_python(self.order, self.home, self.environment, step)
        except job_environment.PythonNotFound as error:
            raise JobNotRun(127, "machine_unusable", str(error)) from None
        self._stop_if_asked()
        gpus = gpu_count()
        environment = job_environment.python_environment(self.environment, python)
        environment.update(dict.fromkeys(variables, "1"))
        environment.update(launchers.job_environment(self.order))
        environment.update(self.secrets)
        if self.order["setup"]:
            code = self._execute(["/bin/sh", "-c", self.order["setup"]], environment, self.stderr)
            self._stop_if_asked()
            if code:
                raise JobNotRun(code, "setup_failed", "The set-up command ended with exit code %d." % code)
            made = job_environment.made_by_setup(self.home)
            if made is not None:
                python, environment = made, job_environment.python_environment(environment, made)
        self._meet("versions", python)
        self._stop_if_asked()
        self.progress.update(phase="running", job_started_uptime=uptime(), job_started_epoch=time.time(), python=python)
        self._note_progress()
        self.command = self._command(python, gpus)
        return self._execute(self.command, environment, self.stdout)

    def _meet(self, stage: str, python: str = "") -> None:
        """With several machines: makes sure that the others are there, and that they fit together."""
        if (self.order.get("rendezvous") or {}).get("nodes", 1) == 1:
            return
        program = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "meet", stage, python]
        settings = {key: value for key, value in os.environ.items() if key.startswith("COSTGPU_AGENT_")}
        self._note_phase("meeting")
        code = self._execute(program, {**self.environment, **settings}, self.stderr)
        self._note_phase("setup")
        self._stop_if_asked()
        if code:
            told = self.home.read(meeting.RESULT) or {}
            raise JobNotRun(code, "nodes_apart", str(told.get("error") or "The machines could not meet."))

    def _command(self, python: str, gpus: int) -> list[str]:
        if (self.order.get("rendezvous") or {}).get("launcher") == "deepspeed":
            with open(self.home.file(launchers.HOSTFILE), "w", encoding="ascii") as stream:
                stream.write(launchers.hosts(self.order, gpus))
        return launchers.job_command(self.order, python, gpus, self.home.path)

    def _note_phase(self, phase: str) -> None:
        self.progress["phase"] = phase
        self._note_progress()

    def _note_progress(self) -> None:
        try:
            self.home.write("progress.json", self.progress)
        except OSError:
            pass  # a full disk is the guard's to judge

    def _stop_if_asked(self) -> None:
        if self.hard_at is not None:
            raise JobNotRun(128 + signal.SIGTERM, "cancelled", "It was ended during its set-up.")

    def _execute(self, argv: Sequence[str], environment: Mapping[str, str], stdout: int) -> int:
        """Run one command to its end and return its exit code, 128 + signal if a signal ended it."""
        self.main = os.fork()
        if self.main == 0:
            self._exec(argv, environment, stdout)
        while True:
            status = self._wait(self._next_deadline())
            if status is not None:
                self.main = None
                if signal.sigtimedwait({signal.SIGTERM}, 0.0) is not None:
                    self._end()  # a shutdown stops all, sends it to all, and lets all go on: the job may be the first
                self.by_signal = os.WIFSIGNALED(status)
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            self._escalate()

    def _exec(self, argv: Sequence[str], environment: Mapping[str, str], stdout: int) -> None:
        """In the child: never returns."""
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # as in a login, whatever our own parents ignored
            prefer_for_oom(300)  # before its guards
            os.umask(0o022)
            os.chdir(self.home.work)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (stdout, 1), (self.stderr, 2)):
                os.dup2(source, target)
            os.closerange(3, 4096)
            os.execvpe(argv[0], list(argv), dict(environment))
        except BaseException as error:
            os.write(2, ("costgpu: %s cannot be started: %s\n" % (argv[0], error)).encode())
        finally:
            os._exit(127)

    def _wait(self, until: float | None) -> int | None:
        """Wait for a signal or a time; return the main process's status if that has ended."""
        ended = reap()
        if self.main in ended:
            return ended[self.main]
        if until is None:
            received: int | None = signal.sigwaitinfo(_SIGNALS).si_signo
        else:
            info = signal.sigtimedwait(_SIGNALS, max(0.0, until - uptime()))
            received = None if info is None else info.si_signo
        if received == signal.SIGTERM:
            self._end()
        return reap().get(self.main or 0)

    def _end(self) -> None:
        """SIGTERM for the main process; a second request can only shorten the grace."""
        ending = (self.home.read("state.json") or {}).get("ending") or self.order
        grace = float(ending["grace_seconds"])
        if self.home.exists("ended_by"):
            grace = 0.0  # the machine is being switched off
        if self.hard_at is None:
            self.hard_at, self.soft_at = uptime() + grace, uptime() + grace / 2
            if self.main is not None:
                self._send(self.main, signal.SIGTERM)
        else:
            self.hard_at = min(self.hard_at, uptime() + grace)

    def _next_deadline(self) -> float | None:
        if self.hard_at is None:
            return None
        return self.soft_at if uptime() < self.soft_at else max(self.hard_at, uptime() + 0.05)

    def _escalate(self) -> None:
        """Signal the main process first, since a checkpoint often needs the helpers; then all; then kill."""
        if self.hard_at is None:
            return
        if uptime() >= self.hard_at:
            self._signal_all(signal.SIGKILL)
        elif uptime() >= self.soft_at:
            self.soft_at = self.hard_at
            self._signal_all(signal.SIGTERM)

    def _leftover_commands(self, code: int) -> list[str]:
        """Wait a moment for helpers that leave by themselves, and return the command lines of what then still runs.

        Nothing is waited for of a job that has not begun, nor, unless it has ended well, where somebody has asked for the
        end; and nothing is named there.
        """
        if not self.command:
            return []
        until = uptime() + LEFTOVER_SECONDS
        while descendants(os.getpid()) and uptime() < until and (self.hard_at is None or code == 0):
            self._wait(min(until, uptime() + 0.1))
        if self.hard_at is not None:
            return []
        return [arguments_of(each.pid) for each in descendants(os.getpid())]

    def _kill_leftovers(self) -> int:
        """Whatever is left gets SIGTERM, the rest of the grace (or a second), and SIGKILL until nothing is left.

        Returns:
            How many processes nothing ends: another user's, or some that wait for a device.
        """
        if self._signal_all(signal.SIGTERM) == 0:
            return 0
        until = uptime() + LEFTOVER_SECONDS if self.hard_at is None else max(self.hard_at, uptime() + 0.2)
        while descendants(os.getpid()) and uptime() < until:
            self._wait(min(until, uptime() + 0.1))
            if self.hard_at is not None:
                until = min(until, max(self.hard_at, uptime()))
        until = uptime() + KILL_SECONDS
        left = self._signal_all(signal.SIGKILL)
        while left and uptime() < until:
            self._wait(uptime() + 0.02)
            left = self._signal_all(signal.SIGKILL)
        return left

    def _signal_all(self, number: int) -> int:
        """Signal every process below this one; return their number."""
        members = [entry.pid for entry in descendants(os.getpid())]
        for pid in members:
            self._send(pid, number)
        return len(members)

    def _send(self, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        except OSError:
            pass


def read_secrets(descriptor: int) -> dict[str, dict[str, str]]:
    """``secrets`` and ``uploads`` from a file in memory."""
    data = b""
    while True:
        chunk = os.pread(descriptor, 1 << 16, len(data))
        if not chunk:
            return dict(json.loads(data.decode()))
        data += chunk


def supervise(home: Home, secrets_descriptor: int, go_descriptor: int) -> None:
    """Run a job as its supervisor, from the recorded order to the end.

    It waits until the daemon has recorded the order (or has died); an order that does not name this process is not its.
    The file with the secrets stays open in it, in memory only: a new daemon finds the upload addresses there.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.read(go_descriptor, 1)
    os.close(go_descriptor)
    order = home.read("order.json")
    if order is None or order["supervisor"]["pid"] != os.getpid():
        return
    adopt_orphans()
    confidential = read_secrets(secrets_descriptor)
    Supervisor(home, order, confidential["secrets"]).run()
    while confidential["uploads"] and not (home.read("state.json") or {}).get("settled"):
        if signal.sigtimedwait({signal.SIGTERM}, 1.0) is not None:
            return
