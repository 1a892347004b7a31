"""Lets a script that insists on CUDA run where there is none: what it asks a GPU for lands on the CPU.

Only in a measurement that was asked to (config key ``fake_cuda``), after the script has refused to run without it, and
only where torch sees no CUDA device. What the script then sees:

- A device that it names stays as it named it (``torch.device("cuda:0").type == "cuda"``), so that its branches are
  those of a GPU. It becomes the CPU where a tensor, module, generator or checkpoint is put on it.
- Moving a tensor copies nothing: it is where it should be. So a step costs here what it would cost a script for the
  CPU, and the copy to a GPU is predicted from the bytes of a batch.
- ``x.device``, ``x.is_cuda``, ``x.is_cpu``, ``x.get_device()`` and ``x.type()`` say cuda:0 of every tensor to the
  script's own code, and the truth to libraries, torch itself first of all: they choose kernels by it.
- An autocast region for CUDA is entered, and does nothing to tensors of a CPU: the step runs in fp32. CPU autocast
  would run bf16, many times slower where it is not in hardware. The region is recorded as asked for, and it is the
  recorded one that GPU times are predicted from. `GradScaler` scales, unscales and updates for real.
- Data-parallel wrappers have one device. What ``nccl`` is, is said in `ranks.world`.
"""

import re
import sys

from ..patching import put, replace, wrap
from . import fake_cuda_api

CUDA_NAME = re.compile(r"^cuda(?::(\d+))?$")
FACTORIES = (
    "arange asarray as_tensor bartlett_window blackman_window empty empty_like empty_permuted empty_quantized"
    " empty_strided eye full full_like hamming_window hann_window kaiser_window linspace logspace normal ones"
    " ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor"
    " sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor"
    " sparse_csr_tensor tensor tril_indices triu_indices zeros zeros_like"
).split()
NEW = ["new", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"]


class FakeCuda:
    """Puts the CPU where the script asks for a CUDA device."""

    def __init__(self, gpu_requests, libraries, gpus):
        self.requests, self.gpus = gpu_requests, gpus
        self.libraries = tuple(libraries) + (__file__.rsplit("sandbox", 1)[0], "<")

    def attach(self, torch):
        """Each part by itself: what another release of torch has elsewhere is left as it is."""
        if torch.cuda.is_available():
            return
        self.device, self.cpu, self.gpu = torch.device, torch.device("cpu"), torch.device("cuda", 0)
        self.requests.cuda_is_faked()
        parts = [self.tensors, self.seen, self.factories, self.modules, self.defaults, self.generators, self.streams]
        parts += [
            self.raw_stream,
            self.loading,
            self.scaling,
            self.fused,
            self.capturable,
            self.attention,
            self.parallel,
            self.api,
        ]
        for part in parts:
            try:
                part(torch)
            except Exception as error:  # noqa: BLE001 - the script may never need this part
                self.requests.failures.append("{}: {}".format(part.__name__, error)[:200])

    def raw_stream(self, torch):
        """Give libraries with kernels of their own, as bitsandbytes, the stream that they take when they are imported."""
        put(torch._C, _cuda_getCurrentRawStream=lambda device: 0)

    def api(self, torch):
        fake_cuda_api.attach(torch, self.gpu, self.gpus, self.from_library)

    def place(self, value):
        """Return the CPU for a CUDA device in any of its spellings; anything else as it is."""
        if isinstance(value, str):
            found = CUDA_NAME.match(value)
            if found is None:
                return value
            index = int(found.group(1) or 0)
        elif isinstance(value, self.device):
            if value.type != "cuda":
                return value
            index = value.index or 0
        elif isinstance(value, int) and not isinstance(value, bool):
            index = max(0, value)
        else:
            return value
        self.requests.devices.add(index)
        return self.cpu

    def from_library(self, frame):
        """Return whether a library asks, and not the script."""
        return frame.f_code.co_filename.startswith(self.libraries)

    def placing(self, inner):
        """`inner` with its first argument and its ``device`` placed: ``to`` in all its forms."""
        place = self.place

        def call(one, *args, **kwargs):
            if args:
                args = (place(args[0]),) + args[1:]
            if "device" in kwargs:
                kwargs["device"] = place(kwargs["device"])
            return inner(one, *args, **kwargs)

        return call

    def making(self, inner):
        """`inner`, which makes a tensor, with its ``device`` placed and nothing pinned."""
        place = self.place

        def call(*args, **kwargs):
            if "device" in kwargs:
                kwargs["device"] = place(kwargs["device"])
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            return inner(*args, **kwargs)

        return call

    def tensors(self, torch):
        tensor, place = torch.Tensor, self.place

        def cuda(one, device=None, non_blocking=False, memory_format=torch.preserve_format, **_):
            place(0 if device is None else device)
            return one if memory_format is torch.preserve_format else one.contiguous(memory_format=memory_format)

        replace(tensor, "to", self.placing)
        put(tensor, cuda=cuda, pin_memory=lambda one, *_, **__: one, record_stream=lambda one, stream: None)
        for name in NEW:
            replace(tensor, name, self.making)
        for storage in ("_StorageBase", "UntypedStorage", "TypedStorage"):
            for name in ("cuda", "pin_memory"):
                wrap(getattr(torch.storage, storage, None), name, lambda inner, one, *args, **kwargs: one)

    def seen(self, torch):
        """Replace what a tensor says of its device."""
        tensor, gpu, from_library = torch.Tensor, self.gpu, self.from_library
        real, real_type, real_index = tensor.device, tensor.type, tensor.get_device

        def device(one):
            found = real.__get__(one)
            return gpu if found.type == "cpu" and not from_library(sys._getframe(1)) else found

        def is_cuda(one):
            return real.__get__(one).type == ("cuda" if from_library(sys._getframe(1)) else "cpu")

        def is_cpu(one):
            return real.__get__(one).type == "cpu" and from_library(sys._getframe(1))

        def get_device(one):
            return real_index(one) if from_library(sys._getframe(1)) else 0

        def type_(one, dtype=None, *args, **kwargs):
            if dtype is None:
                name = real_type(one)
                ours = from_library(sys._getframe(1)) or "cuda" in name or real.__get__(one).type != "cpu"
                return name if ours else name.replace("torch.", "torch.cuda.", 1)
            dtype = dtype.replace("torch.cuda.", "torch.") if isinstance(dtype, str) else dtype
            return real_type(one, dtype, *args, **kwargs)

        put(tensor, device=property(device), is_cuda=property(is_cuda), is_cpu=property(is_cpu))
        put(tensor, get_device=get_device, type=type_)

    def factories(self, torch):
        scripted = sys.modules.get("torch.jit._builtins")
        owners = [(torch, FACTORIES), (getattr(torch, "fft", None), ["fftfreq", "rfftfreq"])]
        owners.append((getattr(torch, "nested", None), ["nested_tensor", "as_nested_tensor"]))
        for owner, names in owners:
            for name in names:
                inner = getattr(owner, name, None)
                made = replace(owner, name, self.making)
                if made is not None and hasattr(scripted, "_find_builtin"):
                    known = scripted._find_builtin(inner)  # TorchScript knows its functions by identity
                    if known:
                        scripted._register_builtin(made, known)

    def modules(self, torch):
        packed = getattr(torch.nn.utils.rnn, "PackedSequence", None)
        replace(torch.nn.Module, "to", self.placing)
        replace(packed, "to", self.placing)
        replace(packed, "cuda", lambda inner: lambda one, *args, **kwargs: one)

    def defaults(self, torch):
        def set_default_device(inner, device):
            if self.place(device) is not self.cpu:  # a CUDA one is where tensors are made anyway
                inner(device)

        def set_default_tensor_type(inner, t):  # its name in torch
            inner(t.replace("torch.cuda.", "torch.") if isinstance(t, str) else t)

        def make_context(inner, context, device):  # with torch.device("cuda"):
            inner(context, self.place(device))

        wrap(torch, "set_default_device", set_default_device)
        wrap(torch, "set_default_tensor_type", set_default_tensor_type)
        wrap(getattr(sys.modules.get("torch.utils._device"), "DeviceContext", None), "__init__", make_context)

    def generators(self, torch):
        real, place = torch.Generator, self.place
        make_as(torch, "Generator", lambda device="cpu": real(place(device)))

    def streams(self, torch):
        """Replace the device-neutral streams, which are the accelerator's where no device is named."""
        for name, stand_in in (("Stream", fake_cuda_api.Stream), ("Event", fake_cuda_api.Event)):
            real = getattr(torch, name, None)
            if isinstance(real, type):
                make_as(torch, name, self.of_device(real, stand_in), stand_in)

    def of_device(self, real, stand_in):
        def make(device=None, *args, **kwargs):
            ours = device is None or self.place(device) is self.cpu
            return stand_in() if ours else real(device, *args, **kwargs)

        return make

    def loading(self, torch):
        """Checkpoints that name CUDA devices."""

        def placed(where):
            if where is None:
                return self.cpu
            if isinstance(where, dict):
                return {key: str(self.place(value)) for key, value in where.items()}
            return self.place(where)

        def load(inner, f, map_location=None, *args, **kwargs):
            return inner(f, placed(map_location), *args, **kwargs)

        wrap(torch, "load", load)
        wrap(torch.jit, "load", load)

    def scaling(self, torch):
        """GradScaler works on a CPU since torch 2.3; before, it is switched off: a factor of 1."""
        if not hasattr(getattr(torch, "amp", None), "GradScaler"):
            wrap(torch.cuda.amp.GradScaler, "__init__", lambda inner, one, *_, **__: inner(one, enabled=False))

    def fused(self, torch):
        """Fused optimizers work on a CPU since torch 2.4; before, another of its loops does the same."""
        devices = getattr(sys.modules.get("torch.utils._foreach_utils"), "_get_fused_kernels_supported_devices", list)
        if "cpu" in devices():
            return

        def make(inner, one, *args, **kwargs):
            fused = kwargs.pop("fused", None)
            inner(one, *args, **kwargs)
            if fused:
                one.defaults.update(fused=True)  # as asked for: it is recorded from here
                add = one.add_param_group
                put(one, add_param_group=lambda group: add(dict({"fused": None}, **group)))

        for name in ("Adam", "AdamW", "SGD", "Adagrad"):
            wrap(getattr(torch.optim, name, None), "__init__", make)

    def capturable(self, torch):
        """Optimizers whose steps may be captured in a CUDA graph; outside of one they do the same on any device."""
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.optim."):
                wrap(module, "_get_capturable_supported_devices", lambda inner, *a, **kw: [*inner(*a, **kw), "cpu"])

    def attention(self, torch):
        """Allow a choice among attention kernels that leaves none for a CPU, and record what was chosen."""
        chosen_kernels = self.requests.attention
        module = sys.modules.get("torch.nn.attention")

        def sdpa_kernel(inner, backends, *args, **kwargs):
            chosen = list(backends) if isinstance(backends, (list, tuple)) else [backends]
            chosen_kernels.update((str(one).rsplit(".", 1)[-1].lower(), True) for one in chosen)
            kinds = module.SDPBackend
            more = [kind for kind in (kinds.FLASH_ATTENTION, kinds.MATH) if kind not in chosen]
            return inner(chosen + more, *args, **kwargs)

        def sdp_kernel(inner, enable_flash=True, enable_math=True, enable_mem_efficient=True, *args, **kwargs):
            given = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient}
            chosen_kernels.update((name + "_attention", True) for name, on in given.items() if on)
            return inner(True, True, True)

        wrap(module, "sdpa_kernel", sdpa_kernel)
        wrap(torch.backends.cuda, "sdp_kernel", sdp_kernel)
        for name in ("enable_math_sdp", "enable_flash_sdp"):
            wrap(torch.backends.cuda, name, lambda inner, enabled: inner(True))

    def parallel(self, torch):
        """One process and one device, which is the CPU."""

        def data_parallel(_, one, module, *args, **kwargs):
            torch.nn.Module.__init__(one)
            put(one, module=module, dim=0, device_ids=[])

        def data_parallel_call(_, module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
            inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
            return module(*inputs, **(module_kwargs or {}))

        def distributed(inner, one, module, device_ids=None, output_device=None, *args, **kwargs):
            inner(one, module, None, None, *args, **kwargs)

        def new_group(inner, ranks=None, timeout=None, backend=None, *args, **kwargs):
            kwargs.pop("device_id", None)
            return inner(ranks, timeout, None if backend == "nccl" else backend, *args, **kwargs)

        def barrier(inner, group=None, async_op=False, device_ids=None, **kwargs):
            return inner(group, async_op) if group is not None else inner(async_op=async_op)

        def init_device_mesh(inner, kind, *args, **kwargs):
            return inner(str(self.place(kind)), *args, **kwargs)

        wrap(torch.nn.DataParallel, "__init__", data_parallel)
        wrap(torch.nn.parallel, "data_parallel", data_parallel_call)
        wrap(getattr(torch.nn.parallel, "DistributedDataParallel", None), "__init__", distributed)
        dist = getattr(torch, "distributed", None)
        if dist is None or not dist.is_available():
            return
        for owner in (dist, sys.modules.get("torch.distributed.distributed_c10d")):
            wrap(owner, "new_group", new_group)
            wrap(owner, "barrier", barrier)
            wrap(owner, "is_nccl_available", lambda inner: True)
        for owner in (dist, sys.modules.get("torch.distributed.device_mesh")):
            wrap(owner, "init_device_mesh", init_device_mesh)


def make_as(owner, name, make, *more):
    """Has ``owner.name``, a class, made by ``make``; instances of it, and of `more`, are its instances."""
    real = getattr(owner, name)

    class MadeAs(type(real)):
        def __instancecheck__(cls, value):
            return isinstance(value, (real,) + more)

        def __call__(cls, *args, **kwargs):
            return make(*args, **kwargs)

    put(owner, **{name: MadeAs(name, (real,), {"__module__": owner.__name__})})
