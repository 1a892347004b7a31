"""What is done to one run on a battlefield, in any cloud: its client, its agent or its network is lost somewhere."""

from __future__ import annotations

import time
from typing import Any

from tests.emulated.journeys.kill_setup import CRON_AHEAD, Battlefield


def points_of_a_journey(ground: Battlefield) -> tuple[list[str], list[str]]:
    """The API requests and the ledger writes of a journey without trouble; requests that only wait count once."""
    person = ground.person("whole", "whole")
    client = ground.launch(person)
    assert client.wait() == 0, str(client)
    ground.check(person, home=True)
    requests: list[tuple[str, Any]] = []
    for row in person.requests():
        if not requests or requests[-1] != (row["name"], row["params"]):
            requests.append((row["name"], row["params"]))
    return [name for name, _ in requests], person.events()


def killed_at_a_request(ground: Battlefield, number: int, when: str, *, action: str = "") -> None:
    """At the n-th of all, or of those of one action."""
    person = ground.person(f"api-{action.replace('.', '-')}{number:02d}-{when}".lower(), "shared")
    client = ground.launch(person, held=True)
    client.until_stopped()
    ground.cloud.kill(client.process.pid, number, when, access_key=person.key, action=action, series=True)
    client.go_on()
    assert client.wait(120) == -9, str(client)
    ground.killed("client at an API request")
    ground.settled(person)
    ground.check(person)


def killed_at_a_write(ground: Battlefield, kind: str, when: str) -> None:
    person = ground.person(f"ledger-{kind}-{when}", "shared")
    client = ground.launch(person, f"{kind}:{when}:KILL")
    assert client.wait(120) == -9, str(client)
    ground.killed("client at a ledger write")
    own = person.events(before=time.time() + CRON_AHEAD / 2)  # cron may have come already
    assert (kind in own) is (when == "after"), own
    ground.settled(person)
    ground.check(person)


def agent_killed(ground: Battlefield, kind: str, when: str, *, client_too: bool, pattern: str = "[p]yz daemon") -> None:
    person = ground.person(f"agent-{kind}-{when}-{len(pattern)}-{'both' if client_too else 'alone'}", "shared")
    client = ground.launch(person, f"{kind}:{when}:STOP", seconds=1.0 if pattern == "[p]yz daemon" else 60.0)
    client.until_stopped(120)
    assert person.guest().kill(pattern) > 0
    ground.killed("agent")
    if client_too:
        client.kill()
        ground.killed("client beside it")
        ground.settled(person)
    else:
        client.go_on()
        supervisor_too = pattern != "[p]yz daemon"
        assert client.wait(120) == (137 if supervisor_too and kind == "started" else 0), str(client)
    ground.check(person)


def network_cut(ground: Battlefield, kind: str, when: str, *, client_too: bool) -> None:
    person = ground.person(f"network-{kind}-{when}-{'both' if client_too else 'alone'}", "shared")
    client = ground.launch(person, f"{kind}:{when}:STOP")
    client.until_stopped(120)
    guest = person.guest()
    guest.cut_network()
    ground.killed("network")
    if client_too:
        client.kill()
        ground.killed("client beside it")
    else:
        client.go_on()
    time.sleep(4)
    guest.restore_network()
    if client_too:
        ground.settled(person)
        ground.check(person)
    else:
        assert client.wait(120) == 0, str(client)
        ground.check(person, home=True)
