"""What the script asks for that only matters on a GPU, as far as torch's own settings do not say it."""

import sys

ATTENTION_PACKAGES = ("flash_attn", "flash_attn_interface", "xformers")


class GpuRequests:
    """One per process; the result takes what it holds."""

    def __init__(self):
        self.fake_cuda = False
        self.devices = set()  # indices of CUDA devices that the script names
        self.attention = {}  # kernels that it chooses, in order
        self.processes_for_no_gpu = False  # it starts one process per GPU, and so none here
        self.failures = []  # of our own patches

    def attach(self, torch):
        """Follows the one call that trains nothing, and says nothing, where there is no GPU."""
        for owner in (getattr(torch, "multiprocessing", None), sys.modules.get("torch.multiprocessing.spawn")):
            inner = getattr(owner, "spawn", None)
            if inner is not None and not isinstance(inner, type(sys)):
                owner.spawn = self.spawn(inner)

    def spawn(self, inner):
        def spawn(fn, args=(), nprocs=1, *others, **kwargs):
            if nprocs == 0:
                self.processes_for_no_gpu = True
            if self.fake_cuda and nprocs == 1 and kwargs.get("join", others[0] if others else True):
                return fn(0, *args)  # in this process, where its steps are seen
            return inner(fn, args, nprocs, *others, **kwargs)

        return spawn

    def attention_kernels(self):
        """Kernels that it chose and packages that it brought along, when the script has set what it sets."""
        found = dict(self.attention)
        found.update((name, True) for name in ATTENTION_PACKAGES if sys.modules.get(name) is not None)
        return list(found)


GPU_REQUESTS = GpuRequests()
