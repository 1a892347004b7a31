"""People who use costgpu in tests: the real command line as processes of their own, on the emulated cloud.

A `Person` has a computer (home, ledger, keys), credentials of their own, and folders with scripts. Many can be at work
at once: faults and kill orders of the cloud are told apart by the access key.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import OrphansFound
from costgpu.providers.base import TAG_RUN
from tests.emulated.journeys.accounts import Account, Cloud, account_of
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.emulator_client import ROOT
from tests.emulators.guests import guest_control, namespace
from tests.emulators.guests.guest_control import InGuest

COMMAND = (str(Path(sys.executable).with_name("costgpu")),)
KILLABLE = (sys.executable, "-m", "tests.emulated.journeys.killable_client")
LEASE_SECONDS = 1800.0  # more than what the accounts' caps are good for
WAITS = """
import os, signal, sys, time
def save(*_):
    open("checkpoint", "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("partial", "w").write("half")
print("begun", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
open("model.bin", "w").write("weights")
print("done", flush=True)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
"""A job that goes on until somebody tells it to, and saves something when it is ended."""
UNSEEN_SECONDS = 600.0  # after so long, a machine that nobody can see was never created
QUICK_AGENT = "COSTGPU_AGENT_LINGER_SECONDS=1 COSTGPU_AGENT_CONTACT_SECONDS=1"
"""An agent that does not wait two minutes for a client that has gone."""


class Client:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, said: Path) -> None:
        said.mkdir(parents=True)
        self._command = list(command)
        self._out, self._err = said / "stdout", said / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> bytes:
        return self._out.read_bytes()

    @property
    def err(self) -> bytes:
        return self._err.read_bytes()

    def says(self, text: str) -> bool:
        """Whether it has said so on stderr, wherever its lines were broken."""
        return " ".join(text.split()) in " ".join(self.err.decode(errors="replace").split())

    def wait(self, seconds: float = 90.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end after {seconds} s\n{self}") from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def until(self, condition: Callable[[], object], seconds: float = 60.0, what: str = "") -> None:
        """Waits for something that must come while the process lives."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it ended with {self.process.returncode} before {what}\n{self}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self}"
            time.sleep(0.05)

    def until_stopped(self, seconds: float = 60.0) -> None:
        path = Path(f"/proc/{self.process.pid}/stat")
        self.until(lambda: path.read_text().rpartition(")")[2].split()[0] == "T", seconds, "it stops")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __str__(self) -> str:
        texts = (f"--- {path.name}\n{path.read_text(errors='replace')}" for path in (self._out, self._err))
        return f"{self._command}: {self.process.poll()}\n" + "\n".join(texts)


@dataclass
class Person:
    """Somebody with a computer and credentials."""

    cloud: Any  # where: a `RunningEc2` or a `RunningComputeEngine`
    folder: Path  # of everything that is theirs
    key: str  # requests of theirs are known by it; see `Account.key`
    extra: dict[str, str] = field(default_factory=dict)  # more variables of their environment
    _count: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def account(self) -> Account:
        return account_of(self.cloud)

    @property
    def work(self) -> Path:
        return self._made("work")

    @property
    def home(self) -> Path:
        return self._made("home")

    @property
    def data(self) -> Path:
        return self.home / "data" / "costgpu"

    @property
    def ledger(self) -> Path:
        return self.data / "ledger.sqlite"

    def environment(self) -> dict[str, str]:
        places = {f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "80",
            **places,
            "PYTHONPATH": str(ROOT),
            **self.account.environment(self.key),
            **namespace.CALLER,
            **self.extra,
        }

    def write(self, text: str, name: str = "train.py") -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def holds(self, name: str, text: str) -> bool:
        """Whether a file in their folder holds this; one that is not there fails with all that was said to them."""
        path = self.work / name
        if not path.exists():
            said = sorted(self.folder.glob("said-*/*"))
            texts = (f"--- {each.parent.name}/{each.name}\n{each.read_text(errors='replace')}" for each in said)
            raise AssertionError(f"{path} is not there\n" + "\n".join(texts))
        return path.read_text() == text

    def start(self, *words: str, command: Sequence[str] = COMMAND) -> Client:
        self._count += 1
        return Client([*command, *words], self.environment(), self.work, self.folder / f"said-{self._count}")

    def do(self, *words: str, code: int = 0) -> Client:
        client = self.start(*words)
        assert client.wait() == code, str(client)
        return client

    def launch(
        self,
        *options: str,
        script: str = "train.py",
        name: str = "",
        kind: str = "",
        cap: str = "",
        infra: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> Client:
        """``costgpu run`` in the background, with what all of them have in common."""
        account = self.account
        places = [word for each in infra or (account.infra,) for word in ("--infra", each)]
        what = ("-t", kind or account.kind, "--max-cost", cap or account.cap)
        fixed = ("-y", "--no-estimate", "--setup", "", "-n", name or self.name)
        return self.start("run", *places, *what, *fixed, *options, *script.split(), command=command)

    def ran(self, *options: str, code: int = 0, **what: Any) -> Client:
        """`launch`, to the end."""
        client = self.launch(*options, **what)
        assert client.wait() == code, str(client)
        return client

    def begun(self, *options: str, **what: Any) -> Client:
        """`launch` of a job that waits, which has begun."""
        self.write(WAITS)
        client = self.launch(*options, **what)
        client.until(lambda: b"begun" in client.out, what="the job runs")
        return client

    def go(self) -> None:
        """The job that waits goes on."""
        self.guest().run("touch", "/opt/costgpu/work/go")

    @property
    def name(self) -> str:
        """Of their job, unless they give it another one."""
        return self.folder.name.replace("_", "-")[:40]

    def fault(self, action: str, **more: Any) -> None:
        """Something goes wrong with the requests of theirs; see `faults.Fault`."""
        self.cloud.fault({"action": action, "access_key": self.key, **more}, add=True)

    def release(self) -> None:
        """Let the requests of theirs go on that a fault holds."""
        self.cloud.release(self.key)

    def run_id(self, name: str = "") -> str:
        """Of the job's newest run, as the ledger has it; empty if it has none."""
        return next(iter(reversed(self.run_ids(name))), "")

    def run_ids(self, name: str = "") -> list[str]:
        """Of all runs of the job, the oldest first; one for each machine, in the order of their numbers."""
        rows = self._rows("SELECT run_id FROM runs WHERE name = ? ORDER BY run", name or self.name)
        return [str(row[0]) for row in rows]

    def events(self, run_id: str = "") -> list[str]:
        """Kinds of the events of a run, in order."""
        rows = self._rows("SELECT kind FROM events WHERE run_id = ? ORDER BY sequence", run_id or self.run_id())
        return [str(kind) for (kind,) in rows]

    def facts(self, kind: str, run_id: str = "") -> dict[str, Any]:
        query = "SELECT data FROM events WHERE run_id = ? AND kind = ? ORDER BY sequence"
        found: dict[str, Any] = json.loads(self._rows(query, run_id or self.run_id(), kind)[-1][0])
        return found

    def instances(self, name: str = "") -> list[dict[str, Any]]:
        return self.account.instances(name or self.name)

    def states(self) -> list[str]:
        return [each["state"] for each in self.instances()]

    def until_state(self, state: str, seconds: float = 60.0) -> None:
        """Waits until that is the state of the one machine that they ever had."""
        until(lambda: self.states() == [state], seconds, f"the machine of {self.name} is {state}")

    def ended(self, *, instances: int = 1) -> None:
        """Nothing of their jobs is left, and the ledger says so."""
        assert self.states() == ["terminated"] * instances
        assert [self.events(run_id)[-1] for run_id in self.run_ids()] == ["closed"] * len(self.run_ids())
        assert self.left() == []

    def left(self) -> list[str]:
        """What is still there of their runs, besides the machines."""
        run_ids = self.run_ids()
        return [each for each in leftovers(self.cloud) if any(run_id in each for run_id in run_ids)]

    def receipt(self) -> dict[str, Any]:
        found: dict[str, Any] = self.facts("closed")["receipt"]
        return found

    def machine_of(self, run_id: str) -> dict[str, Any]:
        """The machine that runs or ran for one of the job's runs; empty if there is none."""
        found = [each for each in self.instances() if each["tags"].get(TAG_RUN) == run_id]
        return found[-1] if found else {}

    def guest(self, name: str = "", seconds: float = 60.0, *, run_id: str = "") -> InGuest:
        """The machine of a job, or of one of its runs, as soon as it has power."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            rows = [self.machine_of(run_id)] if run_id else self.instances(name)
            found[:] = [each for each in rows if each.get("state") == "running"]
            return bool(found) and InGuest(found[0]["guest"]).leader > 0

        until(there, seconds, f"the machine of {name or self.name} runs")
        return InGuest(found[0]["guest"])

    def reap(self, ahead: float = 0.0) -> None:
        """Somebody runs `reap --yes`, so many seconds later; its exit code says whether anything was found."""
        clock = self.folder / "clock"
        clock.write_text(f"{ahead}")
        words = ("reap", "--yes", "--infra", self.account.infra)
        client = self.start(*words, command=(*KILLABLE, "--clock", str(clock), "--"))
        assert client.wait(120) in (0, OrphansFound.exit_code), str(client)

    def requests(self) -> list[dict[str, Any]]:
        return [row for row in self.cloud.requests() if row["access_key"] == self.key]

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if not self.ledger.exists():
            return []
        connection = sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=30)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def until(condition: Callable[[], object], seconds: float = 60.0, what: str = "") -> None:
    """Waits as `guests.until`, but asks less often: many wait at the same time."""

    def slowly() -> object:
        found = condition()
        time.sleep(0.0 if found else 0.2)
        return found

    guest_control.until(slowly, seconds, what)


def hurry(guest: InGuest) -> None:
    """Its agent, from now on, powers off soon after the last client has gone and the outputs are safe."""
    folder = "/run/systemd/system/costgpu-agent.service.d"
    text = f"[Service]\\nEnvironment={QUICK_AGENT}\\n"
    guest.run("sh", "-c", f"mkdir -p {folder}; printf '{text}' >{folder}/quick.conf; systemctl daemon-reload")
    guest.run("systemctl", "restart", "costgpu-agent")


def leftovers(cloud: Cloud) -> list[str]:
    """Rules and disks of ours that are still there, in every region that was used."""
    import boto3

    if isinstance(cloud, RunningComputeEngine):
        rows: list[str] = cloud.leftovers()
        return rows
    found = []
    for region in sorted({each["region"] for each in cloud.instances()}):
        session = boto3.Session("AKIALOOK", "secret", region_name=region)
        ec2 = session.client("ec2", endpoint_url=cloud.url)
        groups = ec2.describe_security_groups()["SecurityGroups"]
        found += [group["GroupName"] for group in groups if group["GroupName"].startswith("costgpu-")]
        found += [group["GroupName"] for group in ec2.describe_placement_groups()["PlacementGroups"]]
        found += [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"] if volume.get("Tags")]
    return found


def bucket(person: Person, name: str) -> Any:
    """A new one of that name; the S3 client of its owner."""
    import boto3

    s3 = boto3.Session("AKIAOWNER", "secret").client("s3", endpoint_url=person.cloud.url, region_name="us-east-1")
    s3.create_bucket(Bucket=name)
    return s3


class Journeys:
    """Tests that run side by side: each is a function of a `Person` of its own, all in one cloud.

    Used as a decorator it collects them; `begin` starts those that are wanted, `wait` is for one of them.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Callable[[Person], None]] = {}
        self._running: dict[str, Future[None]] = {}

    def __call__(self, function: Callable[[Person], None]) -> Callable[[Person], None]:
        self._functions[function.__name__] = function
        return function

    @property
    def names(self) -> list[str]:
        return list(self._functions)

    def begin(self, request: pytest.FixtureRequest, cloud: Cloud, folder: Path, workers: int = 6) -> Iterator[None]:
        """The body of a module's fixture: those of its tests that were selected start, at most so many at a time."""
        items = [item for item in request.session.items if isinstance(item, pytest.Function)]
        wanted = {
            item.callspec.params.get("name")
            for item in items
            if item.module is request.module and hasattr(item, "callspec")
        }
        cloud.reset()
        pool = ThreadPoolExecutor(workers)
        for number, (name, function) in enumerate(self._functions.items()):
            if name in wanted:
                person = Person(cloud, folder / name, account_of(cloud).key(number))
                self._running[name] = pool.submit(function, person)
        try:
            yield
        finally:
            pool.shutdown(cancel_futures=True)
            cloud.reset()

    def wait(self, name: str) -> None:
        """For one; raises what it has raised."""
        self._running[name].result()
