"""What NVIDIA's driver says when it is asked for its GPUs."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from costgpu.job.agent.observe.gpu_driver import driver_trouble

FAILED = "echo 'NVIDIA-SMI has failed.' >&2; exit 9"
DRIVERS = {
    "it names all": ("printf 'GPU 0: A\\nGPU 1: A\\n'", []),
    "parts of a GPU": ("printf 'GPU 0: A\\n  MIG 1g.5gb Device 0: x\\n'", ["names 1 of 2 GPUs: GPU 0: A"]),
    "no driver": (
        FAILED,
        ["nvidia-smi failed (9): NVIDIA-SMI has failed.", "kernel's log says:\n[2] NVRM: loading\n[3] NVRM: no GSP"],
    ),
    "no GPU": ("exit 6", ["nvidia-smi failed (6): it said nothing."]),
    "no answer": ("exec /bin/sleep 300", ["nvidia-smi had not answered after 0.5 s", "[3] NVRM: no GSP"]),
    "no program": (None, ["no nvidia-smi"]),
    "not for this machine": ("#!/nowhere/sh", ["nvidia-smi cannot be run"]),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_the_driver_says_of_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    script, says = DRIVERS[driver]
    kernel = "printf '[1] usb\\n[2] NVRM: loading\\n[3] NVRM: no GSP\\n[4] eth0\\n'"
    for name, text in (("nvidia-smi", script), ("dmesg", kernel)):
        if text is not None:
            (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    asked: list[subprocess.Popen[bytes]] = []

    class Asked(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            asked.append(self)

    monkeypatch.setattr(subprocess, "Popen", Asked)
    trouble = driver_trouble(2, 0.5 if driver == "no answer" else 60.0)
    for process in asked:  # one that does not answer is not waited for
        process.communicate()
    assert bool(trouble) == bool(says)
    assert [words for words in says if words not in trouble] == []
    assert "usb" not in trouble
