"""A Ray whose machines are all there at once, and which may refuse the first drivers."""

import os
import sys


def init(**options):
    """Connect to nothing; fail where the job's folder says so, one time for each of the file's lines."""
    if os.path.exists("refused_drivers"):
        with open("refused_drivers") as stream:
            left = stream.readlines()
        if left:
            with open("refused_drivers", "w") as stream:
                stream.writelines(left[1:])
            sys.exit("Failed to register worker to Raylet")


def nodes():
    """Return as many as the launcher waits for."""
    return [{"Alive": True}] * int(sys.argv[2])
