"""On Google Cloud, too, the client is killed around API requests and ledger writes, the agent and the network in between.

As `test_kill_everywhere`, with fewer points: the engine is the same, the adapter and what a power-off means are not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.emulated.journeys.journey import until
from tests.emulated.journeys.kill_points import (
    agent_killed,
    killed_at_a_request,
    killed_at_a_write,
    network_cut,
    points_of_a_journey,
)
from tests.emulated.journeys.kill_setup import Battlefield, Cron, Witness
from tests.emulators.compute_engine.client import PROJECT, RunningGce
from tests.emulators.compute_engine.google_client import Google, done
from tests.emulators.guests import guest_control
from tests.emulators.guests.guest_control import NoGuest

pytestmark = pytest.mark.emulator
AT_ONCE = 6
AROUND = {
    ("firewalls.insert", 1): ("before", "after"),
    ("firewalls.insert", 2): ("after",),
    ("globalOperations.get", 1): ("after",),
    ("instances.insert", 1): ("before", "after"),
    ("zoneOperations.get", 1): ("after",),
    ("instances.delete", 1): ("before", "after"),
    ("instances.aggregatedList", 1): ("after",),
    ("firewalls.delete", 1): ("before", "after"),
    ("firewalls.delete", 2): ("before",),
}
"""Which call of a method: before or after it is executed."""
Case = tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def nothing_of_the_users() -> None:
    """Every client here is a process with an environment of its own; threads of this one talk to the cloud."""


@pytest.fixture
def ground(guest_gce_process: RunningGce, tmp_path: Path) -> Iterator[Battlefield]:
    guest_control.set_traits(None)
    guest_gce_process.reset()
    made = Battlefield(cloud=guest_gce_process, folder=tmp_path, witness=Witness())
    yield made
    for client in made.clients:
        client.kill()
    made.witness.close()
    guest_gce_process.reset()


def power_off(ground: Battlefield, kind: str) -> None:
    """The client is dead and the machine ends itself: it is only stopped, and cron deletes it and its disk."""
    person = ground.person(f"off-{kind}", "shared")
    client = ground.launch(person, f"{kind}:after:STOP")
    client.until_stopped(120)
    person.guest().run(
        "systemctl", "poweroff", "--force", check=False
    )  # as long as it stands still, cron cannot have it
    client.kill()
    ground.killed("client at a ledger write")
    until(lambda: [each["state"] for each in person.instances()] != ["running"], 60, f"{person.name} has stopped")
    ground.settled(person)
    ground.check(person, home=False)


def cases(writes: list[str]) -> Iterator[Case]:
    """What is done to runs; those that wait longest first."""
    yield from ((power_off, (kind,), {}) for kind in ("reached", "finished"))
    yield from ((network_cut, ("started", "after"), {"client_too": both}) for both in (True, False))
    yield from ((agent_killed, ("started", "after"), {"client_too": both}) for both in (True, False))
    yield from ((killed_at_a_write, (kind, "after"), {}) for kind in writes)
    yield from ((killed_at_a_write, (kind, "before"), {}) for kind in ("created", "ending", "confirmed"))
    for (action, number), moments in AROUND.items():
        yield from ((killed_at_a_request, (number, when), {"action": action}) for when in moments)


@pytest.mark.timeout(600)
def test_kill_everywhere(ground: Battlefield, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    assert isinstance(ground.cloud, RunningGce)
    google = Google(ground.cloud)
    foreigners(google)
    requests, writes = points_of_a_journey(ground)
    assert {f"compute:{action}" for action, _ in AROUND} <= set(requests), requests
    cron = Cron(ground, "shared", at_once=1)
    troubles: list[str] = []

    def run(case: Case) -> None:
        function, arguments, options = case
        try:
            function(ground, *arguments, **options)
        except (AssertionError, NoGuest, OSError) as trouble:
            troubles.append(f"{function.__name__}{arguments}{options}: {trouble}")

    todo = list(cases(writes))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, todo))
    cron.close()
    assert troubles == [], "\n\n".join(troubles)
    assert cron.failures == []
    homes = outputs_home(ground)
    assert sorted(each["id"] for each in ground.cloud.alive()) == ["costgpu-train"]
    assert ground.cloud.leftovers() == ["disks/costgpu-train", "firewalls/costgpu-rule"]
    runs = Counter(each["tags"]["costgpu-run"] for each in ground.cloud.instances() if "costgpu-run" in each["tags"])
    assert max(runs.values()) == 1
    line = (
        f"{len(todo)} runs, of which {len(runs)} had a machine: {sum(ground.kills.values())} kills"
        f" ({', '.join(f'{what}: {count}' for what, count in sorted(ground.kills.items()))}) around {len(requests)} API"
        f" requests and {len(writes)} ledger writes; cron came {cron.runs} times. No machine, disk or rule left, outputs of"
        f" {homes} finished jobs home. {time.monotonic() - began:.0f} s"
    )
    record_property("said", line)
    print(line)


def outputs_home(ground: Battlefield) -> int:
    """Of how many finished jobs, for whom the machine could be reached."""
    return len(list(ground.folder.glob("*/work/model.bin")))


def foreigners(google: Google) -> None:
    """A machine and a rule of somebody else's, with names and labels close to ours."""
    google.made(name="costgpu-train", labels={"costgpu": "yes"}, lives=0)
    rule = {
        "name": "costgpu-rule",
        "network": "global/networks/default",
        "source_ranges": ["203.0.113.0/24"],
        "allowed": [{"I_p_protocol": "tcp", "ports": ["443"]}],
        "description": "costgpu",
    }
    done(google.wait(google.firewalls.insert_unary(project=PROJECT, firewall_resource=rule)))
