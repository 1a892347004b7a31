"""How many ranks the script is told that there are, and what it gets when it sets up a process group.

The group has as many ranks as are asked for, of which only rank 0 exists (`local_group`). Where this torch cannot do
that, or the configuration says so, it has one member, and the result says that one was measured.
"""

from __future__ import annotations

import os
import re
import sys

from ..patching import wrap
from .collectives import Collectives
from .local_group import OWN_BACKEND, make_local_group

BACKENDS = ("nccl", "gloo", "undefined")  # what is answered here; MPI and others are left alone
GPU_BACKENDS = ("nccl", "xccl", "hccl", "rccl")
MEETING_PORT = 29500  # as in costgpu/models/defaults.py, which does not travel with the probe
URL_SIZE = re.compile(r"[?&]world_size=(\d+)")
OWNERS = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")


class RankWorld:
    """The processes of the training, as the script sees them."""

    def __init__(self):
        self.pid = os.getpid()
        self.asked_processes = 1  # that train, as the script asks for them
        self.ranks = 1  # that it is told
        self.nodes = 1  # machines, as the script asks for them
        self.alone = False  # whether every group has one member, whatever is asked for
        self.why_alone = ""
        self.fixed = False  # whether their number is written in the script
        self.gpu_backend = False  # whether it asks for collectives between GPUs
        self.has_gpu = self.has_gpu_backend = False
        self.group_class = self.collectives = None

    def attach(self, recorder, torch):
        if recorder.config["alone"]:
            self.fall_back("it failed as one of several")
        self.collectives = Collectives(recorder)
        dist = getattr(torch, "distributed", None)
        if dist is None or not dist.is_available() or not hasattr(dist, "HashStore"):
            self.fall_back("this torch has no process groups")
            return
        self.torch, self.has_gpu = torch, torch.cuda.is_available()  # before it is made to believe so
        self.has_gpu_backend = self.has_gpu and dist.is_nccl_available()
        if not self.alone:
            try:
                self.prepare(dist.distributed_c10d)
            except Exception as error:  # noqa: BLE001 - another release of torch
                self.fall_back("torch {}: {}".format(torch.__version__, error))
        parallel = getattr(torch.nn.parallel, "DistributedDataParallel", None)
        wrap(parallel, "__init__", self.make_parallel)
        wrap(parallel, "_passing_sync_batchnorm_handle", self.allow_sync_batchnorm)
        wrap(getattr(torch.nn, "SyncBatchNorm", None), "forward", self.normalize)
        for owner in OWNERS:
            wrap(sys.modules.get(owner), "init_process_group", self.init_process_group)

    def prepare(self, c10d):
        """Have every group that is made from now on be one of ours, once `ranks` is more than one."""
        self.group_class = make_local_group(self.torch, self.collectives)
        c10d.Backend.register_backend(OWN_BACKEND, self.make_group, devices=["cpu", "cuda"])
        wrap(c10d, "_store_based_barrier", lambda inner, *a, **k: inner(*a, **k) if self.ranks == 1 else None)
        wrap(c10d, "_new_process_group_helper", self.new_group)
        wrap(c10d, "broadcast_object_list", self.broadcast_object_list)
        wrap(self.torch.distributed, "broadcast_object_list", self.broadcast_object_list)

    def fall_back(self, why):
        """From now on the script is the only process."""
        self.alone, self.why_alone = True, self.why_alone or why[:200]
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            if name in os.environ:
                os.environ[name] = "1"

    def set_environment(self, ranks):
        """Set what a launcher that the script itself calls sets for its first process."""
        if not self.alone:
            sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "RANK": "0", "LOCAL_RANK": "0"}
            os.environ.update(sizes, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(MEETING_PORT))

    def asked(self, processes):
        if isinstance(processes, int):
            self.asked_processes = max(self.asked_processes, processes)

    def spread_over(self, nodes, *, fixed):
        """Note on how many machines the script asks for its processes, and whether their number is written in it."""
        self.nodes, self.fixed = nodes, fixed

    def make_group(self, store, rank, ranks, timeout):
        return self.group_class(rank, ranks)

    def new_group(self, inner, size, rank, members, backend, store, *others, **kwargs):
        if self.ranks == 1:
            return inner(size, rank, members, backend, store, *others, **kwargs)
        c10d = self.torch.distributed.distributed_c10d
        self.note_backend(backend)
        kwargs.update({name: None for name in ("device_id", "backend_options", "pg_options") if name in kwargs})
        group, prefix = inner(size, rank, members, c10d.Backend(OWN_BACKEND), store, *others, **kwargs)
        if isinstance(group, self.group_class):  # what the script is told of it
            c10d._world.pg_map.update({group: (c10d.Backend("gloo"), prefix)})
            if hasattr(c10d, "BackendConfig"):
                c10d._world.pg_backend_config.update({group: str(c10d.BackendConfig(c10d.Backend("gloo")))})
        return group, prefix

    def make_parallel(self, inner, one, module, device_ids=None, output_device=None, *args, **kwargs):
        """Return a GPU of its own is the CPU where there is none."""
        if self.ranks > 1 and not self.has_gpu:
            device_ids = output_device = None
        return inner(one, module, device_ids, output_device, *args, **kwargs)

    def allow_sync_batchnorm(self, inner, one, *args, **kwargs):
        """Let DDP take `SyncBatchNorm` on a CPU, where `normalize` makes it work."""
        return inner(one, *args, **kwargs) if self.has_gpu else None

    def normalize(self, inner, one, value):
        """`SyncBatchNorm`, which refuses to work on a CPU: with the statistics of this rank, and counted."""
        if self.has_gpu:
            return inner(one, value)
        if self.ranks > 1 and one.training:
            sums, float32 = 2 * value.shape[1], self.torch.float32  # of each channel and its square
            self.collectives.count("all_gather", float32, self.ranks * (sums + 1), 4, self.ranks)
            self.collectives.count("all_reduce", float32, sums, 4, self.ranks)  # of its backward pass
        return self.torch.nn.modules.batchnorm._BatchNorm.forward(one, value)

    def note_backend(self, backend):
        if any(name in str(backend).lower() for name in GPU_BACKENDS):
            self.gpu_backend = True

    def broadcast_object_list(self, inner, objects, src=None, *others, **kwargs):
        """From another rank, nothing comes: the script goes on with what it has."""
        if self.ranks > 1 and src not in (None, 0):
            return None
        return inner(objects, src, *others, **kwargs)

    def init_process_group(
        self, inner, backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, *others, **kwargs
    ):
        known = backend is None or any(name in str(backend).lower() for name in BACKENDS)
        if os.getpid() != self.pid or not known:  # a child of the script's own, or MPI
            return inner(backend, init_method, timeout, world_size, rank, store, *others, **kwargs)
        ranks = self.size_of(world_size, init_method)
        self.asked(ranks)
        self.note_backend(backend)
        if not self.has_gpu_backend:
            backend = "gloo"
            kwargs.pop("device_id", None)
            kwargs.pop("pg_options", None)
        if timeout is not None:
            kwargs["timeout"] = timeout
        make_store = self.torch.distributed.HashStore
        if ranks > 1 and not self.alone:
            self.ranks = ranks
            try:
                return inner("gloo", world_size=ranks, rank=0, store=make_store(), **kwargs)
            except Exception as error:  # noqa: BLE001 - another release of torch
                self.ranks = 1
                self.fall_back("torch {}: {}".format(self.torch.__version__, error))
        return inner(backend, world_size=1, rank=0, store=make_store(), **kwargs)

    def size_of(self, given, init_method):
        """Return the ranks that the script asks for: by its argument, the address, or the environment."""
        if isinstance(given, int) and given > 0:
            return given
        found = URL_SIZE.search(str(init_method or ""))
        text = found.group(1) if found else os.environ.get("WORLD_SIZE", "")
        return max(1, int(text)) if text.isdigit() else 1


WORLD = RankWorld()  # one per process; the result takes what it holds
