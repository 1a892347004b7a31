"""How a script that insists on an NVIDIA GPU says so, and what of it no CPU can stand in for. Pure."""

from __future__ import annotations

import re

from costgpu.measure.probe.frameworks.registry import FRAMEWORKS
from costgpu.measure.probe.record import ProbeRecord

_CUDA = re.compile(
    r"not compiled with cuda enabled|no nvidia driver|no cuda gpus are available|torch\.cuda\.is_available\(\) is false"
    r"|(cuda|gpu) (is )?(not available|not found|unavailable|required|needed)"
    r"|(requires?|needs?|no|without) (a |any |at least )?(\d+ |one |two )?(nvidia )?(cuda|gpu)s?\b"
    r"|invalid device string: 'cuda"
    # torch 1.13 to 2.13, each for another function that is asked for a device
    r"|without aten_cuda|without cuda support|requires cuda support|dummy base class (event|stream)"
    r"|are you sure you have a cuda build|nccl built in|has no attribute '_cuda|access accelerator device when none"
    r"|no viable backend for scaled_dot_product_attention"
    # Caffe and others that are known by what they print
    r"|cannot use gpu in cpu-only|not compiled with gpu|cudasuccess|(cuda|gpu) is not enabled"
    # several of what computes with torch
    r"|no available devices found|can only be used on cuda"
    + "".join(f"|{one.refusals}" for one in FRAMEWORKS if one.refusals),
    re.IGNORECASE,
)
# What lists the GPUs of a machine: NVIDIA's program and library, and packages that ask them.
_LISTS = re.compile(r"nvidia-smi|nvml|\bgputil\b|\bgpustat\b|\bnvitop\b", re.IGNORECASE)
_ONE_OF_MANY = re.compile(r"\b(LOCAL_RANK|RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b")
_FRAME = re.compile(r'File "([^"]+)"')
_LIBRARY = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvinfer)\b")
# Packages whose work is done by kernels of their own for NVIDIA GPUs. Source: their own documentation (read 2026-11).
_PACKAGES = {
    "cupy": "CuPy",
    "nvidia.dali": "NVIDIA DALI",
    "bitsandbytes": "bitsandbytes",
    "flash_attn": "flash-attn",
    "flash_attn_interface": "flash-attn",
    "flashinfer": "FlashInfer",
    "triton": "Triton kernels",
    "apex": "NVIDIA Apex",
    "transformer_engine": "NVIDIA Transformer Engine",
    "pycuda": "PyCUDA",
    "numba.cuda": "Numba's CUDA kernels",
    "cudf": "RAPIDS cuDF",
    "cuml": "RAPIDS cuML",
    "tinycudann": "tiny-cuda-nn",
    "mamba_ssm": "mamba-ssm",
    "causal_conv1d": "causal-conv1d",
    "spconv": "spconv",
    "torch_tensorrt": "Torch-TensorRT",
    "tensorrt": "TensorRT",
}
_SPREADS = {package for one in FRAMEWORKS if one.spreads for package in one.packages}
_SAYINGS = (
    (re.compile(r"\d+ active drivers"), "Triton kernels"),
    (re.compile(r"CUDA_HOME|\bnvcc\b"), "a CUDA extension that it compiles"),
    (re.compile(r"base class CUDAGraph|_cuda_graph|CUDA graph", re.IGNORECASE), "CUDA graphs"),
)
_NO_DRIVER = re.compile(r"cudaError(NoDevice|InsufficientDriver)")  # said by torch built for CUDA, too
_IN_CUDA = re.compile(r"[/\\]torch[/\\](backends[/\\])?(cuda|accelerator)[/\\][^/\\]+$")


def says_cuda(text: str) -> bool:
    """Return whether an error or a last line asks for a CUDA device."""
    return _CUDA.search(text) is not None


def crashed_for_cuda(record: ProbeRecord) -> bool:
    """Return True if a script crashed because it has no CUDA device, by its message or by the module that raised it."""
    frames = _FRAME.findall(record["trail"])
    return says_cuda(record["message"]) or (bool(frames) and _IN_CUDA.search(frames[-1]) is not None)


def lists_gpus(text: str) -> str:
    """Return the program or library for a list of GPUs that a text names; empty without one."""
    found = _LISTS.search(text)
    return "" if found is None else "NVML" if found[0].lower() == "nvml" else found[0]


def ran_on_fake_cuda(record: ProbeRecord) -> bool:
    """Return whether the script ran with what it asks a GPU for landing on the CPU."""
    torch = record.get("torch")
    return torch is not None and torch["fake_cuda"]


def wants_launcher(record: ProbeRecord | None) -> bool:
    """Return whether the script crashed for want of what torchrun puts into its environment."""
    if record is None or record["status"] != "crashed":
        return False
    message = record["message"]
    missing = record["kind"] == "KeyError" or "environment variable" in message or "env://" in message
    return missing and _ONE_OF_MANY.search(message) is not None


def wants_several_gpus(record: ProbeRecord) -> bool:
    """Return whether it starts a process for each GPU, and so none where there is none, or asks for several by itself."""
    torch, ranks = record.get("torch"), record.get("ranks")
    return (torch is not None and torch["processes_for_no_gpu"]) or (ranks is not None and ranks["asked"] > 1)


def fails_as_one_of_several(record: ProbeRecord) -> bool:
    """Return whether it crashed in code that works with other ranks, which may be more than they can be stood in for.

    What the script itself raises is its own, and so is what a library says of the sizes that it was given.
    """
    ranks, where = record.get("ranks"), record["raised_in"]
    if ranks is None or ranks["measured"] == 1:
        return False
    return where in ("probe", "torch") or (where in _SPREADS and record["kind"] not in ("AssertionError", "ValueError"))


def only_on_a_gpu(record: ProbeRecord) -> str:
    """Return what the script crashed in that runs on an NVIDIA GPU only; empty if it is nothing of the kind."""
    missing, trail, message = record.get("missing") or "", record["trail"], record["message"]
    for package, name in _PACKAGES.items():
        if missing == package or missing.startswith(package + "."):
            return name
    inside = _package_of(trail)
    if record["kind"] in ("ImportError", "OSError") and _LIBRARY.search(message):
        return inside or f"a package that loads {message.split(':')[0].strip()[:80]}"
    for saying, name in _SAYINGS:
        if saying.search(message):
            return inside or name
    faked = ran_on_fake_cuda(record)
    if faked and (lister := lists_gpus(f"{message}\n{trail}")):
        return lister
    if _NO_DRIVER.search(message) and (inside or faked):
        return inside or "the CUDA runtime"
    return inside if faked or says_cuda(message) else ""


def _package_of(trail: str) -> str:
    """Return the innermost of such packages in a traceback."""
    for path in reversed(_FRAME.findall(trail)):
        dotted = path.replace("\\", "/").replace("/", ".")
        for package, name in _PACKAGES.items():
            if f"-packages.{package}." in dotted:
                return name
    return ""
