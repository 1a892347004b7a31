"""What must be so for a measurement without weights, and the error where it is not."""

from __future__ import annotations

import sys

OLDEST = (2, 1)  # release of torch whose storages are objects that can be followed
ALWAYS_RESERVED = "2"  # of vm.overcommit_memory: every address needs memory behind it
LEAST_ADDRESSES = 1 << 40  # bytes of addresses, for a large model with gradients and states


class WithoutStandIn(RuntimeError):
    """Something that nothing stands in for without weights."""


def check(version):
    """Refuse what cannot work.

    Raises:
        WithoutStandIn: This torch is too old, or the system gives no addresses without memory behind them.
    """
    numbers = tuple(int(part) for part in str(version).split("+")[0].split(".")[:2])
    if numbers < OLDEST:
        raise WithoutStandIn("torch {} is older than 2.1".format(version))
    if not sys.platform.startswith("linux"):
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit not in (resource.RLIM_INFINITY, -1) and limit < LEAST_ADDRESSES:
        raise WithoutStandIn("addresses are limited to {:.0f} GB here (ulimit -v)".format(limit / 1e9))
    try:
        with open("/proc/sys/vm/overcommit_memory") as stream:
            if stream.read().strip() == ALWAYS_RESERVED:
                raise WithoutStandIn(
                    "this system gives no addresses without memory behind them (vm.overcommit_memory=2)"
                )
    except OSError:
        pass
