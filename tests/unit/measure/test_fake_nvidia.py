"""What the stand-ins for NVIDIA's tools say, in the ways in which scripts ask them for a GPU."""

import os
import re
import shlex
import stat
import subprocess
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from costgpu.measure.probe.sandbox import fake_cuda_api, fake_nvidia
from costgpu.portable.bundle import PACKAGE, bundle


def said(line: str, gpus: int = 2) -> str:
    return "\n".join(fake_nvidia.answer(gpus, shlex.split(line)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--query-gpu=memory.free --format=csv,noheader,nounits", "81916\n81916"),
        ("--query-gpu=index,memory.used,utilization.gpu --format=csv,noheader", "0, 4 MiB, 0 %\n1, 4 MiB, 0 %"),
        (
            "--format=csv,nounits --query-gpu=name,memory.total -i 1",
            "name, memory.total [MiB]\nNVIDIA A100-SXM4-80GB, 81920",
        ),
        ("--query-gpu count --format csv,noheader --id=0", "2"),
        ("--query-gpu=fan.speed,compute_cap --format=csv,noheader -i 0", "[N/A], 8.0"),
        ("--query-compute-apps=pid,used_memory --format=csv,noheader", ""),
        ("--query-compute-apps=pid,used_memory --format=csv", "pid, used_memory"),
        ("-L -i 0", "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000000)"),
    ],
)
def test_queries(line: str, expected: str) -> None:
    assert said(line) == expected


def test_what_scripts_search_for_in_longer_answers() -> None:
    assert re.findall(r"(\d+)MiB / +(\d+)MiB", said("")) == [("4", "81920")] * 2
    assert re.findall(r"Free +: (\d+) MiB", said("-q -d Memory")) == ["81916"] * 2
    assert said("-q").count("Attached GPUs : 2") == 1
    root = ET.fromstring(said("-q -x"))
    assert [gpu.findtext("fb_memory_usage/free") for gpu in root.findall("gpu")] == ["81916 MiB"] * 2
    assert {len(line) for line in said("").splitlines()} == {91}


def test_it_is_the_card_that_torch_is_told_of() -> None:
    card = fake_cuda_api.properties()
    assert (
        said("--query-gpu=name,memory.total --format=csv,noheader,nounits", 1)
        == f"{card.name}, {card.total_memory >> 20}"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_program_is_first_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    (tmp_path / "probe.pyz").write_bytes(bundle("measure.probe", "entry"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "probe.pyz")])
    monkeypatch.setattr(fake_nvidia, "__name__", fake_nvidia.__name__.replace("costgpu", PACKAGE, 1))
    fake_nvidia.put_program(str(tmp_path / "it's a folder"), 3)
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    assert [line[:6] for line in found.stdout.splitlines()] == ["GPU 0:", "GPU 1:", "GPU 2:"]
    assert stat.S_IMODE((tmp_path / "it's a folder/bin/nvidia-smi").stat().st_mode) == 0o755


def test_nvml_answers_by_pynvml_and_says_what_it_cannot_tell() -> None:
    class NVMLError(Exception):
        pass

    def missing(*arguments: object) -> None:
        raise AssertionError

    names = (
        "Init Shutdown DeviceGetCount DeviceGetCount_v2 DeviceGetHandleByIndex DeviceGetMemoryInfo DeviceGetFanSpeed_v2"
    )
    module = types.SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_NOT_SUPPORTED=3,
        NVML_ERROR_INVALID_ARGUMENT=2,
        nvmlExceptionClass=NVMLError,
        **{f"nvml{name}": missing for name in names.split()},
    )
    fake_nvidia.attach_nvml(2, module)
    module.nvmlInit()
    assert module.nvmlDeviceGetCount() == module.nvmlDeviceGetCount_v2() == 2
    memory = module.nvmlDeviceGetMemoryInfo(module.nvmlDeviceGetHandleByIndex(1))
    assert memory.free + memory.used == memory.total == fake_cuda_api.MEMORY
    for call in (lambda: module.nvmlDeviceGetHandleByIndex(2), lambda: module.nvmlDeviceGetFanSpeed_v2(0, 0)):
        with pytest.raises(NVMLError):
            call()
    assert module.nvmlExceptionClass is NVMLError
