"""What proves that a job has run out of memory, and what does not."""

from pathlib import Path

import pytest

from costgpu.job.agent import out_of_memory
from costgpu.job.agent.state_files import Home

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 21.98 GiB"
)
TENSOR = "OOM when allocating tensor with shape[65536,65536] and type float on /job:localhost/replica:0/task:0/device:"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    step()\n'
TOLD = {
    TRACEBACK + TORCH: "gpu",
    TRACEBACK + "RuntimeError: CUDA error: out of memory": "gpu",
    f"[rank1]:[rank1]: {TORCH}\n[rank0]: torch.distributed.DistBackendError: NCCL error\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n": "gpu",
    f"tf.ResourceExhaustedError: Graph execution error:\n\nDetected at node Relu\n{TENSOR}GPU:0 by allocator": "gpu",
    f"errors_impl.ResourceExhaustedError: {{{{function_node}}}} {TENSOR}CPU:0 by allocator cpu [Op:AddV2]": "memory",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes.": "memory",  # no GPU here
    TRACEBACK + "MemoryError": "memory",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array": "memory",
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc": "memory",
    f"{TORCH}\n\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}ValueError: no": "gpu",
    f"{TORCH}\nretrying with a smaller batch\n{TRACEBACK}ValueError: no": "",
    "grpc.RpcError: RESOURCE_EXHAUSTED: quota exceeded": "",
    "print('MemoryError: CUDA out of memory')\nKilled": "",
    "errors_impl.ResourceExhaustedError: /data; No space left on device": "",
    "": "",
}


@pytest.mark.parametrize("text", TOLD)
@pytest.mark.parametrize("log", ["stdout.log", "stderr.log"])
def test_the_last_error_tells(tmp_path: Path, text: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no nvidia-smi
    (tmp_path / log).write_text("epoch 1\n" * 9000 + text)
    assert out_of_memory.what_ran_out(Home(str(tmp_path)), 1, None) == TOLD[text]


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/system.slice/costgpu-agent.service", "system.slice/costgpu-agent.service/memory.events"),
        ("5:cpu,cpuacct:/a\n9:memory:/a\n0::/a", "memory/a/memory.oom_control"),
        ("0::/", "memory.events"),
    ],
)
def test_the_kernel_counts_what_it_ends(tmp_path: Path, groups: str, file: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    assert out_of_memory.kills(str(tmp_path)) is None
    counts = tmp_path / "sys/fs/cgroup" / file
    counts.parent.mkdir(parents=True)
    counts.write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\n")
    assert out_of_memory.kills(str(tmp_path)) == 3


@pytest.mark.parametrize(
    ("remote", "code", "before", "expected"),
    [(True, 1, 2, "memory"), (True, 137, 3, ""), (True, 137, None, ""), (False, 1, 2, ""), (False, 137, 2, "memory")],
)
def test_an_exit_code_proves_nothing_without_that_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, code: int, before: int | None, expected: str
) -> None:
    home = Home(str(tmp_path))
    home.remote = remote
    monkeypatch.setattr(out_of_memory, "kills", lambda: 3)
    assert out_of_memory.what_ran_out(home, code, before) == expected
