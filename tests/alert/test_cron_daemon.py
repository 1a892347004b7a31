"""Debian's cron daemon runs the line that `costgpu budget cron --install` has installed, and a mail server gets the mail.

A machine with cron, a mail server and a ledger of its own; see `sandbox`. It is started before the first test of the
session, since cron fires by the minute.
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
def found(machine: Machine) -> Any:
    """What happened there."""
    try:
        code = machine.process.wait(timeout=400)
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        machine.log.seek(0)
        pytest.fail(f"it ended with {code}: {machine.log.read().decode(errors='replace')}")
    return json.loads((machine.folder / "found.json").read_text())


def test_cron_fired_and_the_crontab_is_as_it_was(found: Any) -> None:
    assert found["fired"] >= sandbox.FIRINGS  # by a line of somebody else in the same crontab
    assert found["alive"]
    assert found["installed"].startswith(found["foreign"])
    assert found["installed"].count("budget check") == 1
    assert found["said"][1].startswith("Installed in your crontab: every minute.")
    assert "already" in found["said"][2]
    assert found["removed"] == found["foreign"]
    assert sandbox.SECRET not in json.dumps(found)


def test_a_refused_mail_is_tried_again_and_arrives_once(found: Any) -> None:
    assert len(found["refused"]) == 1
    (text,) = found["taken"]
    message = email.message_from_string(text)
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert message["To"] == "me@example.com"
    assert "everything" in message["Subject"]
    assert "$170.00 of $200.00" in payload.decode()
    assert found["last"] == {"code": 80, "stdout": "", "stderr": ""}


def test_cron_itself_mails_what_was_printed_once(found: Any) -> None:
    (text,) = found["cron_mail"]
    assert text.startswith("From: ")
    assert "To: me@example.com" in text  # the MAILTO of the crontab's owner
    lines = text.partition("\n\n")[2].splitlines()
    assert lines[0].startswith("everything: $170.00 of $200.00")
    assert "could not be delivered" in " ".join(lines)
