"""Scripts that insist on CUDA, measured where there is none: what they ask for lands on the CPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from costgpu import errors
from costgpu.measure import script as script_module
from costgpu.measure import session
from costgpu.measure.failures import explain
from costgpu.measure.session import Outcome, Request
from costgpu.models.workload import Autocast, Machine, TotalKind, WorkloadProfile
from tests.measure.harness import HERE, has, profile_of, request, run
from tests.unit.measure.records import MACHINE

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]


def on_fake_cuda(asked: Request, cache: Path) -> tuple[WorkloadProfile, Outcome]:
    """The profile of a script that is measured on a fake CUDA device at once."""
    profile, outcome = profile_of(asked, cache, fake_cuda=True)
    assert outcome.record is not None
    assert outcome.record["torch"] is not None
    assert outcome.record["torch"]["fake_cuda_failures"] == []
    return profile, outcome


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, bool]]:
    """How `measure_script` ran the script, run by run; without the micro-benchmark."""
    found: list[dict[str, bool]] = []
    real = session.run_probe

    def spy(*arguments: object, threads: object, **way: bool) -> Outcome:
        found.append(dict(way))
        return real(*arguments, threads=threads, **way)  # type: ignore[arg-type]

    def machine(_timed: object, _threads: int, accelerators: list[str]) -> Machine:
        return replace(MACHINE, accelerators=accelerators)

    monkeypatch.setattr(script_module, "run_probe", spy)
    monkeypatch.setattr(script_module, "time_torch", lambda *_: {})
    monkeypatch.setattr(script_module, "machine_of_torch", machine)
    return found


def measured(script: str, cache: Path) -> WorkloadProfile:
    return script_module.measure_script(request(script, workdir=cache), HERE, cache, lambda *_: None)[0]


# ---------------------------------------------------------------------------------------------- when it begins


def test_a_script_that_refuses_is_measured_again(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    profile = measured("gpu_only_cnn.py", tmp_path)
    assert ways == [{}, {"fake_cuda": True}]
    total = profile.phases[-1].total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 300 * 20, 20)
    facts = profile.framework
    assert facts.device == "cpu"
    assert bool(facts.cuda_build) == ("+cu" in facts.version), "a build for CPUs stays one"
    assert profile.machine.accelerators == [], "the fake card is no device of this machine"
    assert any("asks for CUDA and was measured on the CPU" in note for note in profile.notes)
    assert {row.op for row in profile.phases[-1].ops} >= {"aten::convolution", "aten::convolution_backward"}


COPES = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
assert torch.Tensor.to is torch._C.TensorBase.to and type(torch.zeros).__name__.startswith("builtin")
for n in range(90000):
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        loss = model(torch.randn(8, 4, device=device)).sum()
    loss.backward()
    assert loss.device.type == "cpu" and not loss.is_cuda
    optimizer.step()
"""


def test_a_script_that_copes_is_measured_once_and_as_it_is(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    profile = measured(COPES, tmp_path)
    assert ways == [{}]
    assert profile.phases[-1].total.steps == 90000
    assert not any("CUDA" in note for note in profile.notes)


@pytest.mark.default_build
def test_a_script_for_torchrun_gets_its_environment_and_then_a_gpu(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    profile = measured("gpu_only_ddp.py", tmp_path)
    assert ways == [{}, {"launched": True}, {"launched": True, "fake_cuda": True}]
    total, each = profile.phases[-1].total, 256 // (8 * 16)  # of 256 samples, as rank 0 of 8, in batches of 16
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 400 * each, each)
    assert profile.parallelism is not None
    assert (profile.parallelism.launcher, profile.parallelism.processes) == ("torchrun", None)
    assert any(one.op == "all_gather" for one in profile.parallelism.collectives), "of SyncBatchNorm"


def test_one_process_per_gpu_is_one_of_eight(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    profile = measured("gpu_only_spawn.py", tmp_path)
    assert ways == [{}, {"many_gpus": True}]
    assert profile.phases[-1].total.steps == 7000
    assert profile.parallelism is not None
    assert (profile.parallelism.measured_ranks, profile.parallelism.processes) == (8, None)
    assert not profile.parallelism.fixed_processes


# ---------------------------------------------------------------------------------------------- what it asks for


def test_mixed_precision_trains_and_is_recorded_as_asked_for(tmp_path: Path) -> None:
    asked = request("gpu_only_amp.py", workdir=tmp_path, steps=80)  # the script checks step 60
    profile, outcome = on_fake_cuda(asked, tmp_path)
    assert profile.phases[-1].total.steps == 4000
    facts = profile.framework
    assert facts.autocast == [Autocast(device="cuda", dtype="float16", enabled=True)]
    assert facts.channels_last
    assert facts.float32_matmul_precision == "high"
    optimizer = profile.phases[-1].optimizers[0]
    assert (optimizer.name, optimizer.fused, optimizer.updates_per_step) == ("AdamW", True, 1.0)
    dtypes = {row.inputs[0][2] for row in profile.phases[-1].ops if row.op == "aten::convolution"}
    assert dtypes == {"float32"}, "what is timed here runs in fp32"
    assert any("mixed precision was not in effect here" in note for note in profile.notes)
    assert "NVIDIA A100" in outcome.log.read_text()


def test_events_memory_figures_and_a_choice_of_attention_kernels(tmp_path: Path) -> None:
    profile, outcome = on_fake_cuda(request("gpu_only_transformer.py", workdir=tmp_path), tmp_path)
    assert profile.phases[-1].total.steps == 5000
    facts = profile.framework
    assert facts.matmul_tf32
    assert not facts.channels_last
    assert " of memory, " in outcome.log.read_text()
    assert profile.phases[-1].optimizers[0].foreach is True


TWO_DEVICES = """
import io
import torch
assert torch.cuda.is_available(), "CUDA is required"
first = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())).cuda()
second = torch.nn.Linear(4, 1).to("cuda:1")
saved = io.BytesIO()
torch.save(first.module.state_dict(), saved)
saved.seek(0)
first.module.load_state_dict(torch.load(saved, map_location="cuda:0"))
optimizer = torch.optim.RMSprop([*first.parameters(), *second.parameters()])
for epoch in range(500):
    for batch in range(100):
        with torch.cuda.device(0), torch.cuda.amp.autocast(dtype=torch.bfloat16):
            x = torch.tensor([[1.0] * 4] * 2, device="cuda").cuda(0)
            loss = second(first(x).to("cuda:1")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.cuda.empty_cache()
"""


def test_data_parallel_checkpoints_an_assertion_and_a_second_device(tmp_path: Path) -> None:
    profile, _ = on_fake_cuda(request(TWO_DEVICES, workdir=tmp_path), tmp_path)
    assert profile.phases[-1].total.steps == 500 * 100
    assert profile.framework.autocast == [Autocast(device="cuda", dtype="bfloat16", enabled=True)]
    assert any("names 2 CUDA devices" in note for note in profile.notes)


EVERY_OPTIMIZER = """
import torch
copying = torch.cuda.Stream()  # the first that asks for a device, which the default build says in other words
kinds = [one for one in vars(torch.optim).values() if isinstance(one, type) and one is not torch.optim.Optimizer]
assert len(kinds) > 11
model = torch.nn.Linear(4, 4, bias=False).cuda()
x = torch.randn(2, 4, pin_memory=True).to("cuda", non_blocking=True)

def closure():
    model.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    return loss

for kind in kinds:
    for way in ("fused", "foreach", "capturable"):
        try:
            optimizer = kind(model.parameters(), **{way: True})
        except TypeError:  # it knows no such way
            optimizer = kind(model.parameters())
        if kind.__name__ != "SparseAdam":
            optimizer.step(closure)
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.step(closure)
torch.accelerator.current_stream().wait_stream(torch.Stream(device="cuda"))
assert torch.accelerator.current_accelerator().type == "cuda" and torch.accelerator.is_available()
loader = torch.utils.data.DataLoader(torch.randn(64, 4), 2, pin_memory=True)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(500):
    for batch in loader:
        optimizer.zero_grad()
        model(batch.cuda(non_blocking=True)).sum().backward()
        optimizer.step()
"""


@pytest.mark.default_build
def test_every_optimizer_steps_on_what_is_taken_for_a_gpu(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    profile = measured(EVERY_OPTIMIZER, tmp_path)
    assert ways == [{}, {"fake_cuda": True}]
    total = profile.phases[-1].total
    assert (total.kind, total.steps) == (TotalKind.EXACT, 500 * 32)


SEEN = """
import io, subprocess, sys
free = subprocess.run("nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits", shell=True, capture_output=True)
assert [int(line) for line in free.stdout.splitlines()] == [81916], free
import torch
from torch.utils.checkpoint import checkpoint
device = torch.device("cuda:0")
x = torch.randn(3, 4, device=device)
assert x.is_cuda and not x.is_cpu and x.device == device and x.get_device() == 0
assert x.type() == "torch.cuda.FloatTensor" and x.cpu().half().type("torch.cuda.FloatTensor").dtype == torch.float32
assert torch.empty(2, device="meta").device.type == "meta" and str(torch.zeros(1).cuda()).startswith("tensor(")
g = torch.Generator(device="cuda"); g.manual_seed(3)
assert isinstance(g, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
assert torch.randperm(4, generator=g, device="cuda").shape == (4,)
with torch.device("cuda"):
    layer = torch.nn.Linear(4, 1)
torch.set_default_device("cuda"); torch.set_default_tensor_type("torch.cuda.FloatTensor")
assert torch.cuda.FloatTensor([1.0, 2.0]).is_cuda and isinstance(torch.ones(2), torch.cuda.FloatTensor)
kept = io.BytesIO(); torch.save({"w": x}, kept)
for where in (None, "cuda", device, {"cuda:1": "cuda:0"}, lambda storage, location: storage.cuda(0)):
    kept.seek(0)
    assert torch.load(kept, map_location=where)["w"].equal(x)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); sum(range(200000)); end.record(); torch.cuda.synchronize()
assert 0.1 < start.elapsed_time(end) < 10000
with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(device):
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream().query()
assert torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() == (8, 0)
assert torch.cuda.max_memory_allocated() > 1e6 and torch.cuda.memory_stats()["num_alloc_retries"] == 0
free, total = torch.cuda.mem_get_info()
assert 0 < free < total == torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_rng_state(torch.cuda.get_rng_state()); torch.cuda.manual_seed_all(1)
with torch.random.fork_rng():
    torch.rand(1)
assert torch.backends.cudnn.is_available() and torch.backends.cudnn.version() > 8000
lstm = torch.nn.LSTM(4, 4).cuda()
scripted = torch.jit.script(layer)
assert x.new_ones(2, device="cuda").pin_memory().record_stream(None) is None
optimizer = torch.optim.Adam([*layer.parameters(), *lstm.parameters()], fused=True)
scaler = torch.cuda.amp.GradScaler()
state = scaler.state_dict()
for n in range(60000):
    y, _ = lstm(x[None].to(0, non_blocking=True))
    with torch.cuda.amp.autocast():
        loss = checkpoint(layer, y[0], use_reentrant=False).mean() + scripted(y[0]).mean()
    scaler.scale(loss).backward()
    assert layer.bias.grad.item() > 60000
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() >= state["scale"] == 65536.0
    optimizer.zero_grad()
"""


@pytest.mark.default_build
def test_what_the_script_sees_is_a_gpu_all_through(tmp_path: Path) -> None:
    profile, _ = on_fake_cuda(request(SEEN, workdir=tmp_path), tmp_path)
    assert profile.phases[-1].total.steps == 60000


@pytest.mark.skipif(not has("lightning"), reason="lightning is not installed")
def test_lightning_on_a_gpu(tmp_path: Path) -> None:
    asked = request("frameworks/trainers.py", "lightning", "gpu", workdir=tmp_path)
    assert type(explain(run(asked, tmp_path), asked, HERE)) is errors.NeedsCuda
    profile, _ = on_fake_cuda(asked, tmp_path)
    assert profile.phases[-1].total.steps == 700 * 50
    assert Autocast(device="cuda", dtype="float16", enabled=True) in profile.framework.autocast


# ---------------------------------------------------------------------------------------------- what no CPU can do

TRAIN = """
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(100000):
    model(torch.randn(2, 4).cuda()).sum().backward()
    optimizer.step()
"""
IMPOSSIBLE = [
    ("import flash_attn_interface\nimport torch\n", "flash-attn", 1),
    ("import cupy as cp\nimport torch\n", "CuPy", 1),
    (
        "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', ['x.cu'])\n",
        "a CUDA extension that it compiles",  # what a build for CUDA does not refuse
        1,
    ),
    ("import torch\ntorch.zeros(1).cuda()\ngraph = torch.cuda.CUDAGraph()\n", "CUDA graphs", 2),
    (
        "raise ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')\n",
        "libcudart.so.12",
        1,
    ),
    (
        "import torch\ncount = torch.cuda.device_count()\nassert count >= 2, f'Requires at least 2 GPUs, got {count}'\n",
        "even where its CUDA calls land on the CPU",
        2,
    ),
]


@pytest.mark.parametrize(("source", "thing", "runs"), IMPOSSIBLE, ids=[thing for _, thing, _ in IMPOSSIBLE])
def test_what_cannot_be_faked_is_named(
    source: str, thing: str, runs: int, tmp_path: Path, ways: list[dict[str, bool]]
) -> None:
    with pytest.raises(errors.NeedsCuda) as caught:
        measured(source + TRAIN, tmp_path)
    assert thing in caught.value.message
    assert "NVIDIA GPU" in caught.value.hint
    assert len(ways) == runs


def test_a_crash_on_fake_cuda_says_so(tmp_path: Path, ways: list[dict[str, bool]]) -> None:
    with pytest.raises(errors.ScriptCrashed) as caught:
        measured("import torch\ntorch.zeros(1).cuda()\nraise ValueError('no such config')\n", tmp_path)
    assert "no such config" in caught.value.message
    assert "its CUDA calls landed on the CPU" in caught.value.hint
    assert ways == [{}, {"fake_cuda": True}]
