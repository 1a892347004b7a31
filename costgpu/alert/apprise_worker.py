"""Delivers one message to one address, in a process of its own. Imports nothing of ours.

It travels alone because what it works with cannot be trusted to keep an address to itself, or to come to an end: a
library may write the address, which is a secret, to a log, to the terminal or into an exception, and may wait for ever
for a name server. Here logs have no way out, and whoever started the process can end it.

Reads one JSON object from standard input: ``url``, ``title``, ``body``, and ``send`` (false: only look at the address).
Writes up to two lines of JSON to standard output: ``service`` and ``problem`` of the address, then ``ok`` and
``detail``. All texts that come out are made of words that stand in this file, names of services, and numbers.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAMES = {"E-Mail": "mail", "JSON": "webhook (JSON)", "XML": "webhook (XML)", "Form": "webhook (form)"}
"""Services of apprise that people call otherwise."""

UNKNOWN = "it is no address that apprise knows"
INCOMPLETE = "something is missing or wrong in it"
NOT_HERE = "the service needs a package or program that is not installed here"
DROPPED = "some recipient in it is no valid one and gets nothing"

_STATUSES = {
    400: "it does not accept the message",
    401: "it refuses the credentials",
    403: "it refuses the credentials",
    404: "it knows no such address",
    405: "it does not accept messages there",
    410: "the address is no longer valid",
    413: "the message is too long for it",
    429: "too many messages in a short time",
}
_HTTP = re.compile(r"\berror[=: ]+([1-5]\d\d)\b|HTTP/[\d.]+\" ([45]\d\d)\b")
_SMTP = re.compile(r"\(([45]\d\d), b['\"]")
_WORDS = (
    (r"SMTPAuthenticationError|\b53[45]\b.*auth|authentication failed", "it refuses the credentials"),
    (r"AUTH extension not supported|No suitable authentication", "it offers no login"),
    (
        r"NameResolution|getaddrinfo|Name or service|nodename nor|name resolution|gaierror|No address assoc",
        "its name cannot be resolved",
    ),
    (r"certificate|CERTIFICATE_VERIFY|self.signed", "its certificate is not trusted"),
    (r"WRONG_VERSION_NUMBER|SSLError|ssl\.c:|STARTTLS", "no encrypted connection can be made"),
    (r"Connection refused|Errno 111\b|Errno 61\b|WinError 10061", "it refuses the connection"),
    (r"No route to host|Network is unreachable|Errno 113\b|Errno 101\b", "no way leads there"),
    (r"timed? ?out|TIMEOUT", "it does not answer in time"),
    (r"Connection reset|Broken pipe|unexpectedly closed|RemoteDisconnected|aborted", "it closed the connection"),
)


def reason(lines: Sequence[str]) -> str:
    """Why a delivery failed, in words of ours, from what a library has logged."""
    text = "\n".join(lines)
    for found in _HTTP.finditer(text):
        status = int(found.group(1) or found.group(2))
        words = _STATUSES.get(status, "it is in trouble" if status >= 500 else "it does not accept the message")
        return f"{words} (HTTP {status})"
    for pattern, words in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    smtp = _SMTP.search(text)
    if smtp:
        return f"it does not accept the message (SMTP {smtp.group(1)})"
    return "it did not take the message"


class _Kept(logging.Handler):
    """What was logged, in memory."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.complaints = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.complaints += record.levelno >= logging.WARNING
        try:
            self.lines.append(record.getMessage())
        except Exception as error:  # noqa: BLE001  a log line of a library is never worth a delivery
            self.lines.append(type(error).__name__)


def main() -> None:
    """Does one errand; ends the process without waiting for threads that hang."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        _errand(json.load(sys.stdin), answers)
    except BaseException:  # noqa: BLE001  a traceback could quote an address
        os._exit(1)
    os._exit(0)


def _errand(errand: dict[str, Any], answers: Any) -> None:
    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    kept = _Kept()
    logging.basicConfig(level=logging.DEBUG, handlers=[kept])
    import apprise  # noqa: PLC0415  its log must be ours first

    asset = apprise.AppriseAsset(app_id="costgpu", app_desc="costgpu budgets", async_mode=False)
    kept.complaints = 0
    plugin = apprise.Apprise.instantiate(errand["url"], asset=asset)
    if not isinstance(plugin, apprise.NotifyBase):
        service, problem = _refused(str(errand["url"]))
        answer(service=service, problem=problem, usable=False)
        return
    name = str(plugin.service_name)
    dropped = kept.complaints or (name == "E-Mail" and _nobody(str(errand["url"])))
    answer(service=NAMES.get(name, name), problem=DROPPED if dropped else "", usable=True)
    if not errand["send"]:
        return
    kept.lines.clear()
    sender = apprise.Apprise(asset=asset)
    sender.add(plugin)
    delivered = bool(
        sender.notify(
            title=errand["title"],
            body=errand["body"],
            body_format=apprise.NotifyFormat.TEXT,
            notify_type=apprise.NotifyType.WARNING,
        )
    )
    answer(ok=delivered, detail="" if delivered else reason(kept.lines))


def _nobody(url: str) -> bool:
    """Whether a recipient of a mail cannot be one: apprise leaves those out without a word."""
    try:
        query = parse_qs(urlsplit(url).query)
    except ValueError:
        return False
    people = ",".join(text for key in ("to", "cc", "bcc") for text in query.get(key, ()))
    return any(person.strip() and "@" not in person for person in re.split("[,;]", people))


def _refused(url: str) -> tuple[str, str]:
    """The service that an unusable address names, and what is wrong with it."""
    from apprise.manager_plugins import NotificationManager  # noqa: PLC0415

    schema = url.partition("://")[0].strip().lower()
    known: Any = NotificationManager()  # type: ignore[no-untyped-call]
    if "://" not in url or schema not in known:
        return "", UNKNOWN
    name = str(known[schema].service_name)
    return NAMES.get(name, name), INCOMPLETE if known[schema].enabled else NOT_HERE


if __name__ == "__main__":
    main()
