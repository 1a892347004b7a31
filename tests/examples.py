"""The project's examples of jobs with several ranks, as tests run them on CPUs."""

from pathlib import Path

_EXAMPLES = Path(__file__).parents[1] / "examples"
_LEAVE_AT_ONCE = """
import os
import sys

sys.stdout.flush()
os._exit(0)
"""


def source(name: str) -> str:
    """The text of an example."""
    return (_EXAMPLES / name).read_text()


def source_for_gloo(name: str) -> str:
    """An example that leaves without taking the interpreter down.

    A thread of gloo that lets go of a tensor of Python's at that moment asks for the GIL, and the rank is aborted
    ("terminate called without an active exception"; PyTorch 2.13, Python 3.11): about one run in 40 on a busy machine.
    """
    return source(name) + _LEAVE_AT_ONCE
