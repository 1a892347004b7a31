"""What is taken for a script's wish for CUDA, and what is not."""

from typing import Any

import pytest

from costgpu.measure.cuda_errors import only_on_a_gpu, ran_on_fake_cuda, says_cuda, wants_launcher


def crash(kind: str, message: str, **other: Any) -> Any:
    return {"status": "crashed", "kind": kind, "message": message, "trail": "", "missing": None} | other


@pytest.mark.parametrize(
    "words",
    [
        "Cannot get CUDA generator without ATen_cuda library. PyTorch splits its backend",
        "Tried to instantiate dummy base class Event",
        "torch.cuda.Stream requires CUDA support",
        "PyTorch was compiled without CUDA support",
        "NVTX functions not installed. Are you sure you have a CUDA build?",
        "Distributed package doesn't have NCCL built in",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "module 'torch._C' has no attribute '_cuda_setDevice'",
        "Cannot access accelerator device when none is available.",
        "`CUDAAccelerator` can not run on your system since the accelerator is not available.",
        "No supported gpu backend found!",
        "fp16 mixed precision requires a GPU (not 'cpu').",
        "Your setup doesn't support bf16/gpu.",
        "Requires at least 2 GPUs to run, but got 0",
        "You need at least one GPU",
        "No OpenCL device found",
        "CUDA Tree Learner was not enabled in this build.",
        "cuda_base.h:265: CUDA error 35: CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_libraries_refusals(words: str) -> None:
    assert says_cuda(words)


@pytest.mark.parametrize(
    "words",
    [
        "division by zero",
        "no such config: gpus.yaml",
        "Training on CPU",
        "Tried to instantiate dummy base class CUDAGraph",
        "unexpected keyword argument 'cuda'",
        "module 'torch' has no attribute 'frobnicate'",
    ],
)
def test_other_words_are_no_refusal(words: str) -> None:
    assert not says_cuda(words)


@pytest.mark.parametrize(
    ("kind", "message", "wanted"),
    [
        ("KeyError", "'LOCAL_RANK'", True),
        ("KeyError", "'WORLD_SIZE'", True),
        (
            "ValueError",
            "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
            True,
        ),
        ("KeyError", "'DATA_DIR'", False),
        ("KeyError", "'RANKING'", False),
        ("ValueError", "RANK must be below 4", False),
    ],
)
def test_a_script_that_torchrun_starts(kind: str, message: str, wanted: bool) -> None:
    assert wants_launcher(crash(kind, message)) is wanted


def test_what_did_not_crash_wants_no_launcher() -> None:
    assert not wants_launcher(None)
    assert not wants_launcher(crash("", "") | {"status": "ended"})


SITE = '  File "/opt/py/lib/python3.11/site-packages/{}", line 3, in f\n'


@pytest.mark.parametrize(
    ("record", "thing"),
    [
        (crash("ModuleNotFoundError", "No module named 'cupy'", missing="cupy"), "CuPy"),
        (crash("ModuleNotFoundError", "No module named 'nvidia.dali'", missing="nvidia.dali"), "NVIDIA DALI"),
        (crash("ModuleNotFoundError", "No module named 'bitsandbytes'", missing="bitsandbytes"), "bitsandbytes"),
        (crash("ModuleNotFoundError", "...", missing="flash_attn.bert_padding"), "flash-attn"),
        (crash("RuntimeError", "0 active drivers ([]). There should only be one."), "Triton kernels"),
        (crash("OSError", "CUDA_HOME environment variable is not set."), "a CUDA extension that it compiles"),
        (
            crash(
                "CUDARuntimeError",
                "cudaErrorInsufficientDriver: CUDA driver version is insufficient",
                trail=SITE.format("cupy/cuda/device.py"),
            ),
            "CuPy",
        ),
        (
            crash(
                "ImportError",
                "libcudart.so.12: cannot open shared object file",
                trail=SITE.format("flash_attn/flash_attn_interface.py"),
            ),
            "flash-attn",
        ),
        (
            crash("ImportError", "libcublas.so.12: cannot open shared object file"),
            "a package that loads libcublas.so.12",
        ),
        (
            crash("AssertionError", "Torch not compiled with CUDA enabled", trail=SITE.format("apex/optimizers/a.py")),
            "NVIDIA Apex",
        ),
        # nothing of the kind
        (crash("ModuleNotFoundError", "No module named 'timm'", missing="timm"), ""),
        (crash("ModuleNotFoundError", "No module named 'cupyx_fake'", missing="cupyx_fake"), ""),
        (crash("ImportError", "libGL.so.1: cannot open shared object file"), ""),
        (crash("ValueError", "bad shape", trail=SITE.format("triton/runtime/jit.py")), ""),
        (crash("AssertionError", "Torch not compiled with CUDA enabled"), ""),
    ],
)
def test_what_runs_on_a_gpu_only(record: Any, thing: str) -> None:
    assert only_on_a_gpu(record) == thing


def test_a_kernel_package_that_fails_while_pretending_is_the_reason() -> None:
    record = crash("ValueError", "Pointer argument cannot be accessed", trail=SITE.format("triton/runtime/jit.py"))
    assert only_on_a_gpu(record | {"torch": {"fake_cuda": True}}) == "Triton kernels"


@pytest.mark.parametrize(
    ("torch", "expected"), [({"fake_cuda": True}, True), ({"fake_cuda": False}, False), (None, False)]
)
def test_fake_cuda_is_what_the_probe_says(torch: Any, expected: bool) -> None:
    assert ran_on_fake_cuda(crash("", "") | {"torch": torch}) is expected
