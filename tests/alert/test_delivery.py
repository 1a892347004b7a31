"""Messages to real servers on this machine, and that addresses stay secret whatever goes wrong."""

import email
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import typer
from aiosmtpd.controller import Controller
from typer.testing import CliRunner

from costgpu.alert import apprise_worker, notify
from costgpu.alert.notify import Delivery, deliver
from costgpu.cli import budget
from costgpu.errors import AlertFailed

SECRET = "s3cr3tT0k3nAbCdEfGhIjKlMnOp"
QUERY = "from=costgpu@example.com&to=me@example.com&mode=insecure"


class Smtp:
    """A mail server; answers `reply` to every message."""

    def __init__(self) -> None:
        self.reply = "250 OK"
        self.messages: list[str] = []
        self.controller = Controller(self, hostname="127.0.0.1", port=free_port())

    @property
    def url(self) -> str:
        return f"mailto://127.0.0.1:{self.controller.port}/?{QUERY}"

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        self.messages.append(envelope.content.decode())
        return self.reply


class Web(BaseHTTPRequestHandler):
    """A webhook; the path says which status it answers."""

    bodies: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).bodies.append(body)
        self.send_response(int(self.path.partition("?")[0].strip("/").rpartition("/")[2]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing apprise takes its time on a busy machine."""
    monkeypatch.setattr(notify, "SECONDS", 120.0)


@pytest.fixture
def smtp() -> Iterator[Smtp]:
    server = Smtp()
    server.controller.start()
    yield server
    server.controller.stop()


@pytest.fixture
def web() -> Iterator[str]:
    handler = type("Handler", (Web,), {"bodies": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_mail_arrives_as_it_was_written(smtp: Smtp) -> None:
    title, body = 'Budget "a" <b> & 80 %\r\nBcc: evil@example.com', "85 % used: $170.00 of $200.00\n<b>&amp; ü €"
    assert deliver([smtp.url], title, body) == [Delivery(True, "mail", "")]
    message = email.message_from_string(smtp.messages[0])
    assert message["Subject"] == 'Budget "a" <b> & 80 % Bcc: evil@example.com'
    assert message["Bcc"] is None
    assert message.get_content_type() == "text/plain"
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert payload.decode().replace("\r\n", "\n").strip() == body


def test_every_address_gets_it_whatever_becomes_of_the_others(smtp: Smtp, web: str) -> None:
    urls = [
        "nonsense",
        smtp.url,
        f"json://{web}/503",
        f"json://{web}/200",
        "slack://too/short",
        f"json://127.0.0.1:{free_port()}/",
    ]
    done = deliver(urls, "title", "body")
    assert done == [
        Delivery(False, "unknown service", apprise_worker.UNKNOWN),
        Delivery(True, "mail", ""),
        Delivery(False, "webhook (JSON)", "the service has failed (HTTP 503)"),
        Delivery(True, "webhook (JSON)", ""),
        Delivery(False, "Slack", apprise_worker.INCOMPLETE),
        Delivery(False, "webhook (JSON)", "connection refused"),
    ]


def test_a_mail_server_that_refuses(smtp: Smtp) -> None:
    smtp.reply = f"550 5.7.1 not from you, {SECRET}"
    (done,) = deliver([smtp.url], "title", "body")
    assert done == Delivery(False, "mail", "message not accepted (SMTP 550)")


def test_a_recipient_that_is_none_is_named_and_the_others_get_it(smtp: Smtp) -> None:
    url = smtp.url.replace("to=me@example.com", "to=me@example.com,nobody")
    (done,) = deliver([url], "title", "body")
    assert done == Delivery(True, "mail", apprise_worker.DROPPED)


SERVICES = (
    f"slack://{SECRET}/{SECRET}/{SECRET}/#c",
    f"slack://T1JJ3T3L2/A1BRTD4JD/{SECRET}/#general",
    f"discord://4174216298/{SECRET}",
    f"tgram://123456789:{SECRET}/12345",
    f"msteams://team/{SECRET}/{SECRET}/{SECRET}",
    f"mailto://me:{SECRET}@127.0.0.1:{{port}}?{QUERY}",
    f"mailtos://me:{SECRET}@127.0.0.1:{{port}}?{QUERY}",
    f"json://me:{SECRET}@127.0.0.1:{{port}}/{SECRET}?token={SECRET}",
    f"jsons://127.0.0.1:{{port}}/{SECRET}",
    f"xml://me:{SECRET}@127.0.0.1:{{port}}/",
    f"form://127.0.0.1:{{port}}/{SECRET}",
    f"gotify://127.0.0.1:{{port}}/{SECRET}",
    f"ntfy://me:{SECRET}@127.0.0.1:{{port}}/{SECRET}",
    f"pover://{SECRET}@{SECRET}",
    f"pagerduty://{SECRET}@{SECRET}",
    f"opsgenie://{SECRET}",
    f"twilio://AC{SECRET}:{SECRET}@+15551234567/+15557654321",
    f"rocket://me:{SECRET}@127.0.0.1:{{port}}/#c",
    f"mmost://127.0.0.1:{{port}}/{SECRET}",
    f"matrix://me:{SECRET}@127.0.0.1:{{port}}/#r",
    f"gchat://ws/{SECRET}/{SECRET}",
    f"sendgrid://{SECRET}:me@example.com/you@example.com",
    f"mailgun://me@example.com/{SECRET}",
    f"wxteams://{SECRET}",
    f"sns://{SECRET}/{SECRET}/us-east-1/+15551234567",
    f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{SECRET}",
    f"https://discord.com/api/webhooks/4174216298/{SECRET}",
    f"{SECRET}",
    f"{SECRET}://x",
    f"json://[{SECRET}",
    f"mailto://{SECRET}",
    f"slack://\n{SECRET}",
    f"json://me:{SECRET}@[::1",
    "",
)


@pytest.mark.slow
def test_no_address_is_ever_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in results, on the terminal or in a log, whatever the level."""
    port = free_port()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")  # nothing leaves this machine
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    caplog.set_level(logging.DEBUG)
    urls = [url.format(port=port) if "{port}" in url else url for url in SERVICES]
    done = deliver(urls, "title", "body")
    assert not any(each.ok for each in done)
    said = [repr(done)]
    said += [caplog.text, *capfd.readouterr()]
    for part in (SECRET, SECRET[:8], SECRET.lower()):
        assert part not in "\n".join(said)
    services = {each.service for each in done}
    assert {"mail", "Slack", "Discord", "Telegram"} <= services


@pytest.fixture
def cli() -> typer.Typer:
    app = typer.Typer()
    app.command()(budget.test_alert)
    return app


def test_the_command_says_what_became_of_each(
    cli: typer.Typer, smtp: Smtp, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTGPU_ALERT_URLS", f"{smtp.url} json://{web}/{SECRET}/404 xyz://{SECRET}")
    result = CliRunner().invoke(cli, [])
    assert isinstance(result.exception, AlertFailed)
    assert result.exception.exit_code == 82
    assert result.output.splitlines() == [
        "1st address, mail: delivered",
        "2nd address, webhook (JSON): NOT delivered: no such address (HTTP 404)",
        "3rd address, unknown service: NOT delivered: apprise does not know such an address",
    ]
    assert "test of budget alerts" in smtp.messages[0]
    monkeypatch.setenv("COSTGPU_ALERT_URLS", f"json://{web}/200")
    assert CliRunner().invoke(cli, []).exit_code == 0
