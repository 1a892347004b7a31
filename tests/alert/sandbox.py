"""One machine on which cron runs: own mounts, processes and network; a mail server; a ledger with spend.

    python -m tests.alert.sandbox FOLDER

The first process of its namespaces (see `COMMAND`), so that all of it ends with it. It installs the line with
``costgpu budget cron --install``, starts Debian's cron daemon, waits until it has fired three times and writes what
happened to FOLDER/found.json. The mail server refuses the first mail, and takes the next one.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from costgpu.ledger import Ledger
from tests.unit.ledger.closed import Closed, plant

COMMAND = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
FIRINGS = 3
PORT = 2525
SECRET = "hunter2"
COSTGPU = Path(sys.executable).with_name("costgpu")
FOREIGN = b"# mine \xff\r\n# grep '\\bx\\r'\nMAILTO=me@example.com\n\n* * * * * date >> /run/fired\n# the end\n"
FIRED = Path("/run/fired")
SENDMAIL = """#!/bin/sh
exec cat > /run/cron-mail-$$
"""


class Mailbox:
    """What the mail server was given. Refuses the first message, as one that is busy does."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.taken: list[str] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        text = envelope.content.decode()
        if not self.refused:
            self.refused.append(text)
            return "451 4.3.0 Try again later"
        self.taken.append(text)
        return "250 OK"


def main(folder: Path) -> None:
    """Sets up, waits, writes what was found."""
    private_mounts()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    warnings.simplefilter("ignore")  # a login without encryption: nothing leaves this network
    mailbox = Mailbox()
    server = Controller(
        mailbox, hostname="127.0.0.1", port=PORT, authenticator=login, auth_required=True, auth_require_tls=False
    )
    server.start()
    environment = surroundings(folder)
    with Ledger.open(folder=folder / "data" / "costgpu") as ledger:
        plant(ledger, [Closed(started=datetime.now(UTC).replace(microsecond=0), seconds=60, cost=Decimal(170))])
    said = [run(environment, "budget", "set", "everything", "--total", "200", "--alert", "80")]
    subprocess.run(["crontab", "-"], input=FOREIGN, check=True)
    install = ["budget", "cron", "--every", "1m", "--install"]
    said += [run(environment, *install), run(environment, *install)]
    installed = crontab()
    daemon = subprocess.Popen(["/usr/sbin/cron", "-f"], env={"PATH": "/usr/bin:/bin"})
    wait_for(FIRED)
    last = subprocess.run(
        [str(COSTGPU), "budget", "check"], env=environment, capture_output=True, text=True, check=False
    )
    alive = daemon.poll() is None
    said.append(run(environment, "budget", "cron", "--remove"))
    mails = sorted(Path("/run").glob("cron-mail-*"), key=lambda path: path.stat().st_mtime)
    found = {
        "said": said,
        "installed": installed.decode("latin-1"),
        "removed": crontab().decode("latin-1"),
        "foreign": FOREIGN.decode("latin-1"),
        "refused": mailbox.refused,
        "taken": mailbox.taken,
        "alive": alive,
        "cron_mail": [path.read_text() for path in mails],
        "fired": FIRED.read_bytes().count(b"\n"),
        "last": {"code": last.returncode, "stdout": last.stdout, "stderr": last.stderr},
    }
    (folder / "found.json").write_text(json.dumps(found))


def login(_server: object, _session: object, _envelope: object, _mechanism: str, data: Any) -> AuthResult:
    """Only who knows the password may send."""
    known = isinstance(data, LoginPassword) and data.password == SECRET.encode()
    return AuthResult(success=known)


def private_mounts() -> None:
    """Cron's places, and a sendmail, that are only ours. Nothing of the machine's own cron is to be seen."""

    def mount(*words: str) -> None:
        subprocess.run(["mount", *words], check=True)

    mount("-t", "tmpfs", "-o", "mode=755", "cron", "/var/spool/cron")
    crontabs = Path("/var/spool/cron/crontabs")
    crontabs.mkdir()
    shutil.chown(crontabs, "root", "crontab")
    crontabs.chmod(0o1730)
    if Path("/etc/cron.d").is_dir():
        mount("-t", "tmpfs", "-o", "mode=755", "cron", "/etc/cron.d")
    if Path("/etc/crontab").exists():
        mount("--bind", "/dev/null", "/etc/crontab")
    mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    original, ours = Path("/run/sbin"), Path("/run/sbin-with-sendmail")
    original.mkdir()
    ours.mkdir()
    mount("--bind", "/usr/sbin", str(original))
    for program in original.iterdir():
        (ours / program.name).symlink_to(program)
    (ours / "sendmail").unlink(missing_ok=True)
    (ours / "sendmail").write_text(SENDMAIL)
    (ours / "sendmail").chmod(0o755)
    mount("--bind", str(ours), "/usr/sbin")


def surroundings(folder: Path) -> dict[str, str]:
    """The terminal of a person with settings of their own; paths that cron and sh would trip over."""
    places = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "data", "cache", "state")}
    config = folder / "config" / "costgpu" / "config.toml"
    config.parent.mkdir(parents=True)
    url = f"mailto://user:{SECRET}@127.0.0.1:{PORT}/?from=costgpu@example.com&to=me@example.com&mode=insecure"
    config.write_text(f'alert_urls = ["{url}"]\n')
    config.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home()), "NO_COLOR": "1", **places}


def run(environment: dict[str, str], *words: str) -> str:
    """What a command says; it has to succeed."""
    done = subprocess.run([str(COSTGPU), *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"costgpu {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def crontab() -> bytes:
    """As cron reads it; without the three lines that the command has put above."""
    return Path("/var/spool/cron/crontabs/root").read_bytes().split(b"\n", 3)[3]


def wait_for(fired: Path) -> None:
    """Until cron has fired so often and what it has started is over."""
    until = time.monotonic() + 60 * (FIRINGS + 1)
    while not fired.exists() or fired.read_bytes().count(b"\n") < FIRINGS:
        if time.monotonic() > until:
            raise RuntimeError("cron does not fire")
        time.sleep(0.5)
    time.sleep(2)
    while _checking():
        if time.monotonic() > until + 60:
            raise RuntimeError("a check does not end")
        time.sleep(0.5)
    time.sleep(1)  # for its mail


def _checking() -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"budget\0check" in (process / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]))
