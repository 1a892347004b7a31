"""The caller's own public address, so that port 22 is opened to nobody else."""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request

from costgpu.errors import Unreachable

CHECK_IP = "https://checkip.amazonaws.com"
"""Answers with the caller's IPv4 address in one line. Source: AWS, EC2 user guide on security group rules (2026-11)."""
TIMEOUT_SECONDS = 5.0


def caller_address(url: str = CHECK_IP) -> str:
    """Return the address from which AWS sees this machine, as a CIDR such as ``203.0.113.7/32``.

    Raises:
        Unreachable: The service does not answer, or not with an address.
    """
    hint = "Set caller_address in the settings (or COSTGPU_CALLER_ADDRESS) to the public address of this machine."
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as reply:  # noqa: S310 - a fixed https address
            text = reply.read(100).decode("ascii", "replace").strip()
    except (urllib.error.URLError, OSError) as exc:
        raise Unreachable(f"{url} does not tell the public address of this machine: {exc}", hint=hint) from exc
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as exc:
        raise Unreachable(f"{url} answered {text!r}, which is no address.", hint=hint) from exc
