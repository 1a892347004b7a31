"""Clients, agents and networks of jobs on two machines are lost: a sample, or with FULL=1 all.

As in `test_kills`, which has the points of one machine: afterwards only time passes, and cron runs `costgpu reap --yes`. No
machine is left, no job ever has a third one, and what the machines share is gone.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulated.journeys.accounts import Cloud
from tests.emulated.journeys.journey import leftovers
from tests.emulated.journeys.kill_points import (
    Case,
    agent_killed,
    calls_of,
    killed_at_a_request,
    killed_at_a_write,
    network_cut,
    run_cases,
    sample,
    whole_journey,
)
from tests.emulated.journeys.kill_setup import Cron, KillSetup, Witness
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits

pytestmark = pytest.mark.emulator
MEETING = "COSTGPU_AGENT_MEETING_SECONDS=30 COSTGPU_AGENT_CONNECT_SECONDS=3"
"""Shorter than in the world outside, and longer than what any of these kills holds the other machine up."""
AT_ONCE = 5


def new_setup(cloud: Cloud, folder: Path) -> Iterator[KillSetup]:
    guest_control.set_traits(Traits(agent=MEETING))
    cloud.reset()
    made = KillSetup(cloud=cloud, folder=folder, witness=Witness(), nodes=2)
    yield made
    made.close()
    guest_control.set_traits(None)


@pytest.fixture
def aws_setup(guest_cloud_process: RunningEc2, tmp_path: Path) -> Iterator[KillSetup]:
    yield from new_setup(guest_cloud_process, tmp_path)


def cases(calls: list[tuple[str, int]], writes: list[str], nodes: tuple[int, ...]) -> Iterator[Case]:
    """What is done to jobs, and to these of their machines; those that wait longest first."""
    for both in (True, False):
        for node in nodes:
            options = {"client_too": both, "node": node}
            yield from (Case(network_cut, (kind, "after"), options) for kind in ("reached", "started", "finished"))
            yield from (Case(agent_killed, (kind, "after"), options) for kind in ("started", "finished"))
    for when in ("before", "after"):
        yield from (Case(killed_at_a_write, (kind, when), {"nth": nth}) for kind in writes for nth in (1, 2))
        yield from (Case(killed_at_a_request, (nth, when), {"action": action}) for action, nth in calls)


def kill_many(setup: KillSetup, nodes: tuple[int, ...]) -> str:
    """All `cases`; what to tell the person who runs the tests."""
    began = time.monotonic()
    person = whole_journey(setup)
    calls, writes = calls_of(person), person.events()
    cron = Cron(setup, "shared")
    chosen, choice = sample(cases(calls, writes, nodes), each=1)
    troubles = run_cases(setup, chosen, AT_ONCE)
    cron.close()
    assert troubles == [], "\n\n".join([choice, *troubles])
    assert cron.failures == []
    assert setup.cloud.alive() == []
    assert leftovers(setup.cloud) == []
    groups = Counter(each["tags"]["costgpu-group"] for each in setup.cloud.instances())
    assert max(groups.values()) == 2
    homes = len(list(setup.folder.glob("*/work/model.bin")))
    return (
        f"{choice}: {len(chosen)} jobs on two machines, of which {len(groups)} had one:"
        f" {setup.summary(len(calls), len(writes), cron)}. No machine left, never a third, nothing shared left,"
        f" outputs of {homes} jobs home. {time.monotonic() - began:.0f} s"
    )


@pytest.mark.timeout(1800)
def test_kills_on_aws(aws_setup: KillSetup, record_property: Callable[[str, object], None]) -> None:
    record_property("said", kill_many(aws_setup, (0, 1)))
