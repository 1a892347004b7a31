"""A PostgreSQL server of the tests' own: Debian's, in a temporary folder, reached by a socket in it and no other way.

python -m tests.ledger.postgres   installs it (as root, on Debian and its relatives)
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PACKAGE = "postgresql"
USER = "costgpu"
TEMPLATE = "migrated"
REQUIRED = "TESTBED_REQUIRED"  # as for the emulated cloud: set where a skipped test would be a hole
_HOMES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")


def programs() -> Path | None:
    """The folder of the newest server's programs; None if there is none."""
    found = [path for home in _HOMES for path in Path("/").glob(home[1:]) if (path / "initdb").exists()]
    if not found and (here := shutil.which("initdb")) is not None:
        return Path(here).parent
    return max(found, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.replace("pgsql-", "").split(".") if part.isdigit())


def obstacle() -> str:
    """Why no server can be had; empty if nothing is in the way."""
    if programs() is None:
        return f"PostgreSQL is not installed: apt-get install {PACKAGE}"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and setpriv is not there to become somebody else"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed: pip install 'costgpu[postgresql]'"
    return ""


@dataclass
class Server:
    """A running server. `start` it, and `close` it in the end.

    Attributes:
        folder: Of its data, socket and log.
    """

    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def start(cls) -> Server:
        """A new, empty one."""
        made = cls(Path(tempfile.mkdtemp(prefix="costgpu-pg-")))  # short: a socket's path has 107 characters at most
        made.folder.chmod(0o755)
        if os.geteuid() == 0:
            account = _account()
            os.chown(made.folder, account.pw_uid, account.pw_gid)
        # Linguistic order by default, as on people's servers: what must be in byte order has to ask for it.
        order = ("--locale=C.UTF-8", "--encoding=UTF8", "--locale-provider=icu", "--icu-locale=en-US")
        made._run("initdb", "-D", str(made.data), "-U", USER, "-A", "trust", "--no-sync", *order)
        made.up()
        return made

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    def up(self) -> None:
        """Starts it, on the data that are there; returns when it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "120",
            "log_min_messages": "fatal",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self.data), *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while self._call("pg_isready", "-h", str(self.folder), "-U", USER).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def down(self, how: int = signal.SIGINT) -> None:
        """Stops it: SIGINT breaks connections off, SIGKILL is a crash."""
        if self._process is None:
            return
        children = psutil.Process(self._process.pid).children()
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None
        psutil.wait_procs(children, timeout=60)

    def close(self) -> None:
        """Stops it and removes everything."""
        self.down(signal.SIGQUIT)  # at once: its data are not needed any more
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """Of a database."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    @staticmethod
    def name_in(url: str) -> str:
        """The database of one of its URLs."""
        return url.removeprefix(f"postgresql://{USER}@/").partition("?")[0]

    def database(self, *, like: str = "template0") -> str:
        """The URL of a new database.

        Args:
            like: What it is a copy of: ``template0`` is empty.
        """
        name = f"test{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name} TEMPLATE {like}")
        return self.url(name)

    def sql(self, database: str, statement: str) -> str:
        """What psql says to it, with an account that may do anything."""
        done = self._call("psql", "-h", str(self.folder), "-U", USER, "-d", database, "-qAtX", "-c", statement)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
        return done.stdout

    def _run(self, program: str, *words: str) -> None:
        done = self._call(program, *words)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stdout[-2000:]}")

    def _call(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(program, *words),
            cwd=self.folder,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _command(self, program: str, *words: str) -> Sequence[str]:
        home = programs()
        if home is None:
            raise RuntimeError(obstacle())
        command = [str(home / program), *words]
        if os.geteuid() != 0:
            return command
        account = _account()
        become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        return [*become, "--pdeathsig=QUIT", *command]  # it never outlives the tests


def _account() -> pwd.struct_passwd:
    """Somebody who is not root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("there is neither a user postgres nor a user nobody")


def prepare() -> int:
    """Installs it, or says why tests will be skipped."""
    if programs() is None and os.geteuid() == 0 and shutil.which("apt-get") and os.environ.get("TESTBED") != "no":
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", PACKAGE]):
            done = subprocess.run(
                ["apt-get", "--quiet", *words],
                env=environment,
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if done.returncode != 0 and words[0] == "install":
                print(f"testbed: apt-get install {PACKAGE} failed:\n{done.stdout[-2000:]}", file=sys.stderr)
    reason = obstacle()
    if reason:
        print(f"testbed: tests of the ledger in PostgreSQL will be skipped: {reason}", file=sys.stderr)
    return 1 if reason and os.environ.get(REQUIRED) else 0


if __name__ == "__main__":
    sys.exit(prepare())
