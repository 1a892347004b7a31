"""Tests marked ``emulator`` run in one pytest inside a testbed; here is what starts it and hands its reports on.

`Outside` takes the place of those tests in the pytest that a person has started: they run last, in one inner session,
and every report of it is shown as if the test had run here. `Inside` is the other end of the pipe.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.emulators.guests import guest_control, namespace, packages

MARK = "emulator"
PIPE = "TESTBED_REPORTS"  # file descriptor of the inner session's end
SLACK_SECONDS = 180.0  # of the inner session beyond a test's own limit: building, booting, tearing down


def plugin() -> object:
    if PIPE in os.environ:
        return Inside(int(os.environ[PIPE]))
    return None if namespace.inside() else Outside()


class Inside:
    """Sends every report through the pipe, with the consoles of the guests of a failed test."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = os.fdopen(descriptor, "w", encoding="utf-8")
        self._config: pytest.Config | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._config = session.config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.extend(
                (f"console of {each}", text[-4000:]) for each, text in guest_control.consoles().items()
            )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        assert self._config is not None
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send({"nodeid": report.nodeid, "report": data})

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._send({"nodeid": nodeid, "report": None})

    def _send(self, message: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(message, default=str) + "\n")
        self._pipe.flush()


class InnerSession:
    """The pytest in the testbed."""

    def __init__(self, config: pytest.Config, nodeids: list[str]) -> None:
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        loud = config.getoption("capture") == "no"
        options = ["-p", "no:cacheprovider", *(["--capture=no"] if loud else [])]
        command = [sys.executable, "-m", "pytest", *options, *nodeids]
        ours, theirs = os.pipe()
        streams: dict[str, Any] = {} if loud else {"stdout": self.output, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(
            namespace.command_line(command),
            cwd=config.rootpath,
            env={**os.environ, PIPE: str(theirs)},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs],
            **streams,
        )
        os.close(theirs)
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as pipe:
            for line in pipe:
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def reports(self, nodeid: str, seconds: float) -> Iterator[Any]:
        """Of one test, as they come.

        Raises:
            RuntimeError: The session has died, or hangs.
        """
        while True:
            try:
                message = self._messages.get(timeout=seconds)
            except queue.Empty:
                self.end(0)
                raise RuntimeError(f"no report from the testbed for {seconds:.0f} s\n{self.tail()}") from None
            if message is None:
                self._messages.put(None)
                raise RuntimeError(f"the pytest in the testbed ended with {self.end(10)}\n{self.tail()}")
            if message["nodeid"] == nodeid:
                if message["report"] is None:
                    return
                yield message["report"]

    def tail(self) -> str:
        self.output.seek(0)
        return self.output.read()[-6000:]

    def end(self, seconds: float) -> int:
        """Its exit status, after at most so long."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Outside:
    """Runs the marked tests by way of an inner session."""

    def __init__(self) -> None:
        self._inner: InnerSession | None = None
        self._broken = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        marked = [item for item in items if item.get_closest_marker(MARK)]
        reason = packages.obstacle() if marked else ""
        for item in marked:
            if reason and not os.environ.get(packages.REQUIRED):
                item.add_marker(pytest.mark.skip(reason=f"emulator: {reason}"))
            elif not reason:
                item.stash[_LIMIT] = _limit(item)
                item.add_marker(pytest.mark.timeout(0), append=False)  # the inner session watches the time
        self._broken = reason if os.environ.get(packages.REQUIRED) else ""
        items.sort(key=lambda item: item.get_closest_marker(MARK) is not None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if item.get_closest_marker(MARK) is None or (not self._broken and _LIMIT not in item.stash):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        try:
            if self._broken:
                raise RuntimeError(self._broken)
            if self._inner is None:
                wanted = [each.nodeid for each in item.session.items if _LIMIT in each.stash]
                self._inner = InnerSession(item.config, wanted)
            for data in self._inner.reports(item.nodeid, item.stash[_LIMIT] + SLACK_SECONDS):
                if isinstance(data["longrepr"], list):
                    data["longrepr"] = tuple(data["longrepr"])  # JSON has no tuples, and pytest tells them apart
                report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                item.ihook.pytest_runtest_logreport(report=report)
        except RuntimeError as error:
            self._broken = self._broken or str(error)
            report = pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"emulator: {error}",
                when="call",
            )
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._inner is not None:
            finished = not (session.shouldfail or session.shouldstop or self._broken)
            self._inner.end(60 if finished else 0)


_LIMIT = pytest.StashKey[float]()


def _limit(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    if mark is not None and (mark.args or "timeout" in mark.kwargs):
        return float(mark.args[0] if mark.args else mark.kwargs["timeout"])
    return float(item.config.getini("timeout") or 300)
