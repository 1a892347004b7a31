"""A service at a steady rate: machines, utilisation, waiting and cost. Pure.

    machines = ceil(R / (0.65 mu)),  u = R / (machines mu),  wait = u / (2 mu (1 - u))

R requests per second, mu what one machine can do. The wait is that of a queue with random arrivals and steady service
times (M/D/1), each machine with its own share of the requests; nothing is promised of autoscaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.models.provider_costs import HOURS_PER_MONTH

HEADROOM = 0.65  # share of its capacity that a machine is planned for: assumed, usual practice


@dataclass(frozen=True, slots=True)
class Service:
    """Machines of one kind under a steady load."""

    machines: int
    utilisation: float  # share of their time in which the machines work
    wait_seconds: float  # average wait before an item is begun
    usd_per_hour: float  # of all machines

    @property
    def usd_per_month(self) -> float:
        """Return the cost of `HOURS_PER_MONTH` in USD."""
        return HOURS_PER_MONTH * self.usd_per_hour


def service(rate: float, capacity: float, usd_per_hour: float) -> Service:
    """Return what it takes to serve `rate` items per second.

    Args:
        capacity: Items per second of one machine, at the batch that its latency allows.
        usd_per_hour: Price of one machine.
    """
    machines = max(1, math.ceil(rate / (HEADROOM * capacity) - 1e-9))
    used = rate / (machines * capacity)
    return Service(
        machines=machines,
        utilisation=used,
        wait_seconds=used / (2 * capacity * (1 - used)),
        usd_per_hour=machines * usd_per_hour,
    )


def items_until_it_pays(fixed_usd: float, usd_per_item: float, other_usd_per_item: float) -> float:
    """Return the number of items from which a machine with a fixed cost is cheaper; infinite if it never is.

    Args:
        fixed_usd: Cost of its boot and set-up, less the other one's.
        other_usd_per_item: Cost of an item on the other machine, such as a CPU.
    """
    saved = other_usd_per_item - usd_per_item
    return max(0.0, fixed_usd) / saved if saved > 0 else math.inf
