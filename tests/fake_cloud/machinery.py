"""The fake cloud's own machinery: time line, calls, instances. Tests speak to `FakeCloud`, which is built on it."""

import contextlib
import copy
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar, cast

from costgpu.clock import Clock
from costgpu.errors import HostUnreachable
from costgpu.models.instance import CreateRequest, InstanceRef, InstanceState
from costgpu.models.offer import PurchaseOption
from costgpu.providers.base import TAG_RUN
from tests.fake_cloud.faults import Call, CapacityRule, Faults
from tests.fake_cloud.guest import Guest
from tests.fake_cloud.instance import FakeInstance
from tests.fake_cloud.resources import Resources
from tests.fake_cloud.script import NEVER, JobScript, MachineScript

T = TypeVar("T")
REGIONS = ("us-east-1", "us-west-2", "eu-central-1")


class Machinery:
    """What exists and happens, and the part of the cloud that its clients call."""

    def __init__(
        self,
        clock: Clock,
        *,
        script: JobScript | None = None,
        machine: MachineScript | None = None,
    ) -> None:
        self.clock = clock  # tells the true time; blocking calls sleep on it
        self.faults = Faults()  # what goes wrong next
        self.calls: list[Call] = []  # every call of every client, oldest first
        # of jobs and machines that are created from now on
        self.script, self.machine = script or JobScript(), machine or MachineScript()
        self.scripts: dict[str, JobScript] = {}  # run id -> `JobScript` where it is another than `script`
        # queue of `MachineScript`s for the next created machines, before `machine` counts again
        self.machines: list[MachineScript] = []
        self.regions = REGIONS  # what the account can use. Zones are ``<region>a`` to ``c``.
        self.unreachable_regions: dict[str, str] = {}  # region -> why it cannot be asked
        self.visible_after_seconds = 0.0  # eventual consistency: so long queries do not know a new instance
        self.remembers_seconds = 3600.0  # so long a terminated instance is described; its token is known for ever
        self.terminating_seconds = 30.0  # how long terminating takes, for instances created from now on; `NEVER` sticks
        # whether a machine that powers itself off is only stopped, with its disk billed on, as on Google
        self.power_off_stops = False
        self.tells_end = (
            True  # whether the provider says when a machine has ended, as AWS does not if it has ended itself
        )
        self.watchdog_works = True  # whether the watchdog that boots with the machine does what it should
        self.agent_works = True  # whether agents enforce their limits
        self.leaves_rules = False  # whether a refused create call leaves its access rule behind
        self.disks_stay = False  # whether a terminated machine leaves its disk behind, billed
        self.skew_seconds = 0.0  # the provider's clock minus the true one
        self.quota_vcpus: int | None = None  # the account's; None for no limit
        # from then on every provider call is `AuthError`; None for never
        self.credentials_expire_at: datetime | None = None
        # (from, until, instance id or None for all), on the time line
        self.network_cuts: list[tuple[float, float, str | None]] = []
        self.uploaded: dict[str, Mapping[str, bytes]] = {}  # as `FakeCloud.bucket` shows it, at the last look
        self.damaged: dict[str, int] = {}
        self.resources = Resources()
        self.instances: dict[str, FakeInstance] = {}
        self.by_token: dict[str, str] = {}
        self.no_capacity_rules: list[CapacityRule] = []
        self.epoch_offset = clock.now().timestamp() - clock.monotonic()
        self.actions: list[tuple[float, Callable[[], None]]] = []
        self._acting_at: float | None = None
        self.lock = threading.RLock()

    def time(self) -> float:
        """Seconds on the time line."""
        return self._acting_at if self._acting_at is not None else self.clock.monotonic()

    def on_time_line(self, epoch: float) -> float:
        """From true Unix time to the time line."""
        return epoch - self.epoch_offset

    def epoch(self, at: float) -> float:
        """From the time line to true Unix time."""
        return at + self.epoch_offset

    def settle(self) -> None:
        """Lets everything happen that is due by now, in its order."""
        with self.lock:
            if self._acting_at is not None:
                self._advance(self._acting_at)
                return
            now = self.clock.monotonic()
            while self.actions and self.actions[0][0] <= now:
                at, action = self.actions.pop(0)
                self._advance(at)
                self._acting_at = at
                try:
                    action()
                finally:
                    self._acting_at = None
            self._advance(now)

    def next_event(self, instance_id: str) -> float:
        """When the next thing happens by itself that this machine's follower should see."""
        planned = self.actions[0][0] if self.actions else NEVER
        cuts = [edge for start, end, _ in self.network_cuts for edge in (start, end) if edge > self.time()]
        return min(planned, self.known(instance_id).next_event(), *cuts, NEVER)

    def call(self, method: str, subject: str, carry_out: Callable[[], T]) -> T:
        """One call of a client: faults, time, effect, record."""
        with self.lock:
            fault = self.faults.take(method, subject)
        if fault is not None and fault.delay_seconds:
            self.clock.sleep(fault.delay_seconds)
        with self.lock:
            self.settle()
            if fault is not None and not fault.after and fault.error is not None:
                self._record(method, subject, fault.error)
                raise copy.copy(fault.error)
            if fault is not None and fault.without_effect:
                self._record(method, subject, None)
                return cast(T, None)
            try:
                result = carry_out()
            except BaseException as error:
                self._record(method, subject, error)
                raise
            lost = fault.error if fault is not None else None
            self._record(method, subject, lost)
            if lost is not None:
                raise copy.copy(lost)
            return result

    def reach(self, instance_id: str) -> Guest:
        """The machine, if a client can reach it now.

        Raises:
            HostUnreachable: It cannot.
        """
        with self.lock:
            self.settle()
            instance, now = self.instances.get(instance_id), self.time()
            if instance is None or instance.state is not InstanceState.RUNNING or instance.guest is None:
                raise HostUnreachable(f"{instance_id} does not answer.")
            if now < instance.guest.ssh_at:
                raise HostUnreachable(f"{instance_id} refuses the connection: SSH is not up.")
            if any(start <= now < end and which in (None, instance_id) for start, end, which in self.network_cuts):
                raise HostUnreachable(f"{instance_id} does not answer: the network is cut.")
            return instance.guest

    @contextlib.contextmanager
    def following(self, guest: Guest) -> Iterator[None]:
        """While a client follows, it is there without a call."""
        with self.lock:
            guest.followers += 1
        try:
            yield
        finally:
            with self.lock:
                guest.followers -= 1
                guest.heard(self.time())

    def make(self, request: CreateRequest, zone: str, tags: Mapping[str, str]) -> FakeInstance:
        """The create call's effect."""
        offer = request.offer
        instance = self.add(request, offer.region, zone, offer.instance_type, tags)
        self.by_token[request.token] = instance.ref.instance_id
        return instance

    def add(
        self, request: CreateRequest | None, region: str, zone: str, instance_type: str, tags: Mapping[str, str]
    ) -> FakeInstance:
        """A new instance; a foreign one without a request."""
        now, number = self.time(), len(self.instances) + 1
        script = (self.machines.pop(0) if self.machines else self.machine) if request is not None else MachineScript()
        instance = FakeInstance(
            ref=InstanceRef(provider="fake", region=region, instance_id=f"i-{number:08d}"),
            request=request,
            tags=tags,
            zone=zone,
            instance_type=instance_type,
            created_at=now,
            running_at=now + script.pending_seconds,
            visible_at=now + (self.visible_after_seconds if request is not None else 0.0),
            address=f"198.51.100.{number % 250 + 1}",
            wall=lambda at: self.epoch(at) + self.skew_seconds,
            make_guest=lambda it: self._boot(it, script),
            terminating_seconds=self.terminating_seconds,
            tells_end=self.tells_end,
            refusal=script.refusal,
            spot=request is not None and request.offer.purchase_option is PurchaseOption.SPOT,
            now=now,
        )
        self.instances[instance.ref.instance_id] = instance
        return instance

    def _boot(self, instance: FakeInstance, script: MachineScript) -> Guest:
        request = instance.request
        assert request is not None
        return Guest(
            machine=script,
            job_script=self.script_of(request),
            booted_at=instance.running_at,
            lease_at=self._watchdog_at(instance.running_at, request),
            preempted_at=instance.preempted_at,
            watchdog_works=lambda: self.watchdog_works,
            agent_works=lambda: self.agent_works,
            power_off=instance.switch_off if self.power_off_stops else instance.begin_end,
            on_time_line=self.on_time_line,
            bucket=self.uploaded,
        )

    def script_of(self, request: CreateRequest) -> JobScript:
        """What the job of a machine does."""
        return self.scripts.get(request.run_id, self.script)

    def _watchdog_at(self, booted_at: float, request: CreateRequest) -> float:
        """When the boot script's watchdog acts; a request without a real script has one for its lease."""
        told = {
            name: float(value)
            for name, value in re.findall(r"^(deadline|lifetime)=(\d+)$", request.boot_script, re.MULTILINE)
        }
        deadline = told.get("deadline", request.lease_until.timestamp())
        return min(self.on_time_line(deadline), booted_at + told.get("lifetime", NEVER))

    def _advance(self, to: float) -> None:
        for instance in self.instances.values():
            was = instance.state
            instance.advance(to)
            if self.disks_stay and instance.ours and was is not instance.state is InstanceState.TERMINATED:
                self.resources.add("disk", instance.ref.region, instance.tags[TAG_RUN], usd_per_hour=0.011)

    def known(self, instance_id: str) -> FakeInstance:
        """One instance, as it was when last looked at."""
        return self.instances[instance_id]

    def _record(self, method: str, subject: str, error: BaseException | None) -> None:
        name = type(error).__name__ if error is not None else ""
        self.calls.append(Call(at=self.time(), method=method, subject=subject, error=name))
