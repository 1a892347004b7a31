"""The fake cloud: what a test scripts, and what it asks afterwards."""

from collections.abc import Callable, Mapping
from typing import Any

from costgpu.errors import HostKeyMismatch
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy
from costgpu.providers.base import TAG_RUN, OrphanedResource
from tests.fake_cloud.faults import CapacityRule
from tests.fake_cloud.host import FakeHost
from tests.fake_cloud.instance import FakeInstance
from tests.fake_cloud.machinery import Machinery
from tests.fake_cloud.provider import FakeProvider
from tests.fake_cloud.script import NEVER


class FakeCloud(Machinery):
    """Shared by any number of clients; everything in it lives on while they die. See `Machinery` for its settings."""

    # -- clients ------------------------------------------------------------------------------------------------------

    def provider(self) -> FakeProvider:
        """A client. Its death loses nothing that is in the cloud."""
        return FakeProvider(self)

    def connect(self, instance: Instance, keys: Any = None) -> FakeHost:
        """A `Connector`. The keys are not looked at.

        Raises:
            HostUnreachable: It is not running, SSH does not answer (yet), the network is cut, or access is closed.
            HostKeyMismatch: As scripted.
        """
        instance_id = instance.ref.instance_id

        def attempt() -> FakeHost:
            guest = self.reach(instance_id)
            machine = guest.machine
            if not machine.host_key_matches or self.time() < guest.ssh_at + machine.image_key_seconds:
                raise HostKeyMismatch(f"{instance_id} identifies itself with another key than it was given.")
            return FakeHost(self, instance_id)

        return self.call("connect", instance_id, attempt)

    # -- what a test scripts ------------------------------------------------------------------------------------------

    def no_capacity(self, **where: Any) -> None:
        """From now on such requests are refused; see `CapacityRule`."""
        self.no_capacity_rules.append(CapacityRule(**where))

    def cut_network(self, seconds: float = NEVER, *, after: float = 0.0, instance_id: str | None = None) -> None:
        """No client reaches the machines (or this one) for a while; the provider's API still answers."""
        start = self.time() + after
        self.network_cuts.append((start, start + seconds, instance_id))

    def schedule(self, seconds: float, action: Callable[[], None]) -> None:
        """Does something when so much time has passed, also in the middle of somebody's `follow`."""
        self.actions.append((self.time() + seconds, action))
        self.actions.sort(key=lambda planned: planned[0])

    def preempt(self, instance_id: str, *, after: float = 0.0) -> None:
        """The provider takes an instance back; the machine is told before, as its script says."""
        with self.lock:
            instance = self.known(instance_id)
            instance.preempted_at = self.time() + after
            if instance.guest is not None:
                instance.guest.preempted_at = instance.preempted_at

    def terminate_by_somebody(self, instance_id: str) -> None:
        """As if by hand, in the provider's console."""
        with self.lock:
            self.settle()
            self.known(instance_id).begin_end(self.time(), EndedBy.SOMEBODY_ELSE, EndReason.INSTANCE_LOST)

    def power_off(self, instance_id: str) -> None:
        """Somebody with a shell on the machine powers it off: that terminates it."""
        with self.lock:
            self.settle()
            words = "instance initiated shutdown"
            self.known(instance_id).begin_end(self.time(), EndedBy.SOMEBODY_ELSE, EndReason.INSTANCE_LOST, words)

    def stop_by_somebody(self, instance_id: str, *, seconds: float = 10.0) -> None:
        """Stopped by hand: off, but its disks are billed on."""
        with self.lock:
            self.settle()
            self.known(instance_id).stop(self.time(), seconds)

    def kill_agent(self, instance_id: str) -> None:
        """The agent on a machine dies; the job and the watchdog do not."""
        with self.lock:
            self.settle()
            guest = self.known(instance_id).guest
            if guest is not None:
                guest.agent = False

    def shut_down_job(self, instance_id: str) -> None:
        """The machine's own shutdown sends SIGTERM to everything, before its agent has heard of a reason."""
        with self.lock:
            self.settle()
            guest = self.known(instance_id).guest
            if guest is not None:
                guest.stop_job(self.time(), EndReason.JOB_FAILED)

    def unstick(self) -> None:
        """Whatever was stuck terminating is gone now."""
        with self.lock:
            self.settle()
            for instance in self.instances.values():
                if instance.state is InstanceState.TERMINATING and instance.terminating_at is not None:
                    instance.terminating_seconds = self.time() - instance.terminating_at

    def damage_transfers(self, path: str, times: int = 1) -> None:
        """The next fetches of this output arrive with another checksum."""
        self.damaged[path] = times

    def add_foreign(self, *, region: str | None = None, tags: Mapping[str, str] | None = None) -> InstanceRef:
        """An instance that is not ours: without our tag, whatever else it carries."""
        if TAG_RUN in (tags or {}):
            raise ValueError(f"an instance with {TAG_RUN} is ours")
        with self.lock:
            place = region or self.regions[0]
            instance = self.add(None, place, f"{place}a", "m5.large", dict(tags or {"Name": "somebody's"}))
            instance.running_at = instance.created_at
            self.settle()
            return instance.ref

    def add_foreign_resource(self, run_id: str, region: str | None = None) -> str:
        """An access rule that is named as a run's would be, and is not ours; returns its id."""
        return self.resources.add("security group", region or self.regions[0], run_id, ours=False).resource_id

    # -- what a test asks ---------------------------------------------------------------------------------------------

    def alive(self) -> tuple[FakeInstance, ...]:
        """Our instances that can still cost something."""
        with self.lock:
            self.settle()
            return tuple(one for one in self.instances.values() if one.ours and one.terminated_at is None)

    def past_lease(self, *, slack_seconds: float = 0.0) -> tuple[FakeInstance, ...]:
        """Our instances that run, or ran, after their lease. One that is terminating by then is in order."""
        with self.lock:
            self.settle()
            late = []
            for instance in self.instances.values():
                if instance.request is None:
                    continue
                lease = instance.request.lease_until.timestamp() - self.epoch_offset
                if self.ended(instance) > lease + slack_seconds:
                    late.append(instance)
            return tuple(late)

    def ended(self, instance: FakeInstance) -> float:
        """When it began to terminate; now if it has not."""
        return instance.terminating_at if instance.terminating_at is not None else self.time()

    def instances_of(self, run_id: str) -> tuple[FakeInstance, ...]:
        """Every instance that was ever created for a run."""
        with self.lock:
            self.settle()
            return tuple(one for one in self.instances.values() if one.tags.get(TAG_RUN) == run_id)

    def instance(self, instance_id: str) -> FakeInstance:
        """One of them, up to date."""
        with self.lock:
            self.settle()
            return self.known(instance_id)

    def billing_seconds(self, instance_id: str) -> float:
        """From its create call until it began to terminate (stopped time included: its disks are billed), or now."""
        with self.lock:
            self.settle()
            instance = self.known(instance_id)
            return self.ended(instance) - instance.created_at

    @property
    def bucket(self) -> Mapping[str, Mapping[str, bytes]]:
        """What agents have uploaded by now: URL -> path -> content."""
        self.settle()
        return self.uploaded

    def foreign_untouched(self) -> bool:
        """Whether what is not ours is as it was."""
        with self.lock:
            self.settle()
            machines = [one for one in self.instances.values() if not one.ours]
            fine = all(one.state is InstanceState.RUNNING and not one.terminate_calls for one in machines)
            return fine and self.resources.foreign_untouched()

    def leftovers(self, run_id: str | None = None) -> tuple[OrphanedResource, ...]:
        """What is there besides instances."""
        with self.lock:
            self.settle()
            return self.resources.of(run_id)
