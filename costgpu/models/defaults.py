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
# Bytes a second at which pretrained weights arrive on the disk of a rented machine: a low figure of other people's. Sources:
# huggingface_hub alone tops at 100 MB/s of 10 Gbit/s (oobabooga/textgen issue 6143, 2024). With hf_xet, 261 to 682 MB/s
# arrive on EC2 if nothing is cached (Hugging Face, "Xet-backed Buckets vs plain S3", huggingface_hub 1.7.1), more than a
# root disk takes: 125 MiB/s (Amazon EBS, gp3 baseline), 140 MiB/s and more (Compute Engine, pd-balanced). Read 2026-11-30.
HUB_BYTES_PER_SECOND = 100e6
DISK_BYTES_PER_SECOND = 200e6  # assumed for a checkpoint that nobody saw being saved; a plain SSD volume
MOSTLY_FROZEN = 0.9  # of a model's bytes: what is trained are adapters, and libraries save nothing else
