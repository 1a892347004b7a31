"""What a provider must bring along to be held to the contract: clients, requests, time, and things to go wrong.

`None` from an optional question means that the provider has no such thing, and the check is left out with a reason.
"""

import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from costgpu.clock import Clock, ManualClock, SystemClock
from costgpu.errors import Unreachable
from costgpu.models.instance import CreateRequest, Instance, InstanceRef, InstanceState, NodeGroup
from costgpu.providers.base import Provider
from costgpu.providers.local.provider import LocalProvider
from tests.emulators.create_requests import offer_of, request_of
from tests.fake_cloud import FakeCloud, FakeProvider

SECRET = "LINE-OF-A-PRIVATE-KEY"
BOOT = f"#!/bin/sh\n: {SECRET}\necho this machine is up\n"
RUN = "r7k2m9x4q1ab"


def run_of(node: int) -> str:
    """The run of a node of the group."""
    return RUN if node == 0 else f"node{node}0000000"


class Harness:
    """One provider under test. Subclasses give what differs."""

    name: ClassVar[str]
    region: ClassVar[str]  # where the requests go
    other_region: ClassVar[str | None] = None  # another that the account can use; None if there is none
    instance_type: ClassVar[str]  # what is asked for
    other_type: ClassVar[str]
    placed_type: ClassVar[str] = (
        ""  # a type whose machines can be placed close together; empty if that is `instance_type`
    )
    # whether the machines of a group need something between them that stays when they are gone
    shares_resources: ClassVar[bool] = True
    consistency_seconds: ClassVar[float] = 0.0  # so long queries may not know a new instance
    end_seconds: ClassVar[float] = 60.0  # so long terminating may take
    lease_seconds: ClassVar[float] = 600.0  # a lease that is long enough not to end during a check
    short_lease_seconds: ClassVar[float] = 30.0  # one that is just long enough to boot
    # whether the provider only stops a machine that powers itself off, and keeps its disk
    power_off_stops: ClassVar[bool] = False
    clock: Clock
    _watcher: Provider | None = None

    def client(self) -> Provider:
        """A new one, as another process would have it."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends whatever still runs."""

    def request(self, run_id: str = RUN, attempt: int = 1, **changes: Any) -> CreateRequest:
        """A create call."""
        until = self.clock.now().replace(microsecond=0) + timedelta(seconds=self.lease_seconds)
        offer = changes.pop("offer", None) or offer_of(self.name, self.region, self.instance_type)
        values: dict[str, Any] = {"lease_until": until, "boot_script": BOOT, "tags": {"team": "vision"}, **changes}
        return request_of(offer, run_id, attempt, **values)

    def node(self, number: int, attempt: int = 1, *, nodes: int = 2, **changes: Any) -> CreateRequest:
        """The create call of one of the machines of a group; node 0 is `RUN`'s."""
        offer = offer_of(self.name, self.region, self.placed_type or self.instance_type)
        group = NodeGroup(group_id=RUN, nodes=nodes, node=number, placement=self.shares_resources)
        zone = self.client().zones(offer)[-1]
        return self.request(run_of(number), attempt, offer=offer, zone=zone, group=group, **changes)

    def limit_machines(self, machines: int) -> bool:
        """The quota now holds so many machines of two vCPUs and no more; False where there is none."""
        return False

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits for it; whether it came true in time."""
        end = self.clock.monotonic() + seconds
        while not condition():
            if self.clock.monotonic() > end:
                return False
            self.clock.sleep(0.05)
        return True

    def state(self, ref: InstanceRef) -> InstanceState | None:
        """As a client is told that has done nothing else; None if unknown."""
        self._watcher = self._watcher or self.client()
        found = self._watcher.describe(ref)
        return found.state if found is not None else None

    def over(self, ref: InstanceRef) -> bool:
        """Whether the provider confirms the end."""
        return self.state(ref) in (InstanceState.TERMINATED, None)

    def running(self, request: CreateRequest) -> Instance:
        """Creates, and waits until it runs."""
        ref = self.client().create(request).ref
        assert self.until(lambda: self.state(ref) is InstanceState.RUNNING, 60), "it never ran"
        found = self.client().describe(ref)
        assert found is not None
        return found

    def unknown(self) -> InstanceRef:
        """A well-formed name of no instance."""
        raise NotImplementedError

    def foreign(self) -> Instance:
        """Something of the same kind that is not ours."""
        raise NotImplementedError

    def foreign_is_well(self) -> bool:
        """Whether it is as it was."""
        raise NotImplementedError

    def foreign_resource(self, run_id: str) -> bool:
        """Puts something in place that is named as the run's, but not ours; False if there is no such thing."""
        return False

    def leave_behind(self, run_id: str, *, tagged: bool = True) -> str | None:
        """Puts a disk in place as a run may leave it, or one of somebody else's; its id. None if there is no such thing."""
        return None

    def power_off(self, ref: InstanceRef) -> None:
        """From the inside."""
        raise NotImplementedError

    def stop(self, ref: InstanceRef) -> bool:
        """Stopped by hand; False where machines cannot be stopped."""
        return False

    def let_in(self, instance: Instance) -> set[str] | None:
        """The CIDRs that reach port 22; None without such a thing."""
        return None

    def lose_next_reply(self) -> bool:
        """The next create call is carried out, and its answer lost; False where that cannot happen."""
        return False

    def break_off(self, requests: int) -> bool:
        """After so many more requests nothing comes through any more; False where there are no requests."""
        return False

    def heal(self) -> None:
        """Everything comes through again."""

    def silence(self, region: str) -> bool:
        """This region does not answer any more; False without more than one."""
        return False

    def cut_off(self) -> None:
        """Nothing of the provider can be used any more."""
        raise NotImplementedError

    def enforces_the_lease(self) -> bool:
        """Whether a machine without agent ends at its lease here (false where no boot script is carried out)."""
        return True


class FakeHarness(Harness):
    """The fake cloud, with queries that lag behind."""

    name, region, other_region = "fake", "us-east-1", "us-west-2"
    instance_type, other_type = "m5.large", "m5.xlarge"
    consistency_seconds = 3.0

    def __init__(self, make: Callable[[FakeCloud], Provider] = FakeProvider) -> None:
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock)
        self.cloud.visible_after_seconds = self.consistency_seconds
        self._make = make

    def client(self) -> Provider:
        return self._make(self.cloud)

    def unknown(self) -> InstanceRef:
        return InstanceRef(provider="fake", region=self.region, instance_id="i-99999999")

    def foreign(self) -> Instance:
        ref = self.cloud.add_foreign(tags={"Name": "costgpu-look-alike"})
        return self.cloud.instance(ref.instance_id).describe()

    def foreign_is_well(self) -> bool:
        return self.cloud.foreign_untouched()

    def foreign_resource(self, run_id: str) -> bool:
        self.cloud.add_foreign_resource(run_id)
        return True

    def leave_behind(self, run_id: str, *, tagged: bool = True) -> str | None:
        return self.cloud.resources.add("disk", self.region, run_id, ours=tagged).resource_id

    def power_off(self, ref: InstanceRef) -> None:
        self.cloud.power_off(ref.instance_id)

    def stop(self, ref: InstanceRef) -> bool:
        self.cloud.stop_by_somebody(ref.instance_id)
        return True

    def let_in(self, instance: Instance) -> set[str] | None:
        rule = self.cloud.resources.access_rule(instance.run_id, instance.ref.region)
        return set(rule.allow_from) if rule is not None else set()

    def lose_next_reply(self) -> bool:
        self.cloud.faults.next("create", after=True, error=Unreachable("no answer within 15 s"))
        return True

    def break_off(self, requests: int) -> bool:
        self.cloud.faults.clear()
        self.cloud.faults.next("create", after=requests > 0, error=Unreachable("no answer within 15 s"))
        return True

    def limit_machines(self, machines: int) -> bool:
        self.cloud.quota_vcpus = 2 * machines
        return True

    def silence(self, region: str) -> bool:
        self.cloud.unreachable_regions[region] = "timed out"
        return True

    def cut_off(self) -> None:
        self.cloud.faults.next("*", error=Unreachable("no route"), times=1000)


class LocalHarness(Harness):
    """This machine."""

    name, region = "local", "local"
    instance_type, other_type = "this-machine", "another-machine"
    shares_resources = False
    end_seconds, lease_seconds, short_lease_seconds = 15.0, 60.0, 20.0

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.folder = folder

    def client(self) -> Provider:
        return LocalProvider(self.folder, self.clock)

    def close(self) -> None:
        """Ends what a failed check left."""
        if self.folder.is_dir():
            provider = self.client()
            mine = [one.ref for one in provider.list_owned().instances if one.state.alive]
            for ref in mine:
                provider.terminate(ref)
            self.until(lambda: all(self.over(ref) for ref in mine), self.end_seconds)

    def unknown(self) -> InstanceRef:
        return InstanceRef(provider="local", region="local", instance_id="local-nobody00000a-1")

    def foreign(self) -> Instance:
        """A folder of somebody's that happens to lie there."""
        path = self.folder / "local-somebody"
        path.mkdir(parents=True)
        (path / "thesis.txt").write_text("forty pages")
        ref = InstanceRef(provider="local", region="local", instance_id=path.name)
        return Instance(
            ref=ref,
            zone=None,
            instance_type="",
            state=InstanceState.RUNNING,
            launched_at=datetime.now(UTC),
            endpoint=None,
        )

    def foreign_is_well(self) -> bool:
        return [path.name for path in (self.folder / "local-somebody").iterdir()] == ["thesis.txt"]

    def foreign_resource(self, run_id: str) -> bool:
        (self.folder / f"local-{run_id}-9").mkdir(parents=True)
        return True

    def power_off(self, ref: InstanceRef) -> None:
        """By its button, without the help of a client."""
        os.spawnv(os.P_WAIT, str(self.folder / ref.instance_id / "poweroff"), ["poweroff", "test"])

    def silence(self, region: str) -> bool:
        """An instance of another machine, in a home that both share."""
        path = self.folder / "local-elsewhere00a-1"
        path.mkdir(parents=True)
        texts = {"region": "local", "instance_type": "this-machine", "fingerprint": "0", "boot_id": "0"}
        facts = {
            "tags": {"costgpu-run": "elsewhere00a"},
            "host": socket.gethostname() + "-other",
            **texts,
            **dict.fromkeys(("launched_epoch", "lease_epoch", "lifetime_seconds"), 1.0),
        }
        (path / "instance.json").write_text(json.dumps(facts))
        return True

    def cut_off(self) -> None:
        """The folder cannot be one."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if self.folder.is_dir():
            self.folder.rename(self.folder.with_name("away"))
        self.folder.write_text("not a folder")
