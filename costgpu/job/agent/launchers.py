"""The command line that starts a job's ranks on this machine, and the variables that the ranks need."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from . import launch_ray

HOSTFILE = "hostfile"
# Options of accelerate that say what kind of ranks it starts; without one it starts a single process (1.15).
ACCELERATE_KINDS = ("--config-file", "--cpu", "--use-fsdp", "--use-deepspeed", "--use-megatron-lm", "--tpu")
JOIN_SECONDS = 300  # torchrun's rendezvous: the machines have met before, so that all come within seconds
LOOPBACK = "lo"
_SIOCGIFADDR = 0x8915  # linux/sockios.h


def job_command(order: Mapping[str, Any], python: str, gpus: int, home: str = "") -> list[str]:
    """Return the command line of the job.

    Args:
        order: What the agent was told to run.
        python: The job's interpreter.
        gpus: GPUs of this machine.
        home: Folder with `HOSTFILE`, for DeepSpeed, and for the logs of ranks.
    """
    argv, rendezvous = list(order["argv"]), order.get("rendezvous")
    if rendezvous is not None and rendezvous["launcher"] == launch_ray.NAME:
        return [sys.executable, "-I", os.path.abspath(sys.argv[0]), launch_ray.NAME, python]
    if order.get("program"):
        return argv
    each = ranks_here(order, gpus)
    if rendezvous is not None:
        return [python, *_several_machines(rendezvous, each, home), *argv]
    if not int(order["processes"]):
        return [python, *argv]
    options = list(order.get("launcher_options") or ())
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(each), *options, *argv]


def hosts(order: Mapping[str, Any], gpus: int) -> str:
    """DeepSpeed's list of machines and their ranks. It logs in nowhere: the names only have to be different."""
    return "".join(
        "node-%d slots=%d\n" % (rank, ranks_here(order, gpus)) for rank in range(order["rendezvous"]["nodes"])
    )


def ranks_here(order: Mapping[str, Any], gpus: int) -> int:
    """Return the number of ranks on this machine: as asked for, or one for each GPU."""
    rendezvous = order.get("rendezvous")
    if rendezvous is not None and rendezvous["launcher"] in ("none", launch_ray.NAME):
        return 1
    wanted = int(order["processes"])
    return wanted if wanted > 0 else max(1, gpus)


def _several_machines(rendezvous: Mapping[str, Any], each: int, home: str) -> list[str]:
    """Words between the interpreter and the script."""
    launcher, options = rendezvous["launcher"], list(rendezvous["launcher_options"])
    nodes, rank, address, port = (rendezvous[key] for key in ("nodes", "node", "address", "port"))
    if launcher == "accelerate":
        said = any(word.partition("=")[0].replace("_", "-") in ACCELERATE_KINDS for word in options)
        return [
            *("-m", "accelerate.commands.launch", "--num_machines", str(nodes), "--machine_rank", str(rank)),
            *("--num_processes", str(nodes * each), "--main_process_ip", address, "--main_process_port", str(port)),
            *("--tee", "3", "--log_dir", os.path.join(home, "rank-logs")),
            *([] if said else ["--multi_gpu"]),
            *options,
        ]
    if launcher == "deepspeed":
        return [
            *("-m", "deepspeed.launcher.runner", "--hostfile", os.path.join(home, HOSTFILE)),
            *("--no_ssh", "--node_rank", str(rank), "--master_addr", address, "--master_port", str(port)),
            *options,
        ]
    if launcher == "none":
        return []
    least = rendezvous["min_nodes"]
    return [
        *("-m", "torch.distributed.run", "--nnodes", "%d:%d" % (least, nodes) if least else str(nodes)),
        *("--nproc-per-node", str(each), "--max-restarts", str(rendezvous["max_restarts"])),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "%s:%d" % (address, port), "--rdzv-id", "costgpu"),
        *("--rdzv-conf", "is_host=%d,join_timeout=%d" % (rank == 0, JOIN_SECONDS)),
        # Ranks are numbered in the order of these names, and digits come before letters; that of node 0 has to be true.
        *("--local-addr", address if rank == 0 else "node-%04d" % rank),
        *("--tee", "3", "--log-dir", os.path.join(home, "rank-logs")),
        *options,
    ]


def job_environment(order: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables for ranks that talk to other machines; the user's own come after them."""
    rendezvous = order.get("rendezvous")
    if rendezvous is None:
        return {}
    variables = {
        # torchrun puts this before each line of a rank (2.3 and newer); `costgpu logs --rank` looks for it.
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]:",
        "COSTGPU_NODE_RANK": str(rendezvous["node"]),
        "COSTGPU_NODES": str(rendezvous["nodes"]),
    }
    interface = interface_of(rendezvous["own_address"])
    if interface:  # a host name often means the loopback interface, where nobody else comes by
        variables.update(GLOO_SOCKET_IFNAME=interface, NCCL_SOCKET_IFNAME="=" + interface)
    if rendezvous["launcher"] == "none":
        variables.update(
            RANK=str(rendezvous["node"]),
            NODE_RANK=str(rendezvous["node"]),
            WORLD_SIZE=str(rendezvous["nodes"]),
            LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1",
            MASTER_ADDR=rendezvous["address"],
            MASTER_PORT=str(rendezvous["port"]),
        )
    return variables


def interface_of(address: str) -> str:
    """Name of the network interface with this address; empty if none has it."""
    if address.startswith("127."):
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(told[20:24]) == address:
                return name
    return ""
