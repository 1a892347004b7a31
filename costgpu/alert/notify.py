"""Sends messages by apprise: mail, Slack, Teams, Telegram, Discord, webhooks, ...

An address (apprise says URL) holds passwords and tokens. It goes to a process of its own (see `apprise_worker`) through
a pipe; results and errors name the service and the position of an address, never the address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 30.0  # for one address, starting the process included
AT_ONCE = 8
LONGEST_TITLE = 150  # characters; a mail's subject, a phone's notification
LONGEST_BODY = 1500  # what the smallest of the common services take in one message
EXAMPLES = """\
Addresses are written as apprise writes them, for example:
  mailtos://user:password@example.com?to=me@example.com   mail
  slack://TOKEN_A/TOKEN_B/TOKEN_C/#channel                Slack
  tgram://BOT_TOKEN/CHAT_ID                               Telegram
  discord://WEBHOOK_ID/WEBHOOK_TOKEN                      Discord
  json://example.com/path                                 a webhook
All services: https://appriseit.com/services/"""

_WORKER = Path(__file__).with_name("apprise_worker.py")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a message at one address."""

    ok: bool  # whether the service accepted it
    service: str  # ``mail``, ``Slack``, ...; ``unknown service`` if the address does not say
    detail: str  # why it failed, or a warning; may be empty. Never the address or a part of it


def deliver(urls: Sequence[str], title: str, body: str) -> Sequence[Delivery]:
    """Send a message to every address at once; take at most about half a minute for eight.

    Nothing is raised for an address that cannot be used or reached.

    Args:
        urls: Addresses as apprise writes them.
        title: One line.
        body: Plain text of a few lines; the rest of a long one is cut off.
    """
    if not urls:
        return []
    request = {"title": _line(title)[:LONGEST_TITLE], "body": _text(body)}
    with ThreadPoolExecutor(min(AT_ONCE, len(urls))) as pool:
        return list(map(_delivery, pool.map(lambda url: _ask_worker({**request, "url": url}), urls)))


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ..."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _delivery(answers: Mapping[str, Any]) -> Delivery:
    service = str(answers.get("service") or "unknown service")
    problem = str(answers.get("problem", ""))
    if "ok" in answers:
        details = filter(None, (str(answers["detail"]), problem))
        return Delivery(bool(answers["ok"]), service, "; ".join(details))
    if answers.get("usable") is False:
        return Delivery(False, service, problem)
    return Delivery(False, service, str(answers.get("failure", "the delivery was interrupted")))


def _ask_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the worker answers, with `failure` in case it did not come to an end."""
    # Without our settings, which hold the other addresses; -P: nothing is imported from the current folder.
    environment = {name: text for name, text in os.environ.items() if not name.upper().startswith("COSTGPU_")}
    failure = "the delivery was interrupted"
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_WORKER)],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as expired:
        output, failure = expired.stdout or b"", f"no answer within {SECONDS:.0f} s"
    except OSError as error:
        return {"failure": f"no process could be started ({os.strerror(error.errno or 0)})"}
    answers: dict[str, Any] = {"failure": failure}
    for line in output.splitlines():
        try:
            answers |= json.loads(line)
        except (ValueError, TypeError):
            continue
    return answers


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _text(text: str) -> str:
    plain = "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()
    return plain if len(plain) <= LONGEST_BODY else plain[: LONGEST_BODY - 1] + "…"
