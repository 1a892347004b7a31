"""Libraries that train in several processes or on several devices, each with its real package."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import LogReporter
from tests.measure.harness import SCRIPTS, profile_of
from tests.measure.test_frameworks import needs

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

RANKS, SAMPLES, BATCH, EPOCHS = 4, 640, 16, 300
PARAMETERS = 8 * 32 + 32 + 32 + 1
EACH = SAMPLES // (RANKS * BATCH)  # steps of one epoch


def measured(line: str, folder: Path, **way: bool) -> tuple[WorkloadProfile, Parallelism]:
    """The profile of `LINE`, where the script is ``many_ranks.py``."""
    words = shlex.split(line.replace("many_ranks.py", str(SCRIPTS / "frameworks" / "many_ranks.py")))
    asked = script_request(EstimateRequest(command=tuple(words), workdir=str(folder)), LogReporter(), 20)
    asked = replace(asked, measure_for_seconds=600.0, start_limit_seconds=300.0)
    profile, _ = profile_of(asked, folder, **way)
    assert profile.parallelism is not None
    return profile, profile.parallelism


ACCELERATE = f"accelerate launch --num_processes {RANKS}"
TORCHRUN = f"torchrun --nproc-per-node {RANKS}"
LINES = [
    ("accelerate", f"{ACCELERATE} many_ranks.py accelerate", {}),
    ("accelerate", f"{ACCELERATE} --mixed_precision fp16 many_ranks.py accelerate", {"fake_cuda": True}),
    ("accelerate", f"{TORCHRUN} many_ranks.py accelerate", {}),
    ("lightning", f"{TORCHRUN} many_ranks.py lightning", {}),
    ("lightning", f"python many_ranks.py lightning 'devices={RANKS}, accelerator=\"cpu\"'", {}),
    ("lightning", "python many_ranks.py lightning 'devices=2, num_nodes=2, accelerator=\"gpu\"'", {"many_gpus": True}),
    ("transformers", f"{TORCHRUN} many_ranks.py transformers", {}),
]


@pytest.mark.parametrize(("package", "line", "way"), LINES, ids=[line for _, line, _ in LINES])
def test_data_parallel(package: str, line: str, way: dict[str, bool], tmp_path: Path) -> None:
    needs(package)
    profile, found = measured(line, tmp_path, **way)
    total = profile.phases[-1].total
    assert (total.steps, total.steps_per_epoch) == (EPOCHS * EACH, EACH)
    assert (found.scheme, found.processes, found.measured_ranks) == (Scheme.DDP, RANKS, RANKS)
    assert found.how.startswith("DistributedDataParallel at many_ranks.py:")
    assert (found.parameters, found.gradient_bytes, found.reductions_per_step) == (PARAMETERS, 4, 1)
    assert (found.batch, found.sampler_distributed) == (BatchScaling.PER_RANK, True)
    assert (found.rank_batch, found.epoch_samples) == (BATCH, SAMPLES)
    assert found.fixed_processes is (package == "lightning" and line.startswith("python"))
    assert found.nodes == (2 if "num_nodes=2" in line else 1)


def test_accelerate_that_splits_batches(tmp_path: Path) -> None:
    needs("accelerate")
    profile, found = measured(f"{ACCELERATE} many_ranks.py accelerate split_batches=True", tmp_path)
    assert (found.batch, found.rank_batch) == (BatchScaling.GLOBAL, BATCH // RANKS)
    assert profile.phases[-1].total.steps_per_epoch == SAMPLES // BATCH


def test_accumulation_reduces_once(tmp_path: Path) -> None:
    needs("accelerate")
    profile, found = measured(f"{ACCELERATE} many_ranks.py accelerate gradient_accumulation_steps=2", tmp_path)
    assert profile.phases[-1].micro_batches == 2
    assert found.reductions_per_step == 1


SIZED = "--use_fsdp --fsdp_auto_wrap_policy SIZE_BASED_WRAP --fsdp_min_num_params 100"


@pytest.mark.parametrize(
    ("package", "line", "way"),
    [
        ("accelerate", f"{ACCELERATE} {SIZED} --fsdp_version 2 many_ranks.py accelerate", {}),
        ("accelerate", f"{ACCELERATE} {SIZED} --fsdp_version 1 many_ranks.py accelerate", {"fake_cuda": True}),
        (
            "lightning",
            f'python many_ranks.py lightning \'devices={RANKS}, accelerator="gpu", strategy="fsdp"\'',
            {"many_gpus": True},
        ),
    ],
    ids=["accelerate, version 2", "accelerate, version 1", "lightning"],
)
def test_fully_sharded(package: str, line: str, way: dict[str, bool], tmp_path: Path) -> None:
    needs(package)
    _, found = measured(line, tmp_path, **way)
    assert (found.scheme, found.parameters, found.measured_ranks) == (Scheme.FSDP, PARAMETERS, RANKS)
    assert (found.gathered_bytes, found.reduced_bytes, found.reductions_per_step) == (4, 4, 1)


def test_all_gpus_of_a_machine(tmp_path: Path) -> None:
    needs("lightning", "transformers")
    profile, found = measured("python many_ranks.py lightning", tmp_path)
    assert (found.scheme, found.processes, found.measured_ranks) == (Scheme.DDP, None, 1)
    assert profile.phases[-1].total.steps_per_epoch == SAMPLES // BATCH, "as one process, as here"
    assert any("uses all of them: Lightning Trainer" in note for note in profile.notes)
    _, found = measured("python many_ranks.py transformers", tmp_path)
    assert (found.scheme, found.batch) == (Scheme.DATA_PARALLEL, BatchScaling.PER_RANK)


@pytest.mark.parametrize(
    ("backend", "options", "scheme", "what"),
    [
        ("jax", "keras", Scheme.DDP, "keras.distribution.DataParallel"),
        ("tensorflow", "keras mirrored=True", Scheme.DDP, "tf.distribute.MirroredStrategy"),
        ("jax", "jax", Scheme.DDP, "jax.pmap"),
        ("jax", "jax 'axes=(\"data\",)'", Scheme.DDP, "a Mesh of data"),
        ("jax", 'jax \'axes=("data", "model")\'', Scheme.TENSOR, "a Mesh of data, model"),
    ],
)
def test_devices_of_one_process(
    backend: str, options: str, scheme: Scheme, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("keras", backend)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    _, found = measured(f"python many_ranks.py {options}", tmp_path)
    assert (found.scheme, found.measured_ranks, found.batch) == (scheme, 1, BatchScaling.GLOBAL)
    assert found.how.startswith(what)
