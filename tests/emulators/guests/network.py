"""The network of the guests: a bridge in the testbed's own network namespace, a namespace and a cable per guest.

The public addresses are routed to the bridge, so the product reaches a "public" address, and nothing else anywhere.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.emulators.machines import PacketRule

BRIDGE = "cloud0"
GCE_BRIDGE = "cloud1"  # where the same metadata address is another cloud's
# Without an address of its own a bridge takes the lowest of its ports', which changes as guests come and go; until the
# others ask again what belongs to their gateway, their packets go nowhere, for a minute and more.
BRIDGE_ADDRESS, GCE_BRIDGE_ADDRESS = "02:00:c6:12:00:01", "02:00:c6:12:00:02"
GATEWAY = "198.18.0.1"  # of the guests; RFC 2544's block, which is nobody's. The emulated APIs listen here.
METADATA = "169.254.169.254"
PUBLIC = ("54.0.0.0/8", "172.31.0.0/16", "34.0.0.0/8", "10.128.0.0/20")  # where instances get their addresses
VOID, VOID_HERE, VOID_THERE = "void", "198.19.0.0", "198.19.0.1"  # packets for addresses without a guest vanish in it
CUT = f"""
table inet cut {{
    chain input {{ type filter hook input priority 0; policy drop; iif lo accept; ip saddr {METADATA} accept; }}
    chain output {{ type filter hook output priority 0; policy drop; oif lo accept; ip daddr {METADATA} accept; }}
}}
"""


class NetworkFailure(Exception):
    """A command of iproute2 or nftables was refused; with its words."""


def _run(command: list[str], lines: str = "") -> None:
    done = subprocess.run(command, input=lines, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NetworkFailure(f"{' '.join(command)}: {done.stderr.strip()}")


def _batch(lines: list[str], namespace: str = "", *, force: bool = False) -> None:
    options = ["-n", namespace] if namespace else []
    _run(["ip", *options, *(["-force"] if force else []), "-batch", "-"], "\n".join(lines) + "\n")


def prepare() -> None:
    """Lays the bridges, once per testbed. The testbed's /run must be its own."""
    Path("/run/netns").mkdir(exist_ok=True)
    _batch(
        [
            "link set lo up",
            f"link add {BRIDGE} address {BRIDGE_ADDRESS} type bridge",
            f"addr add {GATEWAY}/32 dev {BRIDGE}",
            f"addr add {METADATA}/32 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"link add {GCE_BRIDGE} address {GCE_BRIDGE_ADDRESS} type bridge",
            f"link set {GCE_BRIDGE} up",
            f"netns add {VOID}",
            f"link add {VOID} type veth peer name eth0 netns {VOID}",
            f"link set {VOID} up",
            f"addr add {VOID_HERE}/31 dev {VOID}",
            *(f"route add {each} via {VOID_THERE}" for each in PUBLIC),
        ]
    )
    _batch([f"addr add {VOID_THERE}/31 dev eth0", "link set eth0 up"], VOID)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _run(["ip", "netns", "exec", VOID, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward"])


class Cable:
    """What connects one guest."""

    def __init__(self, instance_id: str, private_ip: str, public_ip: str, bridge: str = BRIDGE) -> None:
        self.namespace = instance_id  # as ``ip netns`` names it
        self._link, self._bridge = f"g{instance_id[-12:]}", bridge
        self._addresses = [each for each in (private_ip, public_ip) if each]

    def plug(self) -> None:
        private = self._addresses[0]
        _batch(
            [
                f"netns add {self.namespace}",
                f"link add {self._link} type veth peer name eth0 netns {self.namespace}",
                f"link set {self._link} master {self._bridge} up",
                *(f"route replace {each}/32 dev {self._bridge} src {GATEWAY}" for each in self._addresses),
            ]
        )
        _batch(
            [
                "link set lo up",
                *(f"addr add {each}/32 dev eth0" for each in self._addresses),
                "link set eth0 up",
                f"route add {GATEWAY} dev eth0 src {private}",
                f"route add default via {GATEWAY} src {private}",
            ],
            self.namespace,
        )

    def unplug(self) -> None:
        """Takes all of it away; what is gone already does not matter."""
        lines = [*(f"route del {each}/32 dev {self._bridge}" for each in self._addresses), f"link del {self._link}"]
        try:
            _batch([*lines, f"netns del {self.namespace}"], force=True)
        except NetworkFailure:
            return


def admit(namespace: str, rules: Sequence[PacketRule]) -> None:
    """From now on the first rule that fits decides which packets may begin something with this guest; else none may."""
    lines = "\n".join(f"        {_line(rule)}" for rule in rules)
    text = f"""
table inet firewall
delete table inet firewall
table inet firewall {{
    chain input {{
        type filter hook input priority 1; policy drop;
        iif lo accept
        ct state established,related accept
{lines}
    }}
}}
"""
    _run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], text)


def _line(rule: PacketRule) -> str:
    what = {"all": "", "icmp": "meta l4proto icmp "}.get(rule.protocol, f"meta l4proto {rule.protocol} ")
    ports = f"{rule.protocol} dport {{ {', '.join(rule.ports)} }} " if rule.ports else ""
    verdict = "accept" if rule.allow else "drop"
    if "0.0.0.0/0" in rule.sources:
        return f"{what}{ports}{verdict}"
    return f"ip saddr {{ {', '.join(rule.sources)} }} {what}{ports}{verdict}"


def cut(namespace: str) -> None:
    """From now on every packet from and to this guest is lost in silence, but for its metadata service."""
    restore(namespace)
    _run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], CUT)


def restore(namespace: str) -> None:
    """Ends the cut; open connections go on where they stopped, if they have not timed out."""
    undo = ["ip", "netns", "exec", namespace, "nft", "delete", "table", "inet", "cut"]
    subprocess.run(undo, capture_output=True, check=False)
