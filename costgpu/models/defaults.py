"""Defaults and fixed figures that several rooms need. Imports nothing."""

from __future__ import annotations

MEASURE_FOR_SECONDS = 30.0
"""How long a program is measured after its first step, unless `--measure-for` says otherwise."""
START_LIMIT_SECONDS = 180.0
"""How long a program may take to reach its first step, unless `--start-limit` says otherwise."""
SSH_PORT = 22
"""Port of sshd on machines: set in its configuration, opened to the client, and where the client connects."""
MEETING_PORT = 29500
"""Port at which the machines of a job meet: the default of torchrun and of `MASTER_PORT`."""
BOOT_DISK_GIB = {False: 50, True: 100}  # by whether the machine has an accelerator: the images with drivers are large
DISK_BYTES_PER_SECOND = 200e6  # assumed for a checkpoint that nobody saw being saved; a plain SSD volume
