"""What is taken for a script's wish for CUDA, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from costgpu.measure.cuda_errors import only_on_a_gpu, pretended, says_cuda, wants_launcher
from costgpu.measure.profile.profile_builder import _framework, _pretended


def crash(kind: str, message: str, **other: Any) -> dict[str, Any]:
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
    assert not wants_launcher({"status": "ended"})


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
def test_what_runs_on_a_gpu_only(record: dict[str, Any], thing: str) -> None:
    assert only_on_a_gpu(record) == thing


def test_a_kernel_package_that_fails_while_pretending_is_the_reason() -> None:
    record = crash("ValueError", "Pointer argument cannot be accessed", trail=SITE.format("triton/runtime/jit.py"))
    assert only_on_a_gpu(record | {"torch": {"pretended": True}}) == "Triton kernels"


def test_pretended_is_what_the_probe_says() -> None:
    assert pretended({"torch": {"pretended": True}})
    assert not pretended({"torch": {"pretended": False}})
    assert not pretended({"torch": None})
    assert not pretended({})


# ----------------------------------------------------------------------------------------- facts of the profile


def record(ops: list[dict[str, Any]], device: str = "cpu", **torch: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": "2.13.0",
        "cuda_build": None,
        "float32_matmul_precision": "highest",
        "matmul_tf32": False,
        "conv_tf32": True,
        "autocast": [],
        "compiled": 0,
    }
    return {"python": "3.11", "torch": facts | torch, "phases": [{"ops": ops, "device": device}]}


def op(name: str, *inputs: list[Any]) -> dict[str, Any]:
    return {"op": name, "inputs": list(inputs)}


def convolution(shape: list[int], strides: list[int]) -> dict[str, Any]:
    return op("aten::convolution", [shape, strides, "float32"], [[8, shape[1], 3, 3], [1, 1, 1, 1], "float32"])


@pytest.mark.parametrize(
    ("row", "last"),
    [
        (convolution([2, 3, 8, 8], [192, 1, 24, 3]), True),
        (convolution([2, 3, 4, 8, 8], [768, 1, 192, 24, 3]), True),
        (convolution([2, 3, 8, 8], [192, 64, 8, 1]), False),
        (convolution([2, 1, 8, 8], [64, 1, 8, 1]), False),  # one channel: any order is both
        (convolution([2, 3, 1, 1], [3, 1, 1, 1]), False),
        (op("aten::addmm", [[8, 8], [1, 8], "float32"]), False),
    ],
)
def test_channels_last_shows_in_the_strides(row: dict[str, Any], last: bool) -> None:
    assert _framework(record([row])).channels_last is last


def test_attention_shows_in_the_trace() -> None:
    fused = _framework(record([op("aten::_scaled_dot_product_flash_attention_for_cpu")]))
    with_dropout = _framework(record([op("aten::bmm"), op("aten::_safe_softmax")]))
    assert fused.attention_kernels == with_dropout.attention_kernels == ["scaled_dot_product_attention"]
    assert _framework(record([op("aten::bmm"), op("aten::_softmax")])).attention_kernels == []
    assert _framework(record([], attention=["flash_attn"])).attention_kernels == ["flash_attn"]


def test_the_device_that_measured() -> None:
    assert _framework(record([], device="cuda")).device == "cuda"
    assert _framework(record([])).device == "cpu"


def test_records_of_before_have_no_such_facts() -> None:
    found = _framework({**record([]), "phases": [{"ops": []}]})
    assert (found.device, found.pretended, found.attention_kernels) == ("cpu", False, [])
    assert _pretended(record([])) == []


def test_the_notes_of_a_pretended_measurement() -> None:
    casts = [{"device": "cuda", "dtype": "float16", "enabled": True}]
    notes = _pretended(record([], pretended=True, autocast=casts, pretended_devices=4))
    assert len(notes) == 3
    assert "measured on the CPU" in notes[0]
    assert "mixed precision" in notes[1]
    assert "4 CUDA devices" in notes[2]
    assert len(_pretended(record([], pretended=True, pretended_devices=1))) == 1
