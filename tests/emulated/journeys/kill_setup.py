"""What tests that kill clients by the dozen share: their computers, what their jobs say of themselves, and cron."""

from __future__ import annotations

import http.server
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from costgpu.errors import OrphansFound
from costgpu.providers.base import TAG_RUN
from tests.emulated.journeys.accounts import Cloud, account_of
from tests.emulated.journeys.journey import COMMAND, KILLABLE, Client, Person
from tests.emulators.guests.network import GATEWAY

CRON_AHEAD = 600.0  # cron comes some minutes later; then a machine that nobody can see was never created
HELD = ("/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh")  # keeps its number
JOB = """
import os, sys, time, urllib.request
def tell(what):
    try:
        urllib.request.urlopen("http://%s/%s/%s" % (sys.argv[1], what, sys.argv[2]), timeout=2).close()
    except OSError:
        pass  # its network is cut
tell("begun")
print("begun", flush=True)
time.sleep(float(sys.argv[3]))
open("model.bin", "w").write("weights of " + sys.argv[2])
tell("done")
"""


class Witness:
    """Hears from the jobs themselves, wherever they run: what was begun and what was done."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        witness = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                witness.heard[self.path] += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer((GATEWAY, 0), Handler)
        self.address = f"{GATEWAY}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class KillSetup:
    """Runs of many people in one cloud, to be killed."""

    cloud: Cloud
    folder: Path
    witness: Witness
    waiting: int = 0  # runs that wait for cron
    kills: Counter[str] = field(default_factory=Counter)  # what was killed or cut, by kind
    clients: list[Client] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _people: int = 0

    def close(self) -> None:
        for client in self.clients:
            client.kill()
        self.witness.close()
        self.cloud.reset()

    def summary(self, requests: int, writes: int, cron: Cron) -> str:
        """One line for the person who runs the tests."""
        kills = ", ".join(f"{what}: {count}" for what, count in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kills}) around {requests} API requests and {writes} ledger writes;"
            f" cron came {cron.runs} times"
        )

    def person(self, name: str, computer: str) -> Person:
        """Somebody with a job of that name, on a computer that others may use, too."""
        with self._lock:
            self._people += 1
            number = self._people
        home = self.folder / "computers" / computer
        home.mkdir(parents=True, exist_ok=True)
        found = Person(self.cloud, self.folder / name, account_of(self.cloud).key(number), computer=home)
        found.write(JOB)
        return found

    def launch(self, person: Person, at: str = "", *options: str, seconds: float = 1.0, held: bool = False) -> Client:
        """The person's run of so many seconds; with a point in it where it dies or stops, or stopped before it begins."""
        script = f"train.py {self.witness.address} {person.name} {seconds}"
        command = (*KILLABLE, "--at", at, "--") if at else (*HELD, *COMMAND) if held else COMMAND
        client = person.launch(*options, script=script, command=command)
        with self._lock:
            self.clients.append(client)
        return client

    def killed(self, what: str) -> None:
        with self._lock:
            self.kills[what] += 1

    def settled(self, person: Person, seconds: float = 120.0) -> None:
        """Waits until cron has closed the person's runs; a run that was never recorded needs no closing."""
        with self._lock:
            self.waiting += 1
        try:
            deadline = time.monotonic() + seconds
            while any(events[-1] != "closed" for events in person.histories() if events):
                about = f"{person.histories()} {person.instances()}"
                assert time.monotonic() < deadline, f"{person.name} is not closed: {about}"
                time.sleep(0.3)
        finally:
            with self._lock:
                self.waiting -= 1

    def check(self, person: Person, *, home: bool | None = None) -> None:
        """What must hold of a job that is over. `home`: whether its outputs must be; None for if the job was done."""
        rows = person.instances()
        machines = {each["id"]: each["state"] for each in rows}
        about = f"{person.name}: {person.histories()} {machines}"
        assert len(machines) <= 1, f"two machines: {about}"
        assert set(machines.values()) <= {"terminated"}, f"a machine is left: {about}"
        assert {each["tags"][TAG_RUN] for each in rows} <= set(person.run_ids()), f"a machine without a record: {about}"
        assert self.witness.heard[f"/begun/{person.name}"] <= 1, f"the job ran twice: {about}"
        if home or (home is None and self.witness.heard[f"/done/{person.name}"]):
            model = person.work / "model.bin"
            assert model.exists(), f"its outputs are lost: {about}"
            assert model.read_text() == f"weights of {person.name}", about


class Cron:
    """`costgpu reap --yes`, again and again as long as somebody waits for it, several at a time."""

    def __init__(self, setup: KillSetup, computer: str, *, at_once: int = 2) -> None:
        self._setup, self._done = setup, threading.Event()
        self.runs = 0
        self.failures: list[str] = []
        clock = setup.folder / "cron-clock"
        clock.write_text(f"{CRON_AHEAD}")
        users = [setup.person(f"cron-{number}", computer) for number in range(at_once)]
        self._threads = [threading.Thread(target=self._run, args=(user, clock), daemon=True) for user in users]
        for each in self._threads:
            each.start()

    def _run(self, user: Person, clock: Path) -> None:
        last = 0.0
        while not self._done.wait(0.2):
            if self._setup.waiting > 2 or (self._setup.waiting and time.monotonic() - last > 4):
                words = ("reap", "--yes", "--infra", user.account.infra)
                client = user.start(*words, command=(*KILLABLE, "--clock", str(clock), "--"))
                self.runs += 1
                if client.wait(300) not in (0, OrphansFound.exit_code):  # what it found leaking it has ended
                    self.failures.append(str(client))
                last = time.monotonic()

    def close(self) -> None:
        self._done.set()
        for each in self._threads:
            each.join()
