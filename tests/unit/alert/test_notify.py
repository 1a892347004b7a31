"""Why a delivery failed, in words of ours; and what `costgpu budget test-alert` says before anything is sent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from costgpu.alert import apprise_worker, notify
from costgpu.cli import budget
from costgpu.config import config_file
from costgpu.errors import ConfigError

SECRET = "hunter2"
PYTHON = sys.executable


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ("Failed to send Slack notification: Unauthorized., error=403.", "credentials refused (HTTP 403)"),
        ("Failed to send Discord notification: error=404.", "no such address (HTTP 404)"),
        ("Failed to send: , error=429.", "too many messages in a short time (HTTP 429)"),
        ("error=503.", "the service has failed (HTTP 503)"),
        (
            'https://hooks.slack.com:443 "POST /services/T/B/x HTTP/1.1" 418 0',
            "message not accepted (HTTP 418)",
        ),
        ("Socket Exception: (535, b'5.7.8 Error: authentication failed')", "credentials refused"),
        ("Socket Exception: (550, b'no such user hunter2')", "message not accepted (SMTP 550)"),
        ("Socket Exception: [Errno -2] Name or service not known", "the server's name cannot be resolved"),
        ("(Caused by NameResolutionError(...hunter2...))", "the server's name cannot be resolved"),
        ("Socket Exception: [Errno 111] Connection refused", "connection refused"),
        ("Socket Exception: timed out", "no answer in time"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed",
            "the server's certificate is not trusted",
        ),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "no encrypted connection could be made"),
        ("SMTP AUTH extension not supported by server.", "the server offers no login"),
        ("anything else with hunter2", "message not accepted"),
        ("", "message not accepted"),
    ],
)
def test_reasons(logged: str, expected: str) -> None:
    assert apprise_worker.reason(["DEBUG something before", logged]) == expected


@given(st.text(alphabet=st.characters(exclude_characters="0123456789"), max_size=80))
def test_a_reason_never_repeats_what_was_logged(logged: str) -> None:
    known = {words for _, words in apprise_worker._WORDS} | {"message not accepted"}
    assert apprise_worker.reason([logged]) in known


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_positions(number: int, expected: str) -> None:
    assert notify.ordinal(number) == expected


def test_titles_are_one_line_and_bodies_are_short() -> None:
    assert notify._line("Budget a\r\nBcc: x\x00\x1b[0m") == "Budget a Bcc: x [0m"
    assert notify._text("a\x07\nb\u202e") == "a \nb"
    assert len(notify._text("x" * 5000)) == notify.LONGEST_BODY


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that is started in the place of Python; a test writes it."""
    program = tmp_path / "python"
    program.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def test_the_address_travels_through_a_pipe_and_nowhere_else(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = python.with_name("seen.json")
    python.write_text(
        f"#!{PYTHON}\nimport json, os, sys\n"
        f"json.dump([sys.argv, dict(os.environ), sys.stdin.read()], open({str(seen)!r}, 'w'))\n"
    )
    monkeypatch.setenv("COSTGPU_ALERT_URLS", f"json://{SECRET}")
    (done,) = notify.deliver([f"json://{SECRET}"], "t", "b")
    argv, environment, piped = json.loads(seen.read_text())
    assert SECRET not in str(argv) + str(environment)
    assert json.loads(piped)["url"] == f"json://{SECRET}"
    assert done == notify.Delivery(False, "unknown service", "the delivery was interrupted")


@pytest.mark.parametrize("output", ["", "not json", '{"service": "mail"', "[]", "1", '"x"', "null"])
def test_whatever_the_worker_writes_it_is_a_delivery(python: Path, output: str) -> None:
    python.write_text(f"#!/bin/sh\ncat <<'X'\n{output}\nX\n")
    assert not notify.deliver(["json://x"], "t", "b")[0].ok


@pytest.mark.parametrize(
    ("written", "service"), [(None, "unknown service"), (b'{"service": "mail", "problem": "", "usable": true}', "mail")]
)
def test_a_service_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, written: bytes | None, service: str) -> None:
    def hang(command: list[str], timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout, output=written)

    monkeypatch.setattr(subprocess, "run", hang)
    (done,) = notify.deliver(["json://x"], "t", "b")
    assert done == notify.Delivery(False, service, "no answer within 30 s")


def test_a_python_that_is_gone_is_a_failed_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (done,) = notify.deliver([f"json://{SECRET}"], "t", "b")
    assert "no process could be started" in done.detail
    assert SECRET not in done.detail


def test_nobody_to_tell() -> None:
    assert notify.deliver([], "t", "b") == []


def test_the_command_line_does_not_import_apprise() -> None:
    modules = "costgpu.cli.app, costgpu.alert.notify, costgpu.alert.crontab"
    code = f"import sys, {modules}; sys.exit('apprise' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_addresses_it_says_how() -> None:
    app = typer.Typer()
    app.command()(budget.test_alert)
    error = CliRunner().invoke(app, []).exception
    assert isinstance(error, ConfigError)
    assert str(config_file()) in error.hint
    for example in ("mailtos://", "slack://", "tgram://", "discord://", "json://", "COSTGPU_ALERT_URLS"):
        assert example in error.hint
