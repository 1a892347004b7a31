"""What the emulated cloud needs of a hypervisor: the Machines protocol, and one without guests.

The API half (`cloud`) decides states; a hypervisor boots a host for each instance and says when it is gone.
`python -m tests.emulators.ec2.server --machines NAME` takes the one that `tests.emulators.guests.nspawn.make(NAME)` returns.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

OnExit = Callable[[bool], None]
"""Called once, from any thread, when a guest is gone: True after `Machines.stop`, False if it powered itself off."""


@dataclass(frozen=True, slots=True)
class PacketRule:
    """What becomes of packets that begin something with a guest."""

    allow: bool  # whether they may come in
    sources: tuple[str, ...]  # from these CIDR ranges
    protocol: str  # tcp, udp, icmp, or all
    ports: tuple[str, ...] = ()  # such as 22 or 0-65535; empty for every one


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSpec:
    """One guest to boot.

    Attributes:
        user_data: As the API received it, base64 removed; perhaps gzip. Holds a private key: never printed.
    """

    instance_id: str
    private_ip: str
    public_ip: str  # what the product connects to; unique. Empty if the instance was created without one
    user_data: bytes = field(repr=False)
    instance_type: str  # such as g5.xlarge
    region: str
    zone: str
    spot: bool  # whether it can be interrupted
    gpus: tuple[str, ...] | None = None  # their names; None for those that AWS lists for the type
    soft_off_seconds: float = 4.0  # from the power button to the plug


class Machines(Protocol):
    """The hypervisor. Every method may be called from any thread."""

    def boot(self, spec: GuestSpec, on_exit: OnExit) -> None:
        """Starts a guest and returns. A guest that cannot be started calls `on_exit(False)`, too.

        A reboot from within is the hypervisor's business and no exit.
        """

    def stop(self, instance_id: str) -> None:
        """Ends a guest, by force if it must; returns when it is gone. Unknown or ended guests: nothing happens."""

    def console(self, instance_id: str) -> bytes:
        """What it has written to its console so far, also after its end; empty if it is unknown."""

    def admit(self, instance_id: str, rules: Sequence[PacketRule]) -> None:
        """Of packets that begin something with a guest, the first rule that fits decides; without one, they are lost.

        Guests for which this was never called are open. May come before `boot`, and again later.
        """

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Shows the guest the spot interruption notice (``spot/instance-action`` in its metadata) for that time."""

    def close(self) -> None:
        """Ends every guest."""


class NoGuests:
    """Machines without a host behind them: only the states change. `power_off` is the guest's own shutdown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, tuple[GuestSpec, OnExit]] = {}
        self._console: dict[str, bytes] = {}

    def boot(self, spec: GuestSpec, on_exit: OnExit) -> None:
        with self._lock:
            self._running[spec.instance_id] = (spec, on_exit)
            self._console[spec.instance_id] = b"[    0.000000] Linux version 6.8.0 (emulated)\n"

    def stop(self, instance_id: str) -> None:
        self._end(instance_id, by_us=True)

    def power_off(self, instance_id: str) -> None:
        self._end(instance_id, by_us=False)

    def console(self, instance_id: str) -> bytes:
        with self._lock:
            return self._console.get(instance_id, b"")

    def admit(self, instance_id: str, rules: Sequence[PacketRule]) -> None:
        """Nothing comes in anyway."""

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Nobody is there to look."""

    def close(self) -> None:
        for instance_id in list(self._running):
            self.stop(instance_id)

    def _end(self, instance_id: str, *, by_us: bool) -> None:
        with self._lock:
            ended = self._running.pop(instance_id, None)
        if ended is not None:
            ended[1](by_us)
