"""Debian's cron daemon runs the line that `costgpu budget cron --install` has installed, and a mail server gets the mail.

Three machines at once, each with cron, a mail server and a ledger of its own; see `sandbox`. They are started before
the first test of the session, since cron fires by the minute.
"""

import email
import json
import subprocess
from typing import Any

import pytest

from tests.alert import sandbox
from tests.alert.conftest import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def found(machines: dict[str, Machine]) -> dict[str, Any]:
    """Case -> what happened there."""
    seen = {}
    for case, machine in machines.items():
        try:
            code = machine.process.wait(timeout=400)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            machine.log.seek(0)
            pytest.fail(f"{case} ended with {code}: {machine.log.read().decode(errors='replace')}")
        seen[case] = json.loads((machine.folder / "found.json").read_text())
    return seen


def mail(text: str) -> tuple[dict[str, str], str]:
    """Headers and body."""
    message = email.message_from_string(text)
    body = message.get_payload(decode=True)
    assert isinstance(body, bytes)
    return dict(message.items()), body.decode()


def body_of(cron_mail: str) -> list[str]:
    """What the command had printed."""
    return cron_mail.partition("\n\n")[2].splitlines()


@pytest.mark.parametrize("case", sandbox.CASES)
def test_cron_fired_and_the_crontab_is_as_it_was(found: dict[str, Any], case: str) -> None:
    seen = found[case]
    assert seen["fired"] >= sandbox.FIRINGS  # by a line of somebody else in the same crontab
    assert seen["alive"]
    assert seen["installed"].startswith(seen["foreign"])
    assert seen["installed"].count("budget check") == 1
    assert seen["said"][1].startswith("Installed in your crontab: every minute.")
    assert "already" in seen["said"][2]
    assert seen["removed"] == seen["foreign"]


@pytest.mark.parametrize("case", sandbox.CASES)
def test_no_secret_is_anywhere(found: dict[str, Any], case: str) -> None:
    assert sandbox.SECRET not in json.dumps(found[case])


def test_when_all_is_well_nobody_is_bothered(found: dict[str, Any]) -> None:
    seen = found["well"]
    assert "costgpu reap --yes\n" in seen["installed"]
    assert seen["taken"] == seen["refused"] == seen["cron_mail"] == []
    assert seen["last"] == {"code": 0, "stdout": "", "stderr": ""}


def test_the_mail_arrives_exactly_once(found: dict[str, Any]) -> None:
    seen = found["once"]
    (text,) = seen["taken"]
    headers, body = mail(text)
    assert headers["To"] == "me@example.com"
    assert "everything" in headers["Subject"]
    assert "80" in headers["Subject"] + body
    assert "$170.00 of $200.00" in body
    assert seen["last"] == {"code": 80, "stdout": "", "stderr": ""}


def test_cron_itself_mails_the_crossing_once(found: dict[str, Any]) -> None:
    (text,) = found["once"]["cron_mail"]
    assert text.startswith("From: ")
    assert "To: me@example.com" in text  # the MAILTO of the crontab's owner
    (line,) = body_of(text)
    assert line.startswith("everything: $170.00 of $200.00")


def test_a_refused_mail_is_tried_again_and_arrives_once(found: dict[str, Any]) -> None:
    seen = found["refused"]
    assert len(seen["refused"]) == 1
    (text,) = seen["taken"]
    assert "$170.00 of $200.00" in mail(text)[1]
    (printed,) = [body_of(each) for each in seen["cron_mail"]]
    assert "could not be delivered" in " ".join(printed)
    assert seen["last"] == {"code": 80, "stdout": "", "stderr": ""}
