"""A Ray whose machines are all there at once."""

import sys


def init(**options):
    """Connect to nothing."""


def nodes():
    """Return as many as the launcher waits for."""
    return [{"Alive": True}] * int(sys.argv[2])
