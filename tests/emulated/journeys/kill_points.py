"""What is done to one run, in any cloud: its client, its agent or its network is lost somewhere.

`sample` chooses a few of all cases, of every kind of kill at least one; FULL=1 chooses all, SEED repeats a choice.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.emulated.journeys.kill_setup import CRON_AHEAD, KillSetup
from tests.emulators.guests.guest_control import NoGuest


@dataclass(frozen=True)
class Case:
    """A kill of one run: a function of the set-up, and its arguments."""

    kill: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kill.__name__}{self.arguments}{self.options}"

    @property
    def group(self) -> str:
        """Cases of one kind: the same kill, at another point."""
        moment = next((each for each in self.arguments if each in ("before", "after")), "")
        options = {name: value for name, value in self.options.items() if name != "action"}
        return f"{self.kill.__name__} {moment} {options}"


def sample(cases: Iterable[Case]) -> tuple[list[Case], str]:
    """Choose one case of each kind, in their order, and say how to choose the same ones again."""
    every = list(cases)
    if os.environ.get("FULL"):
        return every, "FULL=1"
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    groups = defaultdict(list)
    for case in every:
        groups[case.group].append(case)
    dice = random.Random(seed)
    chosen = [dice.choice(group) for group in groups.values()]
    return [case for case in every if case in chosen], f"SEED={seed}"


def run_cases(setup: KillSetup, cases: Iterable[Case], at_once: int) -> list[str]:
    """Runs them side by side; what went wrong."""
    troubles: list[str] = []

    def run(case: Case) -> None:
        try:
            case.kill(setup, *case.arguments, **case.options)
        except (AssertionError, NoGuest, OSError) as trouble:
            troubles.append(f"{case}: {trouble}")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run, cases))
    return troubles


def points_of_a_journey(setup: KillSetup) -> tuple[list[str], list[str]]:
    """The API requests and the ledger writes of a journey without trouble; requests that only wait count once."""
    person = setup.person("whole", "whole")
    client = setup.launch(person)
    assert client.wait() == 0, str(client)
    setup.check(person, home=True)
    requests: list[tuple[str, Any]] = []
    for row in person.requests():
        if not requests or requests[-1] != (row["name"], row["params"]):
            requests.append((row["name"], row["params"]))
    return [name for name, _ in requests], person.events()


def killed_at_a_request(setup: KillSetup, number: int, when: str, *, action: str = "") -> None:
    """At the n-th of all, or of those of one action."""
    person = setup.person(f"api-{action.replace('.', '-')}{number:02d}-{when}".lower(), "shared")
    client = setup.launch(person, held=True)
    client.until_stopped()
    setup.cloud.kill(client.process.pid, number, when, access_key=person.key, action=action, series=True)
    client.go_on()
    assert client.wait(120) == -9, str(client)
    setup.killed("client at an API request")
    setup.settled(person)
    setup.check(person)


def killed_at_a_write(setup: KillSetup, kind: str, when: str) -> None:
    person = setup.person(f"ledger-{kind}-{when}", "shared")
    client = setup.launch(person, f"{kind}:{when}:KILL")
    assert client.wait(120) == -9, str(client)
    setup.killed("client at a ledger write")
    own = person.events(before=time.time() + CRON_AHEAD / 2)  # cron may have come already
    assert (kind in own) is (when == "after"), own
    setup.settled(person)
    setup.check(person)


def agent_killed(setup: KillSetup, kind: str, when: str, *, client_too: bool, pattern: str = "[p]yz daemon") -> None:
    person = setup.person(f"agent-{kind}-{when}-{len(pattern)}-{'both' if client_too else 'alone'}", "shared")
    client = setup.launch(person, f"{kind}:{when}:STOP", seconds=1.0 if pattern == "[p]yz daemon" else 60.0)
    client.until_stopped(120)
    assert person.guest().kill(pattern) > 0
    setup.killed("agent")
    if client_too:
        client.kill()
        setup.killed("client beside it")
        setup.settled(person)
    else:
        client.go_on()
        supervisor_too = pattern != "[p]yz daemon"
        assert client.wait(120) == (137 if supervisor_too and kind == "started" else 0), str(client)
    setup.check(person)


def network_cut(setup: KillSetup, kind: str, when: str, *, client_too: bool) -> None:
    person = setup.person(f"network-{kind}-{when}-{'both' if client_too else 'alone'}", "shared")
    client = setup.launch(person, f"{kind}:{when}:STOP")
    client.until_stopped(120)
    guest = person.guest()
    guest.cut_network()
    setup.killed("network")
    if client_too:
        client.kill()
        setup.killed("client beside it")
    else:
        client.go_on()
    time.sleep(4)
    guest.restore_network()
    if client_too:
        setup.settled(person)
        setup.check(person)
    else:
        assert client.wait(120) == 0, str(client)
        setup.check(person, home=True)
