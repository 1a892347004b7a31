"""What `torch.cuda` answers where there is no GPU. A fixed card: scripts choose dtypes and batch sizes by it."""

import abc
import contextlib
import sys
import time
import types

from ..activity import peak_memory
from ..patching import put, wrap

clock = time.perf_counter
# What the script is told. Facts of the A100 80 GB: NVIDIA A100 data sheet (2021); a card that every library's GPU
# path runs on, with bf16 and TF32.
NAME, CAPABILITY, MEMORY, MULTIPROCESSORS = "NVIDIA A100-SXM4-80GB", (8, 0), 80 << 30, 108
ANSWERS = {
    "is_available": True,
    "is_initialized": True,
    "current_device": 0,
    "get_device_name": NAME,
    "get_device_capability": CAPABILITY,
    "is_bf16_supported": True,
    "is_tf32_supported": True,
    "is_current_stream_capturing": False,
    "can_device_access_peer": False,
    "get_gencode_flags": "",
    "get_per_process_memory_fraction": 1.0,
    "list_gpu_processes": "",
    "memory_summary": "",
    "get_allocator_backend": "native",
    "current_blas_handle": 0,
    "graph_pool_handle": (0, 0),
}
ZERO = "get_sync_debug_mode utilization memory_usage temperature power_draw clock_rate".split()
IGNORED = (
    "init set_device synchronize ipc_collect manual_seed manual_seed_all seed seed_all set_stream"
    " set_sync_debug_mode set_per_process_memory_fraction reset_peak_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats"
    " reset_accumulated_host_memory_stats _record_memory_history _dump_snapshot _sleep check_error"
    " caching_allocator_alloc caching_allocator_delete caching_allocator_enable"
).split()
ACCELERATOR_IGNORED = (
    "synchronize empty_host_cache set_device_index set_device_idx set_stream reset_peak_memory_stats"
    " reset_accumulated_memory_stats"
).split()


def memory_now():
    """Bytes that this process holds: the nearest thing to a GPU's."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return memory_most()


def memory_most():
    return peak_memory() or 1 << 20


class MemoryFigures:
    """What a GPU's memory is said to hold: what this process does, or what a ledger of its tensors counts."""

    def __init__(self):
        self.ledger = None

    def are_of(self, ledger):
        self.ledger = ledger

    def now(self):
        return self.ledger.live if self.ledger is not None else memory_now()

    def most(self):
        return self.ledger.peak if self.ledger is not None else memory_most()

    def reserved(self):
        return self.ledger.allocator.reserved if self.ledger is not None else memory_now()

    def most_reserved(self):
        return self.ledger.reserved if self.ledger is not None else memory_most()

    def empty(self):
        if self.ledger is not None:
            self.ledger.allocator.release()

    def info(self):
        return MEMORY - min(self.now(), MEMORY // 2), MEMORY


FIGURES = MemoryFigures()  # one per process


class Nothing:
    """A context that changes nothing: a stream, a device, a range of the profiler."""

    def __init__(self, *args, **kwargs):
        self.idx = 0

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __call__(self, function):
        return function


@contextlib.contextmanager  # which the compiler of torch 2.14 takes apart
def use_mem_pool(*args, **kwargs):
    yield


class Event:
    """Wall clock: on a CPU everything is done when the call returns."""

    def __init__(self, enable_timing=False, *args, **kwargs):
        self.when, self.enable_timing = None, enable_timing

    def record(self, stream=None):
        self.when = clock()

    def elapsed_time(self, end):
        if self.when is None or end.when is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1e3 * (end.when - self.when)

    def query(self):
        return True

    def wait(self, stream=None):
        pass

    def synchronize(self):
        pass


class Stream(Nothing):
    """The one queue of a CPU."""

    cuda_stream, device_index, priority = 0, 0, 0
    priority_range = staticmethod(lambda: (-5, 0))

    def synchronize(self):
        pass

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def query(self):
        return True

    def record_event(self, event=None):
        event = event if event is not None else Event()
        event.record(self)
        return event


class NoGraph:
    """What a graph of captured kernels says where there are none to capture."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError("CUDA graphs are captured by a CUDA driver")


class Stats(dict):  # type: ignore[type-arg]
    """Memory statistics by name; one that is not known is 0."""

    def __missing__(self, key):
        return FIGURES.most() if "peak" in key else FIGURES.now() if "bytes" in key else 0


def properties():
    return types.SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=MEMORY,
        warp_size=32,
        multi_processor_count=MULTIPROCESSORS,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_multiprocessor=167936,
        L2_cache_size=40 << 20,
        uuid="faked-by-costgpu",
    )


MEMORY_FIGURES = {
    "memory_allocated": FIGURES.now,
    "memory_reserved": FIGURES.reserved,
    "max_memory_allocated": FIGURES.most,
    "max_memory_reserved": FIGURES.most_reserved,
    "memory_stats": Stats,
    "empty_cache": FIGURES.empty,
}
COMPUTED = {  # without the arguments that they are called with
    **MEMORY_FIGURES,
    "memory_cached": FIGURES.reserved,
    "device_memory_used": FIGURES.now,
    "max_memory_cached": FIGURES.most_reserved,
    "mem_get_info": FIGURES.info,
    "host_memory_stats": Stats,
    "memory_stats_as_nested_dict": dict,
    "host_memory_stats_as_nested_dict": dict,
    "_snapshot": dict,
    "memory_snapshot": list,
    "get_arch_list": lambda: ["sm_80"],
    "get_device_properties": properties,
    "cudart": lambda: types.SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0),
}


def always(answer):
    """Return a function of any arguments that has one answer."""
    return lambda *args, **kwargs: answer


def computed(function):
    """Return `function` as one that takes and ignores any arguments."""
    return lambda *args, **kwargs: function()


def put_known(owner, functions):
    """Replace those of these functions that this release of torch has."""
    for name, function in functions.items():
        if hasattr(owner, name):
            put(owner, **{name: function})


def attach(torch, gpu, gpus, from_library):
    """Answers for `torch.cuda` as with so many devices; to libraries, `torch.accelerator` has none."""
    cuda = torch.cuda
    parts = [sys.modules.get("torch.cuda." + n) for n in ("memory", "random", "streams", "graphs", "_utils")]
    answers = {**ANSWERS, "device_count": gpus, **dict.fromkeys(ZERO, 0), **dict.fromkeys(IGNORED)}
    stream = Stream()
    answers.update(current_stream=stream, default_stream=stream, get_stream_from_external=stream)
    values = {name: always(answer) for name, answer in answers.items()}
    values.update((name, computed(function)) for name, function in COMPUTED.items())
    values.update(dict.fromkeys(("stream", "StreamContext", "device", "device_of", "MemPool"), Nothing))
    values.update(
        initial_seed=lambda: torch.initial_seed(),
        get_rng_state=computed(torch.get_rng_state),
        get_rng_state_all=lambda: [torch.get_rng_state()],
        set_rng_state=lambda state, *args, **kwargs: torch.set_rng_state(state),
        set_rng_state_all=lambda states: [torch.set_rng_state(state) for state in states[:1]],
        default_generators=(torch.default_generator,),
        make_graphed_callables=lambda callables, *args, **kwargs: callables,
        Event=Event,
        Stream=Stream,
        ExternalStream=Stream,
        CUDAGraph=NoGraph,
        use_mem_pool=use_mem_pool,
    )
    for module in [cuda, *parts]:  # wherever torch keeps the same thing
        put_known(module, values)
    for kind, parent in ((Event, "_EventBase"), (Stream, "_StreamBase")):
        parent = getattr(sys.modules.get("torch._streambase"), parent, None)
        if isinstance(parent, abc.ABCMeta):  # torch 2.1 to 2.4 insist on it when an optimizer is made
            parent.register(kind)
    attach_types(torch)
    attach_tools(torch)
    attach_accelerator(torch, gpu, gpus, from_library)


def attach_types(torch):
    """torch.cuda.FloatTensor and its like are those of the CPU."""
    for owner, plain in ((torch.cuda, torch), (getattr(torch.cuda, "sparse", None), torch.sparse)):
        for name in dir(owner) if owner is not None else ():
            if name.endswith(("Tensor", "Storage")) and hasattr(plain, name):
                put(owner, **{name: getattr(plain, name)})


def attach_tools(torch):
    """Mark for profilers, and versions of libraries."""
    nvtx, profiler = getattr(torch.cuda, "nvtx", None), getattr(torch.cuda, "profiler", None)
    marks = ("range_push", "range_pop", "mark", "range_start", "range_end")
    put_known(nvtx, {**dict.fromkeys(marks, always(0)), "range": Nothing})
    put_known(profiler, {**dict.fromkeys(("init", "start", "stop"), always(0)), "profile": Nothing})
    put_known(torch.autograd.profiler, {"emit_nvtx": Nothing})
    nccl, cudnn = getattr(torch.cuda, "nccl", None), getattr(torch.backends, "cudnn", None)
    put_known(nccl, {"version": always((2, 21, 5)), "is_available": always(False)})
    put_known(cudnn, {"version": always(90100), "is_available": always(True)})
    put_known(torch.backends.cuda, dict.fromkeys(("preferred_linalg_library", "preferred_blas_library"), always(None)))


def attach_accelerator(torch, gpu, gpus, from_library):
    """Answer the newer, device-neutral functions.

    Libraries, torch's optimizers and data loader among them, are told what a build for CPUs tells them. Torch's own
    functions cannot say it: in a build for CUDA they ask `torch.cuda`, which has been told that there is a device.
    """
    owner = getattr(torch, "accelerator", None)

    def get_device_module(inner, device=None):
        return torch.cuda if device is None and not from_library(sys._getframe(2)) else inner(device)

    def told(script, library):
        return lambda *args, **kwargs: library if from_library(sys._getframe(1)) else script

    put_known(
        owner,
        {
            "is_available": told(True, False),
            "current_accelerator": told(type(gpu)("cuda"), None),
            "device_count": told(gpus, 0),
            "current_device_index": always(0),
            "current_device_idx": always(0),
            "get_device_capability": always({}),
            "current_stream": always(Stream()),
            "device_index": Nothing,
            "get_memory_info": computed(FIGURES.info),
        },
    )
    put_known(owner, dict.fromkeys(ACCELERATOR_IGNORED, always(None)))
    put_known(owner, {name: computed(function) for name, function in MEMORY_FIGURES.items()})
    wrap(torch, "get_device_module", get_device_module)
