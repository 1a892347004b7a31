"""What `torch.cuda` answers where there is no GPU. A fixed card: scripts choose dtypes and batch sizes by it."""

import abc
import sys
import time
import types

clock = time.perf_counter
# What the script is told. Facts of the A100 80 GB: NVIDIA A100 data sheet (2021); a card that every library's GPU
# path runs on, with bf16 and TF32.
NAME, CAPABILITY, MEMORY, MULTIPROCESSORS = "NVIDIA A100-SXM4-80GB", (8, 0), 80 << 30, 108
ANSWERS = {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": NAME,
    "get_device_capability": CAPABILITY,
    "is_bf16_supported": True,
    "is_tf32_supported": True,
    "is_current_stream_capturing": False,
    "can_device_access_peer": False,
    "get_gencode_flags": "",
    "get_sync_debug_mode": 0,
    "get_per_process_memory_fraction": 1.0,
    "list_gpu_processes": "",
    "memory_summary": "",
    "utilization": 0,
    "memory_usage": 0,
    "temperature": 0,
    "power_draw": 0,
    "clock_rate": 0,
}
IGNORED = (
    "init set_device synchronize empty_cache ipc_collect manual_seed manual_seed_all seed seed_all set_stream"
    " set_sync_debug_mode set_per_process_memory_fraction reset_peak_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats"
    " reset_accumulated_host_memory_stats _record_memory_history _dump_snapshot _sleep"
).split()
MEMORY_NOW = ("memory_allocated", "memory_reserved", "memory_cached", "device_memory_used")
MEMORY_MOST = ("max_memory_allocated", "max_memory_reserved", "max_memory_cached")


def memory_now():
    """Bytes that this process holds: the nearest thing to a GPU's."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return memory_most()


def memory_most():
    try:
        import resource

        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    except ImportError:
        return 1 << 20


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


class Stats(dict):  # type: ignore[type-arg]
    """Memory statistics by name; one that is not known is 0."""

    def __missing__(self, key):
        return memory_most() if "peak" in key else memory_now() if "bytes" in key else 0


class FakeCudaApi:
    """Answers for the functions and classes of `torch.cuda`."""

    def __init__(self, fake_cuda):
        self.fake_cuda = fake_cuda

    def attach(self, torch):
        cuda = torch.cuda
        modules = [cuda] + [
            sys.modules.get("torch.cuda." + n) for n in ("memory", "random", "streams", "graphs", "_utils")
        ]

        def put(name, value):
            """Wherever torch keeps the same thing."""
            old = getattr(cuda, name, None)
            for module in modules:
                if module is not None and (module is cuda or (old is not None and getattr(module, name, None) is old)):
                    setattr(module, name, value)

        for name, answer in ANSWERS.items():
            put(name, lambda *args, _answer=answer, **kwargs: _answer)
        for name in IGNORED:
            put(name, lambda *args, **kwargs: None)
        for name in MEMORY_NOW:
            put(name, lambda *args, **kwargs: memory_now())
        for name in MEMORY_MOST:
            put(name, lambda *args, **kwargs: memory_most())
        stream = Stream()
        for name in ("current_stream", "default_stream", "get_stream_from_external"):
            put(name, lambda *args, **kwargs: stream)
        put("mem_get_info", lambda *args, **kwargs: (MEMORY - min(memory_now(), MEMORY // 2), MEMORY))
        put("memory_stats", lambda *args, **kwargs: Stats())
        put("memory_stats_as_nested_dict", lambda *args, **kwargs: {})
        put("memory_snapshot", lambda *args, **kwargs: [])
        put("get_arch_list", lambda: ["sm_80"])
        put("get_device_properties", self.properties)
        put("initial_seed", lambda: torch.initial_seed())
        put("get_rng_state", lambda *args, **kwargs: torch.get_rng_state())
        put("get_rng_state_all", lambda: [torch.get_rng_state()])
        put("set_rng_state", lambda state, *args, **kwargs: torch.set_rng_state(state))
        put("set_rng_state_all", lambda states: [torch.set_rng_state(state) for state in states[:1]])
        put("default_generators", (torch.default_generator,))
        for name, kind in (("Event", Event), ("Stream", Stream), ("ExternalStream", Stream)):
            put(name, kind)
        for kind, parent in ((Event, "_EventBase"), (Stream, "_StreamBase")):
            parent = getattr(sys.modules.get("torch._streambase"), parent, None)
            if isinstance(parent, abc.ABCMeta):  # torch 2.1 to 2.4 insist on it when an optimizer is made
                parent.register(kind)
        for name in ("stream", "StreamContext", "device", "device_of"):
            put(name, Nothing)
        put("make_graphed_callables", lambda callables, *args, **kwargs: callables)
        put("cudart", lambda: types.SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0))
        self.types(torch)
        self.tools(torch)
        self.accelerator(torch)

    @staticmethod
    def properties(*args, **kwargs):
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

    @staticmethod
    def types(torch):
        """torch.cuda.FloatTensor and its like are those of the CPU."""
        for owner, plain in ((torch.cuda, torch), (getattr(torch.cuda, "sparse", None), torch.sparse)):
            for name in dir(owner) if owner is not None else ():
                if name.endswith(("Tensor", "Storage")) and hasattr(plain, name):
                    setattr(owner, name, getattr(plain, name))

    @staticmethod
    def tools(torch):
        """Marks for profilers, and versions of libraries."""
        nvtx, profiler = getattr(torch.cuda, "nvtx", None), getattr(torch.cuda, "profiler", None)
        for owner, names in (
            (nvtx, ("range_push", "range_pop", "mark", "range_start", "range_end")),
            (profiler, ("init", "start", "stop")),
        ):
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, lambda *args, **kwargs: 0)
        for owner, name in ((nvtx, "range"), (profiler, "profile"), (torch.autograd.profiler, "emit_nvtx")):
            if hasattr(owner, name):
                setattr(owner, name, Nothing)
        nccl, cudnn = getattr(torch.cuda, "nccl", None), getattr(torch.backends, "cudnn", None)
        if nccl is not None:
            nccl.version, nccl.is_available = lambda: (2, 21, 5), lambda tensors: False
        if cudnn is not None:
            cudnn.version, cudnn.is_available = lambda: 90100, lambda: True

    def accelerator(self, torch):
        """The newer, device-neutral functions; the data loader asks them whether to pin."""
        owner, from_library, gpu = getattr(torch, "accelerator", None), self.fake_cuda.from_library, self.fake_cuda.gpu
        if owner is None:
            return

        def for_script(inner, answer):
            def call(*args, **kwargs):
                return inner(*args, **kwargs) if from_library(sys._getframe(1)) else answer

            return call

        answers = {
            "is_available": True,
            "current_accelerator": type(gpu)("cuda"),
            "device_count": 1,
            "current_device_index": 0,
            "current_device_idx": 0,
            "get_device_capability": {},
        }
        for name, answer in answers.items():
            if hasattr(owner, name):
                setattr(owner, name, for_script(getattr(owner, name), answer))
        for name in ("synchronize", "empty_cache", "set_device_index", "set_device_idx", "reset_peak_memory_stats"):
            if hasattr(owner, name):
                setattr(owner, name, lambda *args, **kwargs: None)
        for name, found in (
            ("memory_allocated", memory_now),
            ("memory_reserved", memory_now),
            ("max_memory_allocated", memory_most),
            ("max_memory_reserved", memory_most),
        ):
            if hasattr(owner, name):
                setattr(owner, name, lambda *args, _found=found, **kwargs: _found())
