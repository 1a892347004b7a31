"""Becomes the script of a trial, after making sure that it does not outlive the process that has started it."""

from __future__ import annotations

import os
import signal
import sys
from typing import List

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, linux/prctl.h


def launch(parent: int, argv: List[str]) -> None:
    """Never returns.

    Args:
        parent: The process that this one must not outlive, however that ends.
        argv: The command to become.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # no Linux: the agent ends what is left
    if os.getppid() != parent:
        os._exit(137)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write("%s cannot be started: %s\n" % (argv[0], error))
        os._exit(127)
