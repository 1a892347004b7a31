"""Who may reach a machine: two firewall rules for each run, which only its own network tag falls under.

Ingress rules of a network add up, and the default network lets everybody reach port 22 (``default-allow-ssh``) and all
machines of the project reach all ports (``default-allow-internal``). So one rule lets the caller in, and a second one, with
the next priority, keeps everybody else out of everything. The machine's own connections are not affected: Google's
firewall is stateful. The machines of a group share one rule more, which lets in those that have the group's network tag.
Source: Google Cloud VPC, "VPC firewall rules" (2026-11).
"""

from __future__ import annotations

import re
from typing import Any

from costgpu.errors import InvalidRequest, ProviderError, Throttled
from costgpu.models.defaults import SSH_PORT
from costgpu.models.instance import CreateRequest, NodeGroup
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import group_name, network_of, of_group, run_name
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.launch import facts_from, facts_of, label_value
from costgpu.providers.gcp.session import Clients

ALLOW_PRIORITY, DENY_PRIORITY = 900, 901
"""Before the rules that people make without a number (1000) and the default network's (65534); a smaller number wins."""
RULE_SECONDS = 60.0  # until a rule is in force
NETWORK = re.compile(r"(?P<network>[a-z][a-z0-9-]{0,61}[a-z0-9])(?:/(?P<subnet>[a-z][a-z0-9-]{0,61}[a-z0-9]))?")


def rule_names(run_id: str) -> tuple[str, str]:
    """Return the names of the rule that lets the caller in, and of the one that keeps everybody else out."""
    return run_name(run_id), f"{run_name(run_id)}-others"


def caller(allow_from: str) -> str:
    """Return the range of addresses that is let in.

    Raises:
        InvalidRequest: It is no such range, or not one of IPv4: the machines have no other address.
    """
    network = network_of(allow_from)
    if network.version != 4:
        raise InvalidRequest(
            f"{allow_from} is an IPv6 address, and machines on Google Cloud are reached by IPv4.",
            hint="Set caller_address to the public IPv4 address of this machine.",
        )
    return str(network)


class Network:
    """The network of the machines, and the rules of runs in it.

    Args:
        network: ``NETWORK`` or ``NETWORK/SUBNET``; None for the default one.
    """

    def __init__(self, clients: Clients, network: str | None) -> None:
        self._clients = clients
        found = NETWORK.fullmatch(network or "default")
        if found is None:
            raise InvalidRequest(f"{network!r} is no network.", hint="Write gcp_network as NETWORK or NETWORK/SUBNET.")
        self._name, self._subnet = found["network"], found["subnet"] or ""
        self._pending: dict[str, Any] = {}  # rule -> the operation that it waits for

    @property
    def path(self) -> str:
        """``global/networks/...``."""
        return f"global/networks/{self._name}"

    def subnet_path(self, region: str) -> str:
        """``regions/.../subnetworks/...``; empty if the network chooses."""
        return f"regions/{region}/subnetworks/{self._subnet}" if self._subnet else ""

    def check(self) -> None:
        """Raise `InvalidRequest` if there is no such network."""
        doing = f"look up the network {self._name}"
        if self._clients.maybe(doing, "Networks", "get", network=self._name) is None:
            raise InvalidRequest(
                f"The project {self._clients.project} has no network {self._name!r}.",
                hint="gcloud compute networks create default makes the usual one; or name another one: gcp_network.",
            )

    def open(self, request: CreateRequest) -> None:
        """Make the run's rules, or finds them again; in force when this returns.

        Raises:
            InvalidRequest: A rule of that name is not costgpu's.
        """
        allow, deny = rule_names(request.run_id)
        shared = {
            "description": facts_of(request),
            "network": self.path,
            "direction": "INGRESS",
            "target_tags": [run_name(request.run_id)],
        }
        rules: list[dict[str, Any]] = [
            {
                "name": allow,
                **shared,
                "priority": ALLOW_PRIORITY,
                "source_ranges": [caller(request.allow_from)],
                "allowed": [{"I_p_protocol": "tcp", "ports": [str(SSH_PORT)]}],
            },
            {
                "name": deny,
                **shared,
                "priority": DENY_PRIORITY,
                "source_ranges": ["0.0.0.0/0"],
                "denied": [{"I_p_protocol": "all"}],
            },
        ]
        for rule in rules:
            self._ensure(rule, request.run_id)
        self._in_force(allow, deny)

    def open_within(self, request: CreateRequest, group: NodeGroup) -> None:
        """Let the machines of the request's group reach each other, and only them.

        Raises:
            InvalidRequest: A rule of that name is not costgpu's.
        """
        name = group_name(group.group_id)
        rule = {
            "name": name,
            "description": facts_of(of_group(request, group)),
            "network": self.path,
            "direction": "INGRESS",
            "priority": ALLOW_PRIORITY,
            "source_tags": [name],
            "target_tags": [name],
            "allowed": [{"I_p_protocol": protocol} for protocol in ("tcp", "udp", "icmp")],
        }
        self._ensure(rule, group.group_id)
        self._in_force(name)

    def _in_force(self, *names: str) -> None:
        """Wait until what was asked for of these rules is done.

        Raises:
            Throttled: It takes longer; the next call goes on waiting.
        """
        for name in names:
            operation = self._pending.pop(name, None)
            doing = f"make the firewall rule {name}"
            if operation is not None and not self._clients.finished(doing, operation, seconds=RULE_SECONDS):
                self._pending[name] = operation
                raise Throttled(f"The firewall rule {name} is not in force after {RULE_SECONDS:g} s.")

    def _ensure(self, rule: dict[str, Any], run_id: str) -> None:
        """Ask for a rule, or for what is not as it should be of one that is there."""
        name = rule["name"]
        self._in_force(name)
        try:
            self._pending[name] = self._clients.write(
                f"make the firewall rule {name}", "Firewalls", "insert_unary", firewall_resource=rule
            )
            return
        except ProviderError as error:
            if sdk.status_of(error.__cause__) != 409:
                raise
        found = self._of_run(name, run_id)
        if found is None:
            raise Throttled(f"The firewall rule {name} was there, and is being removed.")
        change = {key: value for key, value in rule.items() if key in ("source_ranges", "description")}
        if any(_plain(getattr(found, key)) != value for key, value in change.items()):
            self._patch(name, change)

    def _patch(self, name: str, change: dict[str, Any]) -> None:
        doing = f"change the firewall rule {name}"
        resource = {"name": name, **change}  # compute.v1 says that a patch needs the name, too
        self._pending[name] = self._clients.write(
            doing, "Firewalls", "patch_unary", firewall=name, firewall_resource=resource
        )

    def _of_run(self, name: str, run_id: str) -> Any | None:
        """Return the run's own rule; None if there is none of that name.

        Raises:
            InvalidRequest: It is somebody else's.
        """
        row = self._clients.maybe(f"look up the firewall rule {name}", "Firewalls", "get", firewall=name)
        if row is not None and facts_from(str(row.description)).get(TAG_RUN) != label_value(run_id):
            raise InvalidRequest(f"The firewall rule {name} exists, but it is not costgpu's.")
        return row

    def open_only(self, run_id: str, allow_from: str) -> None:
        """Let `allow_from`, and nobody else, reach port 22 of the run's machine."""
        source, name = caller(allow_from), rule_names(run_id)[0]
        row = self._of_run(name, run_id)
        if row is None:
            raise InvalidRequest(f"The run {run_id} has no firewall rule {name}.")
        if list(row.source_ranges) != [source]:
            self._patch(name, {"source_ranges": [source]})
        self._in_force(name)


def _plain(value: Any) -> str | list[str]:
    return value if isinstance(value, str) else [str(each) for each in value]
