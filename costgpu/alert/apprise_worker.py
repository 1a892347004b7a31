"""Delivers one message to one address, in a process of its own. Imports nothing of ours.

A library may write the address, which is a secret, to a log, to the terminal or into an exception, and may wait for
ever for a name server. In a process of its own its logs have no way out, and whoever started it can end it.

Reads one JSON object from standard input: ``url``, ``title`` and ``body``.
Writes up to two lines of JSON to standard output: ``service`` and ``problem`` of the address, then ``ok`` and
``detail``. Their texts consist of words in this file, names of services, and numbers.
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
"""Services by their name in apprise -> their common name."""

UNKNOWN = "apprise does not know such an address"
INCOMPLETE = "the address is incomplete or wrong"
NOT_HERE = "the service needs a package or program that is not installed"
DROPPED = "a recipient is not valid and gets nothing"

_STATUSES = {
    400: "message not accepted",
    401: "credentials refused",
    403: "credentials refused",
    404: "no such address",
    405: "messages not accepted at this address",
    410: "the address is no longer valid",
    413: "message too long",
    429: "too many messages in a short time",
}
_HTTP = re.compile(r"\berror[=: ]+([1-5]\d\d)\b|HTTP/[\d.]+\" ([45]\d\d)\b")
_SMTP = re.compile(r"\(([45]\d\d), b['\"]")
_WORDS = (
    (r"SMTPAuthenticationError|\b53[45]\b.*auth|authentication failed", "credentials refused"),
    (r"AUTH extension not supported|No suitable authentication", "the server offers no login"),
    (
        r"NameResolution|getaddrinfo|Name or service|nodename nor|name resolution|gaierror|No address assoc",
        "the server's name cannot be resolved",
    ),
    (r"certificate|CERTIFICATE_VERIFY|self.signed", "the server's certificate is not trusted"),
    (r"WRONG_VERSION_NUMBER|SSLError|ssl\.c:|STARTTLS", "no encrypted connection could be made"),
    (r"Connection refused|Errno 111\b|Errno 61\b|WinError 10061", "connection refused"),
    (r"No route to host|Network is unreachable|Errno 113\b|Errno 101\b", "the network is unreachable"),
    (r"timed? ?out|TIMEOUT", "no answer in time"),
    (r"Connection reset|Broken pipe|unexpectedly closed|RemoteDisconnected|aborted", "connection closed by the server"),
)


def reason(lines: Sequence[str]) -> str:
    """Why a delivery failed, from what the library has logged, without repeating any of it."""
    text = "\n".join(lines)
    for found in _HTTP.finditer(text):
        status = int(found.group(1) or found.group(2))
        words = _STATUSES.get(status, "the service has failed" if status >= 500 else "message not accepted")
        return f"{words} (HTTP {status})"
    for pattern, words in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    smtp = _SMTP.search(text)
    if smtp:
        return f"message not accepted (SMTP {smtp.group(1)})"
    return "message not accepted"


class _MemoryLog(logging.Handler):
    """Keeps log lines in memory."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.warnings = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings += record.levelno >= logging.WARNING
        try:
            self.lines.append(record.getMessage())
        except Exception as error:  # noqa: BLE001  a log line of a library is never worth a delivery
            self.lines.append(type(error).__name__)


def main() -> None:
    """Handle one request; end the process without waiting for threads that hang."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        _handle(json.load(sys.stdin), answers)
    except BaseException:  # noqa: BLE001  a traceback could quote an address
        os._exit(1)
    os._exit(0)


def _handle(request: dict[str, Any], answers: Any) -> None:
    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    log = _MemoryLog()
    logging.basicConfig(level=logging.DEBUG, handlers=[log])
    import apprise  # noqa: PLC0415  its log must be ours first

    asset = apprise.AppriseAsset(app_id="costgpu", app_desc="costgpu budgets", async_mode=False)
    log.warnings = 0
    plugin = apprise.Apprise.instantiate(request["url"], asset=asset)
    if not isinstance(plugin, apprise.NotifyBase):
        service, problem = _unusable(str(request["url"]))
        answer(service=service, problem=problem, usable=False)
        return
    name = str(plugin.service_name)
    dropped = log.warnings or (name == "E-Mail" and _has_invalid_recipient(str(request["url"])))
    answer(service=NAMES.get(name, name), problem=DROPPED if dropped else "", usable=True)
    log.lines.clear()
    sender = apprise.Apprise(asset=asset)
    sender.add(plugin)
    delivered = bool(
        sender.notify(
            title=request["title"],
            body=request["body"],
            body_format=apprise.NotifyFormat.TEXT,
            notify_type=apprise.NotifyType.WARNING,
        )
    )
    answer(ok=delivered, detail="" if delivered else reason(log.lines))


def _has_invalid_recipient(url: str) -> bool:
    """Return whether a recipient of a mail is not an address: apprise leaves those out without a word."""
    try:
        query = parse_qs(urlsplit(url).query)
    except ValueError:
        return False
    people = ",".join(text for key in ("to", "cc", "bcc") for text in query.get(key, ()))
    return any(person.strip() and "@" not in person for person in re.split("[,;]", people))


def _unusable(url: str) -> tuple[str, str]:
    """Return the service that an unusable address names, and what is wrong with it."""
    from apprise.manager_plugins import NotificationManager  # noqa: PLC0415

    schema = url.partition("://")[0].strip().lower()
    known: Any = NotificationManager()  # type: ignore[no-untyped-call]
    if "://" not in url or schema not in known:
        return "", UNKNOWN
    name = str(known[schema].service_name)
    return NAMES.get(name, name), INCOMPLETE if known[schema].enabled else NOT_HERE


if __name__ == "__main__":
    main()
