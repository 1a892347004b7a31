"""Security groups, as they let packets in to the guests of the emulated account."""

from collections.abc import Callable, Iterator
from typing import Any

from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instances import Instance

from tests.emulators.ec2.account import ACCOUNT, replace
from tests.emulators.machines import Machines, NoGuests, PacketRule

PROTOCOLS = {"-1": "all", "tcp": "tcp", "udp": "udp", "icmp": "icmp"}


class PacketFilter:
    """Tells the hypervisor which packets may begin something with a guest: whatever one of its groups allows."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def install(self) -> None:
        """From now on a change of a rule is in force at once."""
        for name in ("authorize_security_group_ingress", "revoke_security_group_ingress"):
            replace(EC2Backend, name, self._followed(getattr(EC2Backend, name)))

    def _followed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def changed(backend: Any, *args: Any, **kwargs: Any) -> Any:
            answer = method(backend, *args, **kwargs)
            self.apply(backend.region_name)
            return answer

        return changed

    def apply(self, region: str) -> None:
        """For every guest of a region: a new one changes what others let in."""
        if isinstance(self._machines, NoGuests):
            return
        there = list(_instances(region))
        for instance in there:
            self._machines.admit(instance.id, [rule for rule in self._rules(instance, there) if rule.sources])

    @staticmethod
    def _rules(instance: Instance, others: list[Instance]) -> Iterator[PacketRule]:
        for group in (group for nic in instance.nics.values() for group in nic.group_set):
            for rule in group.ingress_rules:
                source = rule.source_group.get("GroupId")
                members = [f"{each.private_ip}/32" for each in others if source and source in _groups_of(each)]
                cidr = rule.ip_range.get("CidrIp")
                yield PacketRule(
                    allow=True,
                    sources=tuple([cidr] if cidr else members),
                    protocol=PROTOCOLS[str(rule.ip_protocol)],
                    ports=() if rule.ip_protocol in ("-1", "icmp") else (f"{rule.from_port}-{rule.to_port}",),
                )


def _instances(region: str) -> Iterator[Instance]:
    """Those that have an address."""
    for reservation in list(ec2_backends[ACCOUNT][region].reservations.values()):
        yield from (each for each in reservation.instances if each.state not in ("shutting-down", "terminated"))


def _groups_of(instance: Instance) -> set[str]:
    return {group.id for nic in instance.nics.values() for group in nic.group_set}
